"""The page of models compared by human ratings."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from empathy_judge.calibration.comparison.compare_ratings import (
    ChiSquare,
    EmotionTest,
    RatedComparison,
    RatedGroup,
    RatedLevel,
)
from empathy_judge.calibration.comparison.verdicts import ALPHA
from empathy_judge.data.records import LABELS, POSITIVE_EMOTIONS
from empathy_judge.data.text import (
    UNDEFINED,
    ends_of,
    exact_p_value,
    interval,
    listed,
    number,
    percent,
    points,
)
from empathy_judge.reports.page import Cell, Page, Section, Table, row, table_of

FULL_TINT = 0.25  # difference of shares that gives the full color
GROUPS = {"all": "All emotions", "positive": "Positive emotions", "negative": "Negative emotions"}
Column = Callable[[RatedLevel], Any]


def _count(label: str, item: RatedLevel) -> str:
    return f"{item.counts[label]} {100 * item.counts[label] / max(1, item.ratings):.2f}"


SHARE_COLUMNS: dict[str, Column] = {
    "model": lambda item: item.model,
    **{f"{label} n %": partial(_count, label) for label in LABELS},
    "Good 95% CI": lambda item: interval(*ends_of(item.shares["Good"])[1:], 1, scale=100),
    "raters": lambda item: item.raters,
    "design effect": lambda item: number(item.design_effect),
}
CHI_SQUARE_COLUMNS: dict[str, Column] = {
    "model": lambda item: item.model,
    "gain %": lambda item: points(item.relative, 2),
    "points": lambda item: points(item.points, 2),
    "chi2 2x2": lambda item: _value(item.yates),
    "p 2x2": lambda item: _p(item.yates),
    "chi2 2x3": lambda item: _value(item.full),
    "p 2x3": lambda item: _p(item.full),
    "phi": lambda item: number(item.yates.effect if item.yates else None, 3),
}
RATER_COLUMNS: dict[str, Column] = {
    "model": lambda item: item.model,
    "points 95% CI": lambda item: (
        item.test and interval(*ends_of(item.test.difference)[1:], 1, scale=100, sign=True)
    ),
    "t": lambda item: item.test and number(item.test.t),
    "p": lambda item: item.test and exact_p_value(item.test.p),
    "p Holm": lambda item: item.test and exact_p_value(item.p_holm),
    "detects": lambda item: item.test and percent(item.test.detectable),
}


def rated_models_page(compared: RatedComparison) -> Page:
    """Return the page of a comparison by human ratings."""
    base, groups = compared.baseline, compared.groups
    sections = [
        Section(
            title="Shares",
            tables=tuple(table_of(item.models, SHARE_COLUMNS, caption=_caption(item)) for item in groups),
            notes=("Intervals use raters as units.",),
        ),
        Section(
            title=f"Good against {base}: chi-square tests",
            text=("Ratings count as independent; 2x2 with Yates' correction, 2x3 without.",),
            tables=tuple(
                table_of(item.models[1:], CHI_SQUARE_COLUMNS, caption=GROUPS[item.group]) for item in groups
            ),
            notes=tuple(map(_omnibus, groups)),
        ),
        Section(
            title=f"Good against {base}: raters as units",
            text=("Welch's t over raters' own shares: ratings by one person are not independent.",),
            tables=tuple(
                table_of(item.models[1:], RATER_COLUMNS, caption=GROUPS[item.group]) for item in groups
            ),
            notes=("detects: the smallest difference in points that is detected with 80% power.",),
        ),
    ]
    if compared.emotions:
        sections.append(_emotion_section(compared))
    return Page(
        title=f"Models compared with {base}",
        subtitle=f"human ratings{f' in {compared.source}' if compared.source else ''}",
        verdict=tuple(_verdict(compared)),
        sections=tuple(sections),
    )


def _verdict(compared: RatedComparison) -> Iterator[str]:
    for item in compared.groups[0].models[1:]:
        often = f"Good {'more' if item.points > 0 else 'less'} often than"
        verdict = often if item.p_holm < ALPHA else "not distinguishable in Good from"
        yield (
            f"{item.model}: {verdict} {compared.baseline}: {points(item.relative, 2)}%,"
            f" {points(item.points, 2)} points (p = {exact_p_value(item.p_holm)} after Holm, raters as"
            " units)."
        )
    if compared.emotions:
        tests = ((item.yates.p, item.q, item.p_holm) for item in compared.emotions)
        alone, after_bh, after_holm = (sum(p < ALPHA for p in values) for values in zip(*tests, strict=True))
        yield (
            f"Tests of one emotion and model below 0.05: {alone} of {len(compared.emotions)};"
            f" {after_bh} after Benjamini-Hochberg, {after_holm} after Holm."
        )
    if compared.left_out:
        yield f"Left out: {listed(list(compared.left_out))}."


def _caption(group: RatedGroup) -> str:
    least, most = (end(item.ratings for item in group.models) for end in (min, max))
    size = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    return f"{GROUPS[group.group]}, {size} ratings per model"


def _omnibus(group: RatedGroup) -> str:
    test = group.omnibus
    return (
        f"{GROUPS[group.group]}: all models {len(group.models)}x3 chi2 = {_value(test)}, df = {test.freedom},"
        f" p = {_p(test)}, V = {number(test.effect, 3)}."
    )


def _emotion_section(compared: RatedComparison) -> Section:
    """Return the share of Good by emotion and model, with the significance of each."""
    tests = {(item.emotion, item.model): item for item in compared.emotions}
    baselines = {item.emotion: item for item in compared.emotions}
    rows = []
    for emotion in sorted(baselines, key=lambda name: (name in POSITIVE_EMOTIONS, name)):
        total, good = baselines[emotion].baseline_ratings, baselines[emotion].baseline_good
        cells = [_emotion_cell(tests.get((emotion, name))) for name in compared.models[1:]]
        side = "+" if emotion in POSITIVE_EMOTIONS else "\N{EN DASH}"
        rows.append(row(emotion, side, total, percent(good / max(1, total)), *cells))
    return Section(
        title="% Good by emotion",
        tables=(
            Table(
                caption=f"+ positive, \N{EN DASH} negative; against {compared.baseline}",
                head=("emotion", "", "n", *compared.models),
                rows=tuple(rows),
                words=frozenset({0, 1}),
            ),
        ),
        notes=("* p < 0.05 alone; ** after Benjamini-Hochberg, *** after Holm, over all tests.",),
    )


def _emotion_cell(item: EmotionTest | None) -> Cell:
    if item is None:
        return Cell(UNDEFINED)
    tests = {"***": item.p_holm, "**": item.q, "*": item.yates.p}
    mark = next((mark for mark, p in tests.items() if p < ALPHA), "")
    share = item.good / max(1, item.ratings)
    difference = share - item.baseline_good / max(1, item.baseline_ratings)
    return Cell(f"{mark}{percent(share)}", tint=max(-1.0, min(1.0, difference / FULL_TINT)))


def _value(test: ChiSquare | None) -> str:
    return number(test.value) if test else UNDEFINED


def _p(test: ChiSquare | None) -> str:
    return exact_p_value(test.p) if test else UNDEFINED
