"""Tests whether a judge's error differs between groups of replies, each with its detectable effect.

The error of a judgment is score - rating: what people like, they rate higher themselves, so an error that
goes with length, author or emotion is the judge's own. An audit that finds nothing reports the effect that it
would have found with a power of 80%. The verdict follows from that and from a threshold that matters:

found                       the effect differs from 0 (p <= 5%)
none found                  it does not, and one as large as the threshold would have been found
could not have been found   it does not, and one as large as the threshold might well have been missed
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from empathy_judge.calibration.agreement.metrics import log_losses
from empathy_judge.calibration.bootstrap import percentile_interval, ratio, resample_clusters
from empathy_judge.calibration.cluster import UNDEFINED_CONTRAST, Contrast, contrast
from empathy_judge.calibration.estimate import CONFIDENCE, UNDEFINED, Estimate, Floats, Integers, Interval
from empathy_judge.calibration.pairing import Paired
from empathy_judge.data.judgments import first_number
from empathy_judge.data.records import EMOTIONS, POSITIVE_EMOTIONS, Exchange, Judgment

# Of the scale's whole length: .1 points on the scale from 1 to 3, which is what 5% of the replies moved from
# Bad to Good would make.
THRESHOLD: Final = 0.05
TOO_FEW: Final = "too few raters or prompts"
Outcome = Literal["found", "none found", "could not have been found"]
Size = Literal["matters", "small", "unclear"]
AUDITS: Final = {
    "level": "the judge's score minus the human rating",
    "length": "the increase of the error per doubling of the number of words, within models",
    "author": "the error on human replies minus that on replies by models",
    "valence": "the error under positive emotions minus that under negative ones, within models",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One audit's answer, in points of score; `effect` is undefined where `note` gives the reason."""

    audit: str
    threshold: float
    verdict: Outcome
    size: Size  # where the interval lies: all beyond the threshold, all within, or neither
    ratings: int
    what: str  # the audit's question
    effect: Estimate
    p: float
    detectable: float
    note: str = ""


def audit(
    paired: Paired, *, words: Mapping[str, int] | None = None, emotion: Mapping[str, str] | None = None
) -> tuple[Finding, ...]:
    """Return every audit, in the order of `AUDITS`; `words` and `emotion` are by id (see `response_facts`).

    Clusters are raters or their batches, and prompts where raters are fewer than four: then a finding is of
    these raters. Prompts that several raters rated are allowed for.
    """
    error, clusters = paired.score - paired.rating, paired.clusters()
    crossing = paired.clusters(paired.item_kind) if paired.population == "general" else None
    every_row, everywhere = np.ones(len(paired), dtype=bool), np.zeros(len(paired), dtype=np.intp)
    models = np.unique(paired.model, return_inverse=True)[1]
    counts = np.array([(words or {}).get(str(key), 0) for key in paired.id], dtype=float)
    emotions = np.array([(emotion or {}).get(str(key), "") for key in paired.id], dtype=str)
    has_emotion = np.isin(emotions, EMOTIONS)
    is_positive = np.isin(emotions, list(POSITIVE_EMOTIONS)).astype(float)
    is_human = (paired.model == "human").astype(float)
    # Of each audit: the feature, the strata (None for a mean), the rows, and what is missing for it.
    questions: Mapping[str, tuple[Floats, Integers | None, NDArray[np.bool_], str]] = {
        "level": (np.ones(len(paired)), None, every_row, ""),
        "length": (np.log2(np.maximum(counts, 1.0)), models, counts > 0, "needs replies of several lengths"),
        "author": (is_human, everywhere, every_row, "needs human replies and replies by models"),
        "valence": (is_positive, models, has_emotion, "needs positive and negative emotions"),
    }
    threshold = THRESHOLD * (paired.levels - 1)
    findings = []
    for name, (feature, strata, rows, missing) in questions.items():
        answer, has_both = UNDEFINED_CONTRAST, name == "level" or len(np.unique(feature[rows])) > 1
        if has_both:
            answer = contrast(
                error[rows],
                feature[rows],
                clusters[rows],
                strata=None if strata is None else strata[rows],
                items=None if crossing is None else crossing[rows],
            )
        verdict, size = judge_effect(answer, threshold=threshold)
        findings.append(
            Finding(
                audit=name,
                what=AUDITS[name],
                effect=answer.estimate(),
                p=answer.p_value(),
                detectable=answer.detectable(),
                threshold=threshold,
                verdict=verdict,
                size=size,
                ratings=int(rows.sum()),
                note="" if answer.is_defined else TOO_FEW if has_both else missing,
            )
        )
    return tuple(findings)


def response_facts(exchanges: Iterable[Exchange]) -> tuple[dict[str, int], dict[str, str]]:
    """Return the number of words and the emotion of every reply, by id; an unknown emotion is left out."""
    words, emotion = {}, {}
    for exchange in exchanges:
        words[exchange.id] = len(exchange.response.split())
        if exchange.emotion:
            emotion[exchange.id] = exchange.emotion.strip().lower()
    return words, emotion


def judge_effect(answer: Contrast, *, threshold: float) -> tuple[Outcome, Size]:
    """Return the verdict on an effect and its size; the rules are at the top of this module."""
    estimate = answer.estimate()
    if estimate.interval is None:
        return "could not have been found", "unclear"
    size: Size = "small" if estimate.is_within(threshold) else "unclear"
    if estimate.interval.low >= threshold or estimate.interval.high <= -threshold:
        size = "matters"
    if answer.p_value() <= 1 - CONFIDENCE:
        return "found", size
    return ("none found" if answer.detectable() <= threshold else "could not have been found"), size


EXAMPLES: Final = 10  # of the worst disagreements, on either side


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """A response, what people and the judge said of it, and its texts where exchanges were given."""

    id: str
    model: str
    ratings: tuple[str, ...]
    label: str
    score: float
    probabilities: Mapping[str, float] | None
    rationale: str | None
    emotion: str | None
    prompt: str | None
    response: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreements:
    """Where the judge was surest of something else than people said, the worst first."""

    too_kind: tuple[Disagreement, ...]
    too_harsh: tuple[Disagreement, ...]


def worst_disagreements(
    paired: Paired, judgments: Mapping[str, Judgment], exchanges: Mapping[str, Exchange]
) -> Disagreements:
    """Find the responses that surprise most, on either side, each once."""
    excess = paired.score - paired.rating
    surprise = (
        abs(excess) if paired.probabilities is None else log_losses(paired.rating, paired.probabilities)
    )

    def worst(sign: int) -> tuple[Disagreement, ...]:
        # Where both gave the same label, a low score of it is no disagreement.
        rows = np.flatnonzero((sign * excess > 0.5) & (sign * (paired.label - paired.rating) > 0))
        order = rows[np.lexsort((paired.id[rows], -np.round(surprise[rows], 9)))]
        first = list(dict.fromkeys(str(paired.id[row]) for row in order))[:EXAMPLES]
        return tuple(map(describe, first))

    def describe(name: str) -> Disagreement:
        rows, judgment, exchange = np.flatnonzero(paired.id == name), judgments[name], exchanges.get(name)
        return Disagreement(
            id=name,
            model=str(paired.model[rows[0]]),
            ratings=tuple(paired.scale[paired.rating[row] - 1] for row in rows),
            label=paired.scale[paired.label[rows[0]] - 1],
            score=float(paired.score[rows[0]]) + first_number(paired.scale) - 1,
            probabilities=judgment.probabilities or None,
            rationale=judgment.rationale,
            emotion=exchange.emotion if exchange else None,
            prompt=exchange.prompt if exchange else None,
            response=exchange.response if exchange else None,
        )

    return Disagreements(too_kind=worst(1), too_harsh=worst(-1))


DRAWS: Final = 2000
Cells = NDArray[np.bool_]  # (perturbations, replies)
Result = Literal["passes", "fails", "inconclusive"]


def mean_change(before: Floats, after: Floats, prompts: Integers) -> Estimate:
    """Return the change of score over pairs, by t over prompts: percentiles of a dozen are too close."""
    return contrast(after - before, np.ones(len(before)), prompts).estimate()


def conclude(estimate: Estimate, least: float, most: float) -> Result:
    """Return whether the whole interval is between two bounds, or the whole of it outside of them."""
    ends = estimate.interval
    if ends is None:
        return "inconclusive"
    if least <= ends.low and ends.high <= most:
        return "passes"
    return "fails" if ends.high < least or ends.low > most else "inconclusive"


def exact_share(hits: int, count: int) -> Estimate:
    """Return a share of independent cases with Clopper and Pearson's interval; undefined without any.

    >>> share = exact_share(0, 20)
    >>> share.value, round(share.interval.high, 3)
    (0.0, 0.168)
    """
    if not count:
        return UNDEFINED
    from scipy.special import betaincinv  # binomtest is too slow for a report's hundreds of shares

    tail = (1 - CONFIDENCE) / 2
    low = float(betaincinv(hits, count - hits + 1, tail)) if hits else 0.0
    high = float(betaincinv(hits + 1, count - hits, 1 - tail)) if hits < count else 1.0
    return Estimate(hits / count, Interval(low, high))


def crossed_share(hits: Cells, counted: Cells, *, rng: np.random.Generator, draws: int = DRAWS) -> Estimate:
    """Return the share of hits among the counted cells of (perturbations, replies), resampling both.

    A reply is easy or hard under all perturbations, and a perturbation on all replies, so cells are not
    independent. Where all cells agree a bootstrap has no spread: then every reply counts as one case.
    """
    hit, total = int((hits & counted).sum()), int(counted.sum())
    if not total:
        return UNDEFINED
    if hit in (0, total):
        replies = int(counted.any(axis=0).sum())
        return exact_share(replies if hit else 0, replies)
    perturbations, replies = hits.shape
    rows = resample_clusters(perturbations, rng=rng, draws=draws).astype(float)
    columns = resample_clusters(replies, rng=rng, draws=draws).astype(float)
    tops, bottoms = (
        ((rows @ cells.astype(float)) * columns).sum(axis=1) for cells in (hits & counted, counted)
    )
    return Estimate(hit / total, percentile_interval(ratio(tops, bottoms)))
