"""Which of two replies to one prompt is the more empathetic, asked in both orders."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

INCONSISTENT: Final = "inconsistent"
SWAPPED: Final = {"first": "second", "second": "first", "tie": "tie"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PairJudgment:
    """A judge's word on two responses: `winner` is first, second, tie or inconsistent, or None: `unscored`.

    `answers` are what it said in the order given and in the other, both in terms of the order given.
    """

    first: str
    second: str
    winner: str | None = None
    answers: tuple[str, str] | None = None
    rationale: str | None = None
    unscored: str | None = None
    usage: Mapping[str, float] | None = None


def settle(forward: str, backward: str) -> str:
    """The verdict of two answers, the second given with the responses swapped.

    A reply wins only if it wins in both orders. A judge that takes the one in front both times, or the one
    behind, has said something about the order and nothing about the replies. One win and one tie is a tie.

    >>> settle("first", "second"), settle("first", "first"), settle("tie", "second"), settle("tie", "tie")
    ('first', 'inconsistent', 'tie', 'tie')
    """
    other = SWAPPED[backward]
    if forward == other:
        return forward
    return "tie" if "tie" in (forward, other) else INCONSISTENT
