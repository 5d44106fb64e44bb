"""Tests whether a judge's error differs between groups of responses, each with its detectable effect.

The error of a judgment is score - rating: what people like, they rate higher themselves, so an error that
goes with length, author or emotion is the judge's own. An audit that finds nothing says what it would have
found: the effect that has a power of .8. The verdict follows from that and from a threshold that matters:

found                       the effect differs from 0 (p, adjusted for the number of looks, is 5% at most)
none found                  it does not, and one as large as the threshold would have been found
could not have been found   it does not, and one as large as the threshold might well have been missed
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from empathy_judge.calibration.cluster import UNDEFINED_CONTRAST, Contrast, contrast
from empathy_judge.calibration.estimate import CONFIDENCE, Estimate, Floats, Integers
from empathy_judge.calibration.multiple_testing import benjamini_hochberg
from empathy_judge.calibration.pairing import Paired
from empathy_judge.data.records import EMOTIONS, POSITIVE_EMOTIONS, Exchange


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Question:
    """What one audit asks of which rows; `strata` None for a mean."""

    audit: str
    feature: Floats
    strata: Integers | None
    kept: NDArray[np.bool_]
    about: str = ""
    note: str = ""  # why it cannot be answered, if so


def ask(
    paired: Paired, words: Mapping[str, int], emotion: Mapping[str, str], people: Collection[str]
) -> list[list[Question]]:
    """Every question, in families: the more of a kind are asked, the more chance has to find something."""
    everywhere, every_row = np.zeros(len(paired), dtype=np.intp), np.ones(len(paired), dtype=bool)
    models = np.unique(paired.model, return_inverse=True)[1]
    counts = np.array([words.get(str(key), 0) for key in paired.id], dtype=float)
    emotions = [emotion.get(str(key), "") for key in paired.id]
    named = np.array([name if name in EMOTIONS else "" for name in emotions], dtype=str)
    has_emotion, is_positive = named != "", np.isin(named, list(POSITIVE_EMOTIONS))
    is_human = np.isin(paired.model, list(people))

    def against_others(
        audit: str, features: Mapping[str, NDArray[np.bool_]], strata: Integers, kept: NDArray[np.bool_]
    ) -> list[Question]:
        # Of two, the second's would be the first's with its sign.
        asked = list(features) if len(features) > 2 else list(features)[: len(features) - 1]
        return [
            Question(audit=audit, about=name, feature=features[name].astype(float), strata=strata, kept=kept)
            for name in asked
        ]

    level = Question(audit="level", feature=np.ones(len(paired)), strata=None, kept=every_row)
    length = Question(
        audit="length",
        feature=np.log2(np.maximum(counts, 1.0)),
        strata=models,
        kept=counts > 0,
        note="" if counts.any() else "no texts to measure lengths",
    )
    author = Question(
        audit="author",
        feature=is_human.astype(float),
        strata=everywhere,
        kept=every_row,
        note="needs human replies and replies by models" if is_human.all() or not is_human.any() else "",
    )
    valence = Question(
        audit="valence",
        feature=is_positive.astype(float),
        strata=models,
        kept=has_emotion,
        note="needs positive and negative emotions"
        if is_positive[has_emotion].all() or not is_positive.any()
        else "",
    )
    by_model = {name: paired.model == name for name in paired.models}
    by_emotion = {name: named == name for name in EMOTIONS if (named == name).any()}
    return [
        [level],
        [length],
        [author],
        [valence],
        against_others("model", by_model, everywhere, every_row),
        against_others("emotion", by_emotion, models, has_emotion),
    ]


# Of the scale's whole length: .1 points on the scale from 1 to 3, which is what 5% of the replies moved from
# Bad to Good would make.
THRESHOLD: Final = 0.05
FOUND: Final = "found"
NONE_FOUND: Final = "none found"
COULD_NOT: Final = "could not have been found"
TOO_FEW: Final = "too few raters or prompts"
Outcome = Literal["found", "none found", "could not have been found"]
Size = Literal["matters", "small", "unclear"]
AUDITS: Final = {
    "level": "the judge's score minus the human rating",
    "length": "the increase of the error per doubling of the number of words, within models",
    "author": "the error on human replies minus that on replies by models",
    "valence": "the error under positive emotions minus that under negative ones, within models",
    "model": "the error on one model minus that on all others",
    "emotion": "the error under one emotion minus that under all others, within models",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One audit's answer, in points of score; `effect` is undefined where `note` says why.

    `p` is adjusted for the number of questions of its kind (Benjamini and Hochberg), `detectable` allows for
    it, and the interval is that of this one look. `size` says where the interval
    lies: all beyond the threshold, all within, or neither.
    """

    audit: str
    about: str  # the model or the emotion; else empty
    threshold: float
    verdict: Outcome
    size: Size
    ratings: int
    about_ratings: int  # of the model or the emotion; else all
    what: str  # of `AUDITS`
    effect: Estimate
    p: float
    detectable: float
    note: str = ""


def audit(
    paired: Paired,
    *,
    words: Mapping[str, int] | None = None,
    emotion: Mapping[str, str] | None = None,
    people: Collection[str] = ("human",),
) -> tuple[Finding, ...]:
    """Every audit, in the order of `AUDITS`.

    `words` and `emotion` are by id (see `response_facts`); `people` names the models that are people.
    Clusters are raters or their batches, however few, and prompts where raters are fewer than four: then a
    finding is of these raters. Prompts that several of them rated are allowed for. What matters is .05 of the
    scale's length.
    """
    error = np.asarray(paired.score - paired.rating, dtype=float)
    clusters = paired.clusters()
    crossing = paired.clusters(paired.item_kind) if paired.population == "general" else None
    matters = THRESHOLD * (paired.levels - 1)

    def answer_one(question: Question) -> Contrast:
        kept = question.kept
        if question.note or not kept.any():
            return UNDEFINED_CONTRAST
        strata = None if question.strata is None else question.strata[kept]
        items = None if crossing is None else crossing[kept]
        return contrast(error[kept], question.feature[kept], clusters[kept], strata=strata, items=items)

    findings = []
    for family in ask(paired, words or {}, emotion or {}, people):
        answers = [answer_one(question) for question in family]
        adjusted = benjamini_hochberg([answer.p_value() for answer in answers]).tolist()
        for question, answer, p in zip(family, answers, adjusted, strict=True):
            named = question.kept & (question.feature > 0) if question.about else question.kept
            verdict, size = conclude(answer, p, looks=len(family), threshold=matters)
            finding = Finding(
                audit=question.audit,
                about=question.about,
                what=AUDITS[question.audit],
                effect=answer.estimate(),
                p=p,
                detectable=answer.detectable(looks=len(family)),
                threshold=matters,
                verdict=verdict,
                size=size,
                ratings=int(question.kept.sum()),
                about_ratings=int(named.sum()),
                note=question.note or ("" if answer.is_defined else TOO_FEW),
            )
            findings.append(finding)
    return tuple(findings)


def response_facts(exchanges: Iterable[Exchange]) -> tuple[dict[str, int], dict[str, str]]:
    """The number of words and the emotion of every response, by id; an emotion not given is left out."""
    words, emotion = {}, {}
    for exchange in exchanges:
        words[exchange.id] = len(exchange.response.split())
        if exchange.emotion:
            emotion[exchange.id] = exchange.emotion.strip().lower()
    return words, emotion


def conclude(answer: Contrast, p: float, *, looks: int, threshold: float) -> tuple[Outcome, Size]:
    """Return the verdict on an effect and its size; the rules are at the top of this module."""
    interval = answer.estimate().interval
    if interval is None:
        return COULD_NOT, "unclear"
    size: Size = "unclear"
    if interval.low >= threshold or interval.high <= -threshold:
        size = "matters"
    elif -threshold < interval.low and interval.high < threshold:
        size = "small"
    if p <= 1 - CONFIDENCE:
        return FOUND, size
    return (NONE_FOUND if answer.detectable(looks=looks) <= threshold else COULD_NOT), size
