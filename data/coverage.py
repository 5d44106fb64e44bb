"""What people rated, and which replies lie outside of it: longer, in Markdown, later in a conversation.

A reply's shape is noted with its judgment. What a judge learned from, and what a calibration was fitted on,
is told by the same figures: so far as one of them covers a reply, people have rated such replies.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol

ENOUGH: Final = 30  # rated replies that make a length, a turn or a manner known; of few replies a 50th
WORTH: Final = 0.05  # of a file's replies: fewer hardly move its shares, and rated replies have such too
# A heading, an item of a list, a fence or bold words, at least two of them: one dash makes no list.
_MARKDOWN: Final = re.compile(r"^ {0,3}(?:#{1,6} |[-*+•] |\d{1,2}[.)] |```)|\*\*[^*\n]+\*\*", re.MULTILINE)
Shape = Mapping[str, int]


class Replied(Protocol):
    """An exchange, as far as it is looked at here."""

    @property
    def response(self) -> str: ...
    @property
    def situation(self) -> str | None: ...
    @property
    def dialogue(self) -> Sequence[object]: ...


class Shaped(Protocol):
    """A judgment, as far as it is looked at here."""

    @property
    def shape(self) -> Shape | None: ...
    @property
    def unscored(self) -> str | None: ...


def shape_of(exchange: Replied) -> dict[str, int]:
    """What is noted of a reply: its words, the turns before it, and 1 or 0 for a situation and for Markdown.

    >>> from data.records import Exchange
    >>> shape_of(Exchange(id="1", prompt="I won!", response="**Well done!** Here is a plan:\\n- rest"))
    {'words': 8, 'turns': 0, 'situation': 0, 'markdown': 1}
    """
    reply = exchange.response
    may_be = "\n" in reply or "**" in reply  # what stands at the start of the only line is one mark at most
    return {
        "words": len(reply.split()),
        "turns": len(exchange.dialogue),
        "situation": int(bool(exchange.situation)),
        "markdown": int(may_be and len(_MARKDOWN.findall(reply)) > 1),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """What so many rated `replies` were like.

    `words` are the 5th and 95th percentile and the longest. At least 30 of the replies, or a 50th of few, had
    `long` words or more, and `late` turns or more before them; `situation` and `markdown` are shares.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    replies: int
    words: tuple[int, int, int]
    long: int
    late: int
    situation: float
    markdown: float


def coverage_of(shapes: Iterable[Shape]) -> Coverage | None:
    """What rated replies were like; None where nothing is known of them.

    >>> coverage_of({"words": n, "turns": 0, "situation": 1, "markdown": 0} for n in range(1, 101))
    Coverage(replies=100, words=(6, 96, 100), long=99, late=0, situation=1.0, markdown=0.0)
    """
    known = list(shapes)
    if not known:
        return None
    count = len(known)
    words, turns = (sorted(shape[name] for shape in known) for name in ("words", "turns"))
    situation, markdown = (
        round(sum(shape[name] for shape in known) / count, 4) for name in ("situation", "markdown")
    )
    enough = _enough(count)
    return Coverage(
        replies=count,
        words=(words[5 * count // 100], words[95 * count // 100], words[-1]),
        long=words[-enough],
        late=turns[-enough],
        situation=situation,
        markdown=markdown,
    )


def _enough(replies: int) -> int:
    return max(1, min(ENOUGH, replies // 50))


class Outside:
    """Those among judgments that come by whose replies are unlike what people rated.

    `judge` is what the judge learned from, `calibration` what its levels were fitted on; where neither is
    known, nothing is outside.
    """

    def __init__(self, judge: Coverage | None, calibration: Coverage | None) -> None:
        known = [item for item in (judge, calibration) if item is not None]
        self.is_known = bool(known)
        self.long = max((item.long for item in known), default=0)
        self.late = max((item.late for item in known), default=0)
        self.knows_markdown = any(item.markdown * item.replies >= _enough(item.replies) for item in known)
        # A judge that met both has one level for each; a calibration fitted without situations settles it.
        self.needs_situation = (
            calibration.situation > 0.5 if calibration else judge is not None and judge.situation > 0
        )
        self.replies = self.outside = self.longer = self.later = self.markdown = self.bare = 0

    def add(self, shape: Shape | None) -> None:
        """Count a reply in that has a label."""
        if not shape or not self.is_known:
            return
        longer, later = shape["words"] > self.long, shape["turns"] > self.late
        markdown = bool(shape["markdown"]) and not self.knows_markdown
        self.replies += 1
        self.longer += longer
        self.later += later
        self.markdown += markdown
        self.outside += longer or later or markdown
        self.bare += self.needs_situation and not shape["situation"]

    def as_dict(self) -> dict[str, Any]:
        """The counts, and the bounds they are counted against; empty where nothing is outside."""
        if max(self.outside, self.bare) < max(1, WORTH * self.replies):
            return {}
        return {
            "replies": self.replies,
            "outside": self.outside,
            "longer": {"count": self.longer, "than": self.long},
            "later": {"count": self.later, "than": self.late},
            "markdown": self.markdown,
            "without_situation": self.bare,
        }


def find_outside(
    judgments: Iterable[Shaped], judge: Coverage | None, calibration: Coverage | None
) -> dict[str, Any]:
    """The counts for judgments that are at hand."""
    outside = Outside(judge, calibration)
    for judgment in judgments:
        if judgment.unscored is None:
            outside.add(judgment.shape)
    return outside.as_dict()


def say_outside(found: Mapping[str, Any] | None) -> list[str]:
    """A sentence about replies unlike those that people rated, and one about missing situations.

    >>> found = {"replies": 40, "outside": 9, "longer": {"count": 9, "than": 84}, "markdown": 0}
    >>> say_outside(found | {"later": {"count": 0, "than": 9}, "without_situation": 0})
    ['9 of 40 replies are longer than nearly all that people rated (84 words): read their shares with care.']
    >>> say_outside({})
    []
    """
    if not found:
        return []
    total, lines = found["replies"], []
    least = max(1, WORTH * total)
    longer, later = found["longer"], found["later"]
    if found["outside"] >= least:
        kinds = {
            f"longer than nearly all that people rated ({longer['than']:,} words)": longer["count"],
            "in Markdown, which they hardly saw": found["markdown"],
            f"later in a conversation than they rated ({later['than']:,} turns)": later["count"],
        }
        met = {kind: count for kind, count in kinds.items() if count}
        if len(met) == 1:
            said = f"are {next(iter(met))}"
        else:
            listed = ", ".join(f"{count:,} {kind}" for kind, count in met.items())
            said = f"are unlike those that people rated ({listed})"
        lines.append(f"{found['outside']:,} of {total:,} replies {said}: read their shares with care.")
    if found["without_situation"] >= least:
        bare = f"{found['without_situation']:,} of {total:,} replies come without `situation`"
        lines.append(f"{bare}, which the people who rated had read: levels can shift by several points.")
    return lines


def say_coverage(coverage: Coverage | None) -> list[str]:
    """A line about the replies that people rated; none where nothing is known of them.

    >>> say_coverage(Coverage(replies=64, words=(5, 40, 61), long=40, late=0, situation=1, markdown=0))
    ['rated replies have 5 to 40 words (61 at most), 100 % of them with a situation']
    """
    if coverage is None:
        return []
    low, high, most = coverage.words
    told = f"rated replies have {low:,} to {high:,} words ({most:,} at most)"
    return [f"{told}, {100 * coverage.situation:.0f} % of them with a situation"]
