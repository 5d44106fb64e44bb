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

A branch that is used up goes on with the story, and after it with what nobody asked for. The same replies
always meet the same words.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from threading import Event, Lock
from typing import Any, ClassVar, Final, Literal

from data.errors import OperationalError, UserError
from data.files import read_toml
from data.readers.conversations import SCENARIO
from data.records import SCRIPTED, Exchange, Turn, digest_json, to_plain
from data.runs import FinishedRun, OnProgress, Run, RunPlan, run_all
from data.storage import digest_file
from data.tables import SAMPLE_PROMPTS, read_rows, validate, write_rows
from judge.engine import Memory, ask_all
from judge.llm.answer_prompts import ANSWERS, Responder, describe_answers, write_messages

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
    """The speakers of a file of situations, each with a script."""

    def __init__(self, situations: Sequence[Situation]) -> None:
        self.situations = {item.id: item for item in situations}
        self.version = digest_json(to_plain(situations))[:12]  # of every word that may be said

    def speak(self, so_far: Exchange, *, is_last: bool) -> str:
        """Return the speaker's words after the last reply; those that `is_last` show how the talk went."""
        replies = [turn.text for turn in so_far.dialogue[1::2]] + [so_far.response]
        return next_words(self.situations[so_far.id], replies, is_last=is_last)


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


def find_speaker(path: Path, *, turns: int) -> tuple[ScriptedSpeaker, list[Exchange]]:
    """Return the speaker of a file of situations, and the first turn of every conversation.

    More turns than the shortest script has words for are refused.
    """
    if path.suffix != ".toml":
        raise UserError(f"{path}: prompts have no script; name a .toml file of situations")
    situations = read_situations(path)
    shortest = min(situations, key=lambda item: item.most_turns)
    if turns > shortest.most_turns:
        raise UserError(
            f"--turns {turns}: {shortest.id!r} of {path} has words for {shortest.most_turns} turns; "
            "ask for fewer"
        )
    openings = [
        Exchange(id=item.id, prompt=item.opening, response="", situation=item.situation, emotion=item.emotion)
        for item in situations
    ]
    return ScriptedSpeaker(situations), openings


def read_situations(path: Path) -> list[Situation]:
    """Read the situations of a file; what is wrong in it is named with its place."""
    rows = read_toml(path).get("situations")
    if not isinstance(rows, list) or not rows:
        raise UserError(f"{path}: no situations; write each in a table [[situations]]")
    situations = dict[str, Situation]()
    for number, row in enumerate(rows, start=1):
        place = f"{path}: situation {number}"
        item = validate(Situation, row, place)
        texts = [
            text
            for value in to_plain(item).values()
            for text in ([value] if isinstance(value, str) else value)
        ]
        if not all(text.strip() for text in texts):
            raise UserError(f"{place}: an empty text; a speaker has words for every turn")
        if item.id in situations:
            raise UserError(f"{place}: id: {item.id!r} is taken; give each situation its own")
        situations[item.id] = item
    return list(situations.values())


class Listener(Responder):
    """A model in a conversation: the instruction comes before the first turn, and every turn as a message.

    It is not told the situation: who listens learns it from the speaker.
    """

    def write(self, prompt: Exchange) -> list[dict[str, str]]:
        """What the model is asked for its next reply."""
        said = [turn.text for turn in prompt.dialogue] + [prompt.prompt]
        first = replace(prompt, prompt=said[0], dialogue=(), situation=None)
        return [*write_messages(first, style=self.config.style), *alternate(said[1:], first="assistant")]

    @cached_property
    def version(self) -> str:
        """A digest of all that decides a reply."""
        turns = (Turn(speaker="user", text="prompt"), Turn(speaker="assistant", text="reply"))
        probe = self.write(Exchange(id="", prompt="next", response="", dialogue=turns))
        return digest_json([self.config.model, probe, self.decoding])[:12]


@dataclass(frozen=True, slots=True, kw_only=True)
class TalkPlan(RunPlan):
    """What decides every turn of a run."""

    model: str
    version: str
    style: str
    situations: str
    turns: int
    speaker_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """What came of a conversation: its last exchange, and why it failed, if it did.

    One that `is_left` is past the limit, and an earlier stretch did not hold the whole of it.
    """

    exchange: Exchange
    failed: str = ""
    is_left: bool = False


class _Talks:
    """Holds conversations, each to its end, as many at once as the model takes.

    One after the other in its own thread, since a server that remembers the beginning of a conversation need
    not read it again for the next turn.
    """

    def __init__(
        self, run: Run, listener: Listener, speaker: ScriptedSpeaker, *, turns: int, limit: int
    ) -> None:
        self.run, self.listener, self.speaker, self.turns, self.limit = run, listener, speaker, turns, limit
        self.concurrency = listener.concurrency
        self.asked = 0
        self.places: dict[str, int] = {}
        self.on_progress: Callable[[], None] = lambda: None
        self._lock, self._stopped = Lock(), Event()

    def hold_all(self, first: Sequence[Exchange], on_progress: Callable[[], None]) -> list[_Held]:
        """Hold them all, in the order given; what an earlier stretch held is taken up."""
        self.places = {item.id: place for place, item in enumerate(first)}
        self.on_progress = on_progress
        kept = Memory()
        ask_all(self, self.hold, first, kept)
        return [kept.rows[place]["held"] for place in range(len(first))]

    def hold(self, opening: Exchange) -> dict[str, Any]:
        """Hold one conversation, from its opening to its last turn or to the first call that failed."""
        exchange = opening
        for turn in range(1, self.turns + 1):
            if turn > 1:
                exchange = _go_on(exchange, self.speaker.speak(exchange, is_last=turn == self.turns))
            row = self._reply(opening, exchange, turn)
            if row is None or "failed" in row:
                return {"held": _end(exchange, row)}
            exchange = replace(exchange, response=row["response"])
        return {"held": _Held(exchange=exchange)}

    def _reply(self, opening: Exchange, exchange: Exchange, turn: int) -> Mapping[str, Any] | None:
        """Return the row of a reply, made now or in an interrupted run; None past the limit."""
        place = self.places[opening.id]
        position = place * self.turns + turn - 1
        named = replace(exchange, id=f"{opening.id}/{turn}")
        with self._lock:
            row = self.run.take_up(position, named) if self.run.has_more else None
        if row is None:
            if place >= self.limit:
                return None
            if self._stopped.is_set():
                raise OperationalError("stopped before the end; what was said is kept")
            row = self.listener.respond(named)
            with self._lock:
                self.run.keep(position, row)
                self.asked += 1
        with self._lock:
            self.on_progress()
        return row

    def stop(self) -> None:
        """Finish the calls under way and make no more."""
        self._stopped.set()
        self.listener.stop()

    def close(self) -> None:
        """Let go of all connections."""
        self.listener.close()


def _go_on(last: Exchange, words: str) -> Exchange:
    """The conversation with the speaker's next words, to be answered."""
    turns = (Turn(speaker="user", text=last.prompt), Turn(speaker="assistant", text=last.response))
    return replace(last, prompt=words, response="", dialogue=last.dialogue + turns)


def _end(exchange: Exchange, row: Mapping[str, Any] | None) -> _Held:
    return _Held(exchange=exchange, failed=row["failed"] if row else "", is_left=row is None)


def plan_conversations(
    openings: Sequence[Exchange], listener: Listener, speaker: ScriptedSpeaker, *, turns: int
) -> TalkPlan:
    """What a run of this model with these speakers is known by."""
    return TalkPlan(
        model=listener.name,
        version=listener.version,
        style=listener.config.style,
        situations=digest_json([[item.id, item.content_digest] for item in openings])[:16],
        turns=turns,
        speaker_version=speaker.version,
    )


def hold_conversations(
    openings: Sequence[Exchange],
    listener: Listener,
    speaker: ScriptedSpeaker,
    plan: TalkPlan,
    folder: Path,
    *,
    limit: int | None = None,
    max_cost: float | None = None,
    on_progress: OnProgress = lambda done, total: None,
) -> FinishedRun:
    """Hold the conversations that `folder` does not have yet, and complete the run.

    `max_cost` bounds what this call spends.
    """
    if not openings:
        raise UserError("nothing to talk about: the file has no rows")
    budget = listener.endpoint.budget
    budget.most = None if max_cost is None else budget.spent + max_cost
    count = len(openings[:limit])
    held: list[_Held] = []

    def ask(run: Run, count_one: Callable[[], None]) -> int:
        talks = _Talks(run, listener, speaker, turns=plan.turns, limit=count)
        held[:] = [item for item in talks.hold_all(openings, count_one) if not item.is_left]
        return talks.asked

    def conclude(run: Run) -> tuple[dict[str, Any], None]:
        whole = [_write_row(item.exchange, listener.name) for item in held if not item.failed]
        write_rows(folder / CONVERSATIONS, whole)
        rows = [row for _, row in read_rows(run.judgments)]
        reasons = Counter(item.failed for item in held if item.failed)
        manifest = {
            **describe_answers(listener, rows, reasons),
            "counts": {
                "situations": len(held),
                "conversations": len(whole),
                "failed": reasons.total(),
                "replies": sum("response" in row for row in rows),
            },
            "conversations": digest_file(folder / CONVERSATIONS),
            "limit": limit,
            "wall_seconds": run.seconds,
        }
        return manifest, None

    def is_enough(manifest: Mapping[str, Any]) -> bool:
        path = folder / CONVERSATIONS
        is_as_written = path.exists() and digest_file(path) == manifest.get("conversations")
        return is_as_written and bool(manifest["counts"]["situations"] >= count)

    return run_all(
        folder,
        plan,
        total=count * plan.turns,
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
    other = {"user": "assistant", "assistant": "user"}
    return [
        {"role": other[first] if number % 2 else first, "content": text} for number, text in enumerate(texts)
    ]
