"""The worst disagreements of judge and people, one by one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from empathy_judge.calibration.agreement.metrics import log_losses
from empathy_judge.calibration.pairing import Paired
from empathy_judge.data.judgments import first_number
from empathy_judge.data.records import Exchange, Judgment

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
