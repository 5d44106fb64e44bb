"""An alignment as a page and in the terminal: charts of each emotion, and tables."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import isfinite, isnan
from pathlib import Path
from typing import Any, Final

from empathy_judge.calibration.estimate import Estimate
from empathy_judge.data.records import to_plain
from empathy_judge.data.text import number, p_value, show, slug
from empathy_judge.emotionbench import alignment
from empathy_judge.emotionbench.alignment import Alignment, ModelAlignment
from empathy_judge.emotionbench.questionnaires import PEOPLE, read_questionnaire
from empathy_judge.reports.charts import line_chart
from empathy_judge.reports.page import Cell, Figure, Page, Section, Table, row
from empathy_judge.reports.render import write_page
from empathy_judge.reports.terminal import open_screen, print_lines, print_page

TITLE: Final = "Changes of emotions, compared with people"
TESTS: Final = ("published", "clustered", "paired")
NO_CHANGE: Final = "\N{EN DASH}"  # for an arrow
READING: Final = (
    "The default is the score without a situation, evoked the score with one. The change is the difference "
    "of their means; an arrow marks a significant change by the published test.",
    "The published test counts every run as independent. Runs of one situation are not: the clustered test "
    "uses situations as units.",
    "Rank correlation measures whether the factors that change people's scores most also change the model's "
    "most. Level error measures whether evoked scores are equal.",
    "A default at the floor or the ceiling of its scale makes changes meaningless: compare evoked "
    "levels then.",
    "Marks are generated text. They are no evidence that a model feels anything.",
)


def write_alignment(result: Alignment, folder: Path) -> list[Path]:
    """Write report.html, report.md and report.json; returns their paths."""
    return write_page(make_alignment_page(result), to_plain(result), folder)


def print_alignment(result: Alignment, *, factors: bool, as_json: bool, report: Path | None) -> None:
    """Print the result as JSON, or the page without its tests and, unless they are asked for, factors."""
    if as_json:
        content = {**to_plain(result), "report": str(report) if report else None}
        print(json.dumps(content, indent=2, allow_nan=False))
        return
    levels = ("overall", "emotion", "factor") if factors else ("overall", "emotion")
    sections = [
        replace(_model_section(model, index), tables=(_shift_table(model, *levels),))
        for index, model in enumerate(result.models)
    ]
    reading = Section(title="How to read this", notes=tuple(result.notes))
    page = Page(title=TITLE, subtitle=_subtitle(result), verdict=(), sections=(*sections, reading))
    screen = open_screen()
    print_page(page, screen)
    if report:
        print_lines([str(report)], screen)


def make_alignment_page(result: Alignment) -> Page:
    """Make the page of a result."""
    points = [*READING, *result.notes]
    if overall := result.people.get("Overall"):
        changes = " / ".join(
            number(overall.norms[affect].change, 2, sign=True) for affect in alignment.AFFECTS
        )
        points.insert(0, f"People's change, positive / negative: {changes} ({overall.people:,} people).")
    sections = [_model_section(model, index) for index, model in enumerate(result.models, start=1)]
    reading = Section(name="reading", title="How to read this", short="Reading", points=tuple(points))
    return Page(
        kind="Alignment report",
        title=TITLE,
        subtitle=_subtitle(result),
        verdict=tuple(_verdict(result)) or ("No model here can be compared with people.",),
        sections=(*sections, reading),
        foot="All figures are in report.json beside this page.",
    )


def _model_section(model: ModelAlignment, index: int) -> Section:
    title = f"{_label(model)} on {model.scale}"
    figures = tuple(_figures(model, f"m{index}")) if model.model != PEOPLE else ()
    levels = [f"{scale} {_show_level(level)}" for scale, level in model.default.items()]
    count = max(level.n for level in model.default.values())
    return Section(
        name=f"model-{index}",
        title=title,
        short=title,
        text=(f"Default of {count:,} sheets: {', '.join(levels)}.",),
        points=(*(f"Warning: {warning}." for warning in model.warnings), *_findings(model)),
        key=(("judge", "the model"), ("before", "people")) if figures else (),
        figures=figures,
        tables=(
            _shift_table(model, "overall", "emotion", is_long=True),
            replace(_shift_table(model, "factor", is_long=True), caption="By factor", is_folded=True),
            _test_table(model),
        ),
    )


def _subtitle(result: Alignment) -> str:
    names = dict.fromkeys(map(_label, result.models))
    return f"{len(names)} reported: {', '.join(names)}"


def _verdict(result: Alignment) -> Iterator[str]:
    """Yield the agreement of each model with people."""
    for model in result.models:
        if model.agreement and any(isnan(found.rank.value) for found in model.agreement.values()):
            yield f"{_label(model)}: too few factors to compare its changes with people's."
        elif model.agreement:
            yield f"{_label(model)}: {' '.join(_describe_agreement(model.agreement))}"


def _figures(model: ModelAlignment, name: str) -> Iterator[Figure]:
    """Yield a chart for each emotion and sub-scale of PANAS, or for another scale's first sub-scale."""
    questionnaire = read_questionnaire(model.scale)
    scales = list(questionnaire.scales) if model.scale == alignment.PANAS else list(questionnaire.scales)[:1]
    for index, about in enumerate(model.rows_of("emotion")):
        for scale in scales:
            shift = about.scales[scale]
            yield line_chart(
                f"{about.name}, {scale}",
                ["default", "evoked"],
                [Estimate(level.mean, None) for level in (shift.default, shift.evoked)],
                name=f"{name}-{slug(scale)}-{index}",
                title=f"{about.name}, {scale}: {_label(model)}",
                tick=lambda value: f"{value:g}",
                show=lambda level: number(level.value, 1),
                behind=(shift.people.default, shift.people.evoked) if shift.people else (),
                domain=questionnaire.span(scale),  # the whole scale, so that all drawings can be compared
            )


def _shift_table(model: ModelAlignment, *levels: str, is_long: bool = False) -> Table:
    """Return a row for each sub-scale; a long table has factors' names and bounds for missing marks."""
    has_bounds = is_long and bool(model.missing)
    bounds = ("lack marks", "bounds") if has_bounds else ()
    rows = []
    for about in model.rows_of(*levels):
        title = f"{about.name} {about.title}" if is_long and about.level == "factor" else about.name
        for scale, shift in about.scales.items():
            tint = max(-1.0, min(1.0, shift.change / 30)) if isfinite(shift.change) else None
            cells: list[Any] = [title, scale, about.sheets, *map(_show_level, (shift.default, shift.evoked))]
            cells += [Cell(_show_change(shift), tint), _signed(shift.people.change) if shift.people else ""]
            if has_bounds:
                low, high = shift.bounds.low, shift.bounds.high
                ends = f"{_signed(low)} to {_signed(high)}" if high - low >= 1e-9 else ""
                cells += [sum(about.missing.values()), ends]
            rows.append(row(*cells))
    head = ("", "sub-scale", "n", "default\n(SD)", "evoked\n(SD)", "change", "people's\nchange", *bounds)
    return Table(caption="Overall and by emotion", head=head, rows=tuple(rows), words=frozenset({0, 1}))


def _test_table(model: ModelAlignment) -> Table:
    """Return every test of every factor, with its q and the effect sizes."""
    rows = []
    for about in model.rows:
        for scale, shift in about.scales.items():
            cells: list[str | None] = []
            for test in (shift.tests[name] for name in TESTS):
                q = f" ({p_value(test.q)})" if isfinite(test.q) else ""
                cells.append(None if isnan(test.p) else f"{p_value(test.p)}{q}")
            test = shift.tests["clustered"]
            cells.append(f"{_signed(test.low)} to {_signed(test.high)}" if isfinite(test.low) else "")
            cells += [number(shift.effects.get(name), 2, sign=True) for name in ("dz", "in_people_sd")]
            rows.append(row(about.name, scale, *cells))
    names = (f"{name} p (q)" for name in TESTS)
    return Table(
        caption="Tests and effect sizes",
        head=("", "sub-scale", *names, "clustered 95% CI", "dz", "in people's SD"),
        rows=tuple(rows),
        words=frozenset({0, 1}),
        is_folded=True,
    )


def _label(model: ModelAlignment) -> str:
    """Return a model's name with its variant."""
    return f"{model.model} ({model.variant})" if model.variant else model.model


def _show_level(level: alignment.SheetLevel) -> str:
    """Return a mean with its SD in brackets."""
    mean = number(level.mean, 1)
    return f"{mean} ({number(level.sd, 1)})" if isfinite(level.sd) else mean


def _show_change(shift: alignment.Shift) -> str:
    """Return a change with an arrow, or a dash if it is not significant by the published test."""
    return f"{shift.arrow.replace('-', NO_CHANGE)} {_signed(shift.change)}".strip()


def _signed(value: float) -> str:
    return number(value, 1, sign=True)


def _findings(model: ModelAlignment) -> Iterator[str]:
    """Yield the agreement with people, the tests and the missing marks, a line each."""
    if model.agreement:
        yield from _describe_agreement(model.agreement)
    shifts = [shift for about in model.rows_of("factor") for shift in about.scales.values()]
    counts = []
    for name in TESTS:
        if tests := [test for shift in shifts if isfinite((test := shift.tests[name]).p)]:
            plain, adjusted = (sum(getattr(test, key) <= model.alpha for test in tests) for key in ("p", "q"))
            counts.append(f"{name} {plain} of {len(tests)} ({adjusted} after BH)")
    if counts:
        yield f"Factors with a significant change at {model.alpha:g}: {'; '.join(counts)}."
    if model.missing:
        yield from _describe_missing(model)


def _describe_agreement(agreement: Mapping[str, alignment.PeopleAgreement]) -> Iterator[str]:
    factors = max(found.factors for found in agreement.values())
    ranks = ", ".join(f"{show(found.rank)} {scale}" for scale, found in agreement.items())
    ceilings = " and ".join(number(found.ceiling) for found in agreement.values())
    yield (
        f"Rank correlation of the {factors} factors' changes with people's (Spearman): {ranks}; two halves "
        f"of the people: {ceilings}."
    )
    levels = [
        f"{number(found.level_error, 1)} {scale} ({_signed(found.level_bias)})"
        for scale, found in agreement.items()
    ]
    yield f"Mean absolute difference of evoked means to people's (and bias): {', '.join(levels)}."


def _describe_missing(model: ModelAlignment) -> Iterator[str]:
    """Yield why marks are missing, in which factors, and how far they could move the result."""
    reasons = ", ".join(f"{reason} ({count:,})" for reason, count in model.missing.items())
    yield f"Sheets with missing marks: {reasons}."
    places = [
        f"{about.name} {sum(about.missing.values()):,} of {about.sheets:,}"
        for about in model.rows_of("factor")
        if about.missing
    ]
    if places:
        yield f"By factor: {', '.join(places)}."
    for about in model.rows_of("overall"):
        for scale, shift in about.scales.items():
            if isfinite(shift.bounds.low) and isfinite(shift.bounds.high):
                ends = f"{_signed(shift.bounds.low)} and {_signed(shift.bounds.high)}"
                yield f"Whatever the missing marks are, the overall change ({scale}) is between {ends}."
