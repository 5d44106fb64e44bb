"""The rating page over HTTP: a link for each rater, and ratings on the disk before they are answered."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI, Request
from pydantic import Field
from starlette.responses import HTMLResponse, Response

from empathy_judge.data.files import LARGEST_RATING, LONGEST_REASON
from empathy_judge.data.records import LABELS
from empathy_judge.data.tables import to_json
from empathy_judge.rating.handouts import page_items, rating_page
from empathy_judge.rating.journal import Conflict, Entry, Journal, lock_plan
from empathy_judge.rating.plan import read_plan, read_texts
from empathy_judge.server.middleware import RequestRefused, send_page
from empathy_judge.server.requests import StrictModel, make_strict_app

ASK_FOR_LINK: Final = Path(__file__).parent / "templates" / "ask-for-link.html"


class Act(StrictModel):
    """A message of the page: the `n`-th act at an index, a label, or None for an undo."""

    index: int = Field(ge=0)
    key: str
    n: int = Field(ge=1)
    label: str | None
    reason: str = Field(default="", max_length=LONGEST_REASON)


class RatingService:
    """The plan, its texts and its journal."""

    def __init__(self, folder: Path) -> None:
        self.plan = read_plan(folder)
        self.texts = read_texts(folder, self.plan)
        self.journal = Journal(folder, self.plan)

    def state(self, token: str) -> dict[str, Any]:
        """Return the state of a page: the rater's replies in order, and the acts on each."""
        acts = [
            {"index": index, "n": count, "label": last.label, "reason": last.reason}
            for index, (count, last) in sorted(self.journal.acts_of(token).items())
        ]
        return {"items": page_items(self.plan, self.texts, token), "acts": acts}

    def record(self, token: str, act: Act) -> None:
        """Check an act and write it to the disk."""
        order = self.plan.raters[token].order
        if act.index >= len(order) or order[act.index] != act.key:
            raise RequestRefused(400, "index: no such reply in this plan; reload the page", param="index")
        if act.label not in (*LABELS, None):
            raise RequestRefused(400, f"label: one of {', '.join(LABELS)}", param="label")
        self.journal.record(token, act.key, act.n, Entry(index=act.index, label=act.label, reason=act.reason))


def make_rating_app(
    folder: Path, *, hosts: frozenset[str] | None, on_ready: Callable[[], None] = lambda: None
) -> FastAPI:
    """Make the server of a plan as an ASGI application; the tokens in the links are the keys to it."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with lock_plan(folder):
            app.state.service = RatingService(folder)
            on_ready()
            yield
            app.state.service.journal.close()

    app = make_strict_app(max_body=LARGEST_RATING, hosts=hosts, openapi_url=None, lifespan=lifespan)

    def service_of(request: Request, token: str) -> RatingService:
        service: RatingService = request.app.state.service
        if token not in service.plan.raters:
            raise RequestRefused(404, "no such link in this plan")
        return service

    @app.get("/")
    def ask_for_link() -> Response:
        headers = {"Content-Security-Policy": "default-src 'none'"}
        return HTMLResponse(ASK_FOR_LINK.read_text(encoding="utf-8"), headers=headers)

    @app.get("/r/{token}")
    def page(request: Request, token: str) -> Response:
        if token not in request.app.state.service.plan.raters:
            response = ask_for_link()
            response.status_code = 404
            return response
        given, unit = {"server": True, "token": token}, request.app.state.service.plan.unit
        return send_page(lambda nonce: rating_page(given, nonce, unit=unit))

    @app.get("/r/{token}/state")
    def state(request: Request, token: str) -> Response:
        return Response(to_json(service_of(request, token).state(token)), media_type="application/json")

    @app.post("/r/{token}/ratings")
    def rate(request: Request, token: str, act: Act) -> Response:
        service = service_of(request, token)
        try:
            service.record(token, act)
        except Conflict:
            return Response(to_json(service.state(token)), 409, media_type="application/json")
        return Response("{}", media_type="application/json")

    return app
