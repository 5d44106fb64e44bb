"""The ceiling of a judge's agreement with people: how well people agree with each other.

It takes several ratings of one response. With one rating each, noise of the response and of the rater look
the same: the ceiling is *not identifiable*, and only the bound from a known reliability is given.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from calibration.agreement.alt_test import AlternativeTest, alternative_test, shared_items
from calibration.agreement.metrics import (
    balanced_accuracy,
    coincidences_of,
    exact,
    level_counts,
    ordinal_alpha,
    qwk,
    refused_by_rarity,
    table_of,
    tables_of,
)
from calibration.bootstrap import Draws, Sampled, resample_clusters, sum_draws
from calibration.cluster import cluster_sums
from calibration.estimate import UNDEFINED, Estimate, Floats, Integers, SpeaksFor
from calibration.pairing import Paired
from data.errors import UserError

PILOT_KAPPA: Final = 0.2817  # weighted, of the crowd study's pilot; with which weights is not known
GRID: Final = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How well somebody meets a person's single rating."""

    exact: float
    balanced_accuracy: float
    qwk: float
    spearman: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What `perfect` knowledge of every response's quality would reach, and what a `second_person` would.

    `correlation` is that of two raters' impressions before they are cut into levels. With perfect knowledge
    the likeliest level is said for `exact`, the one likeliest against its share for `balanced_accuracy`, and
    for `qwk` quality is cut so that labels are as frequent as ratings; `spearman` is the better of quality
    itself and those labels.
    """

    reliability: float
    shares: tuple[float, ...]
    correlation: float
    perfect: Reach
    second_person: Reach


def reliability_bound(shares: Sequence[float] | Floats, *, reliability: float = PILOT_KAPPA) -> Bound | None:
    """Return the bound for ratings with these shares of levels, if two people agree by this weighted kappa.

    Every response has a quality, every rating is that quality plus the rater's own noise, both normal, cut
    into levels where the observed shares say. The noise is what makes two raters agree by the given kappa.
    Integrated over a grid of qualities, which is the simulation with infinitely many ratings. None where all
    ratings are of one level.

    >>> bound = reliability_bound([0.1111, 0.3116, 0.5773])
    >>> round(bound.perfect.exact, 2), round(bound.second_person.exact, 2)
    (0.64, 0.54)
    """
    if not 0 < reliability < 1:
        raise UserError(f"reliability {reliability:g}: give a kappa of two people between 0 and 1")
    parts = np.asarray(shares, dtype=float) / np.sum(shares)
    if (parts > 0).sum() < 2:
        return None
    correlation = _solve(parts, reliability)
    given = _chances(parts, correlation)
    both = given.T @ given / GRID  # the table of two people
    return Bound(
        reliability=reliability,
        shares=tuple(parts.tolist()),
        correlation=correlation,
        perfect=_perfect(parts, given),
        second_person=Reach(
            exact=float(exact(both[None])[0]),
            balanced_accuracy=float(balanced_accuracy(both[None])[0]),
            qwk=float(qwk(both[None])[0]),
            spearman=_correlation(both, _ranks(both.sum(axis=0)), _ranks(both.sum(axis=0))),
        ),
    )


def _chances(shares: Floats, correlation: float) -> Floats:
    """The chance of every level at every quality, (grid, k); qualities are equally likely."""
    from scipy.special import ndtr, ndtri

    quality = ndtri((np.arange(GRID) + 0.5) / GRID)[:, None]
    cuts = ndtri(np.clip(np.cumsum(shares)[:-1], 0, 1))
    below = ndtr((cuts - np.sqrt(correlation) * quality) / np.sqrt(1 - correlation))
    ends = np.zeros((GRID, 1)), np.ones((GRID, 1))
    chances: Floats = np.diff(np.hstack([ends[0], below, ends[1]]), axis=1)
    return chances


def _solve(shares: Floats, reliability: float) -> float:
    from scipy.optimize import brentq

    def excess(correlation: float) -> float:
        given = _chances(shares, correlation)
        return float(qwk((given.T @ given)[None])[0]) - reliability

    low, high = 1e-6, 1 - 1e-6
    # Outside only for a kappa so near 0 or 1 that the ends say as much.
    return (
        float(brentq(excess, low, high)) if excess(low) < 0 < excess(high) else (low, high)[excess(low) < 0]
    )


def _perfect(shares: Floats, given: Floats) -> Reach:
    """`given` is in order of quality, so a row's place is its rank."""
    used = shares > 0
    place = (np.arange(GRID) + 0.5) / GRID
    cut = np.searchsorted(np.cumsum(shares)[:-1], place, side="left")
    table = given.T @ (cut[:, None] == np.arange(len(shares))).astype(float) / GRID
    balanced = (given[:, used] / given.mean(axis=0)[used]).max(axis=1).mean() / used.sum()
    return Reach(
        exact=float(given.max(axis=1).mean()),
        balanced_accuracy=float(balanced),
        qwk=float(qwk(table[None])[0]),
        spearman=max(
            _correlation(given / GRID, _ranks(table.sum(axis=1)), place),
            # Where people agree almost always, their ties rank better than what tells all responses apart.
            _correlation(table, _ranks(table.sum(axis=0)), _ranks(table.sum(axis=1))),
        ),
    )


def _ranks(shares: Floats) -> Floats:
    """Each level's mean rank, from 0 to 1."""
    ranks: Floats = np.cumsum(shares) - shares / 2
    return ranks


def _correlation(table: Floats, across: Floats, down: Floats) -> float:
    """Pearson's, of values at the rows and columns of a table of probabilities."""
    rows, columns = table.sum(axis=1), table.sum(axis=0)
    one, two = down - rows @ down, across - columns @ across
    return float(one @ table @ two / np.sqrt((rows @ one**2) * (columns @ two**2)))


PANEL: Final = 10  # raters; how far others than a smaller panel would agree, it does not tell
MIN_SHARED: Final = 10  # responses two people must share for a kappa of the two to be worth a look


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """One person against the median of the others, and the judge against it on the same responses: QWK."""

    rater: str
    responses: int
    person: float
    judge: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """The agreement of people with each other, or why it is not known.

    `alpha_ordinal` is Krippendorff's, over responses with two ratings or more. `person_against_rest` and
    `judge_against_rest` are the QWKs with the median of the other people, each person left out in turn and
    all turns counted in one table; `gap` is judge - person. `bound` is there where the ceiling is not
    identifiable. Intervals are over prompts: the agreement of a small panel is that of these raters.
    """

    raters: int
    responses: int
    shared: int  # responses with two ratings or more
    not_identifiable: str | None = None
    speaks_for: SpeaksFor = "people"
    alpha_ordinal: Estimate = UNDEFINED
    left_out: tuple[LeftOut, ...] = ()
    person_against_rest: Estimate = UNDEFINED
    judge_against_rest: Estimate = UNDEFINED
    gap: Estimate = UNDEFINED
    alternative: AlternativeTest | None = None
    bound: Bound | None = None


def ceiling(
    paired: Paired,
    *,
    rng: np.random.Generator,
    draws: int = 2000,
    reliability: float = PILOT_KAPPA,
) -> Ceiling:
    """How far people agree among themselves, and whether the judge could be one of them.

    Intervals resample prompts. With hardly any response rated twice, the bound that `reliability`, a weighted
    kappa of two people, implies.
    """
    names, codes, ratings = np.unique(paired.id, return_inverse=True, return_counts=True)
    shared = int((ratings > 1).sum())
    sizes: dict[str, Any] = {
        "raters": len(np.unique(paired.rater)),
        "responses": len(names),
        "shared": shared,
    }
    if shared < MIN_SHARED:
        few = (
            f"only {shared} responses have two ratings or more" if shared else "every response has one rating"
        )
        shares = np.bincount(paired.rating - 1, minlength=paired.levels).astype(float)
        return Ceiling(
            **sizes,
            not_identifiable=f"not identifiable: {few}, so noise of raters and of the judge look the same",
            bound=reliability_bound(shares, reliability=reliability),
        )
    grid = RatingGrid.of(paired.take(ratings[codes] > 1))
    count = int(grid.clusters.max()) + 1
    drawn = resample_clusters(count, rng=rng, draws=draws if count > 1 else 0)
    person, judge, turns = _leave_out(grid, drawn)
    return Ceiling(
        **sizes,
        speaks_for="these raters" if sizes["raters"] < PANEL else "people",
        alpha_ordinal=_alpha(grid, drawn),
        left_out=turns,
        person_against_rest=person.estimate(),
        judge_against_rest=judge.estimate(),
        gap=(judge - person).estimate(),
        alternative=alternative_test(grid.table, grid.judge, clusters=grid.clusters, drawn=drawn),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingGrid:
    """Paired ratings as a table, (raters, items), nan where somebody did not rate."""

    table: Floats
    judge: Floats  # the judge's label of each item
    clusters: Integers  # each item's prompt
    raters: tuple[str, ...]
    levels: int

    @classmethod
    def of(cls, paired: Paired) -> "RatingGrid":
        """The table of paired ratings, items in order of their ids."""
        names, rows = np.unique(paired.rater, return_inverse=True)
        _, first, columns = np.unique(paired.id, return_index=True, return_inverse=True)
        table = np.full((len(names), len(first)), np.nan)
        table[rows, columns] = paired.rating
        return cls(
            table=table,
            judge=paired.label[first].astype(float),
            clusters=np.unique(paired.prompt[first], return_inverse=True)[1],
            raters=tuple(str(name) for name in names),
            levels=paired.levels,
        )


def _alpha(grid: RatingGrid, drawn: Draws) -> Estimate:
    pairs = coincidences_of(level_counts(grid.table, grid.levels)).reshape(grid.table.shape[1], -1)
    each = sum_draws(cluster_sums(grid.clusters, pairs, drawn.shape[1]), drawn)
    whole, tables = (sums.reshape(-1, grid.levels, grid.levels) for sums in (pairs.sum(axis=0), each))
    alpha = Sampled(float(ordinal_alpha(whole)[0]), ordinal_alpha(tables)).estimate()
    return refused_by_rarity({"alpha_ordinal": alpha}, grid.table)["alpha_ordinal"]


def _leave_out(grid: RatingGrid, drawn: Draws) -> tuple[Sampled, Sampled, tuple[LeftOut, ...]]:
    """Person and judge against the median of the others, over all turns, and turn by turn."""
    turns = []
    for row in range(len(grid.raters)):
        shared, others = shared_items(grid.table, row)
        medians = np.rint(np.nanmedian(others, axis=0)) if len(shared) else np.zeros(0)
        turns.append((shared, grid.table[row, shared], medians))
    left_out = tuple(
        LeftOut(
            rater=name,
            responses=len(items),
            person=_qwk(person, rest, grid.levels),
            judge=_qwk(grid.judge[items], rest, grid.levels),
        )
        for name, (items, person, rest) in zip(grid.raters, turns, strict=True)
        if len(items) >= MIN_SHARED
    )
    items, people, rest = (np.concatenate([turn[part] for turn in turns]) for part in range(3))
    items = items.astype(np.intp)
    person, judge = (
        Sampled(
            _qwk(labels, rest, grid.levels),
            qwk(tables_of(labels, rest, grid.levels, grid.clusters[items], drawn)),
        )
        for labels in (people, grid.judge[items])
    )
    return person, judge, left_out


def _qwk(first: Floats, second: Floats, levels: int) -> float:
    return float(qwk(table_of(first, second, levels)[None])[0])
