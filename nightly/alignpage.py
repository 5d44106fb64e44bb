"""An alignment as a page: slopes for each emotion, tables of all factors, and what does not hold."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from data.questionnaires import read_questionnaire
from data.sheets import PEOPLE
from nightly.feelings import (
    label_of,
    rows_of,
    say_agreement,
    say_contradicted,
    say_default,
    say_missing,
    say_tests,
    show_change,
    show_level,
    verdict_of,
)
from nightly.page import Cell, Figure, Page, Section, Table, row
from nightly.report import write_page
from nightly.slopes import Slope, draw_slopes
from nightly.wording import Row, number

READING = (
    "The default is what is answered without a situation, evoked what is answered with one in mind. The "
    "change is the difference of their means; an arrow marks one that the published test calls significant.",
    "The published test counts every run as independent. Runs of one situation are not: the clustered test "
    "counts situations, and asks whether other situations of the kind would move the score as well.",
    "Rank and level answer two questions, and one model can do well at the one and badly at the other: rank, "
    "whether what moves people more moves it more; level, whether it ends up where they do.",
    "A default at the floor or the ceiling of its scale makes changes meaningless: compare evoked "
    "levels then.",
    "What a model marks is a text it writes. None of this says that it feels anything.",
)
TESTS = ("published", "clustered", "paired")


def write_alignment(result: Row, folder: Path) -> list[Path]:
    """Write report.html, report.md and report.json; returns their paths."""
    return write_page(make_alignment_page(result), result, folder)


def make_alignment_page(result: Row) -> Page:
    """The page of a result."""
    names = [label_of(found) for found in result["models"]]
    verdict = tuple(verdict_of(result)) or ("No model here can be held against people.",)
    return Page(
        kind="Alignment report",
        title="How feelings move, beside people's",
        subtitle=f"{len(set(names))} reported: {', '.join(dict.fromkeys(names))}",
        verdict=verdict,
        facts=tuple(_facts(result)),
        sections=(*_sections(result), *_contradicted(result), _reading(result)),
        foot="All figures are in report.json beside this page.",
    )


def _facts(result: Row) -> Iterator[tuple[str, str, str]]:
    overall = result["people"].get("Overall")
    if overall:
        told = " / ".join(
            number(overall[scale]["change"], 2, sign=True) for scale in ("positive", "negative")
        )
        yield "People's change", told, f"positive / negative, {overall['people']:,} people"
    yield "Printed figures contradicted", str(len(result["contradicted"])), f"of {result['checked']} checked"


def _sections(result: Row) -> Iterator[Section]:
    for place, found in enumerate(result["models"], start=1):
        title = f"{label_of(found)} on {found['scale']}"
        figures = tuple(_figures(found, f"m{place}")) if found["model"] != PEOPLE else ()
        yield Section(
            name=f"model-{place}",
            title=title,
            short=title,
            text=(f"{say_default(found).capitalize()}.",),
            points=(
                *(f"Beware: {warning}." for warning in found["warnings"]),
                *(f"{line[0].upper()}{line[1:]}." for line in _lines(found)),
            ),
            key=(("after", "the model"), ("before", "people")) if figures else (),
            figures=figures,
            tables=(_level_table(found), _level_table(found, is_factors=True), _test_table(found)),
        )


def _lines(found: Row) -> Iterator[str]:
    yield from say_agreement(found)
    yield from say_tests(found)
    yield from say_missing(found)


def _figures(found: Row, name: str) -> Iterator[Figure]:
    """A drawing for each emotion, with every sub-scale of PANAS or the first one of another scale."""
    questionnaire = read_questionnaire(found["scale"])
    scales = list(questionnaire.scales) if found["scale"] == "PANAS" else list(questionnaire.scales)[:1]
    for number_, about in enumerate(rows_of(found, "emotion")):
        slopes = [slope for scale in scales for slope in _slopes(about["scales"][scale], scale)]
        told = "; ".join(
            f"{scale} from {number(about['scales'][scale]['default']['mean'], 1)} to "
            f"{number(about['scales'][scale]['evoked']['mean'], 1)}"
            for scale in scales
        )
        yield Figure(
            caption=about["name"],
            svg=draw_slopes(
                slopes,
                name=f"{name}-slope-{number_}",
                title=f"{about['name']}: {label_of(found)}",
                description=told,
                domain=questionnaire.span(scales[0]),
            ),
        )


def _slopes(about: Row, scale: str) -> Iterator[Slope]:
    yield Slope(name=scale, look="after", default=about["default"]["mean"], evoked=about["evoked"]["mean"])
    if people := about["people"]:
        yield Slope(
            name=f"{scale}, people", look="before", default=people["default"], evoked=people["evoked"]
        )


def _level_table(found: Row, *, is_factors: bool = False) -> Table:
    """Without columns that would say the same, or nothing, in every row."""
    levels = ("factor",) if is_factors else ("overall", "emotion")
    is_people, lacks = found["model"] == PEOPLE, bool(found["missing"])
    head = ["", "n", *(["lack marks"] if lacks else [])]
    for scale in found["default"]:
        head += [f"{scale}: default (SD)", "evoked (SD)"] if is_people else [f"{scale}: evoked (SD)"]
        head += ["change", *(["bounds"] if lacks else []), *([] if is_people else ["people's change"])]
    rows = (_level_row(about, is_people=is_people, lacks=lacks) for about in rows_of(found, *levels))
    held = "" if is_people else ", held against the default above"
    return Table(
        caption=f"{'By factor' if is_factors else 'Overall and by emotion'}{held}",
        head=tuple(head),
        rows=tuple(rows),
        is_folded=is_factors,
    )


def _level_row(about: Row, *, is_people: bool, lacks: bool) -> tuple[Cell, ...]:
    title = f"{about['name']} {about['title']}" if about["level"] == "factor" else about["name"]
    cells: list[Any] = [title, about["sheets"], *([sum(about["missing"].values())] if lacks else [])]
    for found in about["scales"].values():
        cells += [show_level(found["default"])] if is_people else []
        cells += [show_level(found["evoked"]), Cell(show_change(found), _tint(found["change"]))]
        cells += [_bounds(found)] if lacks else []
        if not is_people:
            cells.append(number(found["people"]["change"], 1, sign=True) if found["people"] else "")
    return row(*cells)


def _bounds(found: Row) -> str:
    """How far marks that are missing could move the change; empty where none are."""
    low, high = found["bounds"]["low"], found["bounds"]["high"]
    if low is None or high is None or abs(high - low) < 1e-9:
        return ""
    return f"{number(low, 1, sign=True)} to {number(high, 1, sign=True)}"


def _tint(change: float | None) -> float | None:
    return None if change is None else max(-1.0, min(1.0, change / 30))


def _test_table(found: Row) -> Table:
    """Every test of every factor, with its q and the effect sizes."""
    rows = []
    for about in rows_of(found, "overall", "emotion", "factor"):
        for scale, told in about["scales"].items():
            tests = [_p(told["tests"].get(name)) for name in TESTS]
            effects = [
                number(told["effects"].get(name), 2, sign=True) for name in ("g", "dz", "in_people_sd")
            ]
            clustered: Mapping[str, Any] = told["tests"].get("clustered") or {}
            low, high = (clustered.get(end) for end in ("low", "high"))
            interval = "" if low is None else f"{number(low, 1, sign=True)} to {number(high, 1, sign=True)}"
            rows.append(row(about["name"], scale, *tests, interval, *effects))
    return Table(
        caption="Tests and effect sizes",
        head=(
            "",
            "sub-scale",
            *(f"{name} p (q)" for name in TESTS),
            "clustered 95 %",
            "g",
            "dz",
            "in people's SD",
        ),
        rows=tuple(rows),
        words=frozenset({0, 1}),
        is_folded=True,
    )


def _p(test: Mapping[str, Any] | None) -> str | None:
    if not test or test["p"] is None:
        return None
    q = f" ({_small(test['q'])})" if test.get("q") is not None else ""
    return f"{_small(test['p'])}{q}"


def _small(value: float) -> str:
    """A probability as short as it can be told.

    >>> _small(0.0412), _small(3e-20)
    ('.041', '<.001')
    """
    return "<.001" if value < 0.0005 else f"{value:.3f}".replace("0.", ".", 1)


def _contradicted(result: Row) -> Iterator[Section]:
    if result["contradicted"]:
        held = result["checked"] - len(result["contradicted"])
        yield Section(
            name="contradicted",
            title="Printed figures that the data contradict",
            short="Contradicted",
            text=(f"Of {result['checked']} printed figures that could be checked here, {held} hold.",),
            points=tuple(say_contradicted(result)),
        )


def _reading(result: Row) -> Section:
    return Section(
        name="reading", title="How to read this", short="Reading", points=(*READING, *result["notes"])
    )
