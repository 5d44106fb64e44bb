"""The alternative-annotator test (Calderon, Reichart and Dror): may a judge replace a person?

Each person in turn is left out, and on every response judge and person are compared with the others. The one
nearer to them has the advantage, both on a tie. The judge beats a person where its advantages are no more
than `epsilon` fewer than the person's (the price of asking a person), tested one-sided over the responses and
corrected for testing as many times as there are people.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from empathy_judge.calibration.bootstrap import Draws, Sampled, ratio, sum_draws
from empathy_judge.calibration.cluster import cluster_sums
from empathy_judge.calibration.estimate import UNDEFINED, Estimate, Floats, Integers

MIN_RATERS: Final = 3
MIN_INSTANCES: Final = 30  # of a person's responses that others rated too; below it the t test is not sound
LEVEL: Final = 0.05
WINNING: Final = 0.5
EPSILON: Final = 0.1  # what the authors take for crowd workers; 0.15 for skilled people, 0.2 for experts
CORRECTION: Final = "by"  # holds whatever the tests have to do with each other; "bh" wants independence


@dataclass(frozen=True, slots=True, kw_only=True)
class AlternativeTest:
    """`winning_rate` is the part of the people the judge beats, `advantage` the mean of its advantages.

    At a winning rate of one half or more the judge may replace a person. `undefined` says why there is
    no answer.
    """

    is_passed: bool | None = None  # whether the judge may replace a person; None where there is no answer
    winning_rate: float = float("nan")
    advantage: Estimate = UNDEFINED
    epsilon: float
    undefined: str | None = None


def alternative_test(
    table: Floats, judge: Floats, *, clusters: Integers, drawn: Draws, epsilon: float = EPSILON
) -> AlternativeTest:
    """The test on a (raters, items) table with gaps and the judge's label of every item.

    `clusters` is each item's column in `drawn`, for the interval of the advantage.
    """
    compared = [_compare(table, judge, row) for row in range(len(table))]
    kept = [row for row, (items, *_) in enumerate(compared) if len(items) >= MIN_INSTANCES]
    if len(kept) < MIN_RATERS:
        shared = f"{len(kept)} raters share {MIN_INSTANCES} or more rated replies with others"
        return AlternativeTest(epsilon=epsilon, undefined=f"{shared}; {MIN_RATERS} are needed")
    from scipy import stats

    raw = [_p_value(compared[row][2] - compared[row][1], epsilon) for row in kept]
    p_values = stats.false_discovery_control(raw, method=CORRECTION)
    winning_rate = float(np.mean(p_values <= LEVEL))
    return AlternativeTest(
        is_passed=winning_rate >= WINNING,
        winning_rate=winning_rate,
        advantage=_advantage([compared[row][:2] for row in kept], clusters, drawn),
        epsilon=epsilon,
    )


def shared_items(table: Floats, row: int) -> tuple[Integers, Floats]:
    """The items this person shares with others, and the others' ratings of them."""
    items = np.flatnonzero(np.isfinite(table[row]))
    others = np.delete(table[:, items], row, axis=0)
    is_shared = np.isfinite(others).any(axis=0)
    return items[is_shared], others[:, is_shared]


def _compare(table: Floats, judge: Floats, row: int) -> tuple[Integers, Floats, Floats]:
    """The items this person shares with others, and on each who is at least as near to the others."""
    items, rest = shared_items(table, row)
    own, person = _far(judge[items], rest), _far(table[row, items], rest)
    return items, (own <= person).astype(float), (person <= own).astype(float)


def _far(values: Floats, rest: Floats) -> Floats:
    """How far values are from the others' on each item; rounded, so that equal distances are a tie."""
    losses = (values - rest) ** 2
    here = np.isfinite(rest)
    means: Floats = np.where(here, losses, 0.0).sum(axis=0) / here.sum(axis=0)
    return np.round(means, 9)  # a mean square orders items as its root does


def _p_value(surplus: Floats, epsilon: float) -> float:
    """The p-value of the person's mean surplus of advantages being `epsilon` or more."""
    if np.ptp(surplus) == 0:
        return 0.0 if surplus[0] < epsilon else 1.0
    from scipy import stats

    return float(stats.ttest_1samp(surplus, epsilon, alternative="less").pvalue)


def _advantage(wins: list[tuple[Integers, Floats]], clusters: Integers, drawn: Draws) -> Estimate:
    """The mean over people of the judge's advantages, with its draws."""
    value = float(np.mean([own.mean() for _, own in wins]))
    means = []
    for items, own in wins:
        sums = cluster_sums(clusters[items], np.column_stack([own, np.ones(len(own))]), drawn.shape[1])
        won, size = sum_draws(sums, drawn).T
        means.append(ratio(won, size))
    return Sampled(value, np.mean(means, axis=0)).estimate()
