"""The page of a comparison by people's ratings: the crowd study's tables, and what belongs beside them."""

from collections.abc import Sequence

from calibration.comparison.rater_tests import ChiSquare
from calibration.comparison.ratings import ALPHA, Comparison, EmotionCell, GroupTable, ModelRow
from calibration.estimate import Estimate
from data.records import LABELS, POSITIVE_EMOTIONS
from data.text import UNDEFINED, ends_of, exact_p_value, interval, listed, number, percent, signed
from reports.page import Cell, Page, Section, Table, row

MARKS = {"p": "*", "q": "**", "p_holm": "***"}
FULL_TINT = 0.25  # difference of shares that gives the full colour
GROUPS = {"all": "All emotions", "positive": "Positive emotions", "negative": "Negative emotions"}
HALF_UP = 1e-9  # 2.5765 is a hair less in a computer, and would be cut to 2.576


def ratings_page(comparison: Comparison, *, left_out: Sequence[str] = (), source: str = "") -> Page:
    """Show a comparison by people's ratings, the published tables first."""
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
        sections += [_emotion_shares(comparison), _emotion_cells(comparison)]
    return Page(
        title=f"Models compared with {base}",
        subtitle=f"people's ratings{f' in {source}' if source else ''}",
        verdict=tuple(_verdict(comparison, left_out)),
        sections=tuple(sections),
    )


def _verdict(comparison: Comparison, left_out: Sequence[str]) -> list[str]:
    table = comparison.groups[0]
    sentences = []
    for item in table.rows[1:]:
        often = f"Good {'more' if item.points > 0 else 'less'} often than"
        word = often if item.p_holm < ALPHA else "not shown to differ in Good from"
        sentences.append(
            f"{item.model}: {word} {comparison.baseline}: {signed(item.relative, 2)} %,"
            f" {signed(item.points, 2)} points (p = {exact_p_value(item.p_holm)} after Holm, raters as"
            " units)."
        )
    if comparison.cells:
        counts = [comparison.count_cells(kind) for kind in ("p", "q", "p_holm")]
        sentences.append(
            f"Of {len(comparison.cells)} cells of one emotion and model, {counts[0]} are below .05;"
            f" {counts[1]} after Benjamini-Hochberg, {counts[2]} after Holm."
        )
    if left_out:
        sentences.append(f"Left out: {listed(list(left_out))}; --models all takes every model in.")
    return sentences


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
            signed(item.relative, 2),
            signed(item.points, 2),
            *_test(item.yates),
            *_test(item.full),
            number(item.yates.effect if item.yates else None, 3),
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
        f"{GROUPS[table.group]}: all models {size}x3 chi2 = {number(full.value)}, df = {full.freedom},"
        f" p = {exact_p_value(full.p)}, V = {number(full.effect, 3)}; Good {size}x2 chi2 ="
        f" {number(good.value)}, df = {good.freedom}."
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
        return row(item.model, *([None] * 7))
    return row(
        item.model,
        _ends(test.difference, sign=True),
        number(test.t),
        exact_p_value(test.p),
        exact_p_value(item.p_holm),
        number(test.d),
        number(item.h),
        percent(test.detectable),
    )


def _clusters(comparison: Comparison) -> Section:
    rows = tuple(
        row(
            name,
            item.ratings,
            item.raters,
            number(item.icc, 3),
            number(item.design_effect),
            number(item.worth, 0),
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
        cells = ["{}\n({})".format(*_test(table.pairs[at].full)) for table in comparison.groups]
        rows.append(
            row(
                f"{pair.one}\n\N{EN DASH} {pair.other}",
                *cells,
                signed(pair.points, 2),
                exact_p_value(pair.p_holm),
            )
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


def _emotion_shares(comparison: Comparison) -> Section:
    by_emotion = {(item.emotion, item.model): item for item in comparison.cells}
    emotions = sorted(
        {item.emotion for item in comparison.cells}, key=lambda name: (name in POSITIVE_EMOTIONS, name)
    )
    base = comparison.counts[comparison.baseline]
    rows = []
    for emotion in emotions:
        counts = base[emotion]
        cells = [_emotion_cell(by_emotion.get((emotion, name))) for name in comparison.models[1:]]
        side = "+" if emotion in POSITIVE_EMOTIONS else "\N{EN DASH}"
        rows.append(row(emotion, side, sum(counts), percent(counts[-1] / max(1, sum(counts))), *cells))
    power = ", ".join(f"{name} {number(value)}" for name, value in comparison.cell_power.items())
    return Section(
        name="emotions",
        short="emotions",
        title="Per cent Good by emotion",
        tables=(
            Table(
                caption=f"+ positive, \N{EN DASH} negative; against {comparison.baseline}",
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
        return Cell(UNDEFINED)
    mark = next((MARKS[kind] for kind in ("p_holm", "q") if getattr(item, kind) < ALPHA), "")
    mark = mark or (MARKS["p"] if item.yates.p < ALPHA else "")
    share = item.good / max(1, item.ratings)
    difference = share - item.baseline_good / max(1, item.baseline_ratings)
    return Cell(f"{mark}{percent(share)}", tint=max(-1.0, min(1.0, difference / FULL_TINT)))


def _emotion_cells(comparison: Comparison) -> Section:
    below = [item for item in comparison.cells if item.yates.p < ALPHA]
    rows = tuple(
        row(
            item.emotion,
            item.model,
            item.ratings,
            f"{item.baseline_good} \N{RIGHTWARDS ARROW} {item.good}",
            signed(item.relative, 1),
            number(item.yates.value),
            exact_p_value(item.yates.p),
            number(item.q, 3),
            number(item.p_holm, 3),
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


def _test(test: ChiSquare | None) -> tuple[str, str]:
    return (number(test.value), exact_p_value(test.p)) if test else (UNDEFINED, UNDEFINED)


def _ends(estimate: Estimate, *, sign: bool = False) -> str:
    _, low, high = ends_of(estimate)
    return interval(low, high, 1, scale=100, sign=sign)
