"""Scripted speakers: situations with several turns, of which the next depends on signs in the last reply.

A file of situations, such as `data/samples/situations.toml`, has for each of them

    id, emotion, situation   what the speaker lives through
    opening                  what they say first
    story                    what they go on with, in this order
    asked                    what they tell when the reply asks them something
    advised                  what they say to advice
    brushed_off              what they say to a reply that is dismissive, or just a few words
    heard, unheard           how they end, by whether more than half of the replies brushed them off

A branch that is used up goes on with the story, and after it with what nobody asked for. The same replies
always meet the same words.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from data.errors import UserError
from data.files import read_toml
from data.records import Exchange, digest_json, to_plain
from data.tables import SAMPLE_PROMPTS, first_problem

OURS: Final = SAMPLE_PROMPTS.with_name("situations.toml")
Sign = Literal["asked", "advised", "brushed_off", "story"]
FEW_WORDS: Final = 5  # a reply with fewer, and without a question, is as good as none

DISMISSIVE: Final = re.compile(
    r"\b(?:get over (?:it|yourself)|calm down|cheer up|grow up|man up|toughen up|suck it up|deal with it"
    r"|let it go|who cares|so what|big deal|(?:could|can) be worse|worse things|at least you"
    r"|forget (?:it|about it)|stop (?:whining|complaining|crying|worrying|moping|being)"
    r"|you(?:'re| are) (?:over-?reacting|too sensitive|being (?:dramatic|silly|ridiculous|too))"
    r"|everyone (?:has|goes through)|it happens|nothing to (?:worry|cry)"
    r"|not (?:my problem|that bad|the end of the world)|don't be (?:so|such a|silly|dramatic))\b",
    re.IGNORECASE,
)
ADVICE: Final = re.compile(
    r"\b(?:you (?:should|could|need to|ought to|must|m(?:ay|ight) want to|might try|can (?:try|also|start))"
    r"|(?:have|did) you (?:tried|try|thought|considered?|talked to|spoken)"
    r"|why (?:don't|not) (?:you|try|just)|how about|what if you"
    r"|(?:i|i'd) (?:suggest|recommend|advise)|my advice|if i were you"
    r"|make sure|be sure to|it(?:'s| is| may be| might be) (?:important|helpful|a good idea|best|worth)"
    r"|it (?:might|could|may|can) help|remember (?:to|that)|consider|reach out to|seek)\b"
    r"|^\s*(?:\d+[.)]|[-*•])\s"
    r"|(?:^|[.!?]\s+)(?:try|take|talk|focus|start|give yourself|allow yourself|keep)\b",
    re.IGNORECASE | re.MULTILINE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What a speaker lives through, and their words for every turn."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    id: str
    emotion: str
    situation: str
    opening: str
    story: tuple[str, ...]
    asked: tuple[str, ...]
    advised: tuple[str, ...]
    brushed_off: tuple[str, ...]
    heard: str
    unheard: str

    @property
    def most_turns(self) -> int:
        """How many turns there are words for whatever the replies are like."""
        return 2 + len(self.story) + len(self.asked)


class ScriptedSpeaker:
    """Speaks by the script of each situation."""

    def __init__(self, situations: Sequence[Situation]) -> None:
        self.situations = {item.id: item for item in situations}
        self.version = digest_json(to_plain(situations))[:12]  # of every word that may be said

    def speak(self, so_far: Exchange, *, is_last: bool) -> str:
        """The speaker's words after the last reply; those that `is_last` show how the talk went."""
        replies = [turn.text for turn in so_far.dialogue[1::2]] + [so_far.response]
        return next_words(self.situations[so_far.id], replies, is_last=is_last)


def next_words(situation: Situation, replies: Sequence[str], *, is_last: bool = False) -> str:
    """What a speaker says after these replies."""
    signs = [read_sign(reply) for reply in replies]
    if is_last:
        return situation.unheard if 2 * signs.count("brushed_off") > len(signs) else situation.heard
    left = {name: list(getattr(situation, name)) for name in ("story", "asked", "advised", "brushed_off")}
    words = situation.opening
    for sign in signs:
        branch = next((left[name] for name in (sign, "story", "asked") if left[name]), None)
        if branch is None:
            raise UserError(f"{situation.id}: no words are left for turn {len(signs) + 1}")
        words = branch.pop(0)
    return words


def read_sign(reply: str) -> Sign:
    """What a speaker notices first in a reply, by a few words and marks; no more than a sign.

    >>> read_sign("Oh no. How long had you known him?"), read_sign("You should talk to a doctor.")
    ('asked', 'advised')
    >>> read_sign("It could be worse, you know."), read_sign("I see.")
    ('brushed_off', 'brushed_off')
    >>> read_sign("That must have hurt so much.")
    'story'
    """
    text = reply.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'").strip()
    last = re.split(r"(?<=[.!?])\s+", text)[-1]
    if DISMISSIVE.search(text):
        return "brushed_off"
    if "?" in last and not ADVICE.search(last):
        return "asked"
    if ADVICE.search(text):
        return "advised"
    if "?" in text:
        return "asked"
    return "brushed_off" if len(text.split()) < FEW_WORDS else "story"


def read_situations(path: Path) -> list[Situation]:
    """The situations of a file; what is wrong in it is named with its place."""
    from pydantic import TypeAdapter, ValidationError

    table = read_toml(path)
    rows = table.get("situations")
    if not isinstance(rows, list) or not rows:
        raise UserError(f"{path}: no situations; write each in a table [[situations]]")
    known, situations = ", ".join(item.name for item in fields(Situation)), dict[str, Situation]()
    for number, row in enumerate(rows, start=1):
        place = f"{path}: situation {number}"
        try:
            item = TypeAdapter(Situation).validate_python(row)
        except ValidationError as error:
            key, problem = first_problem(error)
            raise UserError(f"{place}: {key}: {problem}; a situation has {known}") from error
        if not all(text.strip() for text in _texts(item)):
            raise UserError(f"{place}: an empty text; a speaker has words for every turn")
        if item.id in situations:
            raise UserError(f"{place}: id: {item.id!r} is taken; give each situation its own")
        situations[item.id] = item
    return list(situations.values())


def check_turns(situations: Sequence[Situation], turns: int, path: Path) -> None:
    """Refuse more turns than the shortest script has words for."""
    shortest = min(situations, key=lambda item: item.most_turns)
    if turns > shortest.most_turns:
        raise UserError(
            f"--turns {turns}: {shortest.id!r} of {path} has words for {shortest.most_turns} turns; "
            "ask for fewer"
        )


def openings(situations: Sequence[Situation]) -> list[Exchange]:
    """The first turn of every situation, to be replied to."""
    return [
        Exchange(id=item.id, prompt=item.opening, response="", situation=item.situation, emotion=item.emotion)
        for item in situations
    ]


def _texts(item: Situation) -> list[str]:
    values: Mapping[str, Any] = to_plain(item)
    return list(
        chain.from_iterable([value] if isinstance(value, str) else value for value in values.values())
    )
