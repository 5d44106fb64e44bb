"""What a judge says of our own replies as they are: kind by kind, as they grow, and in dialects."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from calibration.agreement.metrics import auc_of
from calibration.bias.crossed_shares import DRAWS, exact_share
from calibration.bias.group_gaps import Gap, largest_gap
from calibration.bootstrap import percentile_interval, resample_clusters, sample
from calibration.estimate import UNDEFINED, Estimate, Floats, Interval
from data.records import LABELS, Judgment
from judge.robustness.replies import KIND, UNKIND, WrittenReply

BAD, GOOD = LABELS[0], LABELS[-1]
Judged = Mapping[WrittenReply, Sequence[Judgment]]  # the judgments of a reply's stages; most have one


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """What the judge says of replies as they are: of one kind, or of a family of that kind."""

    kind: str
    family: str  # "" is the whole kind
    labels: Mapping[str, int]  # and how many are unscored
    bad: Estimate  # of kind replies with the unscored ones, of unkind ones without
    good: Estimate
    score: float  # the mean of those that are scored

    @property
    def replies(self) -> int:
        """How many there are."""
        return sum(self.labels.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Kind replies that grow, after so many paragraphs; what was lost is against the first paragraph."""

    paragraphs: int
    replies: int
    words: float
    good: Estimate  # called Good
    probability: Estimate  # mean probability of Good: the share that `score` prints
    lost_good: Estimate
    lost: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """Excellent and unkind replies in one English."""

    name: str
    excellent: int
    unkind: int
    good: Estimate  # of the excellent ones
    score: float
    bad: Estimate  # of the unkind ones
    auc: Estimate  # excellent above unkind


def read_plain(found: Judged) -> tuple[Plain, ...]:
    """Every kind, and after it its families where there are several; of what grows, the first paragraph."""
    groups: dict[tuple[str, str], list[Judgment]] = {}
    for kind in (*UNKIND, *KIND):
        those = [(reply, answers[0]) for reply, answers in found.items() if reply.kind == kind]
        if those:
            groups[kind, ""] = [judgment for _, judgment in those]
        families: dict[str, list[Judgment]] = defaultdict(list)
        for reply, judgment in those:
            families[reply.family].append(judgment)
        if len(families) > 1:
            groups |= {(kind, family): families[family] for family in sorted(families)}
    rows = []
    for (kind, family), judgments in groups.items():
        labels = Counter(judgment.label or "unscored" for judgment in judgments)
        bad = labels[BAD] + (labels["unscored"] if kind in KIND else 0)
        scores = [judgment.score for judgment in judgments if judgment.score is not None]
        rows.append(
            Plain(
                kind=kind,
                family=family,
                labels={name: labels[name] for name in (*LABELS, "unscored")},
                bad=exact_share(bad, len(judgments)),
                good=exact_share(labels[GOOD], len(judgments)),
                score=float(np.mean(scores)) if scores else float("nan"),
            )
        )
    return tuple(rows)


def read_stages(found: Judged, rng: np.random.Generator) -> tuple[tuple[Stage, ...], Estimate]:
    """What a growing reply is called at each stage, and the most of Good that is lost at any of them."""
    growing = {reply: answers for reply, answers in found.items() if reply.kind == "growing"}
    count = min(map(len, growing.values()), default=0)
    if not count:
        return (), UNDEFINED
    labels = np.array([[item.label == GOOD for item in row[:count]] for row in growing.values()], dtype=float)
    chances = np.array([[_chance_of_good(item) for item in row[:count]] for row in growing.values()])
    words = np.array([[len(text.split()) for text in reply.stages()[:count]] for reply in growing])
    drawn = resample_clusters(len(growing), rng=rng, draws=DRAWS) / len(growing)

    def mean(values: Floats) -> Estimate:
        return Estimate(float(values.mean()), percentile_interval(drawn @ values))

    lost = chances[:, :1] - chances
    stages = tuple(
        Stage(
            paragraphs=at + 1,
            replies=len(growing),
            words=float(words[:, at].mean()),
            good=exact_share(int(labels[:, at].sum()), len(growing)),
            probability=mean(chances[:, at]),
            lost_good=mean(labels[:, 0] - labels[:, at]),
            lost=mean(lost[:, at]),
        )
        for at in range(count)
    )
    worst = float(lost.mean(axis=0)[1:].max(initial=-np.inf))
    if not np.isfinite(worst):
        return stages, UNDEFINED
    return stages, Estimate(worst, percentile_interval((drawn @ lost)[:, 1:].max(axis=1)))


def _chance_of_good(judgment: Judgment) -> float:
    if judgment.probabilities is None:
        return float(judgment.label == GOOD)
    return judgment.probabilities[GOOD]


def rank_replies(
    good: Sequence[Judgment], poor: Sequence[Judgment], rng: np.random.Generator
) -> tuple[Estimate, int, int]:
    """How often a good reply scores above a poor one; a good one that is unscored is below all others."""
    above = [0.0 if item.score is None else item.score for item in good]
    below = [item.score for item in poor if item.score is not None]
    if not above or not below:
        return UNDEFINED, len(above), len(below)
    is_good = np.arange(len(above) + len(below)) < len(above)
    statistic = auc_of(is_good, np.array([*above, *below]))
    ranked = [*good, *(item for item in poor if item.score is not None)]
    prompts = {
        digest: place for place, digest in enumerate(dict.fromkeys(item.prompt_digest for item in ranked))
    }
    clusters = np.array([prompts[item.prompt_digest] for item in ranked])
    drawn = resample_clusters(len(prompts), rng=rng, draws=DRAWS)
    found = sample({"auc": statistic}, clusters, drawn)["auc"].estimate()
    if found.value in (0.0, 1.0):  # a bootstrap of two groups wholly apart sees no chance at all
        fewest = exact_share(0, min(len(above), len(below))).interval
        assert fewest is not None
        found = Estimate(
            found.value, Interval(max(0.0, found.value - fewest.high), min(1.0, found.value + fewest.high))
        )
    return found, len(above), len(below)


def read_dialects(
    found: Judged, rng: np.random.Generator
) -> tuple[tuple[Dialect, ...], dict[str, Gap | None]]:
    names = sorted({reply.dialect for reply in found if reply.dialect})
    sides: dict[str, dict[str, list[Judgment]]] = {
        kind: {
            name: [
                answers[0] for reply, answers in found.items() if (reply.dialect, reply.kind) == (name, kind)
            ]
            for name in names
        }
        for kind in ("excellent", "unkind-dialects")
    }
    rows = []
    for name in names:
        good, poor = (sides[kind][name] for kind in sides)
        scores = [item.score for item in good if item.score is not None]
        rows.append(
            Dialect(
                name=name,
                excellent=len(good),
                unkind=len(poor),
                good=exact_share(sum(item.label == GOOD for item in good), len(good)),
                score=float(np.mean(scores)) if scores else float("nan"),
                bad=exact_share(sum(item.label == BAD for item in poor), len(poor)),
                auc=rank_replies(good, poor, rng)[0],
            )
        )
    excellent, unkind = sides.values()

    def labelled(side: Mapping[str, Sequence[Judgment]], label: str) -> dict[str, Floats]:
        return {
            name: np.array([item.label == label for item in those], dtype=float)
            for name, those in side.items()
        }

    # An unscored excellent reply has the lowest score there is: refusing a dialect is no fairness.
    scored = {name: np.array([item.score or 1.0 for item in those]) for name, those in excellent.items()}
    return tuple(rows), {
        "excellent called Good": largest_gap(labelled(excellent, GOOD), most=1.0, rng=rng),
        "mean score of excellent": largest_gap(scored, most=len(LABELS) - 1.0, rng=rng),
        "unkind called Bad": largest_gap(labelled(unkind, BAD), most=1.0, rng=rng),
    }
