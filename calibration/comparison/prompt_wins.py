"""Wins and losses by prompt, and the prompts with the largest differences."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from calibration.estimate import Floats
from calibration.shares.ppi import RatedModel

TIE: Final = 0.05  # on the scale from 1 to 3: what the judge finds no further apart is a tie
MOST: Final = 10  # prompts kept of a pair


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptGap:
    """One prompt on which two models differ: the judge's score of each, from 1 to 3.

    `contents` are the digests of the two replies.
    """

    scores: tuple[float, float]
    contents: tuple[str, str]

    @property
    def gap(self) -> float:
        return self.scores[0] - self.scores[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptWins:
    """Shared prompts on which the judge prefers one model or the other; the rest are ties.

    `most` are those with the largest differences.
    """

    prompts: int
    wins: int
    losses: int
    most: tuple[PromptGap, ...] = ()

    def reverse(self) -> "PromptWins":
        """Return the same for the models in the other order."""
        most = tuple(PromptGap(scores=gap.scores[::-1], contents=gap.contents[::-1]) for gap in self.most)
        return PromptWins(prompts=self.prompts, wins=self.losses, losses=self.wins, most=most)


def prompt_wins(one: RatedModel, other: RatedModel, contents: Sequence[Sequence[str]]) -> PromptWins | None:
    """Count the shared prompts that each model wins; None where there is none."""
    if one.prompt is None or other.prompt is None:
        return None
    (first, rows), (second, others) = (_by_prompt(item) for item in (one, other))
    shared = [prompt for prompt in first if prompt in second]
    if not shared:
        return None
    gaps = {prompt: first[prompt] - second[prompt] for prompt in shared}
    most: tuple[PromptGap, ...] = ()
    if all(contents):
        order = sorted(shared, key=lambda prompt: (-abs(gaps[prompt]), prompt))
        most = tuple(
            PromptGap(
                scores=(first[prompt], second[prompt]),
                contents=(contents[0][rows[prompt]], contents[1][others[prompt]]),
            )
            for prompt in order[:MOST]
            if abs(gaps[prompt]) > TIE
        )
    return PromptWins(
        prompts=len(shared),
        wins=sum(gap > TIE for gap in gaps.values()),
        losses=sum(gap < -TIE for gap in gaps.values()),
        most=most,
    )


def _by_prompt(model: RatedModel) -> tuple[dict[str, float], dict[str, int]]:
    """Return the mean score of each prompt's replies, and the row of the first of them."""
    scores: Floats = model.judged @ np.arange(1.0, model.judged.shape[1] + 1)
    prompts, first, number = np.unique(np.asarray(model.prompt), return_index=True, return_inverse=True)
    means = np.bincount(number, scores) / np.bincount(number) if len(scores) else scores
    names = prompts.astype(str).tolist()
    return dict(zip(names, means.tolist(), strict=True)), dict(zip(names, first.tolist(), strict=True))
