"""An alignment as a page: slopes for each emotion, tables of all factors, and what does not hold."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table as Table_aligntable
from rich.text import Text

from data.text import Row, number, part, printable
from emotionbench.questionnaires import read_questionnaire
from emotionbench.sheets import PEOPLE
from reports.charts import Slope, draw_slopes
from reports.html import write_page
from reports.page import Cell, Figure, Page, Section, Table
from reports.page import row as row_of
from reports.terminal import open_screen, print_table

# Feelings in words: figures, verdicts and lists that the table and the page of an alignment share.

CONTRADICTED_NAMES = {"change": "change", "default": "default", "default_sd": "SD of the default"}


def label_of(result: Row) -> str:
    """A model's name with its variant.

    >>> label_of({"model": "gpt-4", "variant": "stable"})
    'gpt-4 (stable)'
    """
    return f"{result['model']} ({result['variant']})" if result["variant"] else str(result["model"])


def show_level(level: Row) -> str:
    """A mean with its SD in brackets, as far as they are known.

    >>> show_level({"mean": 49.84, "sd": 0.79}), show_level({"mean": None, "sd": None})
    ('49.8 (0.8)', 'undefined')
    """
    if level.get("sd") is None:
        return number(level.get("mean"), 1)
    return f"{number(level.get('mean'), 1)} ({number(level['sd'], 1)})"


def show_change(found: Row) -> str:
    """A change with its arrow, where the published test finds one; a dash where it finds none."""
    mark = str(found["arrow"]).replace("-", "\N{EN DASH}")
    return f"{mark} {number(found['change'], 1, sign=True)}".strip()


def say_default(result: Row) -> str:
    """The default measure in one line."""
    levels = [f"{scale} {show_level(level)}" for scale, level in result["default"].items()]
    counts = {level["n"] for level in result["default"].values()} - {None}
    told = f" of {max(counts):,} sheets" if counts else ""
    return f"default{told}: {', '.join(levels)}"


def say_agreement(result: Row) -> Iterator[str]:
    """Rank and level, a line each; nothing where there are no people to compare with."""
    found = result.get("agreement")
    if not found:
        return
    factors = max(about["factors"] for about in found.values())
    ranks = [f"{_rank(about)} {scale}" for scale, about in found.items()]
    ceilings = [_short(about["ceiling"]) for about in found.values()]
    yield (
        f"order of the {factors} factors' changes as people's (Spearman): {', '.join(ranks)}; "
        f"two halves of the people reach {' and '.join(ceilings)}"
    )
    levels = [
        f"{number(about['level_error'], 1)} {scale} ({number(about['level_bias'], 1, sign=True)})"
        for scale, about in found.items()
    ]
    yield f"level: evoked means off people's by (on average, and to which side): {', '.join(levels)}"


def say_tests(result: Row) -> Iterator[str]:
    """How many factors moved by each test, before and after the correction for many tests."""
    factors = [row for row in result["rows"] if row["level"] == "factor"]
    alpha = result["alpha"]
    tests = [about["tests"] for row in factors for about in row["scales"].values() if about["tests"]]
    if not tests:
        return
    told = []
    for name in ("published", "clustered", "paired"):
        held = [test[name] for test in tests if test[name]["p"] is not None]
        if held:
            plain, adjusted = (sum(test[key] <= alpha for test in held) for key in ("p", "q"))
            told.append(f"{name} {plain} of {len(held)} ({adjusted} after BH)")
    if told:
        yield f"factors that moved at {alpha:g}: {'; '.join(told)}"


def say_missing(result: Row) -> Iterator[str]:
    """Sheets without all their marks: why, in which factors, and how far they could move the result."""
    if not result["missing"]:
        return
    reasons = ", ".join(f"{reason} ({count:,})" for reason, count in result["missing"].items())
    yield f"sheets that lack marks: {reasons}"
    places = [
        f"{row['name']} {sum(row['missing'].values()):,} of {row['sheets']:,}"
        for row in result["rows"]
        if row["level"] == "factor" and row["missing"]
    ]
    if places:
        yield f"by factor: {', '.join(places)}"
    overall: Row = next((row for row in result["rows"] if row["level"] == "overall"), {})
    for scale, about in part(overall, "scales").items():
        low, high = about["bounds"]["low"], about["bounds"]["high"]
        if low is not None and high is not None:
            ends = f"{number(low, 1, sign=True)} and {number(high, 1, sign=True)}"
            yield f"whatever they would have held, the overall change ({scale}) lies between {ends}"


def say_contradicted(result: Row) -> list[str]:
    """The printed figures that the data contradict, a line for each place they stand in."""
    places: dict[tuple[str, str, str, bool], list[Row]] = {}
    for figure in result["contradicted"]:
        key = (figure["where"], figure["who"], figure["scale"], figure["is_first_factor"])
        places.setdefault(key, []).append(figure)
    lines = []
    for (where, who, scale, is_first), figures in places.items():
        why = "each emotion's change is that of its first factor alone: " if is_first else ""
        lines.append(f"{where}, {who}, {scale}: {why}{'; '.join(map(_contradicted, figures))}")
    return lines


def _contradicted(figure: Row) -> str:
    sign = figure["quantity"] == "change"
    decimals = len(figure["printed"].partition(".")[2])
    printed = number(float(figure["printed"]), decimals, sign=sign)
    found = number(figure["found"], max(2, decimals), sign=sign)
    what = "" if figure["is_first_factor"] else f" {CONTRADICTED_NAMES[figure['quantity']]}"
    return f"{figure['name']} {figure['subscale']}{what} {printed} (data: {found})"


def verdict_of(result: Row) -> Iterator[str]:
    """A sentence for each model on what its answers amount to."""
    for found in result["models"]:
        if found["model"] == PEOPLE or not found.get("agreement"):
            continue
        ranks = {scale: about["rank"] for scale, about in found["agreement"].items()}
        errors = {scale: about["level_error"] for scale, about in found["agreement"].items()}
        if None in ranks.values() or None in errors.values():
            yield f"{label_of(found)}: too few factors to say how its feelings move beside people's."
            continue
        order = _listed({scale: _short(value) for scale, value in ranks.items()})
        level = _listed({scale: number(value, 1) for scale, value in errors.items()})
        halves = " and ".join(_short(about["ceiling"]) for about in found["agreement"].values())
        yield (
            f"{label_of(found)}: what moves people more moves it more by a rank correlation of {order}, "
            f"where two halves of the people reach {halves}; its evoked levels are off theirs by {level} "
            "points."
        )


def _listed(figures: Mapping[str, str]) -> str:
    return " and ".join(f"{value} ({scale})" for scale, value in figures.items())


def _rank(about: Row) -> str:
    if about["low"] is None:
        return _short(about["rank"])
    return f"{_short(about['rank'])} [{_short(about['low'])}, {_short(about['high'])}]"


def _short(value: Any) -> str:
    return number(value, 2).replace("0.", ".", 1)


def rows_of(result: Row, *levels: str) -> Sequence[Row]:
    """The rows of these levels."""
    return [row for row in result["rows"] if row["level"] in levels]


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
        sections=(*_sections(result), *_contradicted_alignpage(result), _reading(result)),
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
    return row_of(*cells)


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
            rows.append(row_of(about["name"], scale, *tests, interval, *effects))
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


def _contradicted_alignpage(result: Row) -> Iterator[Section]:
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


# An alignment in the terminal: a table for each model, and beneath it what one must know to read it.

UNDEFINED = "\N{EN DASH}"


def print_alignment(result: Row, *, factors: bool, as_json: bool, report: Path | None) -> None:
    """The result as JSON, or a table for each model with its notes."""
    if as_json:
        print(json.dumps({**result, "report": str(report) if report else None}, indent=2, allow_nan=False))
        return
    console = open_screen()
    for found in result["models"]:
        console.print(Text(f"{printable(label_of(found))}, {found['scale']}", style="bold"))
        console.print(Text(say_default(found)))
        levels = ("overall", "emotion", "factor") if factors else ("overall", "emotion")
        table = _affect_table(found, levels) if found["scale"] == "PANAS" else _scale_table(found, levels)
        print_table(console, table)
        for line in _lines_aligntable(found):
            console.print(Text(printable(line)), style="dim")
        console.print()
    if contradicted := say_contradicted(result):
        held = result["checked"] - len(result["contradicted"])
        console.print(Text(f"printed figures that the data contradict ({held:,} others hold):"))
        for line in contradicted:
            console.print(Text(printable(f"  {line}")), style="dim")
    for note in result["notes"]:
        console.print(Text(note), style="dim")
    if report:
        console.print(Text(printable(str(report))), style="dim", soft_wrap=True)


def _lines_aligntable(found: Row) -> Iterator[str]:
    yield from say_agreement(found)
    yield from say_tests(found)
    yield from say_missing(found)
    for warning in found["warnings"]:
        yield f"beware: {warning}"


def _affect_table(found: Row, levels: tuple[str, ...]) -> Table_aligntable:
    """Both affects side by side: evoked, the change from the default, and people's change."""
    table = _table("", "n")
    for affect in ("positive", "negative"):
        table.add_column(f"{affect}\nevoked (SD)", justify="right", no_wrap=True)
        table.add_column("\nchange", justify="right", no_wrap=True)
        table.add_column("\npeople", justify="right", no_wrap=True)
    for row in rows_of(found, *levels):
        cells = [_name(row), _count(row)]
        for affect in ("positive", "negative"):
            about = row["scales"][affect]
            people = number(about["people"]["change"], 1, sign=True) if about["people"] else UNDEFINED
            cells += [_show(show_level(about["evoked"])), _show(show_change(about)), people]
        table.add_row(*map(Text, cells))
    return table


def _scale_table(found: Row, levels: tuple[str, ...]) -> Table_aligntable:
    """A line for each sub-scale."""
    table = _table("", "sub-scale", "n")
    for name in ("default (SD)", "evoked (SD)", "change"):
        table.add_column(name, justify="right", no_wrap=True)
    rows = rows_of(found, *levels)
    if len([row for row in rows if row["level"] == "emotion"]) == 1:
        rows = [row for row in rows if row["level"] != "emotion"]  # the same as overall
    for row in rows:
        for scale, about in row["scales"].items():
            levels_told = [_show(show_level(about[measure])) for measure in ("default", "evoked")]
            cells = [_name(row), scale, _count(row), *levels_told, _show(show_change(about))]
            table.add_row(*map(Text, cells))
    return table


def _table(*names: str) -> Table_aligntable:
    table = Table_aligntable(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for name in names:
        table.add_column(name, justify="right" if name == "n" else "left", overflow="fold")
    return table


def _name(row: Row) -> str:
    return str(row["name"])


def _count(row: Row) -> str:
    return UNDEFINED if row["sheets"] is None else f"{row['sheets']:,}"


def _show(text: Any) -> str:
    return UNDEFINED if text == "undefined" else str(text)
