"""The exchange a request is about, out of messages, an object with our fields, or our own fenced text."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from data.conversations import LISTENER, SPEAKER, exchange_of
from data.errors import UserError
from data.intake import BadCell
from data.records import Exchange, Turn
from data.tables import read_exchange, to_row
from judge.fencing import EARLIER, FEELS, REPLY, SAID, SITUATION
from nightly.serving.bodies import parse_object
from nightly.serving.refusals import Refused

WAYS: Final = (
    "send messages that end with the assistant's reply, a JSON object with prompt and response (and, if you "
    "have them, emotion, situation and dialogue), or an exchange as our own judges fence it"
)
ROLES: Final = {"user": SPEAKER, "assistant": LISTENER}
UNHEARD: Final = ("system", "developer")  # the judge has its own instructions: these are left out
TEXTS: Final = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
# As judge.fencing writes it. Nobody can put a heading into a text: its mark follows from all the texts.
FENCED: Final = re.compile(r"^=== ([0-9a-f]{16}) exchange ===\n", re.MULTILINE)
HEADINGS: Final = {FEELS: "emotion", SITUATION: "situation", SAID: "prompt", REPLY: "response"}


def read_input(given: Any, *, place: str) -> Exchange:
    """The exchange in what `/v1/decisions` calls input and `/v1/systemone` state."""
    if isinstance(given, list):
        return _read_messages(given, place)
    row = given if isinstance(given, Mapping) else read_text(given)
    if row is None:
        raise Refused(400, f"{place}: no exchange found; {WAYS}", param=place)
    return read_row(row, place=place)


def read_row(row: Mapping[str, Any], *, place: str, number: int = 1) -> Exchange:
    """An exchange from our fields, with the checks that a file's rows go through."""
    try:
        return read_exchange(dict(row), line=number)
    except UserError as error:
        field = f"{place}.{str(error).partition(':')[0]}"
        raise Refused(400, f"{place}: {error}", param=field) from None


def read_text(text: str) -> dict[str, Any] | None:
    """The row in a text that is our fenced exchange or a JSON object; None where it is neither.

    >>> read_text('{"prompt": "I won!", "response": "Lovely!"}')
    {'prompt': 'I won!', 'response': 'Lovely!'}
    """
    if fence := FENCED.search(text):
        end = text.find(f"\n=== {fence[1]} end ===", fence.end())
        return _read_fenced(text[fence.end() : end], fence[1]) if end >= 0 else None
    try:
        return parse_object(text.encode("utf-8")) if text.lstrip()[:1] == "{" else None
    except (Refused, UnicodeEncodeError):
        return None


def _read_fenced(inside: str, mark: str) -> dict[str, Any]:
    row: dict[str, Any] = {}
    dialogue: list[dict[str, str]] = []
    # Split at the headings: a text in front of the first, headings and texts in turn.
    pieces = re.split(rf"^--- {mark} (.+) ---\n", inside, flags=re.MULTILINE)
    for heading, text in zip(pieces[1::2], pieces[2::2], strict=True):
        said = text.removesuffix("\n")
        if heading.startswith(EARLIER):
            dialogue.append({"speaker": heading.removeprefix(EARLIER), "text": said})
        elif heading in HEADINGS:
            row[HEADINGS[heading]] = said
    return row | ({"dialogue": dialogue} if dialogue else {})


def _read_messages(messages: Sequence[Any], place: str) -> Exchange:
    turns: list[Turn] = []
    for number, message in enumerate(messages):
        here = f"{place}.{number}"
        if not isinstance(message, Mapping) or message.get("type", "message") != "message":
            raise Refused(400, f"{here}: only messages can be judged, no calls of tools", param=here)
        role = message.get("role")
        if role in UNHEARD:
            continue
        if not isinstance(role, str) or role not in ROLES:
            raise Refused(400, f"{here}.role: one of {', '.join([*ROLES, *UNHEARD])} expected", param=here)
        content = _read_content(message.get("content"), here)
        if isinstance(content, Mapping):
            return _read_single(messages, content, here)
        if not content.strip():
            raise Refused(400, f"{here}.content: empty; every message needs words", param=f"{here}.content")
        turns.append(Turn(speaker=ROLES[role], text=content))
    spoken = [turn.speaker for turn in turns]
    if spoken == [SPEAKER]:
        # Tools that know of one message put everything into it.
        return read_input(turns[0].text, place=f"{place}.{len(messages) - 1}")
    if SPEAKER not in spoken or spoken[-1] != LISTENER:
        raise Refused(
            400, f"{place}: the last message must be the reply that is to be judged; {WAYS}", param=place
        )
    try:
        exchange = exchange_of("1", turns, model="", extra={})
    except BadCell as error:
        raise Refused(400, f"{place}: {error}", param=place) from None
    return read_row({**to_row(exchange), "model": None}, place=place)


def _read_single(messages: Sequence[Any], row: Mapping[str, Any], here: str) -> Exchange:
    heard = [item for item in messages if isinstance(item, Mapping) and item.get("role") not in UNHEARD]
    if len(heard) > 1:
        raise Refused(400, f"{here}: a JSON exchange must be the only message", param=here)
    return read_row(row, place=here)


def _read_content(content: Any, here: str) -> str | Mapping[str, Any]:
    """A message's text, its parts joined; or the object of its one JSON part."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise Refused(400, f"{here}.content: text or a list of parts expected", param=f"{here}.content")
    texts: list[str] = []
    for part in content:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind == "input_json" and len(content) == 1 and isinstance(part.get("data"), Mapping):
            data: Mapping[str, Any] = part["data"]
            return data
        text = part.get(TEXTS[kind]) if isinstance(kind, str) and kind in TEXTS else None
        if not isinstance(text, str):
            raise Refused(
                400, f"{here}.content: only texts can be judged, not {kind!r}", param=f"{here}.content"
            )
        texts.append(text)
    return "\n".join(texts)
