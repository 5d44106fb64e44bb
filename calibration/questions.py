"""What bias audits ask: which feature of a response the judge's error might go with, and within what."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.intervals import Floats
from calibration.pairing import Paired
from calibration.resampling import Integers
from data.records import EMOTIONS, POSITIVE_EMOTIONS


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
    paired: Paired,
    *,
    words: Mapping[str, int] | None,
    emotion: Mapping[str, str] | None,
    people: Collection[str],
) -> list[list[Question]]:
    """Every question, in families: the more of a kind are asked, the more chance has to find something."""
    return [
        [Question(audit="level", feature=np.ones(len(paired)), strata=None, kept=_all(paired))],
        [_ask_length(paired, words)],
        [_ask_author(paired, people)],
        [_ask_valence(paired, emotion)],
        _ask_models(paired),
        _ask_emotions(paired, emotion),
    ]


def _ask_length(paired: Paired, words: Mapping[str, int] | None) -> Question:
    counts = np.array([(words or {}).get(str(key), 0) for key in paired.id], dtype=float)
    return Question(
        audit="length",
        feature=np.log2(np.maximum(counts, 1.0)),
        strata=_models(paired),
        kept=counts > 0,
        note="" if counts.any() else "no texts, so no lengths",
    )


def _ask_author(paired: Paired, people: Collection[str]) -> Question:
    is_human = np.isin(paired.model, list(people))
    needs = "needs models that are people and models that are not"
    return Question(
        audit="author",
        feature=is_human.astype(float),
        strata=_none(paired),
        kept=_all(paired),
        note="" if is_human.any() and not is_human.all() else needs,
    )


def _ask_valence(paired: Paired, emotion: Mapping[str, str] | None) -> Question:
    named = _emotions(paired, emotion)
    is_positive, kept = np.isin(named, list(POSITIVE_EMOTIONS)), named != ""
    needs = "needs positive and negative emotions"
    return Question(
        audit="valence",
        feature=is_positive.astype(float),
        strata=_models(paired),
        kept=kept,
        note="" if is_positive.any() and not is_positive[kept].all() else needs,
    )


def _ask_models(paired: Paired) -> list[Question]:
    features = {name: paired.model == name for name in paired.models}
    return _ask_each("model", features, _none(paired), _all(paired))


def _ask_emotions(paired: Paired, emotion: Mapping[str, str] | None) -> list[Question]:
    named = _emotions(paired, emotion)
    features = {name: named == name for name in EMOTIONS if (named == name).any()}
    return _ask_each("emotion", features, _models(paired), named != "")


def _ask_each(
    audit: str, features: Mapping[str, NDArray[np.bool_]], strata: Integers, kept: NDArray[np.bool_]
) -> list[Question]:
    """One question for each against all others; of two, the second's would be the first's with its sign."""
    asked = list(features) if len(features) > 2 else list(features)[: len(features) - 1]
    return [
        Question(audit=audit, about=name, feature=features[name].astype(float), strata=strata, kept=kept)
        for name in asked
    ]


def _emotions(paired: Paired, emotion: Mapping[str, str] | None) -> NDArray[np.str_]:
    """Each row's emotion, empty where it is none of those we know."""
    named = [(emotion or {}).get(str(key), "") for key in paired.id]
    return np.array([name if name in EMOTIONS else "" for name in named], dtype=str)


def _models(paired: Paired) -> Integers:
    return np.unique(paired.model, return_inverse=True)[1]


def _none(paired: Paired) -> Integers:
    """All rows in one stratum."""
    return np.zeros(len(paired), dtype=np.intp)


def _all(paired: Paired) -> NDArray[np.bool_]:
    return np.ones(len(paired), dtype=bool)
