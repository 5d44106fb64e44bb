"""How a judge did on ratings it was not trained on, with intervals over rating batches.

A batch is ten prompts; of each model one person rated the ten responses. Whole batches are resampled, for all
models together: responses share a rater, and models share prompts.

Most labels are made of probabilities by rules that use no rating of the split they label. The likeliest label
is Good for almost every response (most ratings are), which would tell us about the crowd's mean and little
about the judge; each rule takes that out in its own way. The label that a user meets is measured too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.agreement.metrics import (
    BINS,
    TABLE_STATISTICS,
    auc_of,
    calibration_error_of,
    from_table,
    log_losses,
    matched_labels,
    spearman_of,
)
from calibration.agreement.model_levels import (
    GOOD,
    Levels,
    ModelLevel,
    levels_over,
    model_levels,
    sample_levels,
    tabulate,
)
from calibration.bootstrap import Draws, Sampled, Statistic, mean_of, resample_clusters, sample
from calibration.estimate import CONFIDENCE, Estimate, Floats, Integers
from calibration.pairing import given_labels
from data.errors import UserError
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
    own ratings give the frequencies (`has_own_frequencies` says so).

    >>> scores, split = np.array([1.1, 2.9, 1.4, 2.2]), np.array(["a", "a", "b", "b"])
    >>> labels_by_frequency(scores, np.array([3, 3, 1, 2]), split).tolist()  # a: half 1, half 2; b: all 3
    [1, 2, 3, 3]
    """
    labels = np.empty(len(scores), dtype=np.intp)
    for name in np.unique(split):
        inside = split == name
        others = ratings if inside.all() else ratings[~inside]
        labels[inside] = matched_labels(others, scores[inside], len(LABELS))
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HeldOut:
    """RatedModel responses and what a judge that never saw their ratings said of them; one row a response.

    `split` names the training run that predicted the row. Give all rows of a left-out model one name: the
    rules for labels take the ratings outside a split as known. A response without a judgment is no row.
    """

    model: NDArray[np.str_]
    batch: NDArray[np.str_]
    split: NDArray[np.str_]
    rating: NDArray[np.int64]  # 1 to 3
    probabilities: Floats  # (rows, 3): Bad, Okay, Good

    def __post_init__(self) -> None:
        columns = (self.model, self.batch, self.split, self.rating, self.probabilities)
        if len({len(column) for column in columns}) > 1 or self.probabilities.shape[1:] != (len(LABELS),):
            raise ValueError("held-out ratings: columns of one length, and three probabilities a row")
        if not np.isin(self.rating, [1, 2, 3]).all() or not np.isfinite(self.probabilities).all():
            raise ValueError("held-out ratings: ratings are 1 to 3 and probabilities are numbers")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutEvaluation:
    """How one judge did; `chosen_models` is None when no models were chosen.

    `has_own_frequencies`: there was one split only, so the labels of `qwk` use the very ratings they meet.
    """

    responses: int
    batches: int
    draws: int
    confidence: float = CONFIDENCE
    has_own_frequencies: bool
    per_response: Mapping[str, Estimate]
    models: tuple[ModelLevel, ...]
    all_models: Levels
    chosen_models: Levels | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rivalry:
    """A judge beside its rivals; `differences` are judge - rival for each rival, paired over the draws."""

    judge: str
    evaluations: Mapping[str, HeldOutEvaluation]
    differences: Mapping[str, Mapping[str, Estimate]]


def compare_rivals(
    judges: Mapping[str, HeldOut],
    *,
    judge: str,
    rng: np.random.Generator,
    draws: int = 1000,
    chosen: Sequence[str] | None = None,
) -> Rivalry:
    """Every judge on the same rows and the same draws, and how far `judge` is from each of the others.

    Each did so well response by response, model by model, and over the models, all or the `chosen` ones.
    Per response, where all labels are fixed before the bootstrap:

    - `qwk`: quadratic kappa of the rating and a label, cut from the expected score so that in each split the
      labels are as frequent as the crowd's ratings outside it (of the split's own ratings none is used);
    - `given_qwk`: the same of the label that a judge gives, Good above one half;
    - `spearman`: of the rating and the expected score;
    - `balanced_accuracy`: of the label whose probability is highest against its mean over the split;
    - `auc_good`, `auc_bad`: by the probability of Good and of Bad;
    - `log_loss`;
    - `calibration_error`: of the probability of Good. Chance pushes it up, in a draw more than in the whole,
      so its interval leans high.

    Ranks are taken over all splits together, so a level that shifts from split to split costs: a judge that
    says nothing but the frequencies outside each split ranks below chance. With fewer than two batches there
    are no intervals.

    Differences are judge - rival, in all values per response and in the mean and worst share error over the
    `chosen` models, or over all; what a draw does to both judges cancels.
    """
    if judge not in judges:
        raise UserError(f"unknown judge {judge!r}; known: {', '.join(judges)}")
    ours = judges[judge]
    for name, held_out in judges.items():
        for column in ("model", "batch", "rating"):
            if not np.array_equal(getattr(ours, column), getattr(held_out, column)):
                raise UserError(
                    f"{name} and {judge} judged different rows; give both the rows both scored, in order"
                )
    if not len(ours.batch):
        raise UserError("nothing to evaluate: no response has both a rating and a judgment")
    names, batches = np.unique(ours.batch, return_inverse=True)
    # One batch cannot tell how much batches differ: no draws, hence no intervals.
    drawn = resample_clusters(len(names), rng=rng, draws=draws if len(names) > 1 else 0)
    evaluated = {name: _evaluate(held_out, batches, drawn, chosen) for name, held_out in judges.items()}
    mine = evaluated[judge][1]
    return Rivalry(
        judge=judge,
        evaluations={name: evaluation for name, (evaluation, _) in evaluated.items()},
        differences={
            rival: {name: (mine[name] - value).estimate() for name, value in theirs.items()}
            for rival, (_, theirs) in evaluated.items()
            if rival != judge
        },
    )


def _evaluate(
    held_out: HeldOut, batches: Integers, drawn: Draws, chosen: Sequence[str] | None
) -> tuple[HeldOutEvaluation, dict[str, Sampled]]:
    """One judge's evaluation, and the draws of what is compared with its rivals'."""
    table = tabulate(held_out.model, batches, held_out.rating, held_out.probabilities, drawn)
    chosen = tuple(dict.fromkeys(map(str, chosen or ())))
    if missing := sorted(set(chosen) - set(table.models)):
        raise UserError(f"no rated response by {', '.join(missing)}; known: {', '.join(table.models)}")
    per_response = sample(_response_statistics(held_out), batches, drawn)
    over_models = sample_levels(table, table.models)
    over_chosen = sample_levels(table, chosen) if chosen else {}
    levels = over_chosen or over_models
    evaluation = HeldOutEvaluation(
        responses=len(held_out.rating),
        batches=drawn.shape[1],
        draws=len(drawn),
        has_own_frequencies=len(np.unique(held_out.split)) < 2,
        per_response={name: item.estimate() for name, item in per_response.items()},
        models=model_levels(table),
        all_models=levels_over(table, table.models, over_models),
        chosen_models=levels_over(table, chosen, over_chosen) if chosen else None,
    )
    return evaluation, per_response | {
        name: levels[name] for name in ("mean_share_error", "worst_share_error")
    }


def _response_statistics(held_out: HeldOut) -> dict[str, Statistic]:
    ratings, probabilities, split = held_out.rating, held_out.probabilities, held_out.split
    scores = expected_scores(probabilities)
    good, bad = ratings == GOOD + 1, ratings == 1

    def of_labels(name: str, labels: Integers) -> Statistic:
        return from_table(TABLE_STATISTICS[name], ratings, labels, len(LABELS))

    return {
        "qwk": of_labels("qwk", labels_by_frequency(scores, ratings, split)),
        "given_qwk": of_labels("qwk", given_labels(probabilities)),
        "spearman": spearman_of(ratings.astype(float), scores),
        "balanced_accuracy": of_labels("balanced_accuracy", labels_by_lift(probabilities, split)),
        "auc_good": auc_of(good, probabilities[:, GOOD]),
        "auc_bad": auc_of(bad, probabilities[:, 0]),
        "log_loss": mean_of(log_losses(ratings, probabilities)),
        "calibration_error": calibration_error_of(good, probabilities[:, GOOD], BINS),
    }
