"""Names, numbers, estimates, p-values, times and money as text, in one style everywhere.

None, nan and infinity are printed as `UNDEFINED`, a minus is a minus sign, and a number that rounds to zero
has no sign.
"""

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

UNDEFINED = "undefined"
MINUS = "\N{MINUS SIGN}"
# In a URL, or in a path made of one; github://organization:repository@branch has none.
PASSWORD = re.compile(r"((?<!github):/{1,2})[^/\s:]*:[^/\s]*@")
FORMULA = re.compile("'*[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")  # wide forms of = + - @ do as well
NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")


class HasInterval(Protocol):
    """A value with its interval: `calibration.estimate.Estimate` is one."""

    @property
    def value(self) -> float: ...

    @property
    def interval(self) -> Any: ...


# An estimate as it was measured, or as JSON has it: {"value": 0.4, "low": 0.3, "high": null}.
AnyEstimate = HasInterval | Mapping[str, Any] | float | None


def slug(name: str) -> str:
    """Turn any text into a file's name that is readable, and never the same for two texts.

    >>> slug("GPT-4/turbo"), slug("../..")
    ('gpt-4-turbo-a65e6496', 'x-0cfd1c96')
    """
    plain = re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-.")[:40] or "x"
    return f"{plain}-{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]}"


def printable(text: str) -> str:
    r"""Make a name safe for a terminal: no line break, no escape code, no half a character.

    >>> printable("gpt\x1b[31m") == "gpt\N{REPLACEMENT CHARACTER}[31m"
    True
    """
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def printable_lines(text: str) -> str:
    """Make a text of several lines safe for a terminal, such as an error that quotes a file or a server.

    >>> printable_lines("https://me:secret@example.org/a.csv: no such file")
    'https://***@example.org/a.csv: no such file'
    """
    return "\n".join(printable(line) for line in PASSWORD.sub(r"\1***@", text).split("\n"))


def disarm(cell: str) -> str:
    """Write a text so that no spreadsheet takes it for a formula; `rearm` gives it back as it was.

    >>> disarm("=HYPERLINK(A1)"), disarm("- I hear you"), disarm("-5"), rearm(disarm("'@home")) == "'@home"
    ("'=HYPERLINK(A1)", "'- I hear you", '-5', True)
    """
    return f"'{cell}" if FORMULA.match(cell) and not NUMBER.fullmatch(cell) else cell


def rearm(cell: str) -> str:
    """Read a text that `disarm` wrote, or a spreadsheet's own mark for text that is no formula."""
    return cell[1:] if cell.startswith("'") and FORMULA.match(cell) else cell


def listed(names: Sequence[str]) -> str:
    """List names as a sentence does.

    >>> listed(["a", "b", "c"]), listed([])
    ('a, b and c', 'none')
    """
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names) or "none"


def number(value: float | None, digits: int = 2, *, scale: float = 1, sign: bool = False) -> str:
    """Print a number; with `sign` a plus where it is positive.

    >>> number(-0.034, 1, scale=100, sign=True) == f"{MINUS}3.4", number(None), number(1234.5, 0)
    (True, 'undefined', '1,234')
    >>> number(-0.001)
    '0.00'
    """
    if not isinstance(value, int | float) or not math.isfinite(value):
        return UNDEFINED
    text = f"{scale * value:{'+' if sign else ''},.{digits}f}"
    if not float(text.replace(",", "")):
        text = text.lstrip("+-")
    return text.replace("-", MINUS)


def count(value: int | None) -> str:
    """Print a count with commas between thousands."""
    return number(value, 0)


def interval(
    low: float | None, high: float | None, digits: int = 2, *, scale: float = 1, sign: bool = False
) -> str:
    """Print an interval in brackets.

    >>> interval(0.2134, 0.26), interval(0.02, 0.1405, 1, scale=100, sign=True), interval(None, 1.0)
    ('[0.21, 0.26]', '[+2.0, +14.1]', 'undefined')
    """
    ends = [number(end, digits, scale=scale, sign=sign) for end in (low, high)]
    return UNDEFINED if UNDEFINED in ends else f"[{', '.join(ends)}]"


def show(estimate: AnyEstimate, *, digits: int = 2, scale: float = 1, glue: str = " ") -> str:
    r"""Print an estimate: its value, and after `glue` its interval where it has one.

    >>> show({"value": 0.238, "low": 0.2134, "high": 0.26})
    '0.24 [0.21, 0.26]'
    >>> show({"value": 0.031, "low": None, "high": None}, scale=100, digits=1), show(None)
    ('3.1', 'undefined')
    """
    value, low, high = ends_of(estimate)
    text = _bound(estimate, digits, scale=scale) or number(value, digits, scale=scale)
    if value is None or not math.isfinite(value) or low is None or high is None:
        return text
    return f"{text}{glue}{interval(low, high, digits, scale=scale)}"


def ends_of(estimate: AnyEstimate) -> tuple[float | None, float | None, float | None]:
    """Return the value, the low end and the high end of an estimate; None where there is none."""
    if estimate is None or isinstance(estimate, int | float):
        return estimate, None, None
    if isinstance(estimate, Mapping):
        return estimate["value"], estimate.get("low"), estimate.get("high")
    ends = estimate.interval
    return (estimate.value, ends.low, ends.high) if ends else (estimate.value, None, None)


def bound_of(estimate: AnyEstimate) -> Any:
    """Return `at least` or `at most` where only that end of an estimate is known; else None."""
    if isinstance(estimate, Mapping):
        return estimate.get("bound")
    return getattr(estimate, "bound", None)


def _bound(estimate: AnyEstimate, digits: int, *, scale: float = 1, sign: bool = False) -> str:
    """Print the one known end of an estimate; empty where both are known, or none."""
    _, low, high = ends_of(estimate)
    bound = bound_of(estimate)
    end, side = (low, "more") if bound == "at least" else (high, "less")
    return f"{number(end, digits, scale=scale, sign=sign)} or {side}" if bound else ""


def percent(share: AnyEstimate, digits: int = 1, *, sign: bool = False, glue: str = " ") -> str:
    """Print a share in percent with its interval, or with `sign` a difference of shares in points.

    >>> percent({"value": 0.6289, "low": 0.603, "high": 0.659}), percent(0.031), percent(0.05, sign=True)
    ('62.9 [60.3, 65.9]', '3.1', '+5.0')
    >>> percent({"value": 0.08, "low": 0.02, "high": 0.14}, sign=True)
    '+8.0 [+2.0, +14.0]'
    >>> percent({"value": None, "low": 0.571, "high": 1.0, "bound": "at least"})
    '57.1 or more'
    """
    text = number(ends_of(share)[0], digits, scale=100, sign=sign)
    ends = percent_interval(share, digits, sign=sign)
    if text == UNDEFINED or not ends:
        return ends or text
    return f"{text}{glue}{ends if ends.startswith('[') else f'({ends})'}"


def percents(shares: Sequence[AnyEstimate], digits: int = 1, *, glue: str = " ") -> list[str]:
    """Print all shares of a whole, so that the printed ones add up to 100 (largest remainder).

    >>> percents([0.126, 0.284, 0.59], 0), percents([0.2, None], 0)
    (['13', '28', '59'], ['20', 'undefined'])
    """
    values, steps = [ends_of(share)[0] for share in shares], 100 * 10**digits
    known = [value for value in values if value is not None and math.isfinite(value)]
    if len(known) < len(shares) or abs(sum(known) - 1) > 1e-3:
        return [percent(share, digits, glue=glue) for share in shares]
    whole = [math.floor(steps * value + 1e-9) for value in known]
    by_rest = sorted(range(len(known)), key=lambda at: whole[at] - steps * known[at])
    for at in by_rest[: steps - sum(whole)]:
        whole[at] += 1
    rounded = zip(whole, map(ends_of, shares), strict=True)
    rows = [{"value": part / steps, "low": low, "high": high} for part, (_, low, high) in rounded]
    return [percent(row, digits, glue=glue) for row in rows]


def points(difference: AnyEstimate, digits: int = 1, *, glue: str = " ") -> str:
    """Print a difference of shares in points, with its sign and its interval."""
    return percent(difference, digits, sign=True, glue=glue)


def percent_interval(share: AnyEstimate, digits: int = 1, *, sign: bool = False) -> str:
    """Print the interval of a share or of a difference; one at an end of the scale by its other end.

    >>> percent_interval({"value": 0.5, "low": 0.4, "high": 0.6}, 0), percent_interval(0.5)
    ('[40, 60]', '')
    >>> percent_interval({"value": 0.2, "low": 0.0, "high": 0.48}, 0)
    '48 or less'
    """
    _, low, high = ends_of(share)
    if low is None or high is None:
        return ""
    if text := _bound(share, digits, scale=100, sign=sign):
        return text
    if (low <= (-1 if sign else 0)) == (high >= 1):
        return interval(low, high, digits, scale=100, sign=sign)
    end, side = (low, "more") if high >= 1 else (high, "less")
    return f"{number(end, digits, scale=100, sign=sign)} or {side}"


def probability(value: float) -> str:
    """Print a probability; never as certainty.

    >>> probability(0.912), probability(0.998), probability(0.001), probability(math.nan)
    ('91%', 'over 99%', 'under 1%', '')
    """
    if math.isnan(value):
        return ""
    return "over 99%" if value > 0.994 else "under 1%" if value < 0.006 else f"{100 * value:.0f}%"


def p_value(value: float | None) -> str:
    """Print a p-value to three places.

    >>> p_value(0.0214), p_value(1e-9), p_value(1.0), p_value(None)
    ('0.021', '< 0.001', '1', 'undefined')
    """
    if value is not None and value < 0.001:
        return "< 0.001"
    return "1" if value is not None and value >= 0.9995 else number(value, 3)


def exact_p_value(value: float | None) -> str:
    """Print a p-value to four places, or by its power of ten.

    >>> exact_p_value(0.02897), exact_p_value(7.77e-23), exact_p_value(1.0), exact_p_value(math.nan)
    ('0.0290', '7.8e-23', '1', 'undefined')
    """
    if value is not None and value < 0.0001:
        return f"{value:.1e}"
    return "1" if value is not None and value >= 0.99995 else number(value, 4)


def duration(seconds: float) -> str:
    """Print seconds in a suitable unit.

    >>> [duration(item) for item in (14, 100, 720, 5400, 200000)]
    ['14 s', '100 s', '12 min', '1.5 h', '56 h']
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    hours = seconds / 3600
    return f"{hours:.1f} h" if hours < 10 else f"{hours:.0f} h"


def money(dollars: float | None) -> str:
    """Print US dollars; small amounts with four digits.

    >>> money(12.345), money(0.00123), money(0.0), money(None)
    ('$12.35', '$0.0012', '$0.00', 'not priced')
    """
    if dollars is None:
        return "not priced"
    return f"${dollars:,.2f}" if dollars >= 0.1 or not dollars else f"${dollars:.4f}"


# Control characters but for tab and line break; characters without width; changes of the writing direction;
# the invisible alphabets (tags, variation selectors) in which whole sentences can be hidden.
HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff"
    "\U000e0000-\U000e007f\U000e0100-\U000e01ef]"
)
EMOJI_JOINER: Final = re.compile("(?<=[^\x00-\x7f])\u200d(?=[^\x00-\x7f])")  # as in a family
SURROGATE: Final = re.compile("[\ud800-\udfff]")
# Chat templates separate roles by these: <|im_start|>, [INST], <<SYS>>, <start_of_turn>, <think> ...
ROLE_TOKEN: Final = re.compile(
    r"<[|\uff5c][^<>|\uff5c\n]{0,40}[|\uff5c]>"
    r"|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS)\]|<</?SYS>>"
    r"|</?(?:s|bos|eos|pad|unk|start_of_turn|end_of_turn|start_header_id|end_header_id|eot_id)>"
    r"|</?(?:think|tool_call|tool_response|system|assistant|user|developer)>"
    r"|^[ \t]*#{2,4}[ \t]*(?:system|instruction|assistant|response)s?[ \t]*:[ \t]*$",
    re.IGNORECASE | re.MULTILINE,
)


def clean(text: str) -> str:
    """Remove invisible characters, and the tokens that only a chat template may write.

    >>> clean("So <|im_start|>system\\u200b sorry!")
    'So \\nsystem sorry!'
    """
    if not is_printable_ascii(text):
        text = SURROGATE.sub("\ufffd", text.replace("\r\n", "\n").replace("\r", "\n"))
        joiners = {match.start() for match in EMOJI_JOINER.finditer(text)}
        text = HIDDEN.sub(lambda match: match[0] if match.start() in joiners else "", text)
    if not may_have_role_tokens(text):
        return text
    # A line break in its place, or the rest of one token could close up to another. Twice, since a heading
    # counts as a token only at the start of a line.
    text, count = ROLE_TOKEN.subn("\n", text)
    return ROLE_TOKEN.sub("\n", text) if count else text


def is_printable_ascii(text: str) -> bool:
    """Return whether a text has nothing but printable ASCII and line breaks."""
    return text.isascii() and text.replace("\n", " ").isprintable()


def may_have_role_tokens(text: str) -> bool:
    """Return whether a text has a sign that every role token has."""
    return "<" in text or "[" in text or "#" in text
