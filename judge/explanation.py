"""What drove a reply's score: how far it moves when one part of the reply is left out."""

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil

from data.records import Exchange, Judgment
from judge.base import Judge

MOST_PARTS = 32  # a judgment each: a longer reply is explained in coarser parts
GROUP = 3  # words left out together where a reply has only one clause

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
    """A piece of a reply; `effect` is positive where it lifts the score, None where nobody can say."""

    text: str
    effect: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A reply's score and what each part does to it.

    The parts joined are the reply. Their effects need not add up to the score: two sentences that say the
    same have little effect each. A reply without one of its sentences is also shorter, which judges may mind.
    """

    id: str
    model: str
    score: float | None
    parts: tuple[Part, ...]
    unscored: str | None = None


def explain(
    judge: Judge, exchange: Exchange, *, whole: Judgment | None = None, threads: int | None = None
) -> Explanation:
    """Judge a reply without each of its sentences, or of its clauses or words where it is a single one.

    `whole` is the judgment of the whole reply, where it is known; else the judge is asked for it. It is asked
    on so many `threads`, or on as many as it takes.
    """
    whole = whole or judge.judge(exchange)
    texts = split_reply(exchange.response)
    without = [_leave_out(texts, position) for position in range(len(texts))]

    def effect_of(rest: str) -> float | None:
        # An empty reply is not a reply: no judge is asked for one.
        if not rest or whole.score is None:
            return None
        score = judge.judge(replace(exchange, response=rest)).score
        return None if score is None else round(whole.score - score, 6)

    with ThreadPoolExecutor(threads or judge.concurrency) as pool:
        effects = list(pool.map(effect_of, without))
    return Explanation(
        id=exchange.id,
        model=exchange.model,
        score=whole.score,
        parts=tuple(Part(text, effect) for text, effect in zip(texts, effects, strict=True)),
        unscored=whole.unscored,
    )


def split_reply(reply: str) -> list[str]:
    """The parts to leave out in turn; joined they are the reply, to the last character.

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
        size = max(least, ceil((len(cuts) - 1) / MOST_PARTS))  # neighbours that stay together
        if len(cuts) > 2:
            break
    return [reply[left:right] for left, right in pairwise([*cuts[:-1:size], len(reply)])]


def _leave_out(texts: list[str], position: int) -> str:
    """The reply without one part, still beginning with a capital if it did: that would be another change."""
    rest = "".join(texts[:position] + texts[position + 1 :]).strip()
    if texts[0].lstrip()[:1].isupper():
        return rest[:1].upper() + rest[1:]
    return rest
