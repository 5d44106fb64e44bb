"""Sentences about two compared models: the verdict, the difference, the prompts won, what would settle it."""

import math

from empathy_judge.calibration.comparison.differences import Difference
from empathy_judge.calibration.comparison.published_models import is_published
from empathy_judge.calibration.comparison.verdicts import (
    ALPHA,
    MOST_MORE_UNSCORED,
    MOST_UNSCORED,
    SETTLED,
    is_much_unscored,
    round_up,
)
from empathy_judge.data.records import PROMPT_NOUNS
from empathy_judge.data.text import UNDEFINED, interval, p_value, points

BASES = {
    "line": "by the calibrated judge",
    "ratings": "by human ratings",
    "both": "by human ratings and the calibrated judge",
    "judge": "by the judge alone",
}


def describe_pair(pair: Difference, margin: float, unit: str) -> str:
    """Return the verdict with its figures, and what would settle it where it is open."""
    figures = describe_difference(pair)
    if math.isfinite(pair.p) and not pair.bound:
        figures += f", {_p(pair.p_holm)}"
        if pair.p < ALPHA <= pair.p_holm:
            figures += f" ({_p(pair.p)} before Holm's adjustment)"
    more = (describe_unscored(pair, unit), describe_needed(pair, margin, unit))
    return " ".join([f"{headline(pair, margin)}: {figures}.", *filter(None, more)])


def describe_unscored(pair: Difference, unit: str) -> str:
    """Return the shares of unscored replies and their effect on the verdict; empty where all are scored."""
    if not any(pair.unscored):
        return ""
    names = [name for name in (pair.one, pair.other) if not is_published(name)]
    shares = ", ".join(f"{name} {100 * part:.1f}%" for name, part in zip(names, pair.unscored, strict=False))
    text = f"Unscored: {shares}."
    if pair.is_withheld:
        return (
            f"{text} No verdict: it changes if every unscored {unit} counts as Bad, which is required where "
            f"more than {MOST_UNSCORED:.0%}, or {100 * MOST_MORE_UNSCORED:g} points more than of the other"
            " model, are unscored."
        )
    if not pair.is_robust:
        text += " The unscored rows could change this verdict."
    if is_much_unscored(*pair.unscored) and pair.verdict != "inconclusive":
        text += f" It does not change if every unscored {unit} counts as Bad."
    return text


def headline(pair: Difference, margin: float) -> str:
    """Return which model is better, without a figure or a full stop."""
    if pair.verdict.endswith(("better", "worse")):
        pair = favored(pair)
        return f"{pair.one} is {pair.verdict} than {pair.other}"
    if pair.verdict == "similar":
        return f"{pair.one} and {pair.other} are similar, within {100 * margin:g} points"
    return f"Inconclusive whether {pair.one} or {pair.other} is better"


def favored(pair: Difference) -> Difference:
    """Return the pair with the model that the verdict favors first."""
    return pair.reverse() if pair.verdict.endswith("worse") else pair


def describe_difference(pair: Difference) -> str:
    """Return the difference of the Good shares, from the model that the verdict favors."""
    if not pair.shares:
        return pair.reason or UNDEFINED
    pair = favored(pair)
    ends, text = pair.good.interval, f"Good share {points(pair.good.value)} points"
    if ends and pair.bound:
        end, side = (ends.low, "more") if pair.bound == "at least" else (ends.high, "less")
        text += f" (95% confidence: {points(end)} or {side})"
    elif ends:
        text += f", 95% CI {interval(ends.low, ends.high, 1, scale=100, sign=True)}"
    return f"{text}, {BASES[pair.how]}"


def describe_wins(pair: Difference, unit: str) -> str:
    """Return on how many prompts the judge prefers which model; empty where they share none."""
    pair = favored(pair)
    if pair.wins is None or not pair.shares:
        return ""
    counts = pair.wins
    if not pair.verdict.endswith("better") and counts.losses > counts.wins:
        pair, counts = pair.reverse(), counts.reverse()
    ties = counts.prompts - counts.wins - counts.losses
    tied = f" ({ties:,} tied)" if ties else ""
    return (
        f"The judge scores {pair.one} higher on {counts.wins:,} of {counts.prompts:,} {PROMPT_NOUNS[unit]}"
        f" and {pair.other} higher on {counts.losses:,}{tied}."
    )


def describe_certainty(pair: Difference) -> str:
    """Return how certain the verdict is; empty where it is inconclusive."""
    if pair.verdict in ("better", "worse"):
        return "Significant at the 5% level."
    if pair.verdict == "similar":
        return "The whole 95% confidence interval lies within that margin."
    if pair.verdict == "inconclusive":
        return ""
    if pair.how == "judge":
        return "This is significant at the 5% level, but the judge was not validated with human ratings."
    pair = favored(pair)
    return f"The probability that people prefer {pair.one} is about {100 * pair.probability:.0f}%."


def describe_needed(pair: Difference, margin: float, unit: str) -> str:
    """Return how much more data would detect a difference as large as the margin; empty where unknown."""
    if pair.verdict in SETTLED or pair.needed is None:
        return ""
    if pair.unit == "prompts":
        needed = PROMPT_NOUNS[unit]
    else:
        whose = pair.one if is_published(pair.other) else "each model"
        needed = f"ratings of {whose}, each of a new {unit},"
    return (
        f"About {round_up(pair.needed):,} more {needed} would detect a difference of {100 * margin:g} points"
        " with 80% power."
    )


def _p(value: float) -> str:
    text = p_value(value)
    return f"p {text}" if text == UNDEFINED or text.startswith("<") else f"p = {text}"
