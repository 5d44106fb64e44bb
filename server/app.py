"""The routes of the server."""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache, partial
from html import escape
from pathlib import Path
from string import Template
from typing import Any, Final, TypeVar

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, PlainTextResponse, Response

import reports
from data.errors import UserError
from data.records import EMOTIONS, Exchange, Judgment, unscored
from data.tables import to_json
from judge.base import unit_of
from judge.explanation import check_explainable
from server import chat_completions, decisions, systemone
from server.guard import Guard, Metrics, log, place_of
from server.http_errors import Refused, send_refused
from server.questions import Answer, Question, answer_question, check_questions, find_model
from server.requests import NoExchange, ScoreRequest, SharesRequest, StrictRoute, read_input, read_turns
from server.served_judge import PROBE, BadJudgment, ServedJudge
from server.work_queue import Full, Queue, Task

Made = TypeVar("Made")
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
LAST_SECONDS: Final = 3.0  # for what is under way when nobody waits any more
PAGE_POLICY: Final = (
    "default-src 'none'; script-src 'nonce-{0}'; style-src 'nonce-{0}'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one request, and all together, may ask for."""

    queue: int = 512  # runs of the judge's network promised at once
    texts: int = 200_000  # characters of one exchange, all its texts together
    exchanges: int = 256  # a request
    body: int = 1024 * 1024  # bytes a request


class Complaint(BaseModel):
    """What was wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class Refusal(BaseModel):
    """The answer to every request that gets none."""

    error: Complaint


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


class SharesAnswer(BaseModel):
    """What `score` writes into summary.json: each model's shares, corrected where that can be done."""

    judge: str
    version: str
    models: list[dict[str, Any]]
    caveats: list[str]


def make_app(
    served: ServedJudge,
    *,
    limits: Limits | None = None,
    hosts: frozenset[str] | None = None,
    key: str = "",
    on_ready: Callable[[], None] = lambda: None,
) -> FastAPI:
    """Make the whole server as an ASGI application."""
    limits = limits or Limits()
    queue = Queue(threads=served.judge.concurrency, most=limits.queue)
    metrics = Metrics(queue_length=lambda: queue.held)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        queue.start()
        on_ready()
        yield
        # Whoever still waits has been told; a judge that asks a server need not wait for it any longer.
        served.close("stop")
        await asyncio.to_thread(queue.stop, LAST_SECONDS)
        served.close()

    # No page of documentation: FastAPI's loads its script from elsewhere.
    app = FastAPI(
        title="empathy-judge",
        version=served.judge.version,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.router.route_class = StrictRoute
    app.state.max_body = limits.body
    app.add_middleware(Guard, hosts=hosts, key=key, metrics=metrics)
    app.add_exception_handler(Refused, send_refused)
    app.add_exception_handler(RequestValidationError, send_refused)
    app.add_exception_handler(HTTPException, send_refused)
    app.openapi = cache(lambda: _describe(app, served))  # type: ignore[method-assign]
    service = JudgmentService(served, queue, limits, metrics)
    _add_routes(app, service)
    return app


def _describe(app: FastAPI, served: ServedJudge) -> dict[str, Any]:
    """Describe the routes: what FastAPI says of them, less its own refusals, about the one model there is."""
    described = get_openapi(title=app.title, version=app.version, routes=app.routes)
    schemas = described["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name)
    for path in described["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
    for body in (decisions.DecisionRequest, systemone.SystemOneRequest, chat_completions.ChatRequest):
        schemas[body.__name__]["properties"]["model"]["enum"] = list(served.models)
    exchanges = schemas[ScoreRequest.__name__]["properties"]["exchanges"]
    schemas["Exchange"], exchanges["items"] = exchanges["items"], {"$ref": "#/components/schemas/Exchange"}
    return described


class JudgmentService:
    """Has the exchanges of requests judged by the threads of the queue."""

    def __init__(self, served: ServedJudge, queue: Queue, limits: Limits, metrics: Metrics) -> None:
        self.served, self.queue, self.limits, self.metrics = served, queue, limits, metrics

    def of_unit(self, unit: str | None) -> ServedJudge:
        """The judge of replies, or of whole conversations."""
        return _refuse(partial(self.served.of_unit, unit), "unit")

    def read_exchanges(self, rows: Sequence[dict[str, Any]]) -> list[Exchange]:
        """Check exchanges as a file's rows are checked."""
        most = self.limits.exchanges
        if len(rows) > most:
            message = f"exchanges: {len(rows)}, and at most {most} are taken a request"
            raise Refused(400, message, param="exchanges")
        exchanges = [
            read_turns(row, place=f"exchanges.{place}", number=place + 1) for place, row in enumerate(rows)
        ]
        seen: set[str] = set()
        for place, exchange in enumerate(exchanges):
            self.check_length(exchange, f"exchanges.{place}")
            if exchange.id in seen:
                here = f"exchanges.{place}.id"
                raise Refused(400, f"{here}: {exchange.id[:40]!r} is there already", param=here)
            seen.add(exchange.id)
        return exchanges

    def check_length(self, exchange: Exchange, place: str) -> None:
        """Refuse more text than a judge would read, however it is split over turns."""
        turns = (turn.text for turn in exchange.dialogue)
        size = sum(map(len, (exchange.prompt, exchange.response, exchange.situation or "", *turns)))
        if size > self.limits.texts:
            message = f"{place}: {size:,} characters in all, and at most {self.limits.texts:,} are taken"
            raise Refused(400, message, param=place)

    async def ask(self, request: Request, tasks: Sequence[Task]) -> list[Any]:
        """Wait for the results of tasks, unless there is no room for them or whoever asked leaves."""
        wanted = sum(task.runs for task in tasks)
        if wanted > self.queue.most:
            raise Refused(
                400, f"this takes {wanted} runs, and {self.queue.most} may wait at once; send fewer"
            )
        try:
            job = self.queue.put(tasks)
        except Full as full:
            message = f"too many exchanges are waiting; try again in {full.seconds} s"
            after = {"Retry-After": str(full.seconds)}
            raise Refused(503, message, code="queue_full", headers=after) from None

        async def wait_until_gone() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass

        gone = asyncio.ensure_future(wait_until_gone())
        try:
            waits: set[asyncio.Future[Any]] = {job.done, gone}
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if job.done.done():
                return job.done.result()
        except BadJudgment:
            raise
        except UserError as error:  # what the judge itself could not do: its own server, its budget, its key
            raise Refused(502, f"the judge failed: {error}", code="judge_failed") from None
        except Exception as error:
            log.error("the judge failed: %s", place_of(error))
            raise Refused(500, "the judge failed") from None
        finally:
            gone.cancel()
            self.queue.drop(job)
            job.done.cancel()  # else asyncio would log, with its words, an error that nobody waits for
        raise Refused(499, "the client left")

    async def score(self, request: Request, asked: ScoreRequest) -> list[dict[str, Any]]:
        """Judge exchanges into rows, with the parts of their replies where they are to be explained."""
        served = self.of_unit(asked.unit)
        if asked.explain:
            _refuse(partial(check_explainable, served.judge, "explain"), "explain")
        tasks = [
            Task(
                partial(served.row, exchange, is_explained=asked.explain),
                served.count_runs(exchange, is_explained=asked.explain),
            )
            for exchange in self.read_exchanges(asked.exchanges)
        ]
        rows = await self.ask(request, tasks)
        for row in rows:
            self.metrics.count_judgment(row["label"])
        return rows

    async def answer(
        self, request: Request, model: str, questions: Sequence[Question], given: Any, *, place: str
    ) -> tuple[list[Answer], int]:
        """Answer questions about the exchange that was `given`, and count the tokens that took."""
        served = find_model(model, self.served)
        check_questions(questions, served)
        exchange = find_exchange(partial(read_input, given, place=place))
        judgment = await self.judge(request, exchange, served)
        answers = [answer_question(question, judgment, served) for question in questions]
        return answers, int((judgment.usage or {}).get("input_tokens", 0))

    async def complete(self, request: Request, asked: chat_completions.ChatRequest) -> dict[str, Any]:
        """Answer as a chat model that grades."""
        served = find_model(asked.model, self.served)
        exchange = find_exchange(partial(chat_completions.read_chat, asked))
        form = chat_completions.read_form(asked, exchange if isinstance(exchange, Exchange) else None)
        judgment = await self.judge(request, exchange, served)
        about = f"{served.judge.name} {served.judge.version}"
        return chat_completions.write_completion(asked, form, judgment, about)

    async def judge(self, request: Request, exchange: Exchange | NoExchange, served: ServedJudge) -> Judgment:
        """Judge what was found in a request; without an exchange it is unscored, and the judge not asked."""
        if isinstance(exchange, NoExchange):
            judgment = unscored(PROBE, str(exchange))
        else:
            self.check_length(exchange, "input")
            task = Task(partial(served.ask, exchange), served.count_runs(exchange))
            (judgment,) = await self.ask(request, [task])
        self.metrics.count_judgment(judgment.label)
        return judgment


def _refuse(do: Callable[[], Made], place: str) -> Made:
    """What `do` makes; what it cannot do, the request asked for in vain."""
    try:
        return do()
    except UserError as error:
        raise Refused(400, str(error), param=place) from None


def find_exchange(read: Callable[[], Exchange]) -> Exchange | NoExchange:
    """What `read` finds, or why there is nothing to judge."""
    try:
        return read()
    except NoExchange as nothing:
        return nothing


def _gives(answer: type[BaseModel]) -> dict[str, Any]:
    refusals = {
        status: {"model": Refusal, "description": description} for status, description in REFUSALS.items()
    }
    return {"responses": {200: {"model": answer}, **refusals}, "response_model": None}


def _send_json(row: dict[str, Any]) -> Response:
    """JSON as our files have it."""
    return Response(to_json(row), media_type="application/json")


def _add_routes(app: FastAPI, service: JudgmentService) -> None:
    """Add the ways to ask for judgments and shares, the page, the models, and what operators look at."""
    served = service.served

    @app.post("/v1/score", **_gives(ScoreAnswer))
    async def score(request: Request, asked: ScoreRequest) -> Response:
        rows = await service.score(request, asked)
        return _send_json({**service.of_unit(asked.unit).about(rows), "judgments": rows})

    @app.post("/v1/shares", **_gives(SharesAnswer))
    async def shares(request: Request, asked: SharesRequest) -> Response:
        task = Task(partial(service.of_unit(asked.unit).shares, asked.judgments, seed=asked.seed))
        try:
            (summary,) = await service.ask(request, [task])
        except BadJudgment as error:
            raise Refused(400, str(error), param="judgments") from None
        return _send_json(summary)

    @app.post("/v1/decisions", **_gives(decisions.Decision))
    async def decide(request: Request, asked: decisions.DecisionRequest) -> Response:
        questions = decisions.read_questions(asked)
        answers, tokens = await service.answer(request, asked.model, questions, asked.input, place="input")
        return _send_json(decisions.write_decision(asked, answers, tokens))

    @app.post("/v1/systemone", **_gives(systemone.SystemOneAnswer))
    async def decide_systemone(request: Request, asked: systemone.SystemOneRequest) -> Response:
        questions = systemone.read_questions(asked)
        answers, tokens = await service.answer(request, asked.model, questions, asked.state, place="state")
        return _send_json(systemone.write_systemone(asked, answers, tokens))

    @app.post("/v1/chat/completions", **_gives(chat_completions.Completion))
    async def complete(request: Request, asked: chat_completions.ChatRequest) -> Response:
        return _send_json(await service.complete(request, asked))

    def describe_model(name: str) -> dict[str, Any]:
        one = find_model(name, served)
        about = {"id": name, "object": "model", "created": 0, "owned_by": "empathy-judge"}
        told = {"version": one.judge.version, "calibration": one.calibration.digest}
        return about | told | {"unit": unit_of(one.judge)}

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        nonce = secrets.token_urlsafe(16)
        return HTMLResponse(page_html(nonce), headers={"Content-Security-Policy": PAGE_POLICY.format(nonce)})

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": list(map(describe_model, served.models))}

    @app.get("/v1/models/{name}", responses={404: {"description": "There is no such model."}})
    async def model(name: str) -> dict[str, Any]:
        return describe_model(name)

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        return PlainTextResponse(service.metrics.write())


# The page to try the judge: one HTML file that asks nobody but the server it came from.


def page_html(nonce: str) -> str:
    """Make the whole page; only script and style that bear the nonce run, so make a new one for every answer.

    >>> page_html("b2s=").count('nonce="b2s="')
    2
    """
    if not re.fullmatch("[A-Za-z0-9+/_-]+={0,2}", nonce):
        raise ValueError("a nonce is Base64")
    parts = _page_parts()
    return Template(parts["page"]).substitute(parts, nonce=nonce)


@cache
def _page_parts() -> dict[str, str]:
    """Read once; the standard library fills it in, so that a server needs no other for four places."""
    ours = Path(__file__).parent / "templates"
    style = Path(*reports.__path__) / "templates" / "report.css"  # as the reports look
    files = {
        "page": [ours / "try.html"],
        "style": [style, ours / "try.css"],
        "script": [ours / "try-result.js", ours / "try.js"],
    }
    texts = {
        name: "\n".join(path.read_text(encoding="utf-8") for path in paths) for name, paths in files.items()
    }
    return texts | {"emotions": "".join(f"<option>{escape(emotion)}</option>" for emotion in EMOTIONS)}
