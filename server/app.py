"""The routes of the server."""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from functools import cache
from html import escape
from pathlib import Path
from string import Template
from typing import Any, Final, TypeVar

from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from data.errors import UserError
from data.records import EMOTIONS, Exchange, Judgment
from data.tables import MAX_TEXT, to_json, to_row
from server import decisions, systemone
from server.guard import Guard, Metrics, log, place_of
from server.http_errors import Refused, refuse_invalid
from server.questions import check_model
from server.requests import read_input, read_object, read_row
from server.served_judge import Served, count_judgments
from server.work_queue import Full, Queue, Task

# The description of the routes: bodies are read by hand, so their schemas are added by hand, too.

PLACE: Final = "#/components/schemas/{model}"
REFUSALS: Final = {
    400: "The body is no JSON, or a field or a question is not one we take; the message names it.",
    401: "The key is missing or wrong.",
    404: "There is no such model.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    415: "The body is not sent as JSON.",
    421: "The request was meant for another host.",
    502: "The judge's own server failed.",
    503: "Too many exchanges are waiting; Retry-After says for how many seconds.",
}


class Complaint(BaseModel):
    """What was wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class Refusal(BaseModel):
    """The answer to every request that gets none."""

    error: Complaint


def takes(body: type[BaseModel], answer: type[BaseModel]) -> dict[str, Any]:
    """The options of a route that takes such a body and gives such an answer."""
    schema = {"$ref": PLACE.format(model=body.__name__)}
    content = {"application/json": {"schema": schema}}
    refusals = {
        status: {"model": Refusal, "description": description} for status, description in REFUSALS.items()
    }
    return {
        "openapi_extra": {"requestBody": {"required": True, "content": content}},
        "responses": {200: {"model": answer}, **refusals},
        "response_model": None,
    }


def describe(app: FastAPI, bodies: Sequence[type[BaseModel]], *, model: str) -> None:
    """Have the application describe itself with these bodies, about the one model it has."""
    described: dict[str, Any] = {}

    def write() -> dict[str, Any]:
        if not described:
            described.update(get_openapi(title=app.title, version=app.version, routes=app.routes))
            _, found = models_json_schema([(body, "validation") for body in bodies], ref_template=PLACE)
            schemas = described["components"]["schemas"]
            schemas.update(found["$defs"])
            schemas["Exchange"] = exchange_schema(schemas)
            schemas["ScoreRequest"]["properties"]["exchanges"]["items"] = {
                "$ref": PLACE.format(model="Exchange")
            }
            for body in bodies:
                if "model" in body.model_fields:
                    schemas[body.__name__]["properties"]["model"]["enum"] = [model]
        return described

    app.openapi = write  # type: ignore[method-assign]


def exchange_schema(schemas: dict[str, Any]) -> dict[str, Any]:
    """An exchange as a request brings it: the id may be left out, other keys are kept."""
    schema: dict[str, Any] = TypeAdapter(Exchange).json_schema(ref_template=PLACE)
    schemas.update(schema.pop("$defs", {}))
    schema["required"] = ["prompt", "response"]
    schema["properties"].pop("extra")
    for name in ("prompt", "response"):
        schema["properties"][name] |= {"minLength": 1, "maxLength": MAX_TEXT}
    assert set(schema["properties"]) == {item.name for item in fields(Exchange)} - {"extra"}
    return schema


# The page to try the judge: one HTML file that asks nobody but the server it came from.

TEMPLATES = Path(__file__).parent / "templates"
_NONCE = re.compile(r"[A-Za-z0-9+/_-]+={0,2}")


def page_html(nonce: str) -> str:
    """The whole page; only script and style that bear the nonce run, so make a new one for every answer.

    >>> page_html("b2s=").count('nonce="b2s="')
    2
    """
    if not _NONCE.fullmatch(nonce):
        raise ValueError("a nonce is Base64")
    return _page().substitute(nonce=nonce)


@cache
def _page() -> Template:
    """Read once; the standard library fills it in, so that a server needs no other for four places."""
    style, script = _read("report.css", "try.css"), _read("try-result.js", "try.js")
    emotions = "".join(f"<option>{escape(emotion)}</option>" for emotion in EMOTIONS)
    filled = Template(_read("try.html")).safe_substitute(
        style=_kept(style), script=_kept(script), emotions=_kept(emotions)
    )
    return Template(filled)


def _kept(text: str) -> str:
    """The text as it is after another filling in: a dollar stays a dollar."""
    return text.replace("$", "$$")


def _template_folder(name: str) -> Path:
    from reports.html import TEMPLATES as REPORT_TEMPLATES

    return REPORT_TEMPLATES if name == "report.css" else TEMPLATES


def _read(*names: str) -> str:
    return "\n".join((_template_folder(name) / name).read_text(encoding="utf-8") for name in names)


Wire = TypeVar("Wire", bound=BaseModel)
PAGE_POLICY: Final = (
    "default-src 'none'; script-src 'nonce-{0}'; style-src 'nonce-{0}'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one request, and all together, may ask for."""

    queue: int = 512  # judgments promised at once
    exchanges: int = 256  # a request
    body: int = 1024 * 1024  # bytes a request


class ScoreRequest(BaseModel):
    """Exchanges to be judged; with `explain`, what each part of a reply does to its score."""

    exchanges: list[dict[str, Any]] = Field(min_length=1)
    explain: bool = False


class JudgeName(BaseModel):
    """Which judge it was."""

    name: str
    version: str


class ScoreAnswer(BaseModel):
    """The rows that `score` writes, in the order of the exchanges, and how far to trust them."""

    judge: JudgeName
    calibration: str | None
    note: str
    caveats: list[str]
    judgments: list[Judgment]


class Desk:
    """Takes requests in, has their exchanges judged, and hands the judgments out."""

    def __init__(self, served: Served, queue: Queue, limits: Limits, metrics: Metrics) -> None:
        self.served, self.queue, self.limits, self.metrics = served, queue, limits, metrics

    async def read(self, request: Request, kind: type[Wire]) -> Wire:
        """The body as what its route takes."""
        body = await read_object(request, most=self.limits.body)
        try:
            return kind.model_validate(body, strict=True)
        except ValidationError as error:
            raise refuse_invalid(error) from None

    def read_exchanges(self, rows: Sequence[dict[str, Any]]) -> list[Exchange]:
        """Checked as a file's rows are."""
        if len(rows) > self.limits.exchanges:
            raise Refused(
                400,
                f"exchanges: {len(rows)}, and at most {self.limits.exchanges} are taken a request",
                param="exchanges",
            )
        found = [
            read_row(row, place=f"exchanges.{place}", number=place + 1) for place, row in enumerate(rows)
        ]
        seen: set[str] = set()
        for place, exchange in enumerate(found):
            if exchange.id in seen:
                here = f"exchanges.{place}.id"
                raise Refused(400, f"{here}: {exchange.id[:40]!r} is there already", param=here)
            seen.add(exchange.id)
        return found

    async def ask(self, request: Request, tasks: Sequence[Task]) -> list[Any]:
        """The results of tasks, unless there is no room for them or whoever asked leaves."""
        wanted = sum(task.judgments for task in tasks)
        if wanted > self.queue.most:
            raise Refused(
                400, f"this takes {wanted} judgments, and {self.queue.most} may wait at once; send fewer"
            )
        try:
            job = self.queue.put(tasks)
        except Full as full:
            message = f"too many exchanges are waiting; try again in {full.seconds} s"
            after = {"Retry-After": str(full.seconds)}
            raise Refused(503, message, code="queue_full", headers=after) from None
        gone = asyncio.ensure_future(until_gone(request))
        try:
            waits: set[asyncio.Future[Any]] = {job.done, gone}
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if not job.done.done():
                raise Refused(499, "the client left")
            return job.done.result()
        except UserError as error:
            raise failed(error) from None
        except Refused:
            raise
        except Exception as error:
            log.error("the judge failed: %s", place_of(error))
            raise Refused(500, "the judge failed") from None
        finally:
            gone.cancel()
            self.queue.drop(job)
            job.done.cancel()  # else asyncio would log, with its words, an error that nobody waits for

    async def decide(self, request: Request, exchange: Exchange) -> Judgment:
        """The judgment of one exchange."""
        (judgment,) = await self.ask(request, [Task(lambda: self.served.ask(exchange))])
        self.metrics.count_judgment(to_row(judgment))
        found: Judgment = judgment
        return found


async def until_gone(request: Request) -> None:
    """Returns when the client has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def failed(error: UserError) -> Refused:
    """What the judge itself could not do: its own server, its budget, its key."""
    return Refused(502, f"the judge failed: {error}", code="judge_failed")


def send_json(row: dict[str, Any]) -> Response:
    """JSON as our files have it."""
    return Response(to_json(row), media_type="application/json")


def make_app(
    served: Served,
    *,
    limits: Limits | None = None,
    hosts: frozenset[str] | None = None,
    key: str = "",
    on_ready: Callable[[], None] = lambda: None,
) -> Guard:
    """The whole server as an ASGI application."""
    limits = limits or Limits()
    metrics = Metrics()
    queue = Queue(threads=served.judge.concurrency, most=limits.queue)
    metrics.watch(lambda: queue.held)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        queue.start()
        on_ready()
        yield
        await asyncio.to_thread(queue.stop)
        if close := getattr(served.judge, "close", None):
            close()

    # No page of documentation: FastAPI's loads its script from elsewhere.
    app = FastAPI(
        title="empathy-judge",
        version=served.judge.version,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    desk = Desk(served, queue, limits, metrics)
    add_judging(app, desk)
    add_asides(app, desk)

    @app.exception_handler(Refused)
    async def say_refused(_: Request, refused: Refused) -> Response:
        return refused.response()

    @app.exception_handler(HTTPException)
    async def say_http(_: Request, error: HTTPException) -> Response:
        return Refused(error.status_code, str(error.detail), headers=error.headers).response()

    bodies: list[type[BaseModel]] = [ScoreRequest, decisions.DecisionRequest, systemone.SystemOneRequest]
    describe(app, bodies, model=served.judge.name)
    return Guard(app, hosts=hosts, key=key, metrics=metrics)


def add_judging(app: FastAPI, desk: Desk) -> None:
    """The three ways to ask for judgments."""

    @app.post("/v1/score", **takes(ScoreRequest, ScoreAnswer))
    async def score(request: Request) -> Response:
        asked = await desk.read(request, ScoreRequest)
        exchanges = desk.read_exchanges(asked.exchanges)
        rows = await desk.ask(request, [_task(desk.served, item, asked.explain) for item in exchanges])
        for row in rows:
            desk.metrics.count_judgment(row)
        return send_json({**desk.served.about, "judgments": rows})

    @app.post("/v1/decisions", **takes(decisions.DecisionRequest, decisions.Decision))
    async def decide(request: Request) -> Response:
        asked = await desk.read(request, decisions.DecisionRequest)
        check_model(asked.model, desk.served)
        decisions.check_questions(asked.questions, desk.served)
        judgment = await desk.decide(request, read_input(asked.input, place="input"))
        return send_json(decisions.answer_decisions(asked, judgment, desk.served))

    @app.post("/v1/systemone", **takes(systemone.SystemOneRequest, systemone.SystemOneAnswer))
    async def decide_systemone(request: Request) -> Response:
        asked = await desk.read(request, systemone.SystemOneRequest)
        check_model(asked.model, desk.served)
        systemone.check_questions(asked.questions, desk.served)
        judgment = await desk.decide(request, read_input(asked.state, place="state"))
        return send_json(systemone.answer_systemone(asked, judgment, desk.served))


def add_asides(app: FastAPI, desk: Desk) -> None:
    """The page, the list of models, and what operators look at."""

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        nonce = secrets.token_urlsafe(16)
        return HTMLResponse(page_html(nonce), headers={"Content-Security-Policy": PAGE_POLICY.format(nonce)})

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [_model(desk.served)]}

    @app.get("/v1/models/{name}", responses={404: {"description": "There is no such model."}})
    async def model(name: str) -> dict[str, Any]:
        check_model(name, desk.served)
        return _model(desk.served)

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        return PlainTextResponse(desk.metrics.write())


def _model(served: Served) -> dict[str, Any]:
    about = {"id": served.judge.name, "object": "model", "created": 0, "owned_by": "empathy-judge"}
    return about | {"version": served.judge.version, "calibration": served.found.digest}


def _task(served: Served, exchange: Exchange, is_explained: bool) -> Task:
    if is_explained:
        return Task(lambda: served.explained_row(exchange), count_judgments(exchange))
    return Task(lambda: served.row(exchange))
