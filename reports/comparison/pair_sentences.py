"""Two models compared, in sentences: the verdict, the figures, the prompts won, and what would settle it."""

import math

from calibration.comparison.differences import Difference
from calibration.comparison.needed_ratings import say_needed
from calibration.comparison.published_models import is_published
from calibration.comparison.verdicts import ALPHA
from data.text import UNDEFINED, interval, listed, number, p_value, signed

WORDS = {"better": "better", "worse": "worse", "leans better": "leans to", "leans worse": "leans to"}
LEAST_TOLD = 0.0005  # a smaller share is printed as 0.0 points


def say_pair(pair: Difference, margin: float) -> str:
    """Say in one sentence how two models differ, and in another what would tell, where it is not known."""
    undone = "" if pair.is_robust else " Unscored responses could undo this."
    figures = say_figures(pair)
    if pair.p == pair.p and not pair.bound:
        figures += f", {_say_p(pair.p_holm)}"
        if pair.p < ALPHA <= pair.p_holm:
            figures += f" ({_say_p(pair.p)} before Holm)"
    return f"{headline(pair, margin)}: {figures}.{undone}{say_settling(pair)}"


def headline(pair: Difference, margin: float) -> str:
    """Say who wins, or that nobody does, without a figure or a full stop."""
    first, second = ranked(pair)
    if pair.verdict in ("better", "worse"):
        return f"{first} is better than {second}"
    if pair.verdict in ("leans better", "leans worse"):
        return f"It leans to {first} over {second}"
    if pair.verdict == "same":
        return f"{pair.one} and {pair.other} are the same within {100 * margin:g} points"
    return f"Cannot say whether {pair.one} or {pair.other} is better"


def ranked(pair: Difference) -> tuple[str, str]:
    """The two models, the one the verdict favours first."""
    return (pair.other, pair.one) if pair.verdict.endswith("worse") else (pair.one, pair.other)


def say_figures(pair: Difference) -> str:
    """Say by how much, in points of Good, for the one the verdict favours."""
    if not pair.shares:
        return pair.reason or UNDEFINED
    turn = -1.0 if pair.verdict.endswith("worse") else 1.0
    value, ends = turn * pair.good.value, pair.good.interval
    if pair.how == "judge":
        whose = "by the judge alone, and nothing here says how people see it"
    else:
        people = "by people's ratings and the judge" if pair.how == "both" else "by people's ratings"
        whose = "as people would see it" if pair.how == "line" else people
    if pair.bound and ends and pair.verdict.endswith(("better", "worse")):
        if value < LEAST_TOLD:  # both lie beyond the rated models: what is left of the gap tells nothing
            return f"by how many points of Good cannot be said ({pair.reason})"
        amount = f"by about {number(value, 1, scale=100)} points of Good or more"
        low = ends.low if turn > 0 else -ends.high
        sure = f"; 95 % sure: by {number(low, 1, scale=100)} or more" if low > 0 else ""
        return f"{amount}, {whose} ({pair.reason}{sure})"
    text = f"Good {signed(value)} points"
    if ends:
        low, high = sorted((turn * ends.low, turn * ends.high))
        text += f" {interval(low, high, 1, scale=100, sign=True)}"
    return f"{text}, {whose}"


def say_wins(pair: Difference) -> str:
    """Say on how many prompts the judge prefers which; empty where they share none."""
    if pair.wins is None:
        return ""
    first, second = ranked(pair)
    wins, losses = pair.wins.wins, pair.wins.losses
    if first == pair.other or (pair.verdict in ("same", "cannot say") and losses > wins):
        first, second, wins, losses = pair.other, pair.one, losses, wins
    prompts = "1 prompt" if pair.wins.prompts == 1 else f"{pair.wins.prompts:,} prompts"
    ties = pair.wins.prompts - wins - losses
    even = f"; on {ties:,} there is little between them" if ties else ""
    return f"The judge prefers {first} on {wins:,} of {prompts}, {second} on {losses:,}{even}."


def say_sureness(pair: Difference) -> str:
    """Say how sure the verdict is, in plain words."""
    if pair.verdict in ("better", "worse"):
        return "Sure: were they equal, chance alone would say this in fewer than 1 of 20 comparisons."
    if pair.verdict == "same":
        return "Sure: 95 % of what fits the evidence lies within that margin."
    if pair.verdict == "cannot say":
        return ""
    if pair.how == "judge":
        return "Not sure: the judge is, but it was never held against people's ratings."
    if pair.doubt != pair.doubt:
        return "Likely, not sure."
    chance = f"the chance that people see it the same way is about {100 * (1 - pair.doubt):.0f} %"
    if pair.bound:
        # The chance is by the line drawn on; a verdict must also hold for a model at its end (`_one_sided`).
        least = math.floor(100 * (1 - pair.p))
        worst = f"the chance may be as low as {least} %" if least >= 50 else "nothing is known"
        return (
            f"Likely, not sure: the judge is certain on these prompts, and {chance} if it is as right about"
            f" {listed(list(pair.beyond))} as about models that people rated. If it is not, {worst}; to say"
            " better takes 95 %."
        )
    return f"Likely, not sure: the judge is certain on these prompts, and {chance}."


def say_settling(pair: Difference) -> str:
    """What would tell, for several gaps; and why it must be new replies."""
    if pair.unit == "prompts":
        told = say_needed(pair.needed, "prompts")
    else:
        whose = pair.one if is_published(pair.other) else "each"
        told = say_needed(pair.needed, f"ratings of {whose}")
        if told:
            told += ", each rating of a new reply"
        if told and (least := pair.same_replies_find) > pair.needed[-1].gap:
            told += f" (the same replies rated again cannot show a gap below {100 * least:.0f} points)"
    return f" {told[0].upper()}{told[1:]}." if told else ""


def _say_p(value: float) -> str:
    text = p_value(value)
    return f"p {text}" if text == UNDEFINED or text.startswith("<") else f"p = {text}"
