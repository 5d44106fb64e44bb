"""Request bodies: strict JSON parsing, and the exchange that a body carries."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from itertools import groupby
from typing import Annotated, Any, Final, Literal

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from empathy_judge.data import files
from empathy_judge.data.errors import UserError
from empathy_judge.data.files import parse_json
from empathy_judge.data.readers.chat_turns import LISTENER, SPEAKER
from empathy_judge.data.records import Exchange
from empathy_judge.data.tables import first_problem, read_exchange
from empathy_judge.data.text import SURROGATE
from empathy_judge.server.middleware import Metrics, RequestChecks, RequestRefused, send_refused

ROLES: Final = {"user": SPEAKER, "assistant": LISTENER}  # others are ignored: the judge has its own rubric


class StrictModel(BaseModel):
    """Part of a body, with strict types: a text is never read as a number."""

    model_config = ConfigDict(strict=True)


# Validated up to the first error: a report of every error in a body of 1 MB takes seconds.
Objects = Annotated[list[dict[str, Any]], Field(fail_fast=True)]


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
    content: Annotated[str, BeforeValidator(_read_content, json_schema_input_type=str | Objects)]


Messages = Annotated[list[ChatMessage], Field(fail_fast=True)]
MESSAGES: Final = TypeAdapter(Messages)


class StrictRequest(Request):
    """A request whose body is a JSON object, read with limits."""

    async def body(self) -> bytes:
        """Read the body; FastAPI calls this first."""
        self._content = await read_body(self, most=self.app.state.max_body)
        return self._content

    async def json(self) -> dict[str, Any]:
        """Parse the body."""
        return parse_object(self._content)


class StrictRoute(APIRoute):
    """A route that reads bodies strictly."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return FastAPI's handler, which gets a strict request."""
        handle = super().get_route_handler()

        async def handle_strictly(request: Request) -> Response:
            return await handle(StrictRequest(request.scope, request.receive))

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


async def read_body(request: Request, *, most: int) -> bytes:
    """Read a body of JSON with at most so many bytes, in time."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        # Also a CSRF defense: browsers send a preflight request for this type.
        raise RequestRefused(415, "send JSON, with the header Content-Type: application/json")
    body, size = bytearray(), 0
    try:
        async with asyncio.timeout(files.BODY_TIMEOUT):
            async for part in request.stream():
                size += len(part)
                if size > files.DRAIN_FACTOR * most:
                    break
                body += part if size <= most else b""
    except TimeoutError:
        seconds = files.BODY_TIMEOUT
        raise RequestRefused(408, f"the body did not arrive within {seconds:.0f} seconds") from None
    except ClientDisconnect:
        raise RequestRefused(499, "the client left") from None
    if size > most:
        raise RequestRefused(413, f"the body is larger than {most:,} bytes; send fewer exchanges per request")
    return bytes(body)


def parse_object(body: bytes) -> dict[str, Any]:
    """Parse JSON, and refuse what parsers read differently: duplicate keys, NaN, out-of-range numbers."""
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
    _check_depth(content, files.DEEPEST_BODY)
    return content


def _check_depth(content: dict[str, Any] | list[Any], levels: int) -> None:
    if not levels:
        raise RequestRefused(400, f"nested more than {files.DEEPEST_BODY} levels deep")
    for item in content.values() if isinstance(content, dict) else content:
        if isinstance(item, dict | list):
            _check_depth(item, levels - 1)


def read_row(row: Mapping[str, Any], *, place: str, number: int = 1) -> Exchange:
    """Read an exchange from the fields of a file's row, or from `messages` that end with the reply.

    Its texts together have at most `LONGEST_EXCHANGE` characters.
    """
    if isinstance(row.get("messages"), list) and "prompt" not in row:
        here = f"{place}.messages"
        try:
            texts = join_messages(MESSAGES.validate_python(row["messages"]), here)
        except ValidationError as error:
            field, problem = first_problem(error)
            raise RequestRefused.of_field(f"{here}.{field}", problem) from None
        row = {**{name: value for name, value in row.items() if name != "messages"}, **texts}
    try:
        exchange = read_exchange(dict(row), line=number)
    except UserError as error:
        field = f"{place}.{str(error).partition(':')[0]}"
        raise RequestRefused(400, f"{place}: {error}", param=field) from None
    turns = (turn.text for turn in exchange.dialogue)
    size = sum(map(len, (exchange.prompt, exchange.response, exchange.situation or "", *turns)))
    if size > (most := files.LONGEST_EXCHANGE):
        raise RequestRefused.of_field(place, f"{size:,} characters in total; at most {most:,} are accepted")
    return exchange


def join_messages(messages: Sequence[ChatMessage], place: str) -> dict[str, Any]:
    """Return the fields of the exchange in which messages end; those of one role in a row are joined."""
    known = (message for message in messages if message.role in ROLES)
    turns = [
        {"speaker": ROLES[role], "text": "\n".join(message.content for message in run)}
        for role, run in groupby(known, key=lambda message: message.role)
    ]
    if len(turns) < 2 or turns[-1]["speaker"] != LISTENER:
        expected = "a user's message and, as the last one, the assistant's reply to it"
        raise RequestRefused.of_field(place, f"expected {expected}")
    *dialogue, prompt, reply = turns
    return {"prompt": prompt["text"], "response": reply["text"], "dialogue": dialogue}
