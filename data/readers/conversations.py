"""Whole conversations: rows that hold all turns, their replies one by one, and rows that belong together.

A conversation is an `Exchange` like any other: `prompt` and `response` are its last words, `dialogue` all
that was said before. So it is read, stored and scored in the same way as replies.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, groupby, islice
from typing import Any, Final

from empathy_judge.data.readers.chat_turns import (
    LISTENER,
    RESPONSES,
    ROLES,
    SPEAKER,
    is_answering,
    plain_name,
)
from empathy_judge.data.readers.file_formats import Header, Row
from empathy_judge.data.records import Exchange, Turn

CONVERSATION_IDS: Final = ("conversation", "conversation_id", "session_id", "thread_id")
TURN_NUMBERS: Final = ("turn", "turn_id", "turn_index")
ROLE_NAMES: Final = ("role", "speaker", "from", "author", "sender")  # of a table with one turn per row
TEXT_NAMES: Final = ("text", "content", "message", "utterance", "value")
SCENARIO: Final = "scenario"  # names what the same speaker brought to several models
DISTINCTIVE_WORDS: Final = 8  # a shorter text, such as a greeting, opens many conversations by chance


def all_turns(exchange: Exchange) -> list[Turn]:
    """Every turn of a conversation, as a speaker's or a listener's; turns of one of them in a row are one."""
    said = [
        (LISTENER if is_answering(turn.speaker) else SPEAKER, turn.text)
        for turn in exchange.dialogue
        if turn.text
    ]
    said += [(SPEAKER, exchange.prompt), (LISTENER, exchange.response)]
    runs = groupby(said, key=lambda turn: turn[0])
    return [Turn(speaker=who, text="\n".join(text for _, text in run)) for who, run in runs]


def split_conversation(exchange: Exchange) -> tuple[Exchange, ...]:
    """Return every reply of a conversation as an exchange; a turn without one before it is no reply."""
    turns = all_turns(exchange)
    ends = [index for index, turn in enumerate(turns) if index and turn.speaker == LISTENER]
    extra = {key: value for key, value in exchange.extra.items() if key != "after"}
    return tuple(
        replace(
            exchange,
            id=f"{exchange.id}#{number}",
            prompt=turns[end - 1].text,
            response=turns[end].text,
            dialogue=tuple(turns[: end - 1]),
            extra=extra,
        )
        for number, end in enumerate(ends, start=1)
    )


def has_earlier_replies(exchange: Exchange) -> bool:
    """Return whether a row holds more than one reply."""
    return any(is_answering(turn.speaker) for turn in exchange.dialogue)


def opening_digest(exchange: Exchange) -> str:
    """Return the digest of a conversation's opening: those with the same one are not independent.

    The opening is a row's `scenario` or situation, else the speaker's first turn if that is long enough.
    """
    opening = exchange.extra.get(SCENARIO) or exchange.situation
    if not opening:
        opening = next(turn.text for turn in all_turns(exchange) if turn.speaker == SPEAKER)
        if len(opening.split()) < DISTINCTIVE_WORDS:
            return exchange.content_digest
    return replace(exchange, prompt=str(opening)).prompt_digest


def write_talk(exchange: Exchange) -> tuple[str, str]:
    """Return a conversation as two texts: its opening, and all turns after it with the speakers' names."""
    opening, *later = all_turns(exchange)
    names = {SPEAKER: "Speaker", LISTENER: "Model"}
    return opening.text, "\n\n".join(f"{names[turn.speaker]}: {turn.text}" for turn in later)


def conversation_id(exchange: Exchange) -> str | None:
    """Return the conversation of a row of a single reply, if the row names it."""
    named = [exchange.extra[key] for key in CONVERSATION_IDS if exchange.extra.get(key) not in (None, "")]
    return str(named[0]) if named else None


def join_conversations(rows: Iterable[Exchange]) -> Iterator[Exchange]:
    """Yield one exchange for each conversation: rows of one model that name the same one, in order."""
    groups: dict[tuple[str, str | int], list[Exchange]] = {}
    for number, row in enumerate(rows):
        named = conversation_id(row)
        groups.setdefault((row.model, number if named is None else named), []).append(row)
    taken: set[str] = set()
    for (model, key), group in groups.items():
        identity = key if isinstance(key, str) else group[0].id
        identity = f"{identity}/{model}" if identity in taken else identity
        taken.add(identity)
        yield replace(_join(group), id=identity)


def join_turns(rows: Iterator[tuple[int, Row]], header: Header) -> Iterator[tuple[int, Row]]:
    """Yield one row for each conversation of a table with one turn per row, and other rows unchanged."""
    first = list(islice(rows, 1))
    names = {plain_name(key): key for _, row in first for key, value in row.items() if value is not None}
    role, text, talk, model, number = (
        next((names[name] for name in known if name in names), "")
        for known in (ROLE_NAMES, TEXT_NAMES, CONVERSATION_IDS, ["model"], TURN_NUMBERS)
    )
    is_turn = role and text and talk and plain_name(str(first[0][1][role])) in ROLES
    if not is_turn or not names.keys().isdisjoint(RESPONSES):
        yield from chain(first, rows)
        return
    talks: dict[tuple[Any, Any], list[tuple[int, Row]]] = {}
    for line, row in chain(first, rows):
        talks.setdefault((row.get(talk), row.get(model)), []).append((line, row))
    header.columns = ()
    header.note("one turn per row")
    for (name, _), turns in talks.items():
        with suppress(TypeError, ValueError):  # not numbers: as the table has them
            turns.sort(key=lambda item: float(item[1].get(number, 0)))
        about = {key: value for _, row in turns for key, value in row.items()}
        rest = {key: value for key, value in about.items() if key not in (role, text, talk, number)}
        messages = [{"role": row.get(role), "content": row.get(text)} for _, row in turns]
        yield turns[0][0], {**rest, "id": str(name), "messages": messages}


def _join(rows: Sequence[Exchange]) -> Exchange:
    numbers = [_turn_number(row) for row in rows]
    ordered = list(rows) if None in numbers else sorted(rows, key=_turn_number)
    *before, last = ordered
    if last.dialogue or not before:  # the last row has the earlier turns
        return last
    first, turns = before[0], [*before[0].dialogue]
    for row in before:
        turns += [Turn(speaker=SPEAKER, text=row.prompt), Turn(speaker=LISTENER, text=row.response)]
    situation, emotion = last.situation or first.situation, last.emotion or first.emotion
    return replace(last, dialogue=tuple(turns), situation=situation, emotion=emotion)


def _turn_number(row: Exchange) -> Any:
    """Return the position of a row in its conversation, if it has a number."""
    numbers = [row.extra[key] for key in TURN_NUMBERS if key in row.extra]
    try:
        return float(numbers[0]) if numbers else None
    except (TypeError, ValueError):
        return None
