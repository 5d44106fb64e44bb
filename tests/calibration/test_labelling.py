"""The rules that turn probabilities into labels, by hand."""

import numpy as np

from calibration.agreement.held_out import labels_by_frequency, labels_by_lift


def test_labels_are_cut_by_the_frequencies_outside_the_split() -> None:
    """Outside a: a quarter Bad, half Okay, a quarter Good; outside b: all Good."""
    ratings = np.array([3, 3, 3, 3, 1, 2, 2, 3])
    split = np.array(["a"] * 4 + ["b"] * 4)
    scores = np.array([2.5, 1.2, 2.8, 2.1, 1.9, 1.8, 1.7, 1.6])
    assert labels_by_frequency(scores, ratings, split).tolist() == [2, 1, 3, 2, 3, 3, 3, 3]
    changed = np.concatenate([[1, 1, 1, 1], ratings[4:]])
    kept = labels_by_frequency(scores, changed, split)[:4]
    assert kept.tolist() == [2, 1, 3, 2], "no rating of a split moves its own labels"


def test_equal_scores_get_equal_labels() -> None:
    ratings, split = np.array([1, 1, 1, 3, 3, 3]), np.array(["a", "a", "a", "b", "b", "b"])
    assert labels_by_frequency(np.full(6, 2.0), ratings, split).tolist() == [3, 3, 3, 1, 1, 1]


def test_class_priors_are_divided_out() -> None:
    """Means .2, .2, .6: Good is the likeliest label of all three, yet each row stands out in another."""
    said = np.array([[0.35, 0.1, 0.55], [0.15, 0.35, 0.5], [0.1, 0.15, 0.75]])
    assert labels_by_lift(said, np.array(["a"] * 3)).tolist() == [1, 2, 3]
    assert labels_by_lift(said, np.array(["a", "b", "c"])).tolist() == [1, 1, 1], (
        "a tie takes the lower label"
    )
    assert labels_by_lift(np.array([[0.0, 0.4, 0.6], [0.0, 0.6, 0.4]]), np.array(["a"] * 2)).tolist() == [
        3,
        2,
    ]
