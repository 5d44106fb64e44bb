"""People's choices between two replies: how far a judge agrees with them, and which model is chosen."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from empathy_judge.calibration.cluster import clustered_share
from empathy_judge.calibration.estimate import LEAST_RATERS, Estimate, SpeaksFor
from empathy_judge.data.errors import UserError
from empathy_judge.data.judgments import Judged
from empathy_judge.data.rating_files.pairwise_choices import Choice
from empathy_judge.data.records import Judgment

CHANCE: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceAgreement:
    """In what part of the choices a judge scores the chosen reply higher; equal scores count half.

    `longer` is that part for one who always takes the longer reply, None where lengths are not known.
    `decided` are the choices of one reply; `ties` and those with an `unscored` reply are left out.
    """

    judge: str
    version: str
    source: str
    agreement: Estimate
    longer: Estimate | None
    decided: int
    ties: int
    unscored: int
    raters: int
    speaks_for: SpeaksFor


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenModels:
    """How often one model's replies were chosen over another's; `share` counts a tie as half."""

    one: str
    other: str
    wins: int
    ties: int
    losses: int
    raters: int
    share: Estimate
    speaks_for: SpeaksFor

    @property
    def is_significant(self) -> bool:
        """Whether the interval leaves out that both are chosen alike."""
        ends = self.share.interval
        return ends is not None and not ends.low <= CHANCE <= ends.high


def agree_with_choices(judged: Judged, choices: Sequence[Choice]) -> ChoiceAgreement:
    """How far one judge agrees with choices between replies that it judged."""
    by_id = {item.id: item for item in judged.judgments}
    pairs = [(item, by_id.get(item.ids[0]), by_id.get(item.ids[1])) for item in choices]
    scored = [
        (item, one, other)
        for item, one, other in pairs
        if one is not None and other is not None and one.score is not None and other.score is not None
    ]
    decided = [pair for pair in scored if pair[0].winner != "tie"]
    if not decided:
        raise UserError("no choice is between two replies that this judge scored")
    rows = [item for item, *_ in decided]
    words = [_words(one) is not None and _words(other) is not None for _, one, other in decided]
    return ChoiceAgreement(
        judge=judged.name,
        version=judged.version,
        source=judged.source,
        agreement=_share(rows, [_agrees(*pair, lambda found: found.score) for pair in decided]),
        longer=_share(rows, [_agrees(*pair, _words) for pair in decided]) if all(words) else None,
        decided=len(decided),
        ties=len(scored) - len(decided),
        unscored=len(pairs) - len(scored),
        raters=len({item.rater for item in rows}),
        speaks_for=_speaks_for(rows),
    )


def compare_chosen(choices: Sequence[Choice]) -> tuple[ChosenModels, ...]:
    """Every two models that were chosen between, the one that was chosen more often first."""
    if nameless := sum(not all(item.models) for item in choices):
        raise UserError(
            f"{nameless:,} choices name no models; add the columns `model_a` and `model_b`, or pass the "
            "replies with --exchanges"
        )
    by_pair: dict[tuple[str, str], list[Choice]] = {}
    for item in choices:
        if item.models[0] != item.models[1]:
            one, other = sorted(item.models)
            by_pair.setdefault((one, other), []).append(item)
    if not by_pair:
        raise UserError("every choice is between two replies of one model; a comparison needs two models")
    found = []
    for pair, rows in by_pair.items():
        values = [_value(item, pair[0]) for item in rows]
        if sum(values) < len(values) / 2:
            pair, values = (pair[1], pair[0]), [1 - value for value in values]
        found.append(
            ChosenModels(
                one=pair[0],
                other=pair[1],
                wins=values.count(1.0),
                ties=values.count(CHANCE),
                losses=values.count(0.0),
                raters=len({item.rater for item in rows}),
                share=_share(rows, values),
                speaks_for=_speaks_for(rows),
            )
        )
    return tuple(sorted(found, key=lambda item: (-item.share.value, item.one, item.other)))


def _value(choice: Choice, model: str) -> float:
    if choice.winner == "tie":
        return CHANCE
    return float(choice.models[0 if choice.winner == "one" else 1] == model)


def _agrees(choice: Choice, one: Judgment, other: Judgment, of: Callable[[Judgment], float | None]) -> float:
    difference = (of(one) or 0.0) - (of(other) or 0.0)
    if choice.winner == "other":
        difference = -difference
    return 1.0 if difference > 0 else CHANCE if difference == 0 else 0.0


def _words(judgment: Judgment) -> float | None:
    return judgment.features.get("words") if judgment.features else None


def _share(choices: Sequence[Choice], values: Sequence[float]) -> Estimate:
    """The mean, with an interval over raters; over prompts where they are too few to vary."""
    names = [item.rater if _speaks_for(choices) == "people" else item.prompt for item in choices]
    clusters: NDArray[Any] = np.unique(np.array(names), return_inverse=True)[1]
    return clustered_share(np.array(values), clusters)


def _speaks_for(choices: Sequence[Choice]) -> SpeaksFor:
    return "people" if len({item.rater for item in choices}) >= LEAST_RATERS else "these raters"
