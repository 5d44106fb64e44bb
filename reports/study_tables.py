"""The page of a comparison by people's ratings: the crowd study's tables, and what belongs beside them."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from calibration.comparison.rater_tests import ChiSquare, RaterClustering
from calibration.comparison.ratings import ALPHA, Comparison, EmotionCell, GroupTable, ModelRow
from calibration.estimate import Estimate
from data.records import LABELS, POSITIVE_EMOTIONS
from data.text import UNDEFINED, ends_of, exact_p_value, interval, listed, number, percent, signed
from reports.page import Cell, Page, Section, Table, row, table_of

FULL_TINT = 0.25  # difference of shares that gives the full colour
GROUPS = {"all": "All emotions", "positive": "Positive emotions", "negative": "Negative emotions"}
HALF_UP = 1e-9  # 2.5765 is a hair less in a computer, and would be cut to 2.576
RATER_COLUMNS: dict[str, Callable[[ModelRow], Any]] = {
    "model": lambda item: item.model,
    "points 95 %": lambda item: item.raters and _ends(item.raters.difference, sign=True),
    "t": lambda item: item.raters and number(item.raters.t),
    "p": lambda item: item.raters and exact_p_value(item.raters.p),
    "p Holm": lambda item: item.raters and exact_p_value(item.p_holm),
    "d": lambda item: item.raters and number(item.raters.d),
    "h": lambda item: item.raters and number(item.h),
    "detects": lambda item: item.raters and percent(item.raters.detectable),
}
CLUSTER_COLUMNS: dict[str, Callable[[tuple[str, RaterClustering]], Any]] = {
    "model": lambda item: item[0],
    "ratings": lambda item: item[1].ratings,
    "raters": lambda item: item[1].raters,
    "ICC(1)": lambda item: number(item[1].icc, 3),
    "design effect": lambda item: number(item[1].design_effect),
    "worth": lambda item: number(item[1].worth, 0),
    "all Good": lambda item: item[1].all_yes,
}
CELL_COLUMNS: dict[str, Callable[[EmotionCell], Any]] = {
    "emotion": lambda item: item.emotion,
    "model": lambda item: item.model,
    "n": lambda item: item.ratings,
    "Good": lambda item: f"{item.baseline_good} \N{RIGHTWARDS ARROW} {item.good}",
    "gain %": lambda item: signed(item.relative, 1),
    "chi2": lambda item: number(item.yates.value),
    "p": lambda item: exact_p_value(item.yates.p),
    "BH q": lambda item: number(item.q, 3),
    "Holm": lambda item: number(item.p_holm, 3),
}


def ratings_page(comparison: Comparison, *, left_out: Sequence[str] = (), source: str = "") -> Page:
    """Show a comparison by people's ratings, the published tables first."""
    base, groups = comparison.baseline, comparison.groups
    over = "count raters" if comparison.clusters else "take ratings as independent; raters are not known"
    clusters = table_of(
        comparison.clusters.items(), CLUSTER_COLUMNS, caption="Good, within and between raters"
    )
    sections = [
        Section(
            title="Shares",
            tables=tuple(map(_shares, groups)),
            notes=(
                f"Intervals {over}. Models that share a letter are not told apart (Holm over all pairs).",
            ),
        ),
        Section(
            title=f"Good against {base}, as published",
            text=("Chi-square over ratings taken as independent; 2x2 with Yates' correction, 2x3 without.",),
            tables=tuple(map(_tests, groups)),
            notes=tuple(map(_omnibus, groups)),
        ),
        Section(
            title=f"Good against {base}, with raters as units",
            text=("Welch's t over raters' own shares: ratings of one person are no independent witnesses.",),
            tables=tuple(
                table_of(table.rows[1:], RATER_COLUMNS, caption=GROUPS[table.group]) for table in groups
            ),
            notes=(
                "d: Cohen's, in standard deviations of raters' shares; h: of shares on the arcsine scale;"
                " detects: the least difference in points found with 80 % power.",
            ),
        ),
        Section(
            title="How ratings cluster in raters",
            tables=(clusters,),
            notes=(
                "worth: as many independent ratings would tell as much;"
                " all Good: raters who said nothing else.",
            ),
        ),
        Section(title="Every two models", tables=(_pairs(comparison),)),
    ]
    if comparison.cells:
        sections += _emotion_sections(comparison)
    return Page(
        title=f"Models compared with {base}",
        subtitle=f"people's ratings{f' in {source}' if source else ''}",
        verdict=tuple(_verdict(comparison, left_out)),
        sections=tuple(sections),
    )


def _verdict(comparison: Comparison, left_out: Sequence[str]) -> Iterator[str]:
    for item in comparison.groups[0].rows[1:]:
        often = f"Good {'more' if item.points > 0 else 'less'} often than"
        word = often if item.p_holm < ALPHA else "not shown to differ in Good from"
        yield (
            f"{item.model}: {word} {comparison.baseline}: {signed(item.relative, 2)} %,"
            f" {signed(item.points, 2)} points (p = {exact_p_value(item.p_holm)} after Holm, raters as"
            " units)."
        )
    if comparison.cells:
        below, after_bh, after_holm = (comparison.count_cells(kind) for kind in ("p", "q", "p_holm"))
        yield (
            f"Of {len(comparison.cells)} cells of one emotion and model, {below} are below .05;"
            f" {after_bh} after Benjamini-Hochberg, {after_holm} after Holm."
        )
    if left_out:
        yield f"Left out: {listed(list(left_out))}; --models all takes every model in."


def _shares(table: GroupTable) -> Table:
    rows = [
        row(
            item.model,
            *(f"{count} {100 * count / max(1, item.ratings):.2f}" for count in item.counts),
            _ends(item.shares["Good"]),
            number(item.mean + HALF_UP, 3),
            table.letters[item.model],
        )
        for item in table.rows
    ]
    least, most = (end(item.ratings for item in table.rows) for end in (min, max))
    size = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    return Table(
        caption=f"{GROUPS[table.group]}, {size} ratings a model",
        head=("model", *(f"{label} n %" for label in LABELS), "Good 95 %", "mean", "tie"),
        rows=tuple(rows),
        words=frozenset({0, 6}),
    )


def _tests(table: GroupTable) -> Table:
    rows = [
        row(
            item.model,
            signed(item.relative, 2),
            signed(item.points, 2),
            *_test(item.yates),
            *_test(item.full),
            number(item.yates.effect if item.yates else None, 3),
        )
        for item in table.rows[1:]
    ]
    head = ("model", "gain %", "points", "chi2 2x2", "p", "chi2 2x3", "p", "phi")
    return Table(caption=GROUPS[table.group], head=head, rows=tuple(rows))


def _omnibus(table: GroupTable) -> str:
    size = len(table.rows)
    full, good = table.omnibus, table.omnibus_good
    return (
        f"{GROUPS[table.group]}: all models {size}x3 chi2 = {number(full.value)}, df = {full.freedom},"
        f" p = {exact_p_value(full.p)}, V = {number(full.effect, 3)}; Good {size}x2 chi2 ="
        f" {number(good.value)}, df = {good.freedom}."
    )


def _pairs(comparison: Comparison) -> Table:
    rows = []
    for at, pair in enumerate(comparison.groups[0].pairs):
        cells = ["{}\n({})".format(*_test(table.pairs[at].full)) for table in comparison.groups]
        names = f"{pair.one}\n\N{EN DASH} {pair.other}"
        rows.append(row(names, *cells, signed(pair.points, 2), exact_p_value(pair.p_holm)))
    groups = [GROUPS[table.group].split()[0].lower() for table in comparison.groups]
    return Table(
        caption="Chi-square 2x3 (p) of Bad, Okay and Good; of all, points of Good and p after Holm",
        head=("pair", *groups, "points", "p Holm"),
        rows=tuple(rows),
    )


def _emotion_sections(comparison: Comparison) -> Iterator[Section]:
    """Show the share of Good by emotion and model, then the cells that differ from the baseline."""
    by_emotion = {(item.emotion, item.model): item for item in comparison.cells}
    rows = []
    emotions = {item.emotion for item in comparison.cells}
    for emotion in sorted(emotions, key=lambda name: (name in POSITIVE_EMOTIONS, name)):
        counts = comparison.counts[comparison.baseline][emotion]
        cells = [_emotion_cell(by_emotion.get((emotion, name))) for name in comparison.models[1:]]
        side = "+" if emotion in POSITIVE_EMOTIONS else "\N{EN DASH}"
        rows.append(row(emotion, side, sum(counts), percent(counts[-1] / max(1, sum(counts))), *cells))
    power = ", ".join(f"{name} {number(value)}" for name, value in comparison.cell_power.items())
    shares = Table(
        caption=f"+ positive, \N{EN DASH} negative; against {comparison.baseline}",
        head=("emotion", "", "n", *comparison.models),
        rows=tuple(rows),
        words=frozenset({0, 1}),
    )
    yield Section(
        title="Per cent Good by emotion",
        tables=(shares,),
        notes=(
            "* p < .05 alone; ** after Benjamini-Hochberg, *** after Holm, over all cells.",
            f"Power of one cell, were the effect there the overall one: {power}.",
        ),
    )
    alone = [item for item in comparison.cells if item.yates.p < ALPHA]
    table = table_of(alone, CELL_COLUMNS, caption="2x2 with Yates' correction", words=frozenset({0, 1}))
    below, after_bh, after_holm = (comparison.count_cells(kind) for kind in ("p", "q", "p_holm"))
    under = sum(1 for item in comparison.cells if item.relative < 0)
    yield Section(
        title=f"Emotions with p < .05: {below} of {len(comparison.cells)} cells",
        tables=(table,) if alone else (),
        notes=(
            f"Below .05: {below} alone, {after_bh} after Benjamini-Hochberg, {after_holm} after Holm."
            f" In {under} cells the model is below {comparison.baseline}.",
        ),
    )


def _emotion_cell(item: EmotionCell | None) -> Cell:
    if item is None:
        return Cell(UNDEFINED)
    tests = {"***": item.p_holm, "**": item.q, "*": item.yates.p}
    mark = next((mark for mark, p in tests.items() if p < ALPHA), "")
    share = item.good / max(1, item.ratings)
    difference = share - item.baseline_good / max(1, item.baseline_ratings)
    return Cell(f"{mark}{percent(share)}", tint=max(-1.0, min(1.0, difference / FULL_TINT)))


def _test(test: ChiSquare | None) -> tuple[str, str]:
    return (number(test.value), exact_p_value(test.p)) if test else (UNDEFINED, UNDEFINED)


def _ends(estimate: Estimate, *, sign: bool = False) -> str:
    _, low, high = ends_of(estimate)
    return interval(low, high, 1, scale=100, sign=sign)
