"""Explanations: how a reply's score changes without a part, or with a neutral sentence in its place."""

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from math import ceil
from typing import Any

from empathy_judge.data.errors import UserError
from empathy_judge.data.records import REPLY, Exchange, Judgment
from empathy_judge.judge.base import Judge, raise_if_cancelled

MOST_PARTS = 32  # a judgment each: a longer reply is explained in coarser parts
GROUP = 3  # words left out together where a reply has only one clause
CLEAR = 0.02  # points of score; what moves it less has no direction that could hold or not
# They fit every message and show no feeling; the one of about a sentence's length takes its place.
NEUTRAL = (
    "I read it.",
    "I have read what you wrote.",
    "I have read what you wrote, and this is my reply to it.",
    "I have read what you wrote to me here, and what I write now is my reply to what you wrote.",
)

# Where a part ends, with the white space after it. A stop must be followed by white space, so "3.5" stays
# whole; abbreviations ("Dr. Lee") are split, which costs a needless part and no character. The lookbehind and
# the possessive repeats keep a row of a hundred thousand dots from taking minutes.
_SENTENCE = re.compile(
    r"(?<![.!?\u2026])[.!?\u2026]++[\"'\u2019\u201d)\]*_]*+\s++"
    r"|[\u3002\uff01\uff1f]++[\u201d\u300d\u300f]?\s*+"
    r"|\n\s*+"
)
_CLAUSE = re.compile(r"[,;:\u2013\u2014]\s++|\s[-\u2013\u2014]+\s++")
_WORD = re.compile(r"(?<=\S)\s++")


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a reply, and its effects on the score: positive where it lifts it, None where unknown."""

    text: str
    effect: float | None  # the score less the score without the part
    swapped: float | None = None  # less the score with a neutral sentence in the place of this one

    @property
    def is_doubtful(self) -> bool:
        """Whether it moves the score when left out, and not the same way when swapped."""
        if self.effect is None or self.swapped is None or abs(self.effect) < CLEAR:
            return False
        return self.swapped * self.effect <= 0 or abs(self.swapped) < CLEAR


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A reply's score and what each part does to it; the parts joined are the reply.

    Their effects need not add up to the score: two sentences that say the same have little effect each.
    """

    id: str
    model: str
    score: float | None
    parts: tuple[Part, ...]
    unscored: str | None = None

    def as_row(self) -> dict[str, Any]:
        """Return the explanation as JSON has it."""
        parts = [{**asdict(part), "is_doubtful": part.is_doubtful} for part in self.parts]
        return {**asdict(self), "parts": parts}


def check_explainable(judge: Judge, option: str) -> None:
    """Refuse a judge of whole conversations: only the score of a reply is attributed to its parts."""
    if judge.unit != REPLY:
        raise UserError(
            f"{option}: only for replies, and {judge.name} judges conversations; use --unit reply"
        )


def explain(
    judge: Judge, exchange: Exchange, *, whole: Judgment | None = None, threads: int | None = None
) -> Explanation:
    """Judge a reply without each of its sentences, or of its clauses or words where it is a single one.

    Each sentence is also swapped for a neutral one, to tell whether its effect is more than its length.
    """
    whole = whole or judge.judge(exchange)
    texts = split_reply(exchange.response)
    changed = _changed(texts)

    def effect_of(rest: str) -> float | None:
        # An empty reply is not a reply: no judge is asked for one.
        if not rest or whole.score is None:
            return None
        raise_if_cancelled()
        score = judge.judge(replace(exchange, response=rest)).score
        return None if score is None else round(whole.score - score, 6)

    if threads == 1:  # in this very thread, which may know that nobody waits any more
        effects = list(map(effect_of, changed))
    else:
        with ThreadPoolExecutor(threads or judge.concurrency) as pool:
            effects = list(pool.map(effect_of, changed))
    swapped = effects[len(texts) :] or [None] * len(texts)
    return Explanation(
        id=exchange.id,
        model=exchange.model,
        score=whole.score,
        parts=tuple(map(Part, texts, effects, swapped)),
        unscored=whole.unscored,
    )


def count_judgments(reply: str) -> int:
    """Count the judgments that the explanation of a reply takes.

    >>> count_judgments("Oh no! How are you?"), count_judgments("Oh no, how are you?")
    (5, 3)
    """
    return 1 + len(_changed(split_reply(reply)))


def split_reply(reply: str) -> list[str]:
    """Split a reply into the parts to leave out; joined they are the reply, to the last character.

    >>> split_reply("Oh no! How are you?")
    ['Oh no! ', 'How are you?']
    >>> split_reply("Oh no, how are you?")
    ['Oh no, ', 'how are you?']
    >>> split_reply("How are you these days?")
    ['How are you ', 'these days?']
    """
    start = len(reply) - len(reply.lstrip())  # white space in front stays with the first part
    for boundary, least in ((_SENTENCE, 1), (_CLAUSE, 1), (_WORD, GROUP)):
        ends = [match.end() for match in boundary.finditer(reply)]
        cuts = [0, *(end for end in ends if start < end < len(reply)), len(reply)]
        size = max(least, ceil((len(cuts) - 1) / MOST_PARTS))  # neighbors that stay together
        if len(cuts) > 2:
            break
    return [reply[left:right] for left, right in pairwise([*cuts[:-1:size], len(reply)])]


def _changed(texts: list[str]) -> list[str]:
    """Return the reply without each part, and then, if these are sentences, with each of them swapped."""
    changes = (_leave_out, _swap) if len(texts) > 1 and _SENTENCE.search(texts[0]) else (_leave_out,)
    return [change(texts, position) for change in changes for position in range(len(texts))]


def _swap(texts: list[str], position: int) -> str:
    """Return the reply with a neutral sentence of similar length in the place of a part."""
    text = texts[position]
    words = len(text.split())
    neutral = min(NEUTRAL, key=lambda sentence: abs(len(sentence.split()) - words))
    return "".join([*texts[:position], neutral, text[len(text.rstrip()) :], *texts[position + 1 :]]).strip()


def _leave_out(texts: list[str], position: int) -> str:
    """Return the reply without one part; it still begins with a capital if it did."""
    rest = "".join(texts[:position] + texts[position + 1 :]).strip()
    if texts[0].lstrip()[:1].isupper():
        return rest[:1].upper() + rest[1:]
    return rest
