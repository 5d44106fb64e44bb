"""Names and numbers of a report, the same in every section of it."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any


def slug(name: str) -> str:
    """A file's name for any text: readable, and never the same for two.

    >>> slug("GPT-4/turbo"), slug("../..")
    ('gpt-4-turbo-a65e6496', 'x-0cfd1c96')
    """
    plain = re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-.")[:40] or "x"
    return f"{plain}-{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]}"


# An estimate in words: its value, and its interval in brackets where it has one.


def show(
    estimate: Mapping[str, float | None],
    *,
    scale: float = 1,
    digits: int = 3,
    interval_digits: int | None = None,
    glue: str = " ",
    zero: bool = True,
) -> str:
    """As text; without `zero` nothing stands before the point of a number below one.

    >>> show({"value": 0.238, "low": 0.2134, "high": 0.26}, interval_digits=2, zero=False)
    '.238 [.21, .26]'
    >>> show({"value": 0.031, "low": None, "high": None}, scale=100, digits=1)
    '3.1'
    """
    value, low, high = (estimate[key] for key in ("value", "low", "high"))
    if value is None:
        return "undefined"
    text = _number(scale * value, digits, zero=zero)
    if low is None or high is None:
        return text
    places = digits if interval_digits is None else interval_digits
    ends = ", ".join(_number(scale * end, places, zero=zero) for end in (low, high))
    return f"{text}{glue}[{ends}]"


def points(estimate: Mapping[str, float | None]) -> str:
    """A share's error in percentage points."""
    return show(estimate, scale=100, digits=1)


def _number(value: float, digits: int, *, zero: bool) -> str:
    text = f"{value:.{digits}f}"
    return text if zero or not text.lstrip("-").startswith("0.") else text.replace("0.", ".", 1)


def printable(text: str) -> str:
    r"""A name as a terminal can show it: a line break, an escape code or half a character is not one.

    >>> printable("gpt\x1b[31m") == "gpt\N{REPLACEMENT CHARACTER}[31m"
    True
    """
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


UNDEFINED = "undefined"

Row = Mapping[str, Any]
MINUS = "\N{MINUS SIGN}"
_MINUS_ZERO = re.compile(r"-(0(?:\.0+)?)(?![\d.])")

METRIC_NAMES = {
    "qwk": "Weighted kappa, by label",
    "qwk_matched": "Weighted kappa, by order",
    "spearman": "Spearman correlation",
    "balanced_accuracy": "Balanced accuracy",
    "exact": "Exact agreement",
    "macro_f1": "Macro F1",
    "kappa": "Cohen's kappa",
    "kappa_linear": "Linear weighted kappa",
    "kendall": "Kendall's tau-b",
    "icc": "ICC(A,1)",
    "alpha_nominal": "Krippendorff's alpha, nominal",
    "alpha_ordinal": "Krippendorff's alpha, ordinal",
    "alpha_interval": "Krippendorff's alpha, interval",
    "ac1": "Gwet's AC1",
    "ac2": "Gwet's AC2",
    "pairwise_qwk": "Weighted kappa of two people",
}
HOW = {
    "ratings": "its own ratings",
    "judge": "the judge alone, by the other models' line",
    "both": "ratings and judge",
    "refused": "refused",
}


def part(result: Row, name: str) -> Row:
    """A part of the result that is a mapping; empty where it is missing or null."""
    found = result.get(name)
    return found if isinstance(found, Mapping) else {}


def rows(result: Row, name: str) -> Sequence[Row]:
    """A part of the result that is a list of rows; empty where it is missing or null."""
    found = result.get(name)
    return [row for row in found if isinstance(row, Mapping)] if isinstance(found, list) else []


def text_of(found: Row, name: str) -> str:
    """A text of a row; "undefined" where it is missing or null."""
    value = found.get(name)
    return UNDEFINED if value is None else str(value)


def estimate(found: Any) -> dict[str, float | None]:
    """An estimate, all of it undefined where it is missing; a bare number has no interval."""
    if isinstance(found, int | float):
        return {"value": found, "low": None, "high": None}
    known = found if isinstance(found, Mapping) else {}
    return {key: known.get(key) for key in ("value", "low", "high")}


def show_estimate(found: Any, *, is_share: bool = False, digits: int = 2) -> str:
    """A share in per cent, any other statistic as it is.

    >>> show_estimate({"value": 0.6289, "low": 0.603, "high": 0.659}, is_share=True), show_estimate(None)
    ('62.9 [60.3, 65.9]', 'undefined')
    >>> show_estimate({"value": -0.001, "low": -0.002, "high": 0.0})
    '0.00 [0.00, 0.00]'
    """
    scale, places = (100, 1) if is_share else (1, digits)
    shown = show(estimate(found), scale=scale, digits=places)
    return _MINUS_ZERO.sub(r"\1", shown).replace("-", MINUS)


def number(value: Any, digits: int = 2, *, scale: float = 1, sign: bool = False) -> str:
    """A number, or "undefined"; with `sign`, a plus where it is positive.

    >>> number(-0.034, 1, scale=100, sign=True) == "\N{MINUS SIGN}3.4", number(None)
    (True, 'undefined')
    """
    if not isinstance(value, int | float):
        return UNDEFINED
    text = f"{scale * value:{'+' if sign else ''},.{digits}f}"
    if not float(text.replace(",", "")):
        text = text.lstrip("+-")
    return text.replace("-", MINUS)


def is_share(columns: Sequence[str]) -> bool:
    """Whether levels are shares of labels, which are told in per cent, or means on a scale."""
    return list(columns) != ["mean"]


def total(counts: Row) -> int:
    """The sum of counts by name."""
    return sum(count for count in counts.values() if isinstance(count, int))


def listed(names: Sequence[str]) -> str:
    """Names as a sentence lists them.

    >>> listed(["a", "b", "c"]), listed([])
    ('a, b and c', 'none')
    """
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names) or "none"


def headline_of(result: Row) -> str:
    """The metric to lead with, as the result says; by order where a judge gives probabilities."""
    named = result.get("headline")
    if isinstance(named, str) and named in METRIC_NAMES:
        return named
    return next((name for name in ("qwk_matched", "qwk") if name in part(result, "agreement")), "qwk")


def worth_of(found: Row) -> float | None:
    """How many ratings a judge is worth on a model nobody rated; None where that is undefined."""
    worth = found.get("as_exact_as", found.get("worth_in_ratings"))
    return worth if isinstance(worth, int | float) else None
