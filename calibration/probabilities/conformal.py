"""Sets of labels that hold the crowd's rating with a stated chance, whichever label that is.

Split conformal prediction, class-conditional (Mondrian): each label has a threshold of its own, so that the
rare Bad is covered as often as Good is, not sacrificed to it. A label is in the set unless its probability is
lower than that of all but a few of the calibration responses with that rating. By hand in few lines: mapie
wraps scikit-learn estimators, is slow to import, and has neither splits by cluster nor sets without gaps.

The promise holds on average over calibration sets, for responses that come as the calibration ones did. A
batch shares a rater, so its rows are not so many independent draws: keep it on one side,
and expect coverage to vary more between calibration sets than the counts of ratings suggest.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibration.cluster import clustered_share
from calibration.estimate import Estimate, Floats, Integers
from calibration.probabilities.maps import folds_of
from data.errors import UserError
from data.records import LABELS

COVERAGE: Final = 0.9
ALWAYS: Final = 1.0  # the threshold no nonconformity is above


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """For each label the largest 1 - probability at which it is still in the set.

    A label with too few ratings for the wanted coverage has threshold 1: it is always in.
    """

    coverage: float
    labels: tuple[str, ...]
    thresholds: tuple[float, ...]
    ratings: tuple[int, ...]  # how many ratings each threshold rests on


def thresholds_from_dict(found: Mapping[str, Any]) -> Thresholds:
    """The thresholds `as_dict` described."""
    try:
        labels, thresholds, ratings = (tuple(found[name]) for name in ("labels", "thresholds", "ratings"))
        coverage = float(found["coverage"])
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"calibration thresholds: {error!r}; fit the calibration again") from None
    if len({len(labels), len(thresholds), len(ratings)}) > 1:
        raise UserError("calibration thresholds: one for each label is needed; fit the calibration again")
    return Thresholds(coverage=coverage, labels=labels, thresholds=thresholds, ratings=ratings)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetReport:
    """How sets did on ratings they were not made from; coverage by rating, with intervals over clusters."""

    wanted: float
    coverage: Estimate
    by_label: Mapping[str, Estimate]
    mean_size: float
    sizes: tuple[float, ...]  # the part of sets with 1, 2, ... labels


def fit_thresholds(
    probabilities: ArrayLike,
    ratings: ArrayLike,
    *,
    coverage: float = COVERAGE,
    labels: Sequence[str] = LABELS,
) -> Thresholds:
    """Thresholds from responses the judge (and its map) was not fitted on.

    Of n responses with a rating the threshold is the ceil((n + 1) coverage)-th smallest nonconformity, which
    covers the next such response with at least that chance; with n below coverage / (1 - coverage) there is
    no such one, and the label is always in.

    >>> said = [[0.9, 0.1]] * 9 + [[0.3, 0.7]] * 2
    >>> fit_thresholds(said, [1] * 9 + [2] * 2, labels=("no", "yes")).thresholds
    (0.1, 1.0)
    """
    if not 0 < coverage < 1:
        raise UserError(f"coverage {coverage} is not between 0 and 1; 0.9 is usual")
    table, given = np.asarray(probabilities, dtype=float).reshape(-1, len(labels)), np.asarray(ratings)
    found, counts = [], []
    for column in range(len(labels)):
        scores = np.sort(_nonconformity(table[given == column + 1, column]))
        rank = math.ceil(round((len(scores) + 1) * coverage, 9))
        found.append(float(scores[rank - 1]) if rank <= len(scores) else ALWAYS)
        counts.append(len(scores))
    return Thresholds(coverage=coverage, labels=tuple(labels), thresholds=tuple(found), ratings=tuple(counts))


def prediction_sets(probabilities: ArrayLike, thresholds: Thresholds) -> tuple[tuple[str, ...], ...]:
    """The set of each response, labels in order and without gaps, never empty.

    A gap is filled, since "Bad or Good but not Okay" is no answer on an ordered scale, and an empty set is
    replaced by the likeliest label; both only add labels, so coverage can only rise.

    >>> thresholds = Thresholds(coverage=0.9, labels=LABELS, thresholds=(0.85, 0.7, 0.6), ratings=(9, 9, 9))
    >>> prediction_sets([[0.2, 0.3, 0.5], [0.05, 0.15, 0.8], [0.3, 0.1, 0.6]], thresholds)
    (('Bad', 'Okay', 'Good'), ('Good',), ('Bad', 'Okay', 'Good'))
    """
    inside = _inside(np.asarray(probabilities, dtype=float), thresholds)
    return tuple(
        tuple(label for label, is_in in zip(thresholds.labels, row, strict=True) if is_in)
        for row in inside.tolist()
    )


def cross_assess_sets(
    probabilities: ArrayLike,
    ratings: ArrayLike,
    clusters: ArrayLike,
    *,
    rng: np.random.Generator,
    labels: Sequence[str] = LABELS,
) -> SetReport:
    """What to expect of thresholds fitted on all these ratings: each fold's sets come from the other folds.

    So no rating is lost to a split. Undefined with fewer than two clusters.
    """
    table, given = np.asarray(probabilities, dtype=float).reshape(-1, len(labels)), np.asarray(ratings)
    groups = np.unique(np.asarray(clusters), return_inverse=True)[1]
    folds = folds_of(clusters, rng=rng)
    inside = np.empty(table.shape, dtype=bool)
    for part in folds:
        inside[part] = _inside(table[part], fit_thresholds(table[~part], given[~part], labels=labels))
    if not folds:
        inside, given, groups = inside[:0], given[:0], groups[:0]
    hits = inside[np.arange(len(inside)), given.astype(np.intp) - 1]
    size = inside.sum(axis=1)
    return SetReport(
        wanted=COVERAGE,
        coverage=clustered_share(hits, groups),
        by_label={
            label: clustered_share(hits[given == rating], groups[given == rating])
            for rating, label in enumerate(labels, start=1)
        },
        mean_size=float(size.mean()) if folds else math.nan,
        sizes=tuple(float(np.mean(size == count)) for count in range(1, len(labels) + 1)) if folds else (),
    )


def ask_first(probabilities: ArrayLike, thresholds: Thresholds) -> Integers:
    """The responses in the order in which people should look at them: the largest set, then the most entropy.

    >>> thresholds = Thresholds(coverage=0.9, labels=LABELS, thresholds=(0.85, 0.7, 0.6), ratings=(9, 9, 9))
    >>> ask_first([[0.05, 0.15, 0.8], [0.2, 0.3, 0.5], [0.0, 0.1, 0.9]], thresholds).tolist()
    [1, 0, 2]
    """
    table = np.asarray(probabilities, dtype=float).reshape(-1, len(thresholds.labels))
    size = _inside(table, thresholds).sum(axis=1)
    entropy = -(table * np.log(np.where(table > 0, table, 1.0))).sum(axis=1)
    return np.lexsort((np.arange(len(table)), -np.round(entropy, 9), -size))


def _inside(table: Floats, thresholds: Thresholds) -> NDArray[np.bool_]:
    """Which labels are in each set, (rows, labels)."""
    table = table.reshape(-1, len(thresholds.labels))
    inside = _nonconformity(table) <= np.array(thresholds.thresholds)
    empty = ~inside.any(axis=1)
    inside[empty, table[empty].argmax(axis=1)] = True
    from_below = np.logical_or.accumulate(inside, axis=1)
    from_above = np.logical_or.accumulate(inside[:, ::-1], axis=1)[:, ::-1]
    filled: NDArray[np.bool_] = from_below & from_above
    return filled


def _nonconformity(probabilities: Floats) -> Floats:
    """1 - probability: where probabilities are right, no other ranking of labels has smaller sets."""
    return np.round(1 - probabilities, 12)  # rounded, so that a written and read probability ranks the same
