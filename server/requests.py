"""What a request brings: its body, parsed more strictly than JSON libraries do, and the exchange in it."""

import asyncio
import json
import math
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Annotated, Any, Final

from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, TypeAdapter
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from data.errors import UserError
from data.importers.conversations import LISTENER, SPEAKER, exchange_of
from data.importers.intake import BadCell
from data.records import Exchange, Turn
from data.tables import MAX_TEXT, read_exchange, to_row
from judge.llm.fencing import EARLIER, FEELS, REPLY, SAID, SITUATION
from server.http_errors import Refused

MOST_DEPTH = 32  # containers within containers
LONGEST_WAIT = 30.0  # seconds for the whole body to arrive
READ_ON = 32  # times the limit that is read of a body too large, so that its sender gets to hear why


class StrictModel(BaseModel):
    """Part of a body: a text that looks like a number is none."""

    model_config = ConfigDict(strict=True)


class ExchangeSchema:
    """Describes an exchange as a request brings it: the id may be left out, other keys are kept."""

    def __get_pydantic_json_schema__(self, _: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schema = handler(TypeAdapter(Exchange).core_schema)
        schema["required"] = ["prompt", "response"]
        schema["properties"].pop("extra")
        for name in schema["required"]:
            schema["properties"][name] |= {"minLength": 1, "maxLength": MAX_TEXT}
        return schema


class ScoreRequest(StrictModel):
    """Exchanges to be judged; with `explain`, what each part of a reply does to its score."""

    exchanges: list[Annotated[dict[str, Any], ExchangeSchema()]] = Field(min_length=1)
    explain: bool = False


class StrictRoute(APIRoute):
    """A route whose body is read by `read_object` before FastAPI checks it."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_strictly(request: Request) -> Response:
            if self.body_field is None:
                return await handle(request)
            content = await read_object(request, most=request.app.state.max_body)
            return await handle(_ParsedRequest(request, content))

        return handle_strictly


class _ParsedRequest(Request):
    """A request whose body was read and parsed already."""

    def __init__(self, request: Request, content: dict[str, Any]) -> None:
        super().__init__(request.scope, request.receive)
        self._content = content

    async def body(self) -> bytes:
        return b"{}"  # FastAPI only looks whether there is one

    async def json(self) -> dict[str, Any]:
        return self._content


async def read_object(request: Request, *, most: int) -> dict[str, Any]:
    """Read the JSON object that was sent; `Refused` says what else it was."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        # Also what keeps other sites' pages out: a browser asks before it sends them this type.
        raise Refused(415, "send JSON, with the header Content-Type: application/json")
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(LONGEST_WAIT):
            async for part in request.stream():
                size += len(part)
                if size <= most:
                    parts.append(part)
                elif size > READ_ON * most:
                    break
                else:
                    parts.clear()
    except TimeoutError:
        raise Refused(408, f"the body did not arrive within {LONGEST_WAIT:.0f} seconds") from None
    except ClientDisconnect:
        raise Refused(499, "the client left") from None
    if size > most:
        raise Refused(413, f"the body is larger than {most:,} bytes; send fewer exchanges a request")
    return parse_object(b"".join(parts))


def parse_object(body: bytes) -> dict[str, Any]:
    """Parse JSON without what parsers read in different ways: duplicate keys, NaN, numbers past all bounds.

    >>> parse_object(b'{"a": [1, "x"]}')
    {'a': [1, 'x']}
    >>> parse_object(b'{"a": 1, "a": 2}')
    Traceback (most recent call last):
    server.http_errors.Refused: not JSON that can be read: the key 'a' stands twice in one object
    """
    try:
        content = json.loads(
            body.decode("utf-8"),
            object_pairs_hook=_once,
            parse_constant=_finite,
            parse_float=_finite,
        )
    except UnicodeDecodeError:
        raise Refused(400, "not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise Refused(400, f"not JSON: {error.msg} at character {error.pos}") from None
    except (ValueError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise Refused(400, f"not JSON that can be read: {why}") from None
    if not isinstance(content, dict):
        raise Refused(400, f"a JSON object was expected, not {type(content).__name__}")
    _check_depth(content)
    return content


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise ValueError(f"the key {key[:40]!r} stands twice in one object")
        seen.add(key)
    return dict(pairs)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        is_word = text.lstrip("-").isalpha()  # NaN or Infinity
        raise ValueError(f"{text} is no number" if is_word else "a number is too large")
    return number


def _check_depth(content: Any) -> None:
    """Look level by level, since a recursion could itself go too deep."""
    level = [content]
    for _ in range(MOST_DEPTH):
        level = [
            item
            for container in level
            for item in (container.values() if isinstance(container, dict) else container)
            if isinstance(item, dict | list)
        ]
        if not level:
            return
    raise Refused(400, f"nested more than {MOST_DEPTH} levels deep")


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
    """Read the exchange in what `/v1/decisions` calls input and `/v1/systemone` state."""
    if isinstance(given, list):
        return _read_messages(given, place)
    row = given if isinstance(given, Mapping) else read_text(given)
    if row is None:
        raise Refused(400, f"{place}: no exchange found; {WAYS}", param=place)
    return read_row(row, place=place)


def read_row(row: Mapping[str, Any], *, place: str, number: int = 1) -> Exchange:
    """Read an exchange from our fields, with the checks that a file's rows go through."""
    try:
        return read_exchange(dict(row), line=number)
    except UserError as error:
        field = f"{place}.{str(error).partition(':')[0]}"
        raise Refused(400, f"{place}: {error}", param=field) from None


def read_text(text: str) -> dict[str, Any] | None:
    """Read the row in a text that is our fenced exchange or a JSON object; None where it is neither.

    >>> read_text('{"prompt": "I won!", "response": "Lovely!"}')
    {'prompt': 'I won!', 'response': 'Lovely!'}
    """
    if fence := FENCED.search(text):
        end = text.find(f"\n=== {fence[1]} end ===", fence.end())
        if end < 0:
            return None
        row: dict[str, Any] = {}
        dialogue: list[dict[str, str]] = []
        # Split at the headings: a text in front of the first, headings and texts in turn.
        inside = text[fence.end() : end]
        pieces = re.split(rf"^--- {fence[1]} (.+) ---\n", inside, flags=re.MULTILINE)
        for heading, piece in zip(pieces[1::2], pieces[2::2], strict=True):
            words = piece.removesuffix("\n")
            if heading.startswith(EARLIER):
                dialogue.append({"speaker": heading.removeprefix(EARLIER), "text": words})
            elif heading in HEADINGS:
                row[HEADINGS[heading]] = words
        return row | ({"dialogue": dialogue} if dialogue else {})
    try:
        return parse_object(text.encode("utf-8")) if text.lstrip()[:1] == "{" else None
    except (Refused, UnicodeEncodeError):
        return None


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
            heard = [
                item for item in messages if isinstance(item, Mapping) and item.get("role") not in UNHEARD
            ]
            if len(heard) > 1:
                raise Refused(400, f"{here}: a JSON exchange must be the only message", param=here)
            return read_row(content, place=here)
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
