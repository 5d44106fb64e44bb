"""An estimate in words: its value, and its interval in brackets where it has one."""

from collections.abc import Mapping


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
