"""The part of a comparison by ratings that goes emotion by emotion."""

from calibration.compared import ALPHA, Comparison, EmotionCell
from data.records import POSITIVE_EMOTIONS
from nightly.page import Cell, Section, Table, row
from nightly.verdicts import NONE, percent, plain, show_p

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
