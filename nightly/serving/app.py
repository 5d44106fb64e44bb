"""The routes of the server."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from fastapi import FastAPI, Request
from pydantic import BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from data.errors import UserError
from data.records import Exchange, Judgment
from data.tables import to_json, to_row
from nightly.serving import decisions, systemone
from nightly.serving.batching import Full, Queue, Task
from nightly.serving.bodies import read_object
from nightly.serving.guard import Guard, log, place_of
from nightly.serving.inputs import read_input, read_row
from nightly.serving.metrics import Metrics
from nightly.serving.openapi import describe, takes
from nightly.serving.page import page_html
from nightly.serving.questions import check_model
from nightly.serving.refusals import Refused, refuse_invalid
from nightly.serving.served import Served, count_judgments

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
