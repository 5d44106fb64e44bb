"""Prompt fit: the chance that a reply is more similar to its own prompt than to another one of the file."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from empathy_judge.calibration.cluster import contrast
from empathy_judge.calibration.estimate import Estimate, Floats, Integers, estimate_of

UNRESPONSIVE, UNCHECKED, RESPONSIVE = "unresponsive", "unchecked", "responsive"
FEWEST_PROMPTS: Final = 10  # or conversations; with fewer the interval is too wide to decide anything
UNRESPONSIVE_BELOW: Final = 0.75  # upper end of the interval; shuffled replies have a fit of 0.5
WIDEST: Final = 0.4  # width of an interval that still shows whether replies respond
SAME_REPLY: Final = 0.95  # cosine of replies that count as nearly identical
MANY_REPEATS: Final = 0.2  # share of repeated replies that is reported
RATED_FIT: Final = "0.95 to 1.00"  # of the six models in the crowd study (docs/figures/prompt_fit.json)
TOO_FEW_PROMPTS: Final = f"prompt fit was not computed: it needs {FEWEST_PROMPTS} different prompts"


@dataclass(frozen=True, slots=True)
class PromptFit:
    """The fit of one model's replies with its interval over replies.

    `repeated` is the share of replies that are identical or nearly identical to a reply to another prompt.
    `is_english` is False where most replies are in another language, which the embeddings do not cover.
    """

    estimate: Estimate
    prompts: int
    repeated: float
    is_english: bool = True

    @property
    def state(self) -> str:
        """Return whether the replies respond to their prompts, or that this could not be checked."""
        ends = self.estimate.interval
        if ends is None or not self.is_english:
            return UNCHECKED
        if ends.high < UNRESPONSIVE_BELOW:
            return UNRESPONSIVE
        return UNCHECKED if ends.high - ends.low > WIDEST else RESPONSIVE

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        rest = {"prompts": self.prompts, "repeated": self.repeated, "english": self.is_english}
        return {**self.estimate.as_dict(), **rest}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "PromptFit":
        """Read the JSON form.

        >>> fit = PromptFit(estimate_of(0.52, 0.4, 0.64), prompts=20, repeated=0.0)
        >>> PromptFit.from_dict(fit.as_dict()) == fit, fit.state
        (True, 'unresponsive')
        """
        return cls(Estimate.from_dict(values), values["prompts"], values["repeated"], values["english"])


def fit_messages(fit: PromptFit | None) -> list[str]:
    """Return the sentences to show about a model's fit; none where its replies respond to their prompts.

    >>> fit_messages(PromptFit(estimate_of(0.52, 0.4, 0.64), prompts=20, repeated=0.0))
    ['these replies do not respond to their prompts (fit 0.52; models people rated: 0.95 to 1.00)']
    """
    if fit is None:
        return [TOO_FEW_PROMPTS]
    messages = []
    if fit.state == UNRESPONSIVE:
        messages.append(
            f"these replies do not respond to their prompts (fit {fit.estimate.value:.2f}; "
            f"models people rated: {RATED_FIT})"
        )
    elif fit.state == UNCHECKED:
        reason = "the replies are too few or too short" if fit.is_english else "most replies are not English"
        messages.append(f"prompt fit could not be checked: {reason}")
    if fit.repeated >= MANY_REPEATS:
        messages.append(f"{fit.repeated:.0%} of the replies nearly repeat a reply to another prompt")
    return messages


def measure_fit(
    replies: Floats,
    prompts: Floats,
    own: Integers,
    texts: Sequence[str],
    *,
    groups: Integers | None = None,
    is_english: bool = True,
) -> PromptFit | None:
    """Return the fit of replies from embeddings of length 1; None below ten different prompts.

    `prompts` has a row for each different prompt, `own` the row of each reply's prompt, and `texts` the
    replies. Prompts of one of `groups`, such as a conversation, are not compared with each other. The
    interval is a t-interval over replies, clustered by group, within 0 and 1.
    """
    groups = np.arange(len(prompts)) if groups is None else groups
    own_group = groups[own]
    if len(np.unique(own_group)) < FEWEST_PROMPTS:
        return None
    # Rounded, so that prompts with the same embedding tie whatever the order of the sums.
    similarity = (replies @ prompts.T).round(6)
    to_own = similarity[np.arange(len(own)), own][:, None]
    is_other = own_group[:, None] != groups
    wins = ((similarity < to_own) + (similarity == to_own) / 2) * is_other
    fit = contrast(wins.sum(axis=1) / is_other.sum(axis=1), np.ones(len(own)), own_group).estimate()
    ends = fit.interval
    clipped = np.clip([fit.value, *((ends.low, ends.high) if ends else (np.nan, np.nan))], 0, 1)
    return PromptFit(estimate_of(*clipped), len(prompts), _repeated(replies, own, texts), is_english)


def _repeated(replies: Floats, own: Integers, texts: Sequence[str]) -> float:
    words = [" ".join(re.findall(r"\w+", text.casefold())) for text in texts]
    folded = np.unique(words, return_inverse=True)[1]
    is_same = (replies @ replies.T >= SAME_REPLY) | (folded[:, None] == folded)
    return float((is_same & (own[:, None] != own)).any(axis=1).mean())
