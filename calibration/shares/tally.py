"""Each model's share of Bad, Okay and Good responses, with intervals over the choice of prompts.

A share is the mean probability of a label, not the part of responses whose likeliest label it is: a judge
with P(Good) = 60% for every response expects 60% human Good ratings, and counting likeliest labels
would make that 100%. For a judge that is always certain the two are the same.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from empathy_judge.calibration.bootstrap import mean_intervals, resample_clusters
from empathy_judge.calibration.cluster import widen_certain
from empathy_judge.calibration.estimate import Estimate
from empathy_judge.data.records import LABELS, Judgment

MAX_CLUSTERS = 5000
BLOCKS = 2500


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedShares:
    """The judge's own shares of one model; empty when none of its responses was scored.

    A share has no interval when all responses answer one prompt.
    """

    model: str
    scored: int
    unscored: Mapping[str, int]  # by reason
    shares: Mapping[str, Estimate]


@dataclass(slots=True)
class Tally:
    """Sums over judgments, so that a million of them need no more memory than a few thousand.

    The responses to one prompt form a cluster: they rise and fall together, so whole prompts are resampled,
    never single responses. Past `MAX_CLUSTERS` prompts they are thrown together into `BLOCKS` blocks by their
    digest. Chance made the blocks, so the spread between them tells that between prompts, to within the error
    of estimating a spread from that many of them: 1 / sqrt(2 * BLOCKS), 1.4% of the interval's width.
    """

    sums: defaultdict[str, dict[int, list[float]]] = field(default_factory=lambda: defaultdict(dict))
    replies: Counter[str] = field(default_factory=Counter)  # by model, for `replies_digest`
    unscored: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    clusters: set[int] = field(default_factory=set)
    in_blocks: bool = False

    def add(self, judgment: Judgment) -> None:
        """Count one judgment in."""
        clusters = self.sums[judgment.model]
        if judgment.flag is not None:
            return  # a reply to somebody in danger is for people to read, not for a share of Good
        if judgment.probabilities is None:
            # What follows a colon is particular to one response; reasons are counted by kind.
            self.unscored[judgment.model][(judgment.unscored or "no reason given").partition(":")[0]] += 1
            return
        self.replies[judgment.model] += int(judgment.content_digest, 16)
        cluster = int(judgment.prompt_digest, 16)
        if self.in_blocks:
            cluster %= BLOCKS
        self.clusters.add(cluster)
        _add_to(clusters, cluster, [judgment.probabilities[label] for label in LABELS] + [1.0])
        if len(self.clusters) > MAX_CLUSTERS:
            self._throw_together()

    def _throw_together(self) -> None:
        self.in_blocks = True
        self.clusters = {cluster % BLOCKS for cluster in self.clusters}
        for model, clusters in self.sums.items():
            self.sums[model] = {}
            for cluster, values in clusters.items():
                _add_to(self.sums[model], cluster % BLOCKS, values)


def replies_digest(total: int) -> str:
    """Return the digest of a model's replies from the sum of their content digests, in whatever order."""
    return f"{total % 2**64:016x}"


def replies_by_model(judgments: Iterable[Judgment]) -> dict[str, str]:
    """Return the digest of every model's scored replies, as a tally of them has it."""
    tally = Tally()
    for judgment in judgments:
        tally.add(judgment)
    return {model: replies_digest(total) for model, total in tally.replies.items()}


def model_shares(tally: Tally, *, rng: np.random.Generator, draws: int = 2000) -> list[JudgedShares]:
    """Return the shares of every model, the one with the most Good responses first."""
    order = {cluster: column for column, cluster in enumerate(sorted(tally.clusters))}
    weights = resample_clusters(len(order), rng=rng, draws=draws)
    models = []
    for model, clusters in tally.sums.items():
        values = np.array(list(clusters.values())).reshape(-1, len(LABELS) + 1)
        sums, counts = values[:, :-1], values[:, -1]
        shares: dict[str, Estimate] = {}
        if counts.size:
            means = (sums.sum(axis=0) / counts.sum()).tolist()
            intervals = mean_intervals(sums, counts, weights[:, [order[cluster] for cluster in clusters]])
            estimates = map(Estimate, means, intervals or (None,) * len(LABELS))
            widened = (widen_certain(item, len(counts)) for item in estimates)
            shares = dict(zip(LABELS, widened, strict=True))
        models.append(
            JudgedShares(
                model=model,
                scored=int(counts.sum()),
                unscored=dict(tally.unscored[model]),
                shares=shares,
            )
        )
    return sorted(models, key=lambda item: (-item.shares["Good"].value if item.shares else 1.0, item.model))


def _add_to(clusters: dict[int, list[float]], cluster: int, values: Sequence[float]) -> None:
    held = clusters.setdefault(cluster, [0.0] * len(values))
    for index, value in enumerate(values):
        held[index] += value
