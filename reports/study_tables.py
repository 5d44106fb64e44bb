"""The page of a comparison by people's ratings: the crowd study's tables, and what belongs beside them."""

import math
from collections.abc import Sequence

from calibration.comparison.rater_tests import ChiSquare
from calibration.comparison.ratings import ALPHA, Comparison, EmotionCell, GroupTable, ModelRow
from calibration.estimate import Estimate
from data.records import LABELS, POSITIVE_EMOTIONS
from data.text import listed
from reports.comparison import NONE, percent, plain, show_p, signed
from reports.page import Cell, Page, Section, Table, row

# The part of a comparison by ratings that goes emotion by emotion.

MARKS = {"p": "*", "q": "**", "p_holm": "***"}
FULL_TINT = 0.25  # difference of shares that gives the full colour


def emotion_shares(comparison: Comparison) -> Section:
    found = {(item.emotion, item.model): item for item in comparison.cells}
    emotions = sorted(
        {item.emotion for item in comparison.cells}, key=lambda name: (name in POSITIVE_EMOTIONS, name)
    )
    base = comparison.counts[comparison.baseline]
    rows = []
    for emotion in emotions:
        counts = base[emotion]
        cells = [_emotion_cell(found.get((emotion, name))) for name in comparison.models[1:]]
        side = "+" if emotion in POSITIVE_EMOTIONS else NONE
        rows.append(row(emotion, side, sum(counts), f"{100 * counts[-1] / max(1, sum(counts)):.1f}", *cells))
    power = ", ".join(f"{name} {plain(value, 2)}" for name, value in comparison.cell_power.items())
    return Section(
        name="emotions",
        short="emotions",
        title="Per cent Good by emotion",
        tables=(
            Table(
                caption=f"+ positive, {NONE} negative; against {comparison.baseline}",
                head=("emotion", "", "n", *comparison.models),
                rows=tuple(rows),
                words=frozenset({0, 1}),
            ),
        ),
        notes=(
            "* p < .05 alone; ** after Benjamini-Hochberg, *** after Holm, over all cells.",
            f"Power of one cell, were the effect there the overall one: {power}.",
        ),
    )


def _emotion_cell(item: EmotionCell | None) -> Cell:
    if item is None:
        return Cell(NONE)
    mark = next((MARKS[kind] for kind in ("p_holm", "q") if getattr(item, kind) < ALPHA), "")
    mark = mark or (MARKS["p"] if item.yates.p < ALPHA else "")
    share = item.good / max(1, item.ratings)
    apart = share - item.baseline_good / max(1, item.baseline_ratings)
    return Cell(f"{mark}{100 * share:.1f}", tint=max(-1.0, min(1.0, apart / FULL_TINT)))


def emotion_cells(comparison: Comparison) -> Section:
    below = [item for item in comparison.cells if item.yates.p < ALPHA]
    rows = tuple(
        row(
            item.emotion,
            item.model,
            item.ratings,
            f"{item.baseline_good} \N{RIGHTWARDS ARROW} {item.good}",
            percent(item.relative, 1),
            plain(item.yates.value, 2),
            show_p(item.yates.p),
            plain(item.q, 3),
            plain(item.p_holm, 3),
        )
        for item in below
    )
    under = sum(1 for item in comparison.cells if item.relative < 0)
    counts = [comparison.count_cells(kind) for kind in ("p", "q", "p_holm")]
    return Section(
        name="cells",
        short="cells",
        title=f"Emotions with p < .05: {counts[0]} of {len(comparison.cells)} cells",
        tables=(
            Table(
                caption="2x2 with Yates' correction",
                head=("emotion", "model", "n", "Good", "gain %", "chi2", "p", "BH q", "Holm"),
                rows=rows,
                words=frozenset({0, 1}),
            ),
        )
        if rows
        else (),
        notes=(
            f"Below .05: {counts[0]} alone, {counts[1]} after Benjamini-Hochberg, {counts[2]} after Holm."
            f" In {under} cells the model is below {comparison.baseline}.",
        ),
    )


GROUPS = {"all": "All emotions", "positive": "Positive emotions", "negative": "Negative emotions"}
HALF_UP = 1e-9  # 2.5765 is a hair less in a computer, and would be cut to 2.576


def crowd_page(comparison: Comparison, *, left_out: Sequence[str] = (), source: str = "") -> Page:
    """All of a comparison, the published tables first."""
    base = comparison.baseline
    sections = [
        Section(
            name="shares",
            short="shares",
            title="Shares",
            tables=tuple(_shares(table) for table in comparison.groups),
            notes=(_interval_note(comparison),),
        ),
        Section(
            name="tests",
            short="tests",
            title=f"Good against {base}, as published",
            text=("Chi-square over ratings taken as independent; 2x2 with Yates' correction, 2x3 without.",),
            tables=tuple(_tests(table) for table in comparison.groups),
            notes=tuple(_omnibus(table) for table in comparison.groups),
        ),
        _raters(comparison),
        _clusters(comparison),
        _pairs(comparison),
    ]
    if comparison.cells:
        sections += [emotion_shares(comparison), emotion_cells(comparison)]
    return Page(
        title=f"Models compared with {base}",
        subtitle=f"people's ratings{f' in {source}' if source else ''}",
        verdict=tuple(_verdict(comparison, left_out)),
        sections=tuple(sections),
    )


def _verdict(comparison: Comparison, left_out: Sequence[str]) -> list[str]:
    table = comparison.groups[0]
    said = []
    for item in table.rows[1:]:
        found = {True: "more", False: "less"}[item.points > 0]
        is_apart = item.p_holm < ALPHA
        word = f"Good {found} often than" if is_apart else "not shown to differ in Good from"
        said.append(
            f"{item.model}: {word} {comparison.baseline}: {percent(item.relative)} %,"
            f" {signed(item.points, 2)} points (p = {show_p(item.p_holm)} after Holm, raters as units)."
        )
    if comparison.cells:
        counts = [comparison.count_cells(kind) for kind in ("p", "q", "p_holm")]
        said.append(
            f"Of {len(comparison.cells)} cells of one emotion and model, {counts[0]} are below .05;"
            f" {counts[1]} after Benjamini-Hochberg, {counts[2]} after Holm."
        )
    if left_out:
        said.append(f"Left out: {listed(list(left_out))}; --models all takes every model in.")
    return said


def _shares(table: GroupTable) -> Table:
    rows = [
        row(
            item.model,
            *(f"{count} {100 * count / max(1, item.ratings):.2f}" for count in item.counts),
            _ends(item.shares["Good"]),
            plain(item.mean + HALF_UP, 3),
            table.letters[item.model],
        )
        for item in table.rows
    ]
    return Table(
        caption=f"{GROUPS[table.group]}, {_sizes(table)}",
        head=("model", *(f"{label} n %" for label in LABELS), "Good 95 %", "mean", "tie"),
        rows=tuple(rows),
        words=frozenset({0, 6}),
    )


def _sizes(table: GroupTable) -> str:
    sizes = {item.ratings for item in table.rows}
    return (
        f"{min(sizes):,} ratings a model"
        if len(sizes) == 1
        else f"{min(sizes):,} to {max(sizes):,} ratings a model"
    )


def _interval_note(comparison: Comparison) -> str:
    over = "count raters" if comparison.clusters else "take ratings as independent; raters are not known"
    return f"Intervals {over}. Models that share a letter are not told apart (Holm over all pairs)."


def _tests(table: GroupTable) -> Table:
    rows = [
        row(
            item.model,
            percent(item.relative),
            signed(item.points, 2),
            *_test(item.yates),
            *_test(item.full),
            plain(item.yates.effect if item.yates else math.nan, 3),
        )
        for item in table.rows[1:]
    ]
    return Table(
        caption=GROUPS[table.group],
        head=("model", "gain %", "points", "chi2 2x2", "p", "chi2 2x3", "p", "phi"),
        rows=tuple(rows),
    )


def _omnibus(table: GroupTable) -> str:
    size = len(table.rows)
    full, good = table.omnibus, table.omnibus_good
    return (
        f"{GROUPS[table.group]}: all models {size}x3 chi2 = {plain(full.value, 2)}, df = {full.freedom},"
        f" p = {show_p(full.p)}, V = {plain(full.effect, 3)}; Good {size}x2 chi2 = {plain(good.value, 2)},"
        f" df = {good.freedom}."
    )


def _raters(comparison: Comparison) -> Section:
    return Section(
        name="raters",
        short="raters",
        title=f"Good against {comparison.baseline}, with raters as units",
        text=("Welch's t over raters' own shares: ratings of one person are no independent witnesses.",),
        tables=tuple(
            Table(
                caption=GROUPS[table.group],
                head=("model", "points 95 %", "t", "p", "p Holm", "d", "h", "detects"),
                rows=tuple(_rater_row(item) for item in table.rows[1:]),
            )
            for table in comparison.groups
        ),
        notes=(
            "d: Cohen's, in standard deviations of raters' shares; h: of shares on the arcsine scale;"
            " detects: the least difference in points found with 80 % power.",
        ),
    )


def _rater_row(item: ModelRow) -> tuple[Cell, ...]:
    test = item.raters
    if test is None:
        return row(item.model, *([NONE] * 7))
    return row(
        item.model,
        _ends(test.difference, has_sign=True),
        plain(test.t, 2),
        show_p(test.p),
        show_p(item.p_holm),
        plain(test.d, 2),
        plain(item.h, 2),
        plain(100 * test.detectable, 1),
    )


def _clusters(comparison: Comparison) -> Section:
    rows = tuple(
        row(
            name,
            item.ratings,
            item.raters,
            plain(item.icc, 3),
            plain(item.design_effect, 2),
            plain(item.worth, 0),
            item.all_yes,
        )
        for name, item in comparison.clusters.items()
    )
    return Section(
        name="clusters",
        short="clusters",
        title="How ratings cluster in raters",
        tables=(
            Table(
                caption="Good, within and between raters",
                head=("model", "ratings", "raters", "ICC(1)", "design effect", "worth", "all Good"),
                rows=rows,
            ),
        ),
        notes=(
            "worth: as many independent ratings would tell as much; all Good: raters who said nothing else.",
        ),
    )


def _pairs(comparison: Comparison) -> Section:
    rows = []
    for at, pair in enumerate(comparison.groups[0].pairs):
        cells = [_short(table.pairs[at].full) for table in comparison.groups]
        rows.append(
            row(f"{pair.one}\n{NONE} {pair.other}", *cells, signed(pair.points, 2), show_p(pair.p_holm))
        )
    names = [GROUPS[table.group].split()[0].lower() for table in comparison.groups]
    return Section(
        name="pairs",
        short="pairs",
        title="Every two models",
        tables=(
            Table(
                caption="Chi-square 2x3 (p) of Bad, Okay and Good; of all, points of Good and p after Holm",
                head=("pair", *names, "points", "p Holm"),
                rows=tuple(rows),
            ),
        ),
    )


def _test(found: ChiSquare | None) -> tuple[str, str]:
    return (NONE, NONE) if found is None else (plain(found.value, 2), show_p(found.p))


def _short(found: ChiSquare) -> str:
    return f"{plain(found.value, 2)}\n({show_p(found.p)})"


def _ends(estimate: Estimate, *, has_sign: bool = False) -> str:
    if estimate.interval is None:
        return NONE
    ends = (estimate.interval.low, estimate.interval.high)
    low, high = (signed(end) if has_sign else f"{100 * end:.1f}" for end in ends)
    return f"[{low}, {high}]"
