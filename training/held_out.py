"""Evaluation of a judge on ratings that it was not trained on: of the study by batches, and of other sets.

A batch is ten prompts; of each model one person rated the ten responses. Whole batches are resampled, for all
models together: responses share a rater, and models share prompts. The most probable label is Good for almost
every response, so most labels are made from probabilities by rules that remove the mean rating.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from empathy_judge.calibration.agreement import metrics
from empathy_judge.calibration.agreement.judge_vs_people import LevelError, level_errors
from empathy_judge.calibration.agreement.metrics import auc_of, spearman_of
from empathy_judge.calibration.bootstrap import Draws, Statistic, mean_of, ratio, resample_clusters, sample
from empathy_judge.calibration.estimate import Estimate, Floats, Integers
from empathy_judge.calibration.pairing import labels_from_probabilities
from empathy_judge.data.records import LABELS
from empathy_judge.training.rated_sets import RatedItem

RATINGS = np.arange(1, len(LABELS) + 1)
GOOD = LABELS.index("Good")
WORST = 0.2  # fraction of the items, the lowest rated, that a judge should find
EXPERT = "expert"  # prefix of the names of single people among an item's other raters


def expected_scores(probabilities: Floats) -> Floats:
    """Return the mean rating that probabilities imply, 1 to 3.

    >>> expected_scores(np.array([[0.1, 0.2, 0.7]])).tolist()
    [2.6]
    """
    # Term by term and rounded: equal probabilities must give equal scores, and a matrix product may not.
    terms = (rating * probabilities[:, column] for column, rating in enumerate(RATINGS))
    return np.round(sum(terms, np.zeros(len(probabilities))), 12)


def labels_by_frequency(scores: Floats, ratings: NDArray[Any], split: NDArray[Any]) -> Integers:
    """Return labels 1, 2, 3 cut from the scores, in each split as frequent as the ratings outside it.

    Equal scores get the same label. With one split there is no outside, so its own ratings are used.

    >>> scores, split = np.array([1.1, 2.9, 1.4, 2.2]), np.array(["a", "a", "b", "b"])
    >>> labels_by_frequency(scores, np.array([3, 3, 1, 2]), split).tolist()  # a: half 1, half 2; b: all 3
    [1, 2, 3, 3]
    """
    labels = np.empty(len(scores), dtype=np.intp)
    for name in np.unique(split):
        inside = split == name
        others = ratings if inside.all() else ratings[~inside]
        labels[inside] = metrics.matched_labels(others, scores[inside], len(LABELS))
    return labels


def labels_by_lift(probabilities: Floats, split: NDArray[Any]) -> Integers:
    """Return the label whose probability is highest relative to its mean over the split.

    On a tie the lower label. A judge with one prediction for all responses gives all of them one label.

    >>> labels_by_lift(np.array([[0.1, 0.2, 0.7], [0.2, 0.2, 0.6]]), np.array(["a", "a"])).tolist()
    [3, 1]
    """
    means = np.empty_like(probabilities)
    for name in np.unique(split):
        means[split == name] = probabilities[split == name].mean(axis=0)
    lift = probabilities / np.where(means > 0, means, 1.0)
    labels: Integers = 1 + np.round(lift, 9).argmax(axis=1)  # rounded, or noise would break ties
    return labels


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HeldOut:
    """Rated responses and a judge's predictions, made without their ratings; one row a response."""

    model: NDArray[np.str_]
    batch: NDArray[np.str_]
    split: NDArray[np.str_]  # the training that predicted the row; the label rules use ratings outside of it
    rating: NDArray[np.int64]  # 1 to 3
    probabilities: Floats  # (rows, 3): Bad, Okay, Good

    @property
    def is_good(self) -> Floats:
        """1 where the rating is Good, else 0."""
        return np.equal(self.rating, GOOD + 1).astype(np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """Absolute errors of the Good share over several models, and `tau`, Kendall's, of their order."""

    models: tuple[str, ...]
    mean_share_error: Estimate
    worst_share_error: Estimate
    tau: Estimate
    guess_error: Estimate  # of guessing each share as the mean of the human shares of all other models
    guess_error_among: Estimate  # likewise, of the others of `models` only


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutEvaluation:
    """The figures of one judge: by response, by model, and over all models and over the chosen ones."""

    responses: int
    per_response: Mapping[str, Estimate]
    models: tuple[LevelError, ...]
    all_models: Levels
    chosen_models: Levels | None


def draw_batches(names: Sequence[Any] | NDArray[Any], draws: int = 1000) -> tuple[Integers, Draws]:
    """Return each row's batch by number, and draws of batches: none of one, which shows no variation."""
    unique, batches = np.unique(names, return_inverse=True)
    rng = np.random.default_rng(0)
    return batches, resample_clusters(len(unique), rng=rng, draws=draws if len(unique) > 1 else 0)


def evaluate_held_out(
    judges: Mapping[str, HeldOut], *, draws: int = 1000, chosen: Sequence[str] = ()
) -> dict[str, HeldOutEvaluation]:
    """Evaluate every judge on the same rows and the same draws: by response, by model, and over models."""
    batches, drawn = draw_batches(next(iter(judges.values())).batch, draws)
    return {
        name: HeldOutEvaluation(
            responses=len(held_out.rating),
            per_response={
                metric: item.estimate()
                for metric, item in sample(_response_statistics(held_out), batches, drawn).items()
            },
            models=level_errors(
                held_out.model, held_out.is_good, held_out.probabilities[:, GOOD], batches, drawn
            ).models,
            all_models=_levels(held_out, sorted(set(held_out.model.tolist())), batches, drawn),
            chosen_models=_levels(held_out, chosen, batches, drawn) if chosen else None,
        )
        for name, held_out in judges.items()
    }


def _response_statistics(held_out: HeldOut) -> dict[str, Statistic]:
    """Return the statistics by response, with labels fixed before the bootstrap."""
    ratings, probabilities, split = held_out.rating, held_out.probabilities, held_out.split
    scores = expected_scores(probabilities)

    def of_labels(name: str, labels: Integers) -> Statistic:
        return metrics.from_table(metrics.TABLE_STATISTICS[name], ratings, labels, len(LABELS))

    return {
        "qwk": of_labels("qwk", labels_by_frequency(scores, ratings, split)),
        "label_qwk": of_labels("qwk", labels_from_probabilities(probabilities)),
        "spearman": spearman_of(ratings.astype(float), scores),
        "balanced_accuracy": of_labels("balanced_accuracy", labels_by_lift(probabilities, split)),
        "auc_good": auc_of(ratings == GOOD + 1, probabilities[:, GOOD]),
        "auc_bad": auc_of(ratings == 1, probabilities[:, 0]),
        "log_loss": mean_of(metrics.log_losses(ratings, probabilities)),
    }


def _levels(held_out: HeldOut, models: Sequence[str], batches: Integers, drawn: Draws) -> Levels:
    """Return the errors over these models."""
    rows, is_good = np.isin(held_out.model, models), held_out.is_good
    errors = level_errors(
        held_out.model[rows], is_good[rows], held_out.probabilities[rows, GOOD], batches[rows], drawn
    )
    every = sorted(set(held_out.model.tolist()))
    guesses = {
        name: _guess_error_of(held_out.model, is_good, others, models)
        for name, others in (("guess_error", every), ("guess_error_among", models))
    }
    return Levels(
        models=tuple(models),
        mean_share_error=errors.mean_error,
        worst_share_error=errors.worst_error,
        tau=errors.tau,
        **{name: item.estimate(low=0.0) for name, item in sample(guesses, batches, drawn).items()},
    )


def _guess_error_of(
    model: NDArray[np.str_], is_good: Floats, others: Sequence[str], models: Sequence[str]
) -> Statistic:
    """Return the mean distance of each model's Good share from the mean of the others' shares."""
    inside = (model[:, None] == np.array(others)).astype(float)
    guessed = [list(others).index(name) for name in models]

    def guess_error(counts: Floats) -> Floats:
        shares = ratio((counts * is_good) @ inside, counts @ inside)
        count = np.full(shares.shape, float(len(others) - 1))  # of the others: without any, undefined
        guesses = ratio(shares.sum(axis=1, keepdims=True) - shares, count)
        errors: Floats = np.abs(guesses - shares)[:, guessed].mean(axis=1)
        return errors

    return guess_error


@dataclass(frozen=True, slots=True, kw_only=True)
class SetItem:
    """A rated reply or conversation, and the mean prediction of a judge that was not trained on its set."""

    id: str
    set: str
    system: str
    cluster: str  # the unit of resampling: a post, a conversation, a person
    rating: float
    words: float  # mean over its replies
    probabilities: Sequence[float]
    others: Mapping[str, float] = field(default_factory=dict)
    label: int | None = None  # Bad, Okay or Good as 1 to 3, where raters gave one


def set_item(
    item: RatedItem, probabilities: Sequence[float], others: Mapping[str, float] | None = None
) -> SetItem:
    """Return a rated item with its prediction, and with the figures of others who judged it."""
    words = [len(exchange.response.split()) for exchange in item.exchanges]
    return SetItem(
        id=item.exchanges[-1].id,
        set=item.set,
        system=item.system,
        cluster=item.cluster,
        rating=item.rating,
        words=round(float(np.mean(words)), 2),
        probabilities=probabilities,
        others={**item.others, **(others or {})},
        label=item.label,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RaterTransfer:
    """One judge or rater on one set; `worst` is the AUC of the lowest-rated fifth, `tau` over systems."""

    spearman: Estimate
    worst: Estimate
    tau: Estimate | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTransfer:
    """A set, and on it the judge, the length of replies, recorded judges and people."""

    set: str
    items: int
    parties: Mapping[str, RaterTransfer]


def measure_set(items: Sequence[SetItem], *, draws: int = 2000) -> SetTransfer:
    """Measure every judge and rater on the items of one set, with the same draws of clusters."""
    rating = np.array([item.rating for item in items])
    system = np.array([item.system for item in items])
    clusters, drawn = draw_batches([item.cluster for item in items], draws)
    columns: dict[str, Floats] = {
        "judge": expected_scores(np.array([item.probabilities for item in items])),
        "length": np.array([item.words for item in items]),
    }
    others = sorted({name for item in items for name in item.others})
    for name in others:
        if not name.startswith(EXPERT):
            columns[name] = np.array([item.others.get(name, np.nan) for item in items])
    parties = {name: _measure(rating, column, system, clusters, drawn) for name, column in columns.items()}
    experts = [name for name in others if name.startswith(EXPERT)]
    if len(experts) > 1:
        parties["one expert"] = _measure_experts(experts, items, clusters, drawn)
    return SetTransfer(set=items[0].set, items=len(items), parties=parties)


def _measure(
    rating: Floats, score: Floats, system: np.ndarray, clusters: np.ndarray, drawn: np.ndarray
) -> RaterTransfer:
    present = np.isfinite(score)
    rating, score, system, clusters = rating[present], score[present], system[present], clusters[present]
    statistics = {
        "spearman": spearman_of(rating, score),
        "worst": auc_of(rating <= np.quantile(rating, WORST), -score),
    }
    if len(np.unique(system)) > 2:
        statistics["tau"] = _tau_of(rating, score, system)
    return _transfer(statistics, clusters, drawn)


def _transfer(statistics: Mapping[str, Statistic], clusters: np.ndarray, drawn: np.ndarray) -> RaterTransfer:
    estimates = {name: item.estimate() for name, item in sample(statistics, clusters, drawn).items()}
    return RaterTransfer(spearman=estimates["spearman"], worst=estimates["worst"], tau=estimates.get("tau"))


def _tau_of(rating: Floats, score: Floats, system: np.ndarray) -> Statistic:
    """Return Kendall's tau over the systems' means."""
    inside = (system[:, None] == np.unique(system)).astype(float)

    def tau(counts: Floats) -> Floats:
        total = counts @ inside
        return metrics.kendall(*(ratio((counts * each) @ inside, total) for each in (rating, score)))

    return tau


def _measure_experts(
    experts: Sequence[str], items: Sequence[SetItem], clusters: np.ndarray, drawn: np.ndarray
) -> RaterTransfer:
    """Compare each expert with the mean of the others, and average over experts."""
    table = np.array([[item.others.get(name, np.nan) for name in experts] for item in items])
    complete = np.isfinite(table).all(axis=1)
    table, clusters = table[complete], clusters[complete]
    # Rounded, since a tie that the last bit breaks is no tie any more.
    rest = np.round((table.sum(axis=1, keepdims=True) - table) / (len(experts) - 1), 9)

    def mean_of(statistics: Sequence[Statistic]) -> Statistic:
        return lambda counts: np.mean([statistic(counts) for statistic in statistics], axis=0)

    pairs = list(zip(table.T, rest.T, strict=True))
    return _transfer(
        {
            "spearman": mean_of([spearman_of(others, one) for one, others in pairs]),
            "worst": mean_of([auc_of(others <= np.quantile(others, WORST), -one) for one, others in pairs]),
        },
        clusters,
        drawn,
    )
