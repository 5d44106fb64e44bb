"""From probabilities to labels, by rules that use no rating of the split they label.

The likeliest label is Good for almost every response (most ratings are), which would tell us about the
crowd's mean and little about the judge. Each rule takes that out in its own way.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.intervals import Floats
from calibration.resampling import Integers, positions
from data.records import LABELS

RATINGS = np.arange(1, len(LABELS) + 1)


def expected_scores(probabilities: Floats) -> Floats:
    """The mean rating a judge expects, 1 to 3.

    >>> expected_scores(np.array([[0.1, 0.2, 0.7]])).tolist()
    [2.6]
    """
    # Term by term and rounded: equal probabilities must give equal scores, and a matrix product may not.
    terms = (rating * probabilities[:, column] for column, rating in enumerate(RATINGS))
    return np.round(sum(terms, np.zeros(len(probabilities))), 12)


def labels_by_frequency(scores: Floats, ratings: NDArray[Any], split: NDArray[Any]) -> Integers:
    """Labels 1, 2, 3 cut from the scores so that in each split they are as frequent as ratings outside it.

    Equal scores get the same label, that of their middle. With one split there is no outside, and the split's
    own ratings give the frequencies (`is_single_split` says so).

    >>> scores, split = np.array([1.1, 2.9, 1.4, 2.2]), np.array(["a", "a", "b", "b"])
    >>> labels_by_frequency(scores, np.array([3, 3, 1, 2]), split).tolist()  # a: half 1, half 2; b: all 3
    [1, 2, 3, 3]
    """
    labels = np.empty(len(scores), dtype=np.intp)
    for name in np.unique(split):
        inside = split == name
        known = ratings if is_single_split(split) else ratings[~inside]
        cuts = [np.mean(known <= rating) for rating in RATINGS[:-1]]
        labels[inside] = 1 + np.searchsorted(cuts, positions(scores[inside]), side="left")
    return labels


def labels_by_lift(probabilities: Floats, split: NDArray[Any]) -> Integers:
    """The label whose probability is highest against its mean over the split: class priors divided out.

    On a tie the lower label. A judge that says the same of every response gives all of them one label.

    >>> labels_by_lift(np.array([[0.1, 0.2, 0.7], [0.2, 0.2, 0.6]]), np.array(["a", "a"])).tolist()
    [3, 1]
    """
    labels = np.empty(len(probabilities), dtype=np.intp)
    for name in np.unique(split):
        inside = split == name
        means = probabilities[inside].mean(axis=0)
        lift = probabilities[inside] / np.where(means > 0, means, 1.0)
        labels[inside] = 1 + np.round(lift, 9).argmax(axis=1)  # rounded, or noise would break ties
    return labels


def is_single_split(split: NDArray[Any]) -> bool:
    """Whether one training run predicted every row, so that nothing lies outside its split."""
    return len(np.unique(split)) < 2
