"""A map of a judge's probabilities to one's own ratings, made only where its gain is certain."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from empathy_judge.calibration import bootstrap
from empathy_judge.calibration.agreement.metrics import spearman_of
from empathy_judge.calibration.artifact import RatingMap, map_inputs
from empathy_judge.calibration.estimate import Estimate, Floats, Integers
from empathy_judge.calibration.pairing import Paired
from empathy_judge.calibration.proportional_odds import folds_of
from empathy_judge.calibration.shares.transport import LEAST_MODELS
from empathy_judge.data.records import LABELS, Judgment, with_probabilities

PENALTY_C = 1.0  # a normal prior of SD 1 on the logit per SD of an input: it reins in few ratings only


@dataclass(frozen=True, slots=True, kw_only=True)
class MapTrial:
    """Spearman correlations with the ratings of the judge and of the cross-fitted map, and the `gain`."""

    judge: float
    mapped: float
    gain: Estimate
    rating_map: RatingMap | None  # fitted on all ratings; None where the gain is not certain


def try_map(
    paired: Paired, judgments: Sequence[Judgment], *, rng: np.random.Generator, draws: int
) -> tuple[MapTrial | None, Sequence[Judgment]]:
    """Return the trial of a map, and the judgments: mapped where the gain is certain, else as they are.

    A rated reply is mapped without the ratings of its fold. There is no trial without probabilities and word
    counts, or with fewer models than a line needs: it cannot share the line of shipped models, unmapped ones.
    """
    scored = [item for item in judgments if item.unscored is None]
    inputs, clusters = map_inputs(scored), paired.clusters()
    folds, ratings = folds_of(clusters, rng=rng), paired.rating
    is_full = [len(np.unique(ratings[~inside])) == len(LABELS) for inside in folds] or [False]
    if inputs is None or paired.scale != LABELS or len(paired.models) < LEAST_MODELS or not all(is_full):
        return None, judgments
    row_of = {item.id: row for row, item in enumerate(scored)}
    rows, table = [row_of[name] for name in paired.id.tolist()], np.empty((len(paired), len(LABELS)))
    rated = inputs[rows]
    for inside in folds:
        table[inside] = _fit(rated[~inside], ratings[~inside]).apply(rated[inside])
    scores = {"judge": paired.score, "mapped": table @ np.arange(1.0, len(LABELS) + 1)}
    statistics = {name: spearman_of(ratings.astype(float), score) for name, score in scores.items()}
    drawn = bootstrap.replicate_clusters(int(clusters.max()) + 1, rng=rng, draws=draws)
    found = bootstrap.sample(statistics, clusters, drawn)
    gain = (found["mapped"] - found["judge"]).estimate()
    fitted = _fit(rated, ratings) if gain.interval and gain.interval.low > 0 else None
    if fitted:
        every = fitted.apply(inputs)
        every[rows] = table
        mapped = [dict(zip(LABELS, row, strict=True)) for row in every]
        judgments = [
            with_probabilities(item, mapped[row_of[item.id]]) if item.id in row_of else item
            for item in judgments
        ]
    values = {name: item.value for name, item in found.items()}
    return MapTrial(**values, gain=gain, rating_map=fitted), judgments


def _fit(inputs: Floats, ratings: Integers) -> RatingMap:
    from sklearn.linear_model import LogisticRegression

    middle, spread = inputs.mean(axis=0), inputs.std(axis=0)
    spread = np.where(spread > 1e-9, spread, np.inf)  # an input that never varies has no weight
    fitted = LogisticRegression(C=PENALTY_C, max_iter=1000).fit((inputs - middle) / spread, ratings)
    weights = fitted.coef_ / spread
    constants = fitted.intercept_ - weights @ middle
    return RatingMap(weights=tuple(map(tuple, weights.tolist())), constants=tuple(constants.tolist()))
