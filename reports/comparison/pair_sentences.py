"""Sentences about two compared models: the verdict, the difference, the prompts won, what would settle it."""

import math

from empathy_judge.calibration.comparison.differences import MOST_RATINGS, Difference
from empathy_judge.calibration.comparison.published_models import is_published
from empathy_judge.calibration.comparison.verdicts import (
    ALPHA,
    MOST_MORE_UNSCORED,
    MOST_UNSCORED,
    RATINGS_EACH,
    SETTLED,
    SURE_AT_LEAST,
    is_much_unscored,
    round_up,
)
from empathy_judge.data.records import NOUNS, PROMPT_NOUNS
from empathy_judge.data.text import UNDEFINED, interval, p_value, points, probability

MOST_PEOPLE = MOST_RATINGS // RATINGS_EACH
BASES = {
    "line": "by the calibrated judge",
    "ratings": "by human ratings",
    "both": "by human ratings and the calibrated judge",
    "judge": "by the judge alone",
}


def describe_pair(pair: Difference, margin: float, unit: str) -> str:
    """Return the verdict with its figures, and what would settle it where it is open."""
    figures = describe_difference(pair)
    if not figures:
        return " ".join(filter(None, [f"{headline(pair, margin)}.", describe_unscored(pair, unit)]))
    if math.isfinite(pair.p_holm) and pair.how in ("ratings", "judge"):
        figures += f", {_p(pair.p_holm)}"
        if pair.p < ALPHA <= pair.p_holm:
            figures += f" ({_p(pair.p)} before Holm's adjustment)"
    more = (describe_unscored(pair, unit), describe_needed(pair, margin, unit))
    return " ".join([f"{headline(pair, margin)}; {figures}.", *filter(None, more)])


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
    """Return which model is better and how probable that is, without a full stop."""
    if pair.how == "same":
        return f"{pair.one} and {pair.other}: the replies are the same"
    if pair.reason is not None:
        named = pair.reason.startswith((pair.one, pair.other))  # names are written as they are
        reason = pair.reason if named else pair.reason[0].upper() + pair.reason[1:]
        return f"{reason}: no verdict on {pair.one} and {pair.other}"
    if pair.verdict == "similar":
        return f"{pair.one} and {pair.other} are similar, within {100 * margin:g} points"
    pair, chance = favored(pair), probability(favored(pair).probability)
    if pair.verdict.endswith("better"):
        more = f": probability {chance}" if chance else ""
        return f"{pair.one} is {pair.verdict} than {pair.other}{more}"
    as_good = _as_good(pair)
    if as_good and chance:
        return f"{as_good}; the probability that {pair.one} is better is {chance}"
    if chance:
        return f"Inconclusive: the probability that {pair.one} is better than {pair.other} is {chance}"
    return f"Inconclusive whether {pair.one} or {pair.other} is better"


def _as_good(pair: Difference) -> str:
    """Return which model is shown to be at least as good, if one is."""
    within = f"within {100 * pair.max_drop:g} points"
    one, other = (chance >= SURE_AT_LEAST for chance in pair.at_least)
    if one and other:
        return f"{pair.one} and {pair.other} are equally good, {within}"
    if one or other:
        first, second = (pair.one, pair.other) if one else (pair.other, pair.one)
        return f"{first} is at least as good as {second}, {within}"
    return ""


def favored(pair: Difference) -> Difference:
    """Return the pair with the model first whose share is more probably higher."""
    return pair.reverse() if pair.verdict.endswith("worse") or pair.probability < 0.5 else pair


def describe_difference(pair: Difference) -> str:
    """Return the difference of the Good shares, from the model that the verdict favors; empty without one."""
    if not pair.shares or pair.how == "prior":
        return ""
    if pair.how == "same":
        return "difference 0"
    pair = favored(pair)
    ends = pair.good.interval
    text = f"Good share {points(pair.good.value)} points"
    if ends and pair.bound:
        end, side = (ends.low, "more") if pair.bound == "at least" else (ends.high, "less")
        if (end > 0) != (side == "more"):
            return "the size of the difference is not known"
        text = f"Good share {points(end)} points or {side} (95% bound)"
    elif ends:
        text += f", 95% CI {interval(ends.low, ends.high, 1, scale=100, sign=True)}"
    return f"{text}, {BASES[pair.how]}"


def describe_wins(pair: Difference, unit: str) -> str:
    """Return on how many prompts the judge prefers which model; empty where they share none."""
    pair = favored(pair)
    if pair.wins is None or not pair.shares or pair.how == "same":
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
    """Return what else is known of the verdict; empty where that is nothing."""
    if pair.verdict == "similar" and pair.how != "same":
        return "The whole 95% confidence interval lies within that margin."
    if pair.how == "judge" and pair.verdict != "inconclusive":
        return "This is significant at the 5% level, but the judge was not validated with human ratings."
    if pair.verdict in ("probably better", "probably worse") and (as_good := _as_good(favored(pair))):
        return f"{as_good}."
    return ""


def describe_needed(pair: Difference, margin: float, unit: str) -> str:
    """Return how much more data would settle this pair; empty where unknown."""
    if pair.verdict in SETTLED or pair.how in ("prior", "refused"):
        return ""
    if pair.needed is None:
        return "" if pair.unit == "prompts" else f"To separate them takes more than {MOST_PEOPLE} people."
    size = max(100 * margin, abs(100 * pair.good.order))
    what = PROMPT_NOUNS[unit]
    if pair.unit == "people":
        half = f"all of {pair.one}" if is_published(pair.other) else "half of each model"
        what = f"people who rate {RATINGS_EACH} {NOUNS[unit]} each, {half},"
    more = f"About {round_up(pair.needed):,} more {what}"
    return f"{more} would find a difference of {size:.0f} points in 4 of 5 cases."


def _p(value: float) -> str:
    text = p_value(value)
    return f"p {text}" if text == UNDEFINED or text.startswith("<") else f"p = {text}"
