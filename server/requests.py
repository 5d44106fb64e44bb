"""What a request brings: its body, parsed more strictly than JSON libraries do, and the exchange in it."""

import asyncio
import json
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from itertools import islice
from typing import Annotated, Any, Final, Literal, NamedTuple

from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, TypeAdapter
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from data.errors import UserError
from data.importers.conversations import exchange_of
from data.importers.intake import BadCell
from data.readers.chat_turns import PROMPTS, RESPONSES
from data.readers.strict_json import DECODER, parse_json
from data.readers.whole_conversations import LISTENER, SPEAKER
from data.records import Exchange, Turn
from data.tables import MAX_TEXT, read_exchange, to_row
from judge.llm.fencing import EARLIER, FEELS, REPLY, SAID, SITUATION
from server.http_errors import Refused
from server.questions import MESSAGES

Unit = Literal["reply", "conversation"]
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
        del schema["required"]
        schema["properties"].pop("extra")
        for name in ("prompt", "response"):
            schema["properties"][name] |= {"minLength": 1, "maxLength": MAX_TEXT}
        schema["properties"]["messages"] = {
            **MESSAGES,
            "minItems": 2,
            "description": "All turns of a conversation, in place of prompt, response and dialogue.",
        }
        schema["anyOf"] = [{"required": ["prompt", "response"]}, {"required": ["messages"]}]
        return schema


class ScoreRequest(StrictModel):
    """Exchanges to be judged; with `explain`, what each part of a reply does to its score.

    `unit` says what is judged as one: the last reply (`reply`), or a row with all its turns
    (`conversation`). Left out, it is what the judge judges that the server was started with.
    """

    exchanges: list[Annotated[dict[str, Any], ExchangeSchema()]] = Field(min_length=1)
    explain: bool = False
    unit: Unit | None = None


class SharesRequest(StrictModel):
    """Judgments as `/v1/score` gave them, and their `unit`; `seed` is that of the intervals."""

    judgments: list[dict[str, Any]]
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
        content = parse_json(body.decode("utf-8"))
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


FIELD_PAIRS: Final = (
    ("prompt", "response"),
    ("input", "output"),
    ("user", "assistant"),
    ("question", "answer"),
)
WAYS: Final = (
    "send messages that end with the assistant's reply, a JSON object with prompt and response (or input and "
    "output, user and assistant, question and answer; and, if you have them, emotion, situation and "
    "dialogue), or text with the two between tags, <input> and <output>, or behind labels, Input: and Output:"
)
CONTEXT: Final = ("situation", "emotion", "dialogue")  # what may stand beside a pair
ROLES: Final = {"user": SPEAKER, "assistant": LISTENER}
UNHEARD: Final = ("system", "developer")  # the judge has its own instructions: these are left out
TEXTS: Final = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
# As judge.fencing writes it. Nobody can put a heading into a text: its mark follows from all the texts.
FENCED: Final = re.compile(r"^=== ([0-9a-f]{16}) exchange ===\n", re.MULTILINE)
HEADINGS: Final = {FEELS: "emotion", SITUATION: "situation", SAID: "prompt", REPLY: "response"}


def _find_pair(row: Mapping[str, Any]) -> tuple[str, str] | None:
    """The names of prompt and reply: one of the pairs, or any two that a file's columns may have."""
    for pair in FIELD_PAIRS:
        if all(name in row for name in pair):
            return pair
    first = next((name for name in PROMPTS if name in row), None)
    second = next((name for name in RESPONSES if name in row), None)
    return (first, second) if first and second else None


class NoExchange(Exception):
    """There is text, and no exchange in it that could be judged: unscored, with this reason."""


def read_input(given: Any, *, place: str) -> Exchange:
    """Read the exchange in what `/v1/decisions` calls input and `/v1/systemone` state.

    `Refused` where a request is not as it must be, `NoExchange` where it is and holds nothing to judge.
    """
    if isinstance(given, str):
        if not given.strip():
            raise Refused(400, f"{place}: empty; {WAYS}", param=place)
        given = read_text(given)
    return _read_messages(given, place) if isinstance(given, list) else _read_fields(given, place)


def _read_fields(row: Mapping[str, Any], place: str) -> Exchange:
    """Read the exchange in an object, under whichever pair of names it has."""
    context = {name: row[name] for name in CONTEXT if name in row}
    pair = _find_pair(row)
    if pair is None:
        if isinstance(row.get("messages"), list):
            return _read_messages(row["messages"], f"{place}.messages", context)
        if any(name in row for name in RESPONSES):
            raise NoExchange(REPLY_ALONE)
        return read_row(row, place=place)  # which says what is missing
    first, second = pair
    if isinstance(row[first], list):  # what was said before the reply, as messages
        reply = {"role": "assistant", "content": row[second]}
        return _read_messages([*row[first], reply], f"{place}.{first}", context)
    others = {name: value for name, value in row.items() if name not in (first, second)}
    return read_row(others | {"prompt": row[first], "response": row[second]}, place=place)


def read_row(row: Mapping[str, Any], *, place: str, number: int = 1) -> Exchange:
    """Read an exchange from our fields, with the checks that a file's rows go through."""
    try:
        return read_exchange(dict(row), line=number)
    except UserError as error:
        field = f"{place}.{str(error).partition(':')[0]}"
        raise Refused(400, f"{place}: {error}", param=field) from None


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
        raise Refused(400, f"{place}.messages: {nothing}", param=f"{place}.messages") from None


def read_text(text: str) -> Mapping[str, Any] | list[Any]:
    """Find the exchange in a text: all of it JSON, or in one of the forms below.

    >>> read_text('{"prompt": "I won!", "response": "Lovely!"}')
    {'prompt': 'I won!', 'response': 'Lovely!'}
    >>> read_text("Rate this. <input>I won!</input> <output>Lovely!</output>")
    {'prompt': 'I won!', 'response': 'Lovely!'}
    """
    if text.lstrip()[:1] in ("{", "["):
        try:
            content: dict[str, Any] | list[Any] = DECODER.decode(text)
            _check_depth(content)
        except (ValueError, RecursionError, Refused):
            pass
        else:
            return content
    # What begins first holds the others: a reply may well contain tags, labels or JSON of its own.
    found = [item for find in (_find_fence, _find_objects, _find_tags, _find_labels) if (item := find(text))]
    if not found:
        raise NoExchange(NOTHING_FOUND)
    _, row, problem = min(found, key=lambda item: item.start)
    if problem:
        raise NoExchange(problem)
    return row


class Found(NamedTuple):
    """An exchange in a text, where it begins, and what is wrong with it."""

    start: int
    row: Mapping[str, Any]
    problem: str = ""


def _find_fence(text: str) -> Found | None:
    """The exchange as our own judges fence it."""
    if not (fence := FENCED.search(text)):
        return None
    end = text.find(f"\n=== {fence[1]} end ===", fence.end())
    if end < 0:
        return Found(fence.start(), {}, f"the fenced exchange has no end; {WAYS}")
    row: dict[str, Any] = {}
    dialogue: list[dict[str, str]] = []
    # Split at the headings: a text in front of the first, headings and texts in turn.
    inside = text[fence.end() : end + 1]  # with the line break that ends the last text
    pieces = re.split(rf"^--- {fence[1]} (.+) ---\n", inside, flags=re.MULTILINE)
    for heading, piece in zip(pieces[1::2], pieces[2::2], strict=True):
        words = piece.removesuffix("\n")
        if heading.startswith(EARLIER):
            dialogue.append({"speaker": heading.removeprefix(EARLIER), "text": words})
        elif heading in HEADINGS:
            row[HEADINGS[heading]] = words
    return Found(fence.start(), row | ({"dialogue": dialogue} if dialogue else {}))


# An exchange in the text that a tool writes for a model that grades: promptfoo and openevals put it between
# tags, DeepEval, Langfuse and LangChain's older evaluators behind labels.
NAMED: Final = {
    **dict.fromkeys(
        ("prompt", "input", "inputs", "user", "user input", "user message", "question", "query", "human"),
        "prompt",
    ),
    **dict.fromkeys(
        (
            *("response", "output", "outputs", "actual output", "assistant", "answer", "student answer"),
            *("submission", "reply", "completion", "generation"),
        ),
        "response",
    ),
    "situation": "situation",
    "emotion": "emotion",
    # These only end what stands before them.
    **dict.fromkeys(
        (
            *("additional context", "context", "retrieval context", "criteria", "evaluation criteria"),
            *("evaluation steps", "expected output", "true answer", "reference", "reference answer"),
            *("reference output", "reference outputs", "rubric", "parameters", "grade", "score", "json"),
        ),
        "",
    ),
}
_NAMES: Final = "|".join(name.replace(" ", "[ _]") for name in sorted(NAMED, key=len, reverse=True))
TAG: Final = re.compile(rf"<(/?)({_NAMES})>", re.IGNORECASE)
LABEL: Final = re.compile(
    rf"^[ \t]*(?:\[({_NAMES})\]:|\*\*({_NAMES}):?\*\*:?|\#{{1,4}}[ \t]+({_NAMES}):?[ \t]*$|({_NAMES}):)",
    re.IGNORECASE | re.MULTILINE,
)
DATA: Final = re.compile(r"\[BEGIN DATA\]\s*\*\*\*\n(.*)\n\*\*\*\s*\[END DATA\]", re.DOTALL)
BEGINS: Final = re.compile(r"^[ \t]*(?=\{)", re.MULTILINE)
MOST_OBJECTS: Final = 20  # looked at in a text
REPLY_ALONE: Final = f"a reply alone cannot be rated, since all depends on what it answers; {WAYS}"
NOTHING_FOUND: Final = f"no exchange found in the text, and a reply alone cannot be rated; {WAYS}"


def _find_objects(text: str) -> Found | None:
    """The one JSON object with a pair of fields we know that begins a line."""
    found, end = list[Found](), 0
    for begins in islice(BEGINS.finditer(text), MOST_OBJECTS):
        if begins.end() < end:
            continue
        try:
            row, end = DECODER.raw_decode(text, begins.end())
            _check_depth(row)
        except (ValueError, RecursionError, Refused):
            continue
        if isinstance(row, dict) and (_find_pair(row) or "messages" in row):
            found.append(Found(begins.end(), row))
    if len(found) > 1:
        return found[0]._replace(problem=f"{len(found)} exchanges found in the text; send one")
    return found[0] if found else None


def _find_tags(text: str) -> Found | None:
    """The texts between tags such as <input> and </input>."""
    marks: dict[str, list[re.Match[str]]] = {}
    for match in TAG.finditer(text):
        marks.setdefault(_field(match[2]), []).append(match)
    marks.pop("", None)
    row, unsure = dict[str, str](), set[str]()
    for field, own in marks.items():
        first, last = own[0], own[-1]
        row[field] = text[first.end() : last.start()].strip()
        # One pair of tags of one name, or somebody's text has tags of its own.
        if len(own) != 2 or first[1] or not last[1] or first[2].lower() != last[2].lower():
            unsure.add(field)
    return _make_found(row, unsure, min((own[0].start() for own in marks.values()), default=0), "tags")


def _find_labels(text: str) -> Found | None:
    """The texts behind labels such as "Input:", each up to the next label."""
    if data := DATA.search(text):
        text = text[: data.start(1)] + data[1].replace("\n***\n", "\n")
    marks = [(match, _field(next(filter(None, match.groups())))) for match in LABEL.finditer(text)]
    ends = [*(match.start() for match, _ in marks[1:]), len(text)]
    row, unsure, start = dict[str, str](), set[str](), len(text)
    for (match, field), end in zip(marks, ends, strict=False):
        if field:
            unsure |= {field} & row.keys()
            row[field] = text[match.end() : end].strip()
            start = min(start, match.start())
    return _make_found(row, unsure, start, "labels")


def _make_found(row: Mapping[str, str], unsure: set[str], start: int, marks: str) -> Found | None:
    """An exchange from pieces of a text, or what is wrong with it; None where there is no reply."""
    if "response" not in row:
        return None
    if unsure:
        problem = f"the {marks} of the {min(unsure)} stand there more than once, or not as a pair"
        return Found(start, row, f"{problem}: what is meant is not sure; send the exchange as JSON")
    return Found(start, row, "" if "prompt" in row else REPLY_ALONE)


def _field(name: str) -> str:
    return NAMED[name.lower().replace("_", " ")]


def _read_messages(messages: Sequence[Any], place: str, context: Mapping[str, Any] | None = None) -> Exchange:
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
        content = read_content(message.get("content"), here)
        if isinstance(content, Mapping):
            heard = [
                item for item in messages if isinstance(item, Mapping) and item.get("role") not in UNHEARD
            ]
            if len(heard) > 1:
                raise Refused(400, f"{here}: a JSON exchange must be the only message", param=here)
            return _read_fields(content, here)
        if not content.strip():
            raise Refused(400, f"{here}.content: empty; every message needs words", param=f"{here}.content")
        turns.append(Turn(speaker=ROLES[role], text=content))
    spoken = [turn.speaker for turn in turns]
    if spoken == [SPEAKER]:
        # Tools that know of one message put everything into it.
        return read_input(turns[0].text, place=f"{place}.{len(messages) - 1}")
    if spoken and SPEAKER not in spoken:
        raise NoExchange(REPLY_ALONE)
    if not spoken or spoken[-1] != LISTENER:
        raise Refused(
            400, f"{place}: the last message must be the reply that is to be judged; {WAYS}", param=place
        )
    try:
        exchange = exchange_of("1", turns, model="", extra={})
    except BadCell as error:
        raise Refused(400, f"{place}: {error}", param=place) from None
    return read_row({**to_row(exchange), "model": None, **(context or {})}, place=place)


def read_content(content: Any, here: str) -> str | Mapping[str, Any]:
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
