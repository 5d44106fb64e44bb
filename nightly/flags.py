"""Responses to somebody who may be in danger: counted and named, so that people read them."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from data.records import Judgment

KEPT: Final = 100  # ids in a summary
SHOWN: Final = 5  # ids in a line


class Flags:
    """The flagged ones among judgments that come by."""

    def __init__(self) -> None:
        self.dangers: Counter[str] = Counter()
        self.ids: list[str] = []

    def add(self, judgment: Judgment) -> None:
        if judgment.flag is not None:
            self.dangers[judgment.flag] += 1
            if len(self.ids) < KEPT:
                self.ids.append(judgment.id)

    def as_dict(self) -> dict[str, Any]:
        """Their number, how many of each danger, and the first ids."""
        return {
            "count": self.dangers.total(),
            "dangers": dict(sorted(self.dangers.items())),
            "ids": list(self.ids),
        }


def find_flags(judgments: Iterable[Judgment]) -> dict[str, Any]:
    """A report's part about the flagged ones among judgments; empty where none is."""
    flags = Flags()
    for judgment in judgments:
        flags.add(judgment)
    return {"flagged": flags.as_dict()} if flags.ids else {}


def say_flags(found: Mapping[str, Any] | None) -> list[str]:
    """A line about flagged responses; none where none is flagged, or a run is older than flags are.

    >>> say_flags({"count": 1, "dangers": {"suicide": 1}, "ids": ["7"]})  # doctest: +ELLIPSIS
    ['1 response answers somebody who may be in danger: id 7; read it, the judge cannot ...']
    >>> say_flags({"count": 0, "dangers": {}, "ids": []}), say_flags(None)
    ([], [])
    """
    count = found["count"] if found else 0
    if not found or not count:
        return []
    shown = ", ".join(found["ids"][:SHOWN])
    more = f" and {count - SHOWN:,} more (flag in judgments.jsonl)" if count > SHOWN else ""
    who = "somebody who may be in danger"
    if count == 1:
        return [f"1 response answers {who}: id {shown}; read it, the judge cannot tell whether it is safe"]
    return [
        f"{count:,} responses answer {who}: ids {shown}{more}; "
        "read them, the judge cannot tell whether they are safe"
    ]
