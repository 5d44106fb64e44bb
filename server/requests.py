"""Request bodies: strict JSON parsing, and the exchange that a body carries."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from empathy_judge.data.errors import UserError
from empathy_judge.data.importers.intake import BadCell
from empathy_judge.data.importers.rated_conversations import exchange_of
from empathy_judge.data.input_limits import BODY_TIMEOUT, DEEPEST_BODY, DRAIN_FACTOR
from empathy_judge.data.readers.chat_turns import LISTENER, PROMPTS, RESPONSES, SPEAKER
from empathy_judge.data.readers.file_formats import DECODER, parse_json
from empathy_judge.data.records import Exchange, Turn
from empathy_judge.data.tables import first_problem, read_exchange, to_row
from empathy_judge.data.text import SURROGATE
from empathy_judge.judge.llm.prompt_injection import EARLIER, FEELS, REPLY, SAID, SITUATION, DelimitedExchange
from empathy_judge.server.http_errors import RequestRefused, send_refused
from empathy_judge.server.middleware import Metrics, RequestChecks

Unit = Literal["reply", "conversation"]


class StrictModel(BaseModel):
    """Part of a body, with strict types: a text is never read as a number."""

    model_config = ConfigDict(strict=True)


# Validated up to the first error: a report of every error in a body of 1 MB takes seconds.
Objects = Annotated[list[dict[str, Any]], Field(fail_fast=True)]


class ScoreRequest(StrictModel):
    """Exchanges to judge; `explain` adds the effect of each part of a reply on its score.

    An exchange has the fields of a row of `responses.jsonl`, or `messages` that end with the reply.
    `unit` is what is judged as one: the last reply (`reply`), or a row with all its turns
    (`conversation`). The default is the unit of the server's judge.
    """

    exchanges: Objects = Field(min_length=1)
    explain: bool = False
    unit: Unit | None = None


class SharesRequest(StrictModel):
    """Judgments as `/v1/score` returned them, their `unit`, and the random `seed` of the intervals."""

    judgments: Objects
    unit: Unit | None = None
    seed: int = Field(default=0, ge=0, lt=2**32)


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


def make_strict_app(
    *, max_body: int, hosts: frozenset[str] | None, key: str = "", metrics: Metrics | None = None, **more: Any
) -> FastAPI:
    """Make an application with strict bodies, checks of every request, and errors in OpenAI's format.

    It has no documentation pages: FastAPI's load their scripts from a CDN.
    """
    app = FastAPI(docs_url=None, redoc_url=None, redirect_slashes=False, **more)
    app.router.route_class = StrictRoute
    app.state.max_body = max_body
    app.add_middleware(RequestChecks, hosts=hosts, key=key, metrics=metrics)
    for kind in (RequestRefused, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, send_refused)
    return app


class _ParsedRequest(Request):
    """A request whose body is already parsed."""

    def __init__(self, request: Request, content: dict[str, Any]) -> None:
        super().__init__(request.scope, request.receive)
        self._content = content

    async def body(self) -> bytes:
        return b"{}"  # FastAPI only checks that there is a body

    async def json(self) -> dict[str, Any]:
        return self._content


async def read_object(request: Request, *, most: int) -> dict[str, Any]:
    """Read the JSON object in a request's body."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        # Also a CSRF defense: browsers send a preflight request for this type.
        raise RequestRefused(415, "send JSON, with the header Content-Type: application/json")
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            async for part in request.stream():
                size += len(part)
                if size <= most:
                    parts.append(part)
                elif size > DRAIN_FACTOR * most:
                    break
                else:
                    parts.clear()
    except TimeoutError:
        raise RequestRefused(408, f"the body did not arrive within {BODY_TIMEOUT:.0f} seconds") from None
    except ClientDisconnect:
        raise RequestRefused(499, "the client left") from None
    if size > most:
        raise RequestRefused(413, f"the body is larger than {most:,} bytes; send fewer exchanges per request")
    return parse_object(b"".join(parts))


def parse_object(body: bytes) -> dict[str, Any]:
    """Parse JSON, and refuse what parsers read differently: duplicate keys, NaN, out-of-range numbers.

    >>> parse_object(b'{"a": [1, "x"]}')
    {'a': [1, 'x']}
    >>> parse_object(b'{"a": 1, "a": 2}')
    Traceback (most recent call last):
    empathy_judge.server.http_errors.RequestRefused: not JSON that can be read: ...
    """
    try:
        content = parse_json(body.decode("utf-8"))
    except UnicodeDecodeError:
        raise RequestRefused(400, "not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise RequestRefused(400, f"not JSON: {error.msg} at character {error.pos}") from None
    except (ValueError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise RequestRefused(400, f"not JSON that can be read: {why}") from None
    if not isinstance(content, dict):
        raise RequestRefused(400, f"expected a JSON object, not {type(content).__name__}")
    _check_depth(content)
    return content


def _check_depth(content: Any) -> None:
    """Check the nesting level by level: a recursive check could itself overflow."""
    level = [content]
    for _ in range(DEEPEST_BODY):
        level = [
            item
            for container in level
            for item in (container.values() if isinstance(container, dict) else container)
            if isinstance(item, dict | list)
        ]
        if not level:
            return
    raise RequestRefused(400, f"nested more than {DEEPEST_BODY} levels deep")


ACCEPTED: Final = (
    "send messages that end with the assistant's reply, or a JSON object with prompt and response (or input "
    "and output, user and assistant, question and answer; optionally emotion, situation and dialogue)"
)
REPLY_ALONE: Final = f"a reply alone cannot be rated, because its empathy depends on the prompt; {ACCEPTED}"
NOT_STRUCTURED: Final = f"no exchange found: free text is not searched for one; {ACCEPTED}"
CONTEXT: Final = ("situation", "emotion", "dialogue")  # optional fields beside prompt and reply
ROLES: Final = {"user": SPEAKER, "assistant": LISTENER}  # others are ignored: the judge has its own rubric
# Of the parts that a decision judge writes. A text cannot forge one: the mark is a digest of all texts.
HEADINGS: Final = {FEELS: "emotion", SITUATION: "situation", SAID: "prompt", REPLY: "response"}


def _read_content(content: Any) -> str:
    """Return the text of a message, its parts joined."""
    parts = content if isinstance(content, list) else [{"text": content}]
    texts = [part.get("text", part.get("refusal")) if isinstance(part, Mapping) else None for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("only texts can be judged")
    text = SURROGATE.sub("\ufffd", "\n".join(map(str, texts)))
    if not text.strip():
        raise ValueError("empty")
    return text


class ChatMessage(StrictModel):
    """One message; its content is text or a list of parts with texts."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: Annotated[str, BeforeValidator(_read_content)]


MESSAGES: Final = TypeAdapter(Annotated[list[ChatMessage], Field(fail_fast=True)])


class NoExchange(Exception):
    """A well-formed request without an exchange that can be judged: unscored, with this reason."""


def read_input(content: Any, *, place: str) -> Exchange:
    """Read the exchange from text, an object or messages.

    Raise `RequestRefused` for a malformed request, and `NoExchange` where there is nothing to judge.
    """
    if isinstance(content, str):
        if not content.strip():
            raise RequestRefused(400, f"{place}: empty; {ACCEPTED}", param=place)
        content = read_text(content)
    return _read_messages(content, place) if isinstance(content, list) else _read_fields(content, place)


def read_text(text: str) -> Mapping[str, Any] | list[Any]:
    """Parse a text that is, as a whole, JSON or an exchange as our decision judge writes it.

    No exchange is taken from the middle of a text: a reply could contain one.

    >>> read_text('{"prompt": "I won!", "response": "Lovely!"}')
    {'prompt': 'I won!', 'response': 'Lovely!'}
    """
    if text.lstrip()[:1] in ("{", "["):
        try:
            content: dict[str, Any] | list[Any] = DECODER.decode(text)
            _check_depth(content)
            return content
        except (ValueError, RecursionError, RequestRefused):
            raise NoExchange(NOT_STRUCTURED) from None
    return _read_delimited(text)


def _read_delimited(text: str) -> dict[str, Any]:
    """Read a text that is, from its first character to its last, what `DecisionJudge` writes."""
    mark = text.partition(" mark ")[2][:16]
    start = f"{DelimitedExchange(text='', mark=mark).notice}\n\n=== {mark} exchange ==="
    end = f"\n=== {mark} end ==="
    before, *sections = text[len(start) : -len(end)].split(f"\n--- {mark} ")
    is_whole = text.startswith(start) and text.endswith(end) and not before
    row: dict[str, Any] = {"dialogue": []}
    for section in sections if is_whole else ():
        heading, _, value = section.partition(" ---\n")
        name = HEADINGS.get(heading)
        if name and name not in row:
            row[name] = value
        elif heading.startswith(EARLIER):
            row["dialogue"].append({"speaker": heading.removeprefix(EARLIER), "text": value})
        else:
            is_whole = False
    if not is_whole or text.count(mark) != len(sections) + 3:  # in the notice, and at both ends
        raise NoExchange(NOT_STRUCTURED)
    return row


def _read_fields(row: Mapping[str, Any], place: str) -> Exchange:
    """Read an exchange from an object whose fields have any names that a file's columns may have."""
    context = {name: row[name] for name in CONTEXT if name in row}
    prompts, replies = ([name for name in names if name in row] for names in (PROMPTS, RESPONSES))
    has_messages = isinstance(row.get("messages"), list)
    # A reply that a template did not quote as JSON can add fields.
    if len(prompts) > 1 or len(replies) > 1 or (has_messages and prompts + replies):
        names = ", ".join(prompts + replies + ["messages"] * has_messages)
        raise NoExchange(f"several fields for one text ({names}); {ACCEPTED}")
    prompt, reply = next(iter(prompts), None), next(iter(replies), None)
    if prompt is None or reply is None:
        if has_messages:
            return _read_messages(row["messages"], f"{place}.messages", context)
        if reply is not None:
            raise NoExchange(REPLY_ALONE)
        return read_row(row, place=place)  # raises, naming the missing field
    if isinstance(row[prompt], list):  # the turns before the reply, as messages
        message = {"role": "assistant", "content": row[reply]}
        return _read_messages([*row[prompt], message], f"{place}.{prompt}", context)
    others = {name: value for name, value in row.items() if name not in (prompt, reply)}
    return read_row(others | {"prompt": row[prompt], "response": row[reply]}, place=place)


def read_row(row: Mapping[str, Any], *, place: str, number: int = 1) -> Exchange:
    """Read an exchange from our fields, with the same checks as a file's rows."""
    try:
        return read_exchange(dict(row), line=number)
    except UserError as error:
        field = f"{place}.{str(error).partition(':')[0]}"
        raise RequestRefused(400, f"{place}: {error}", param=field) from None


def read_turns(row: Mapping[str, Any], *, place: str, number: int) -> Exchange:
    """Read an exchange from our fields, or from `messages` that end with a reply."""
    messages = row.get("messages")
    if not isinstance(messages, list) or "prompt" in row:
        return read_row(row, place=place, number=number)
    others = {name: value for name, value in row.items() if name not in ("messages", "response", "dialogue")}
    try:
        if messages and isinstance(messages[-1], Mapping) and messages[-1].get("role") == "user":
            raise NoExchange("the last message must be the assistant's reply")
        return _read_messages(messages, f"{place}.messages", {"id": str(number), **others})
    except NoExchange as nothing:
        raise RequestRefused(400, f"{place}.messages: {nothing}", param=f"{place}.messages") from None


def _read_messages(messages: Sequence[Any], place: str, context: Mapping[str, Any] | None = None) -> Exchange:
    try:
        checked = MESSAGES.validate_python(messages)
    except ValidationError as error:
        field, problem = first_problem(error)
        here = f"{place}.{field}"
        raise RequestRefused(400, f"{here}: {problem}", param=here) from None
    turns = [Turn(speaker=ROLES[item.role], text=item.content) for item in checked if item.role in ROLES]
    speakers = [turn.speaker for turn in turns]
    if speakers == [SPEAKER]:  # the exchange as JSON in a single user message
        return read_input(turns[0].text, place=f"{place}.{len(messages) - 1}")
    if speakers and SPEAKER not in speakers:
        raise NoExchange(REPLY_ALONE)
    if not speakers or speakers[-1] != LISTENER:
        message = f"{place}: the last message must be the reply that is to be judged; {ACCEPTED}"
        raise RequestRefused(400, message, param=place)
    try:
        exchange = exchange_of("1", turns, model="", extra={})
    except BadCell as error:
        raise RequestRefused(400, f"{place}: {error}", param=place) from None
    return read_row({**to_row(exchange), "model": None, **(context or {})}, place=place)
