"""Judge and people by emotion and model, and the worst disagreements one by one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from calibration.agreement.judge_vs_people import good_or_mean
from calibration.agreement.metrics import log_losses
from calibration.cluster import contrast
from calibration.estimate import finite_or_none
from calibration.pairing import Paired
from data.judgments import first_number
from data.records import LABELS, Exchange, Judgment, to_plain

EXAMPLES: Final = 10  # of the worst disagreements, on either side


@dataclass(frozen=True, slots=True, kw_only=True)
class EmotionCell:
    """Human and judge level over `n` ratings, and their difference; None where `n` is 0."""

    n: int
    crowd: float | None = None
    judge: float | None = None
    difference: float | None = None
    standard_error: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EmotionRow:
    """One emotion: over all models, and model by model."""

    emotion: str
    overall: EmotionCell
    models: tuple[EmotionCell, ...]

    def as_dict(self) -> dict[str, Any]:
        """Put the figures over all models beside the emotion's name."""
        return {"emotion": self.emotion, **to_plain(self.overall), "models": self.models}


@dataclass(frozen=True, slots=True, kw_only=True)
class EmotionErrors:
    """Emotions down, `models` across; `level` says what the cells are about."""

    level: Literal["share of Good", "mean"]
    models: tuple[str, ...]
    emotions: tuple[EmotionRow, ...]


def by_emotion(paired: Paired, exchanges: Mapping[str, Exchange]) -> EmotionErrors | None:
    """Judge minus human level, by emotion and by emotion and model; None without emotions."""
    rated = [exchanges.get(str(name)) for name in paired.id]
    emotion = np.array([(item.emotion or "") if item else "" for item in rated])
    names = sorted(set(emotion) - {""})
    if not names:
        return None
    people, judge = good_or_mean(paired)
    clusters = paired.clusters()

    def cell(rows: np.ndarray[Any, Any]) -> EmotionCell:
        if not rows.any():
            return EmotionCell(n=0)
        difference = judge[rows] - people[rows]
        error = contrast(difference, np.ones(len(difference)), clusters[rows]).error
        return EmotionCell(
            n=int(rows.sum()),
            crowd=float(people[rows].mean()),
            judge=float(judge[rows].mean()),
            difference=float(difference.mean()),
            standard_error=finite_or_none(error),
        )

    return EmotionErrors(
        level="share of Good" if paired.scale == LABELS else "mean",
        models=paired.models,
        emotions=tuple(
            EmotionRow(
                emotion=name,
                overall=cell(emotion == name),
                models=tuple(cell((emotion == name) & (paired.model == model)) for model in paired.models),
            )
            for name in names
        ),
    )


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
        return tuple(map(tell, first))

    def tell(name: str) -> Disagreement:
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
