"""The range of replies that people rated, and replies outside of it: longer, in Markdown, or later in a talk.

The same figures describe a judge's training replies and those that a calibration was fitted on.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from empathy_judge.data.records import NOUNS, REPLY, Judgment

ENOUGH: Final = 30  # rated replies that make a length, a turn or a format known; of few replies a 50th
WORTH: Final = 0.05  # of a file's replies: fewer have little effect on its shares
ReplyShape = Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RatedRange:
    """A description of rated replies; at least 30 of them, or a 50th of few, reach `long` and `late`."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    replies: int
    """their number"""
    words: tuple[int, int, int]
    """the 5th and 95th percentile of their words, and the longest"""
    long: int
    """enough replies have so many words or more"""
    late: int
    """enough replies have so many turns or more before them"""
    situation: float
    """the share with a situation"""
    markdown: float
    """the share in Markdown"""


def rated_range_of(shapes: Iterable[ReplyShape]) -> RatedRange | None:
    """Return the range of rated replies; None where there are none."""
    known = list(shapes)
    if not known:
        return None
    count = len(known)
    words, turns = (sorted(shape[name] for shape in known) for name in ("words", "turns"))
    return RatedRange(
        replies=count,
        words=(words[5 * count // 100], words[95 * count // 100], words[-1]),
        long=words[-_enough(count)],
        late=turns[-_enough(count)],
        situation=round(sum(shape["situation"] for shape in known) / count, 4),
        markdown=round(sum(shape["markdown"] for shape in known) / count, 4),
    )


def _enough(replies: int) -> int:
    return max(1, min(ENOUGH, replies // 50))


class OutsideCount:
    """A count of replies outside the rated range.

    `judge` is the range of its training replies, `calibration` that of the replies it was fitted on; where
    neither is known, nothing is outside.
    """

    def __init__(self, judge: RatedRange | None, calibration: RatedRange | None) -> None:
        known = [item for item in (judge, calibration) if item is not None]
        self.is_known = bool(known)
        self.long = max((item.long for item in known), default=0)
        self.late = max((item.late for item in known), default=0)
        self.knows_markdown = any(item.markdown * item.replies >= _enough(item.replies) for item in known)
        # A judge trained on both has one level for each; a calibration fitted without situations decides.
        self.needs_situation = (
            calibration.situation > 0.5 if calibration else judge is not None and judge.situation > 0
        )
        self.counts: Counter[str] = Counter()

    def add(self, shape: ReplyShape | None) -> None:
        """Count the shape of a reply that has a label."""
        if not shape or not self.is_known:
            return
        found = {
            "longer": shape["words"] > self.long,
            "later": shape["turns"] > self.late,
            "markdown": bool(shape["markdown"]) and not self.knows_markdown,
        }
        bare = self.needs_situation and not shape["situation"]
        found |= {"replies": True, "outside": any(found.values()), "without_situation": bare}
        for name, is_met in found.items():
            self.counts[name] += is_met

    def as_dict(self) -> dict[str, Any]:
        """Return the counts and their bounds; empty where too few are outside to matter."""
        counts = self.counts
        if max(counts["outside"], counts["without_situation"]) < max(1, WORTH * counts["replies"]):
            return {}
        bounds = {"longer": self.long, "later": self.late}
        return dict(counts) | {name: {"count": counts[name], "than": bounds[name]} for name in bounds}


def find_outside(
    judgments: Iterable[Judgment], judge: RatedRange | None, calibration: RatedRange | None
) -> dict[str, Any]:
    """Return the counts for these judgments."""
    outside = OutsideCount(judge, calibration)
    for judgment in judgments:
        outside.add(judgment.features if judgment.unscored is None else None)
    return outside.as_dict()


def say_outside(
    counts: Mapping[str, Any] | None, unit: str = REPLY, *, with_situations: bool = False
) -> list[str]:
    """Return a sentence about replies outside the rated range, and on demand one about missing situations.

    >>> counts = {"replies": 40, "outside": 9, "longer": {"count": 9, "than": 84}, "markdown": 0}
    >>> say_outside(counts | {"later": {"count": 0, "than": 9}, "without_situation": 0})
    ['9 of 40 replies are longer than nearly all rated replies (84 words): their shares are less reliable.']
    >>> say_outside({})
    []
    """
    if not counts:
        return []
    total, noun, lines = counts["replies"], NOUNS[unit], []
    least = max(1, WORTH * total)
    longer, later = counts["longer"], counts["later"]
    if counts["outside"] >= least:
        kinds = {
            f"longer than nearly all rated replies ({longer['than']:,} words)": longer["count"],
            "in Markdown, which raters rarely saw": counts["markdown"],
            f"later in a conversation than rated ones ({later['than']:,} turns)": later["count"],
        }
        met = {kind: count for kind, count in kinds.items() if count}
        many = ", ".join(f"{count:,} {kind}" for kind, count in met.items())
        how = f"outside the range that people rated ({many})" if len(met) > 1 else next(iter(met))
        lines.append(f"{counts['outside']:,} of {total:,} {noun} are {how}: their shares are less reliable.")
    if with_situations and counts["without_situation"] >= least:
        missing = f"{counts['without_situation']:,} of {total:,} {noun} have no `situation`"
        lines.append(f"{missing}, which the study's raters saw; shares may deviate by several points.")
    return lines
