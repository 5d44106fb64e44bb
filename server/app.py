"""The routes of the server."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cache, partial
from html import escape
from pathlib import Path
from string import Template
from typing import Any, Final, Literal

from fastapi import FastAPI, Request
from pydantic import BaseModel, Field
from starlette.responses import PlainTextResponse, Response

from empathy_judge import reports
from empathy_judge.data.errors import UserError
from empathy_judge.data.files import LARGEST_BODY, MOST_EXCHANGES, MOST_QUEUED
from empathy_judge.data.records import CONVERSATION, EMOTIONS, GOOD_ABOVE, NOUNS, Exchange, Judgment
from empathy_judge.data.tables import to_json
from empathy_judge.judge.explanation import check_explainable
from empathy_judge.server import chat_completions
from empathy_judge.server.middleware import Metrics, RequestRefused, log, place_of, send_page
from empathy_judge.server.requests import Objects, StrictModel, make_strict_app, read_row
from empathy_judge.server.served_judge import BadJudgment, ServedJudge
from empathy_judge.server.work_queue import Task, WorkQueue

Unit = Literal["reply", "conversation"]
LAST_SECONDS: Final = 3.0  # to finish the runs under way at shutdown


class ScoreBody(StrictModel):
    """Exchanges to judge; `explain` adds the effect of each part of a reply on its score.

    An exchange has the fields of a row of `responses.jsonl`, or `messages` that end with the reply.
    `unit` is what is judged as one: the last reply (`reply`), or a row with all its turns
    (`conversation`). The default is the unit of the server's judge.
    """

    exchanges: Objects = Field(min_length=1)
    explain: bool = False
    unit: Unit | None = None


class SharesBody(StrictModel):
    """Judgments as `/v1/score` returned them, their `unit`, and the random `seed` of the intervals.

    With `baseline`, one of the models, the answer has `pairs`: each other model compared with it, where a
    model that is worse by no more than `max_drop` points is at least as good.
    """

    judgments: Objects
    unit: Unit | None = None
    seed: int = Field(default=0, ge=0, lt=2**32)
    baseline: str | None = None
    max_drop: float = Field(default=10.0, gt=0, lt=100)


class ErrorBody(BaseModel):
    """The body of every refused request: its message, type, param and code."""

    error: dict[str, str | None]


# With "4XX", FastAPI describes no errors of its own.
REFUSALS: Final[dict[int | str, dict[str, Any]]] = {
    "4XX": {"model": ErrorBody, "description": "Refused; the message names the field or the limit."},
    502: {"model": ErrorBody, "description": "The judge's own server failed."},
    503: {"model": ErrorBody, "description": "Too many exchanges are waiting; see Retry-After, in seconds."},
}


class ScoreAnswer(BaseModel):
    """The rows that `score` writes, with the judge's caveats."""

    judge: dict[str, str]  # name and version
    calibration: str | None
    note: str
    caveats: list[str]
    judgments: list[Judgment]


class SharesAnswer(BaseModel):
    """The content of `score`'s summary.json: each model's shares, corrected where a calibration applies."""

    judge: str
    version: str
    models: list[dict[str, Any]]
    caveats: list[str]


def make_app(
    served: ServedJudge,
    *,
    conversations: ServedJudge | None = None,
    queue: int = MOST_QUEUED,
    hosts: frozenset[str] | None = None,
    key: str = "",
    on_ready: Callable[[], None] = lambda: None,
) -> FastAPI:
    """Make the server as an ASGI application; `conversations` judges whole conversations."""
    service = JudgmentService(served, conversations or served, queue=queue)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.queue.start()
        on_ready()
        yield
        # All clients have been answered: end the waiting of a judge that asks another server.
        for each in service.units.values():
            each.judge.stop()
        await asyncio.to_thread(service.queue.stop, LAST_SECONDS)
        for each in service.units.values():
            each.judge.close()

    about: dict[str, Any] = {"title": "empathy-judge", "version": served.judge.version, "lifespan": lifespan}
    app = make_strict_app(max_body=LARGEST_BODY, hosts=hosts, key=key, metrics=service.metrics, **about)
    _add_routes(app, service)
    return app


class JudgmentService:
    """Judges the exchanges of requests in the threads of the queue."""

    def __init__(self, served: ServedJudge, conversations: ServedJudge, *, queue: int) -> None:
        self.queue = WorkQueue(threads=served.judge.concurrency, most=queue)
        self.metrics = Metrics(queue_length=lambda: self.queue.held)
        self.units = {None: served, served.judge.unit: served, conversations.judge.unit: conversations}
        self.models = {served.judge.name: served}
        if conversations is not served:
            self.models[CONVERSATION] = conversations

    def of_unit(self, unit: str | None) -> ServedJudge:
        """Return the judge of replies or of whole conversations; by default the one of --judge."""
        if unit not in self.units:
            raise RequestRefused.of_field(
                "unit", f"only {NOUNS[self.units[None].judge.unit]} are judged here"
            )
        return self.units[unit]

    def find_model(self, model: str) -> ServedJudge:
        """Return a judge by its name as a model."""
        if model not in self.models:
            known = " and ".join(map(repr, self.models))
            message = f"the model {model[:80]!r} does not exist here; this server has {known}"
            raise RequestRefused(404, message, param="model", code="model_not_found")
        return self.models[model]

    def describe_model(self, name: str) -> dict[str, Any]:
        """Return the description of a model."""
        served = self.find_model(name)
        about = {"id": name, "object": "model", "created": 0, "owned_by": "empathy-judge"}
        judge, calibration = served.judge, served.calibration.digest
        return {**about, "version": judge.version, "calibration": calibration, "unit": judge.unit}

    def read_exchanges(self, rows: Sequence[dict[str, Any]]) -> list[Exchange]:
        """Check exchanges as a file's rows are checked."""
        if len(rows) > MOST_EXCHANGES:
            problem = f"{len(rows)}; at most {MOST_EXCHANGES} are accepted per request"
            raise RequestRefused.of_field("exchanges", problem)
        exchanges: dict[str, Exchange] = {}
        for index, row in enumerate(rows):
            place = f"exchanges.{index}"
            exchange = read_row(row, place=place, number=index + 1)
            if exchange.id in exchanges:
                raise RequestRefused.of_field(f"{place}.id", f"{exchange.id[:40]!r} is a duplicate")
            exchanges[exchange.id] = exchange
        return list(exchanges.values())

    async def run(self, request: Request, tasks: Sequence[Task]) -> list[Any]:
        """Return the results of tasks, unless the client leaves."""
        job = self.queue.put(tasks)
        gone = asyncio.ensure_future(_wait_until_gone(request))
        results = asyncio.gather(*map(asyncio.wrap_future, job.results))
        # Marked as retrieved: asyncio logs an error, with its message, that nobody waits for.
        results.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            waits: set[asyncio.Future[Any]] = {results, gone}
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if results.done():
                return results.result()
        except BadJudgment as error:
            raise RequestRefused(400, str(error), param="judgments") from None
        except UserError as error:  # the judge's own server, budget or key
            raise RequestRefused(502, f"the judge failed: {error}", code="judge_failed") from None
        except Exception as error:
            log.error("the judge failed: %s", place_of(error))
            raise RequestRefused(500, "the judge failed") from None
        finally:
            gone.cancel()
            job.drop()
        raise RequestRefused(499, "the client left")

    async def score(self, request: Request, body: ScoreBody) -> Response:
        """Judge exchanges into rows, with the parts of their replies where `explain` is set."""
        served = self.of_unit(body.unit)
        if body.explain:
            try:
                check_explainable(served.judge, "explain")
            except UserError as error:
                raise RequestRefused(400, str(error), param="explain") from None
        exchanges = self.read_exchanges(body.exchanges)
        row = partial(served.row, is_explained=body.explain)
        runs = partial(served.count_runs, is_explained=body.explain)
        rows = await self.run(request, [Task(partial(row, each), runs(each)) for each in exchanges])
        for label in (row["label"] for row in rows):
            self.metrics.count_judgment(label)
        return _send_json({**served.about(rows), "judgments": rows})

    async def shares(self, request: Request, body: SharesBody) -> Response:
        """Aggregate judgments into the shares of each model."""
        how = body.model_dump(exclude={"judgments", "unit"})
        task = Task(partial(self.of_unit(body.unit).shares, body.judgments, **how))
        (summary,) = await self.run(request, [task])
        return _send_json(summary)

    async def complete(self, request: Request, body: chat_completions.ChatRequest) -> Response:
        """Judge one exchange, and answer as a chat model does."""
        model = self.find_model(body.model)
        answer = chat_completions.read_format(body)
        exchange = chat_completions.read_chat(body)
        task = Task(partial(model.judge.judge, exchange), model.count_runs(exchange))
        (judgment,) = await self.run(request, [task])
        self.metrics.count_judgment(judgment.label)
        name = f"{model.judge.name} {model.judge.version}"
        return _send_json(chat_completions.write_completion(body, answer, judgment, name))


async def _wait_until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _send_json(row: dict[str, Any]) -> Response:
    """Respond with JSON as our files have it."""
    return Response(to_json(row), media_type="application/json")


def _add_routes(app: FastAPI, service: JudgmentService) -> None:
    for path, route, answer in (
        ("/v1/score", service.score, ScoreAnswer),
        ("/v1/shares", service.shares, SharesAnswer),
        ("/v1/chat/completions", service.complete, chat_completions.Completion),
    ):
        responses = {200: {"model": answer}, **REFUSALS}
        app.post(path, responses=responses, response_model=None)(route)
    app.get("/v1/models/{name}", responses=REFUSALS)(service.describe_model)

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return send_page(page_html)

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": list(map(service.describe_model, service.models))}

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        return PlainTextResponse(service.metrics.write())


def page_html(nonce: str) -> str:
    """Return the page to try the judge."""
    parts = _page_parts()
    return Template(parts["page"]).substitute(parts, nonce=nonce)


@cache
def _page_parts() -> dict[str, str]:
    def read(*names: str) -> str:
        return "\n".join((Path(__file__).parent / "templates" / name).read_text("utf-8") for name in names)

    style = Path(*reports.__path__) / "templates" / "report.css"
    return {
        "page": read("try.html"),
        "style": f"{style.read_text('utf-8')}\n{read('try.css')}",
        "script": read("try-result.js", "try.js"),
        "good_above": f"{GOOD_ABOVE:.0%}",
        "emotions": "".join(f"<option>{escape(emotion)}</option>" for emotion in EMOTIONS),
    }
