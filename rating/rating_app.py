"""The rating page over HTTP: a link for each rater or one for all, and ratings on the disk before answers."""

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from html import escape
from pathlib import Path
from threading import Lock
from typing import Any, Final
from urllib.parse import urlencode

from fastapi import FastAPI, Request
from pydantic import Field
from starlette.responses import RedirectResponse, Response

from empathy_judge.data.files import LARGEST_RATING, LONGEST_COLUMN, LONGEST_REASON, LineFile
from empathy_judge.data.records import LABELS
from empathy_judge.data.tables import to_json
from empathy_judge.rating.handouts import notice_page, page_items, rating_page
from empathy_judge.rating.journal import Conflict, Entry, Journal, lock_plan, now
from empathy_judge.rating.people import PEOPLE_FILE, Person, holders_of, read_people, seat
from empathy_judge.rating.plan import read_plan, read_texts
from empathy_judge.server.middleware import RequestRefused, send_page
from empathy_judge.server.requests import StrictModel, make_strict_app

LEFT_AFTER: Final = timedelta(hours=1)  # without a rating; the place may then go to somebody else
ASK_FOR_LINK: Final = (
    "Open the link you were sent",
    "<p>Each rater has a personal link. Ask the person who runs this page for yours.</p>",
)
FULL: Final = ("The study is full", "<p>All places are taken. Thank you for your interest.</p>")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicStudy:
    """A study with one link for all; its texts are HTML."""

    id_key: str = ""  # the name of the person's id in the link's query
    consent: str = ""
    instructions: str = ""
    completion: dict[str, str] = field(default_factory=dict)  # `code` and `url`


class Act(StrictModel):
    """A message of the page: the `n`-th act at an index, a label, or None for an undo."""

    index: int = Field(ge=0)
    key: str
    n: int = Field(ge=1)
    label: str | None
    reason: str = Field(default="", max_length=LONGEST_REASON)


class RatingService:
    """The plan, its texts, its journal and its people."""

    def __init__(self, folder: Path, study: PublicStudy) -> None:
        self._drawn, self._people, self._study = read_plan(folder), read_people(folder), study
        self.plan = seat(self._drawn, self._people)
        self.texts = read_texts(folder, self.plan)
        self.journal = Journal(folder, self.plan)
        self._path, self._lock = folder / PEOPLE_FILE, Lock()

    def join(self, identity: str) -> str | None:
        """Return the token of a person's own place, or of the next free one; None if all are taken."""
        with self._lock:
            holders = holders_of(self._people)
            for person in holders.values():
                if person.id == identity:
                    return person.token
            given = (place for place in self._drawn.raters if place not in holders)
            free = [place for place in given if not self.journal.acts_of(place)]
            seen = {place: self._last_seen(person) for place, person in holders.items()}
            left = [place for place in seen if now() - seen[place] >= LEFT_AFTER]
            free += sorted((p for p in left if not self._is_done(holders[p].token)), key=seen.__getitem__)
            if not free:
                return None
            token = secrets.token_hex(16)
            person = Person(id=identity, token=token, place=free[0], at=now().isoformat())
            with closing(LineFile(self._path)) as file:
                file.append(to_json(asdict(person)))
            self._people.append(person)
            self.plan = seat(self._drawn, self._people)
            return token

    def _last_seen(self, person: Person) -> datetime:
        times = [entry.at for _, entry in self.journal.acts_of(person.token).values() if entry.at]
        return max([datetime.fromisoformat(person.at), *times])

    def _is_done(self, token: str) -> bool:
        acts = self.journal.acts_of(token).values()
        return sum(entry.label is not None for _, entry in acts) == len(self.plan.raters[token].order)

    def progress(self, token: str) -> dict[str, Any]:
        """Return how to complete the study, if the rater has rated everything."""
        return {"completion": self._study.completion} if self._is_done(token) else {}

    def state(self, token: str) -> dict[str, Any]:
        """Return the state of a page: the rater's replies in order, and the acts on each."""
        acts = [
            {"index": index, "n": count, "label": last.label, "reason": last.reason}
            for index, (count, last) in sorted(self.journal.acts_of(token).items())
        ]
        return {"items": page_items(self.plan, self.texts, token), "acts": acts} | self.progress(token)

    def record(self, token: str, act: Act) -> None:
        """Check an act and write it to the disk."""
        order = self.plan.raters[token].order
        if act.index >= len(order) or order[act.index] != act.key:
            raise RequestRefused(400, "index: no such reply in this plan; reload the page", param="index")
        if act.label not in (*LABELS, None):
            raise RequestRefused(400, f"label: one of {', '.join(LABELS)}", param="label")
        self.journal.record(token, act.key, act.n, Entry(index=act.index, label=act.label, reason=act.reason))


def make_rating_app(
    folder: Path,
    *,
    hosts: frozenset[str] | None,
    on_ready: Callable[[], None] = lambda: None,
    study: PublicStudy | None = None,
) -> FastAPI:
    """Make the server of a plan as an ASGI application; the tokens in the links are the keys to it.

    All its links are relative and it reads no forwarded headers, so it works behind any reverse proxy.
    """
    about = study or PublicStudy()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with lock_plan(folder):
            app.state.service = RatingService(folder, about)
            on_ready()
            yield
            app.state.service.journal.close()

    app = make_strict_app(max_body=LARGEST_RATING, hosts=hosts, openapi_url=None, lifespan=lifespan)

    def service_of(request: Request, token: str) -> RatingService:
        service: RatingService = request.app.state.service
        if token not in service.plan.raters:
            raise RequestRefused(404, "no such link in this plan; open the link that you were sent again")
        return service

    def send_notice(title: str, text: str, status: int = 200) -> Response:
        unit = app.state.service.plan.unit
        return send_page(lambda nonce: notice_page(title, text, nonce, unit=unit), status, form="self")

    def identity_of(request: Request) -> str:
        """Return the person's id, of the link or of a cookie; empty if there is none."""
        if about.id_key:
            return request.query_params.get(about.id_key, "")[:LONGEST_COLUMN]
        return request.cookies.get("rater") or secrets.token_hex(16) if study else ""

    @app.get("/")
    def welcome(request: Request) -> Response:
        if not (identity := identity_of(request)):
            return send_notice(*ASK_FOR_LINK)
        query = f"?{escape(urlencode({about.id_key: identity}))}" if about.id_key else ""
        label = "I agree" if about.consent else "Continue"
        button = f'<form method="post" action="join{query}"><button class="primary">{label}</button></form>'
        return send_notice("Rate replies", about.consent + button)

    @app.post("/join")
    def join(request: Request) -> Response:
        if not (identity := identity_of(request)):
            return send_notice(*ASK_FOR_LINK, 404)
        token = request.app.state.service.join(identity)
        if token is None:
            return send_notice(*FULL, 409)
        response = RedirectResponse(f"r/{token}", 303)
        if not about.id_key:
            month = 30 * 24 * 60 * 60
            response.set_cookie("rater", identity, month, path=None, httponly=True, samesite="lax")
        return response

    @app.get("/r/{token}")
    def page(request: Request, token: str) -> Response:
        if token not in request.app.state.service.plan.raters:
            return send_notice(*ASK_FOR_LINK, 404)
        given, unit = {"server": True, "token": token}, request.app.state.service.plan.unit
        return send_page(lambda nonce: rating_page(given, nonce, unit=unit, instructions=about.instructions))

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
        return Response(to_json(service.progress(token)), media_type="application/json")

    return app
