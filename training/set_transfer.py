"""Evaluation of a judge on rated sets it was not trained on: ranks, lowest-rated items, systems."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from empathy_judge.calibration.agreement.metrics import auc_of, kendall, spearman_of
from empathy_judge.calibration.bootstrap import Statistic, ratio, resample_clusters, sample
from empathy_judge.calibration.cluster import contrast
from empathy_judge.calibration.estimate import Estimate, Floats
from empathy_judge.data.records import LABELS
from empathy_judge.training.held_out import expected_scores
from empathy_judge.training.rated_sets import RATED_SETS, RatedItem

WORST = 0.2  # fraction of the items, the lowest rated, that a judge should find
EXPERT = "expert"  # prefix of the names of single people among an item's other raters


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
class SystemLevel:
    """The mean of one system by a judge and by people, both on 0 to 1, over `items` ratings.

    The judge's is the mean probability of Good, with the standard deviation within the system. The human mean
    is the share of Good, or the mean on the set's scale; its standard error is clustered like the intervals.
    """

    system: str
    items: int
    judge: float
    judge_sd: float
    human: float
    human_error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTransfer:
    """A set, and on it the judge, the length of replies, recorded judges and people."""

    set: str
    items: int
    parties: Mapping[str, RaterTransfer]
    systems: Sequence[SystemLevel] = ()


def measure_set(items: Sequence[SetItem], *, draws: int = 2000) -> SetTransfer:
    """Measure every judge and rater on the items of one set, with the same draws of clusters."""
    rating = np.array([item.rating for item in items])
    system = np.array([item.system for item in items])
    names, clusters = np.unique([item.cluster for item in items], return_inverse=True)
    drawn = resample_clusters(len(names), rng=np.random.default_rng(0), draws=draws)
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
    is_compared = items[0].set in RATED_SETS and RATED_SETS[items[0].set].systems
    systems = [_measure_system(items, name) for name in np.unique(system)] if is_compared else []
    return SetTransfer(set=items[0].set, items=len(items), parties=parties, systems=systems)


def _measure_system(items: Sequence[SetItem], system: str) -> SystemLevel:
    chosen = [item for item in items if item.system == system]
    low, high = RATED_SETS[chosen[0].set].scale
    judged = np.array([item.probabilities[-1] for item in chosen])
    human = np.array([(item.rating - low) / (high - low) for item in chosen])
    if chosen[0].label is not None:
        human = np.array([float(item.label == len(LABELS)) for item in chosen])
    clusters = np.unique([item.cluster for item in chosen], return_inverse=True)[1]
    return SystemLevel(
        system=system,
        items=len(chosen),
        judge=round(float(judged.mean()), 6),
        judge_sd=round(float(judged.std(ddof=1)), 6),
        human=round(float(human.mean()), 6),
        human_error=round(contrast(human, np.ones(len(human)), clusters).error, 6),
    )


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
        return kendall(*(ratio((counts * each) @ inside, total) for each in (rating, score)))

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
