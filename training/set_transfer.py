"""A judge on rated sets that it never met: ranks of replies, the worst of them, the order of systems."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from calibration.agreement.metrics import auc_of, spearman_of
from calibration.agreement.model_levels import kendall
from calibration.bootstrap import Sampled, Statistic, ratio, resample_clusters, sample
from calibration.estimate import Estimate, Floats
from training.held_out import expected_scores

WORST = 0.2  # part of the items, the lowest rated, that a judge should find
EXPERT = "expert"  # so begin the names of single people among those who also rated an item


@dataclass(frozen=True, slots=True, kw_only=True)
class SetItem:
    """A rated reply or conversation, and what a judge that never met its set said of it, on average."""

    id: str
    set: str
    system: str
    cluster: str  # what is drawn anew: a post, a conversation, a person
    rating: float
    words: float  # of its replies on average
    probabilities: Sequence[float]
    others: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartyTransfer:
    """One party on one set; `worst` is the AUC of the lowest rated fifth, `tau` the order of the systems."""

    spearman: Estimate
    worst: Estimate
    tau: Estimate | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTransfer:
    """A set, and the judge, the length of replies, recorded judges and people on it."""

    set: str
    items: int
    clusters: int
    systems: int
    within: Mapping[str, Estimate]  # the judge's Spearman within each system, where a set's files are mixed
    parties: Mapping[str, PartyTransfer]


def measure_set(items: Sequence[SetItem], *, seed: int = 0, draws: int = 2000) -> SetTransfer:
    """Every party on the items of one set, with the same draws of clusters."""
    rating = np.array([item.rating for item in items])
    system = np.array([item.system for item in items])
    names, clusters = np.unique([item.cluster for item in items], return_inverse=True)
    drawn = resample_clusters(len(names), rng=np.random.default_rng(seed), draws=draws)
    columns: dict[str, Floats] = {
        "judge": expected_scores(np.array([item.probabilities for item in items])),
        "length": np.array([item.words for item in items]),
    }
    others = sorted({name for item in items for name in item.others})
    for name in others:
        if not name.startswith(EXPERT):
            columns[name] = np.array([item.others.get(name, np.nan) for item in items])
    parties = {name: _measure(rating, column, system, clusters, drawn) for name, column in columns.items()}
    people = [name for name in others if name.startswith(EXPERT)]
    if len(people) > 1:
        parties["one expert"] = _one_of(people, items, clusters, drawn)
    kinds = np.unique(system)
    return SetTransfer(
        set=items[0].set,
        items=len(items),
        clusters=len(names),
        systems=len(kinds),
        within={
            str(kind): _sampled(
                spearman_of(rating[system == kind], columns["judge"][system == kind]),
                clusters[system == kind],
                drawn,
            ).estimate()
            for kind in kinds
            if len(kinds) > 1
        },
        parties=parties,
    )


def _measure(
    rating: Floats, score: Floats, system: np.ndarray, clusters: np.ndarray, drawn: np.ndarray
) -> PartyTransfer:
    there = np.isfinite(score)
    rating, score, system, clusters = rating[there], score[there], system[there], clusters[there]
    worst = rating <= np.quantile(rating, WORST)
    kinds = np.unique(system)
    return PartyTransfer(
        spearman=_sampled(spearman_of(rating, score), clusters, drawn).estimate(),
        worst=_sampled(auc_of(worst, -score), clusters, drawn).estimate(),
        tau=_sampled(_tau_of(rating, score, system), clusters, drawn).estimate() if len(kinds) > 2 else None,
    )


def _sampled(statistic: Statistic, clusters: np.ndarray, drawn: np.ndarray) -> Sampled:
    return sample({"it": statistic}, clusters, drawn)["it"]


def _tau_of(rating: Floats, score: Floats, system: np.ndarray) -> Statistic:
    """Kendall's tau over the systems' means."""
    inside = (system[:, None] == np.unique(system)).astype(float)

    def tau(counts: Floats) -> Floats:
        total = counts @ inside
        # Rounded: a judge that says the same of all systems ties them, though sums differ in the last bit.
        people, judge = (np.round(ratio((counts * each) @ inside, total), 12) for each in (rating, score))
        return np.where(np.isnan(people).any(axis=1), np.nan, kendall(people, judge))

    return tau


def _one_of(
    people: Sequence[str], items: Sequence[SetItem], clusters: np.ndarray, drawn: np.ndarray
) -> PartyTransfer:
    """One person against the mean of the others, averaged over who that one is."""
    table = np.array([[item.others.get(name, np.nan) for name in people] for item in items])
    whole = np.isfinite(table).all(axis=1)
    table, clusters = table[whole], clusters[whole]
    # Rounded, since a tie that the last bit breaks is no tie any more.
    rest = np.round((table.sum(axis=1, keepdims=True) - table) / (len(people) - 1), 9)

    def mean_of(statistics: Sequence[Statistic]) -> Statistic:
        return lambda counts: np.mean([statistic(counts) for statistic in statistics], axis=0)

    pairs = list(zip(table.T, rest.T, strict=True))
    spearman = mean_of([spearman_of(others, one) for one, others in pairs])
    worst = mean_of([auc_of(others <= np.quantile(others, WORST), -one) for one, others in pairs])
    return PartyTransfer(
        spearman=_sampled(spearman, clusters, drawn).estimate(),
        worst=_sampled(worst, clusters, drawn).estimate(),
        tau=None,
    )
