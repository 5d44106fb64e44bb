"""Models compared by people's ratings: the crowd study's tables, and what a careful analyst puts beside them.

The study's test is the chi-square of Good against the rest, one model against a baseline, with Yates'
correction and ratings taken as independent. Beside it stand tests with raters as units, effect sizes, and
what is left of the cells of single emotions after Benjamini-Hochberg and Holm.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from calibration.chisquare import chi_square, cohen_h, power_of_shares
from calibration.compared import (
    ALPHA,
    Comparison,
    Counts,
    EmotionCell,
    Group,
    GroupTable,
    ModelRow,
    Pair,
    RatingColumns,
)
from calibration.intervals import Estimate, Interval
from calibration.multiplicity import benjamini_hochberg, holm, tie_letters
from calibration.powered import Rated, one_hot, power
from calibration.raterlevel import Handfuls, RaterTest, handfuls, rater_test
from data.errors import UserError
from data.records import EMOTIONS, LABELS, POSITIVE_EMOTIONS

GROUPS: Final[tuple[Group, ...]] = ("all", "positive", "negative")
GOOD: Final = len(LABELS) - 1


def compare_ratings(ratings: RatingColumns, *, baseline: str, models: Sequence[str] = ()) -> Comparison:
    """Every model against the baseline and each other; `models` chooses some of them, in this order."""
    counts: dict[str, dict[str, tuple[int, int, int]]] = {}
    for name in np.unique(ratings.model).tolist():
        own = ratings.take(ratings.model == name)
        emotions, place = np.unique(own.emotion, return_inverse=True)
        table = np.bincount(place * len(LABELS) + own.rating - 1, minlength=len(emotions) * len(LABELS))
        rows = table.reshape(-1, len(LABELS)).tolist()
        counts[name] = {
            key: (row[0], row[1], row[2]) for key, row in zip(emotions.tolist(), rows, strict=True)
        }
    return _compare(counts, ratings, baseline, models)


def _compare(counts: Counts, ratings: RatingColumns, baseline: str, models: Sequence[str]) -> Comparison:
    for name in (baseline, *models):
        if name not in counts:
            raise UserError(f"no ratings of the model {name!r}; rated are {', '.join(counts) or 'none'}")
    chosen = [name for name in dict.fromkeys(models) if name != baseline]
    if not models:
        chosen = sorted((name for name in counts if name != baseline), key=lambda name: -_good(counts[name]))
    names = (baseline, *chosen)
    kept = {name: counts[name] for name in names}
    known = any(emotion in EMOTIONS for cells in kept.values() for emotion in cells)
    groups = tuple(_group(group, kept, ratings) for group in (GROUPS if known else GROUPS[:1]))
    cells = _cells(kept)
    return Comparison(
        baseline=baseline,
        models=names,
        groups=groups,
        counts=kept,
        cells=cells,
        cell_power=_cell_power(groups[0], cells),
        clusters={name: _handfuls(ratings, name) for name in names},
    )


def is_in(emotion: str, group: Group) -> bool:
    """Whether an emotion belongs to a group; one that is none of the 32 is neither positive nor negative."""
    if group == "all":
        return True
    return emotion in EMOTIONS and (emotion in POSITIVE_EMOTIONS) == (group == "positive")


def _good(cells: Mapping[str, tuple[int, int, int]]) -> float:
    totals = np.array(list(cells.values())).sum(axis=0)
    return float(totals[GOOD] / totals.sum())


def _handfuls(ratings: RatingColumns, model: str) -> Handfuls:
    own = ratings.take(ratings.model == model)
    return handfuls(own.rater, own.rating == len(LABELS))


def _group(group: Group, counts: Counts, ratings: RatingColumns) -> GroupTable:
    totals = {
        name: np.array([row for emotion, row in cells.items() if is_in(emotion, group)] or [(0, 0, 0)]).sum(
            axis=0
        )
        for name, cells in counts.items()
    }
    inside = np.array([is_in(emotion, group) for emotion in ratings.emotion.tolist()], dtype=bool)
    own = {name: ratings.take(inside & (ratings.model == name)) for name in counts}
    names = list(counts)
    pairs = _pairs(totals, own)
    order = sorted(names, key=lambda name: -_share(totals[name]) if totals[name].sum() else 2.0)
    apart = [frozenset((pair.one, pair.other)) for pair in pairs if pair.p_holm < ALPHA]
    tables = np.array(list(totals.values()))
    return GroupTable(
        group=group,
        rows=_rows(totals, own),
        omnibus=chi_square(tables),
        omnibus_good=chi_square(np.array([_two(row) for row in tables])),
        pairs=pairs,
        letters=tie_letters(order, apart),
    )


def _two(row: NDArray[Any]) -> tuple[int, int]:
    """Not Good, Good."""
    return int(row[:GOOD].sum()), int(row[GOOD])


def _share(row: NDArray[Any]) -> float:
    return float(row[GOOD] / row.sum()) if row.sum() else math.nan


def _rows(totals: Mapping[str, NDArray[Any]], own: Mapping[str, RatingColumns]) -> tuple[ModelRow, ...]:
    baseline = next(iter(totals))
    base = totals[baseline]
    rows = []
    for name, row in totals.items():
        is_base = name == baseline
        test = None if is_base else _rater_test(own[name], own[baseline])
        share, base_share = _share(row), _share(base)
        rows.append(
            ModelRow(
                model=name,
                counts=(int(row[0]), int(row[1]), int(row[2])),
                shares=_shares(own[name]),
                mean=float(row @ np.arange(1, len(LABELS) + 1) / row.sum()) if row.sum() else math.nan,
                relative=share / base_share - 1 if base_share and not is_base else math.nan,
                points=share - base_share if not is_base else math.nan,
                h=cohen_h(share, base_share) if not is_base else math.nan,
                yates=None if is_base else chi_square([_two(base), _two(row)], has_yates=True),
                full=None if is_base else chi_square([base, row]),
                raters=test,
                p_holm=math.nan,
            )
        )
    plain = [row.raters.p if row.raters else math.nan for row in rows]
    return tuple(replace(row, p_holm=float(p)) for row, p in zip(rows, holm(plain), strict=True))


def _pairs(totals: Mapping[str, NDArray[Any]], own: Mapping[str, RatingColumns]) -> tuple[Pair, ...]:
    names = list(totals)
    found = []
    for at, one in enumerate(names):
        for other in names[at + 1 :]:
            found.append(
                Pair(
                    one=one,
                    other=other,
                    points=_share(totals[one]) - _share(totals[other]),
                    full=chi_square([totals[one], totals[other]]),
                    raters=_rater_test(own[one], own[other]),
                    p_holm=math.nan,
                )
            )
    adjusted = holm([pair.raters.p for pair in found])
    return tuple(replace(pair, p_holm=float(p)) for pair, p in zip(found, adjusted, strict=True))


def _rater_test(one: RatingColumns, other: RatingColumns) -> RaterTest:
    best = len(LABELS)
    return rater_test(one.rater, one.rating == best, other.rater, other.rating == best)


def _shares(own: RatingColumns) -> dict[str, Estimate]:
    total = len(own.rating)
    if not total:
        return {label: Estimate(math.nan, None) for label in LABELS}
    # No judge: every row of what it said is the same, and only the ratings count.
    rated = Rated(
        judged=np.zeros((total, len(LABELS))),
        item=np.arange(total),
        value=one_hot(own.rating, len(LABELS)),
        cluster=own.rater,
    )
    found = power(rated)
    value, low, high = found.value, found.low, found.high
    return {
        label: Estimate(
            float(value[at]), Interval(float(low[at]), float(high[at])) if low[at] == low[at] else None
        )
        for at, label in enumerate(LABELS)
    }


def _cells(counts: Counts) -> tuple[EmotionCell, ...]:
    baseline = next(iter(counts))
    found = []
    for emotion in sorted(emotion for emotion in counts[baseline] if emotion):
        base = np.array(counts[baseline][emotion])
        for name, cells in counts.items():
            if name == baseline or emotion not in cells:
                continue
            row = np.array(cells[emotion])
            base_share = _share(base)
            found.append(
                EmotionCell(
                    emotion=emotion,
                    model=name,
                    ratings=int(row.sum()),
                    good=int(row[GOOD]),
                    baseline_ratings=int(base.sum()),
                    baseline_good=int(base[GOOD]),
                    relative=_share(row) / base_share - 1 if base_share else math.nan,
                    yates=chi_square([_two(base), _two(row)], has_yates=True),
                    q=math.nan,
                    p_holm=math.nan,
                )
            )
    plain = [item.yates.p for item in found]
    both = zip(found, benjamini_hochberg(plain), holm(plain), strict=True)
    return tuple(replace(item, q=float(q), p_holm=float(p)) for item, q, p in both)


def _cell_power(table: GroupTable, cells: Sequence[EmotionCell]) -> dict[str, float]:
    found = {}
    for row in table.rows:
        own = [item for item in cells if item.model == row.model]
        if own:
            sizes = (
                np.mean([item.ratings for item in own]),
                np.mean([item.baseline_ratings for item in own]),
            )
            found[row.model] = power_of_shares(row.h, float(sizes[0]), float(sizes[1]))
    return found
