"""Conversations of a model with scripted speakers: a folder of conversations that `score` reads.

`data.runs` describes how such a folder survives an interruption:

    answers.jsonl        every reply, or why there is none
    conversations.jsonl  the complete conversations, as `score` reads them
    manifest.json        the model, its settings, and how many conversations failed and why; written last

A conversation in which a call failed ends there, and is counted, but not among the whole ones.

A speaker says next what depends on signs in the last reply. A file of situations, such as
`data/samples/situations.toml`, has for each of them

    id, emotion, situation   what the speaker lives through
    opening                  what they say first
    story                    what they go on with, in this order
    asked                    what they tell when the reply asks them something
    advised                  what they say to advice
    brushed_off              what they say to a reply that is dismissive, or just a few words
    heard, unheard           how they end, by whether more than half of the replies brushed them off

When a branch is used up, the story follows, then the remaining turns. The same replies
always get the same turns.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar, Final, Literal

from empathy_judge.data.errors import UserError
from empathy_judge.data.files import read_toml
from empathy_judge.data.readers.conversations import SCENARIO
from empathy_judge.data.records import SCRIPTED, Exchange, Turn, digest_json, to_plain
from empathy_judge.data.runs import FinishedRun, OnProgress, Run, RunPlan, run_all
from empathy_judge.data.storage import digest_file
from empathy_judge.data.tables import SAMPLE_PROMPTS, read_rows, validate, write_rows
from empathy_judge.judge.engine import in_threads
from empathy_judge.judge.llm.answer_prompts import ANSWERS, Responder, describe_answers, write_messages

CONVERSATIONS: Final = "conversations.jsonl"
SPOKEN_BY: Final = "speaker"  # the key of a row that says of which kind its speaker was

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
    r"|^[^\S\n]*(?:\d+[.)]|[-*•])\s"
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

    @property
    def first_turn(self) -> Exchange:
        """The opening, to be answered."""
        return Exchange(
            id=self.id, prompt=self.opening, response="", situation=self.situation, emotion=self.emotion
        )


def next_words(situation: Situation, replies: Sequence[str], *, is_last: bool = False) -> str:
    """Return what a speaker says after these replies."""
    signs = [read_sign(reply) for reply in replies]
    if is_last:
        return situation.unheard if 2 * signs.count("brushed_off") > len(signs) else situation.heard
    left = {name: list(getattr(situation, name)) for name in ("story", "asked", "advised", "brushed_off")}
    words = situation.opening
    for sign in signs:
        branch = next((left[name] for name in (sign, "story", "asked") if left[name]), None)
        if branch is None:
            raise UserError(f"{situation.id}: no text for turn {len(signs) + 1}")
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


def read_script(path: Path, *, turns: int) -> list[Situation]:
    """Read a file of situations; refuse more turns than the shortest script has words for."""
    if path.suffix != ".toml":
        raise UserError(f"{path}: prompts have no script; pass a .toml file of situations")
    situations = read_situations(path)
    shortest = min(situations, key=lambda item: item.most_turns)
    if turns > shortest.most_turns:
        raise UserError(
            f"--turns {turns}: {shortest.id!r} of {path} has text for {shortest.most_turns} turns; set fewer"
        )
    return situations


def read_situations(path: Path) -> list[Situation]:
    """Read the situations of a file; what is wrong in it is named with its place."""
    rows = read_toml(path).get("situations")
    if not isinstance(rows, list) or not rows:
        raise UserError(f"{path}: no situations; write each in a table [[situations]]")
    situations = dict[str, Situation]()
    for number, row in enumerate(rows, start=1):
        place = f"{path}: situation {number}"
        item = validate(Situation, row, place)
        parts = [(value,) if isinstance(value, str) else value for value in to_plain(item).values()]
        if not all(text.strip() for part in parts for text in part):
            raise UserError(f"{place}: an empty text; every turn needs a text")
        if item.id in situations:
            raise UserError(f"{place}: id: {item.id!r} is a duplicate; give each situation a unique id")
        situations[item.id] = item
    return list(situations.values())


class Listener(Responder):
    """A model in a conversation: the instruction comes before the first turn, and every turn as a message.

    It is not told the situation: who listens learns it from the speaker.
    """

    probe = Exchange(
        id="",
        prompt="next",
        response="",
        dialogue=(Turn(speaker="user", text="prompt"), Turn(speaker="assistant", text="reply")),
    )

    def write(self, prompt: Exchange) -> list[dict[str, str]]:
        """What the model is asked for its next reply."""
        said = [turn.text for turn in prompt.dialogue] + [prompt.prompt]
        first = replace(prompt, prompt=said[0], dialogue=(), situation=None)
        return [*write_messages(first, style=self.config.style), *alternate(said[1:], first="assistant")]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Talks:
    """Conversations under way, each in one thread, as many at once as the model takes.

    One turn after the other, since a server that caches the start of a conversation need not read it again.
    """

    run: Run
    listener: Listener
    turns: int
    limit: int
    lock: Lock = field(default_factory=Lock)

    def hold_all(self, situations: Sequence[Situation]) -> list[Exchange | str]:
        """Hold them all; return the last exchange of each in the order given, or why a call failed.

        Replies of an earlier run are taken from it.
        """
        held: dict[int, Exchange | str | None] = {}
        in_threads(
            self.listener.concurrency,
            iter(enumerate(situations)),
            self._hold,
            lambda item, talk: held.update({item[0]: talk}),
            asked=self.listener,
        )
        return [talk for _, talk in sorted(held.items()) if talk is not None]

    def _hold(self, numbered: tuple[int, Situation]) -> Exchange | str | None:
        """Hold one conversation, to its last turn or to the first call that failed; None past the limit."""
        place, situation = numbered
        exchange, replies = situation.first_turn, list[str]()
        for turn in range(self.turns):
            if turn:
                words = next_words(situation, replies, is_last=turn == self.turns - 1)
                last = (
                    Turn(speaker="user", text=exchange.prompt),
                    Turn(speaker="assistant", text=exchange.response),
                )
                exchange = replace(exchange, prompt=words, response="", dialogue=exchange.dialogue + last)
            row = self._reply(place, exchange, turn)
            if row is None:
                return None
            if "failed" in row:
                return str(row["failed"])
            replies.append(row["response"])
            exchange = replace(exchange, response=row["response"])
        return exchange

    def _reply(self, place: int, exchange: Exchange, turn: int) -> Mapping[str, Any] | None:
        """Return the row of a reply, made now or in an interrupted run; None past the limit."""
        position = place * self.turns + turn
        named = replace(exchange, id=f"{exchange.id}/{turn + 1}")
        with self.lock:
            row = self.run.find_row(position, named) if self.run.has_more else None
        if row is None and place < self.limit:
            row = self.listener.respond(named)
            with self.lock:
                self.run.keep(position, row)
        return row


def plan_conversations(situations: Sequence[Situation], listener: Listener, *, turns: int) -> RunPlan:
    """Return the plan of a run of this model with these speakers."""
    every_word = digest_json(to_plain(situations))[:16]
    return listener.plan(situations=every_word, turns=turns)


def hold_conversations(
    situations: Sequence[Situation],
    listener: Listener,
    plan: RunPlan,
    folder: Path,
    *,
    limit: int | None = None,
    max_cost: float | None = None,
    on_progress: OnProgress = lambda done, total: None,
) -> FinishedRun:
    """Hold the conversations that `folder` does not have yet, and complete the run.

    `max_cost` bounds what this call spends.
    """
    budget = listener.endpoint.budget
    budget.most = None if max_cost is None else budget.spent + max_cost
    turns, count = int(plan["turns"]), len(situations[:limit])
    held: list[Exchange | str] = []

    def ask(run: Run) -> None:
        held[:] = _Talks(run=run, listener=listener, turns=turns, limit=count).hold_all(situations)

    def conclude(run: Run) -> dict[str, Any]:
        whole = [_write_row(item, listener.name) for item in held if isinstance(item, Exchange)]
        write_rows(folder / CONVERSATIONS, whole)
        rows = [row for _, row in read_rows(run.judgments)]
        reasons = Counter(item for item in held if isinstance(item, str))
        return {
            **describe_answers(listener, rows, reasons),
            "counts": {
                "situations": len(held),
                "conversations": len(whole),
                "failed": reasons.total(),
                "replies": sum("response" in row for row in rows),
            },
            "conversations": digest_file(folder / CONVERSATIONS),
            "limit": limit,
        }

    def is_enough(manifest: Mapping[str, Any]) -> bool:
        path = folder / CONVERSATIONS
        is_as_written = path.exists() and digest_file(path) == manifest["conversations"]
        return is_as_written and bool(manifest["counts"]["situations"] >= count)

    return run_all(
        folder,
        plan,
        total=count * turns,
        ask=ask,
        conclude=conclude,
        is_enough=is_enough,
        name=ANSWERS,
        on_progress=on_progress,
    )


def _write_row(talk: Exchange, model: str) -> dict[str, Any]:
    """A conversation as chat tools write one, with who spoke."""
    said = [turn.text for turn in talk.dialogue] + [talk.prompt, talk.response]
    about = {"situation": talk.situation, "emotion": talk.emotion}
    return {
        "id": talk.id,
        "model": model,
        SCENARIO: talk.id,
        **talk.extra,
        SPOKEN_BY: SCRIPTED,
        **{key: value for key, value in about.items() if value is not None},
        "messages": alternate(said, first="user"),
    }


def alternate(texts: Sequence[str], *, first: str) -> list[dict[str, str]]:
    """Return the messages of two parties who take turns.

    >>> alternate(["Hi.", "Hello!"], first="user")
    [{'role': 'user', 'content': 'Hi.'}, {'role': 'assistant', 'content': 'Hello!'}]
    """
    roles = ["user", "assistant"] if first == "user" else ["assistant", "user"]
    return [{"role": role, "content": text} for text, role in zip(texts, cycle(roles), strict=False)]
