"""Eight people rate in a real browser while tabs die and the server is killed: nothing is lost or doubled."""

import json
import random
import socket
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rating_plans import NAMES, made_replies, make_plan, serving_plan

from empathy_judge.commands import main as cli
from empathy_judge.data.records import LABELS
from empathy_judge.rating.plan import RatingPlan, draw_plan, write_plan

PEOPLE, EACH = 8, 50
Start = Callable[..., "subprocess.Popen[str]"]


@dataclass
class Served:
    """The server of a plan as a process on one port, killed without a warning and started again."""

    start: Start
    folder: Path
    port: int
    process: "subprocess.Popen[str] | None" = None
    kills: int = 0

    def up(self) -> None:
        self.process = self.start("rate", "open", self.folder, "--port", self.port)
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith("rater-1"), "it prints its links once it listens"

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(60)
        self.process, self.kills = None, self.kills + 1


@dataclass
class Person:
    """A scripted rater: what they will say is known beforehand, and what the page took is kept here."""

    browser: Any
    url: str
    labels: list[str]
    rng: random.Random
    page: Any = None
    taken: set[int] = field(default_factory=set)
    reasons: dict[int, str] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)
    deaths: int = 0

    def __post_init__(self) -> None:
        size = {"width": self.rng.choice((390, 1180)), "height": 840}
        self.context = self.browser.new_context(viewport=size, reduced_motion="reduce")
        self.context.set_default_timeout(60_000)
        self.context.on("request", self.note)

    def note(self, request: Any) -> None:
        self.seen.append(f"{request.url} {request.headers} {request.post_data}")

    def visit(self) -> bool:
        """Open the link in a new tab; False while the server is away."""
        self.page = self.context.new_page()
        try:
            self.page.goto(self.url)
        except Exception:
            self.page.close()
            self.page = None
            return False
        self.page.wait_for_selector("body[data-ready=yes]")
        self.seen.append(self.page.content())
        if self.page.locator("#start").is_visible():
            self.page.click("#start")
        return True

    def die(self) -> None:
        """The tab is closed, or its process crashes."""
        self.deaths += 1
        if self.rng.random() < 0.5:
            with suppress(Exception):  # nobody is left to answer
                self.page.goto("chrome://crash", timeout=500)
        self.page.close()
        self.page = None

    def place(self) -> int:
        """The reply that is shown and may be rated; `EACH` after the last."""
        ready = "body[data-view=done], body[data-view=rate]:not([data-open=''])"
        self.page.wait_for_selector(ready)
        found = self.page.evaluate("[document.body.dataset.view, document.body.dataset.open]")
        return EACH if found[0] == "done" else int(found[1])

    def step(self) -> None:
        """Rate one reply, or take the last rating back."""
        place = self.place()
        assert place not in self.taken, "what the page took is never asked for again"
        if place == EACH:
            return
        if self.taken and self.rng.random() < 0.06:
            self.page.keyboard.press("u")
            back = self.place()
            assert back == max(self.taken)
            self.taken.remove(back)
            assert self.page.input_value("#reason") == self.reasons[back]
            place = back
            if self.rng.random() < 0.5:
                return
        if self.rng.random() < 0.1:
            self.page.keyboard.press("r")
            self.page.keyboard.type(f"Because of {place}, \N{SNOWMAN}.")
            self.page.keyboard.press("Escape")
        self.reasons[place] = self.page.input_value("#reason")
        if self.rng.random() < 0.3:
            self.page.click(f".labels button[data-label={self.labels[place]}]")
        else:
            self.page.keyboard.press(str(LABELS.index(self.labels[place]) + 1))
        self.taken.add(place)


def test_eight_people_rate_while_tabs_die_and_the_server_is_killed(
    browser: Any, start: Start, tmp_path: Path
) -> None:
    folder = tmp_path / "plan"
    plan = make_plan(folder, people=PEOPLE, each=EACH, prompts=80)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        served = Served(start, folder, listening.getsockname()[1])
    served.up()
    rng = random.Random(20)
    people = {
        token: Person(
            browser=browser,
            url=f"http://127.0.0.1:{served.port}/r/{token}",
            labels=[rng.choice(LABELS) for _ in range(EACH)],
            rng=random.Random(number),
        )
        for number, token in enumerate(plan.raters)
    }
    away = 0  # steps until the server is started again
    while any(len(person.taken) < EACH for person in people.values()):
        person = rng.choice([person for person in people.values() if len(person.taken) < EACH])
        if served.process is None:
            away -= 1
            if away <= 0:
                served.up()
        elif rng.random() < 0.02:
            served.kill()
            away = rng.randint(3, 25)
        if person.page is None and not person.visit():
            continue
        person.step()
        if rng.random() < 0.08:
            person.die()
    if served.process is None:
        served.up()
    for person in people.values():
        if person.page is None:
            assert person.visit()
        assert person.place() == EACH
        person.page.wait_for_selector("body[data-unsaved='0']")
        person.context.close()
    assert served.kills >= 3 and sum(person.deaths for person in people.values()) >= 20
    check_journal(folder, plan, people)
    seen = "".join(line for person in people.values() for line in person.seen)
    assert not any(name in seen for name in NAMES)
    assert not any(item.id in seen for item in plan.items.values())
    done = CliRunner().invoke(cli.main, ["rate", "collect", str(folder)])
    assert done.exit_code == 0, done.output
    assert f"{PEOPLE * (EACH - 3)} ratings by 8 raters; finished: 8" in done.stdout


def check_journal(folder: Path, plan: RatingPlan, people: dict[str, Person]) -> None:
    """Every rating is there once, as it was given."""
    acts: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for line in (folder / "journal.jsonl").read_bytes().splitlines():
        row = json.loads(line)
        acts.setdefault((row["token"], row["index"]), []).append(row)
    assert set(acts) == {(token, place) for token in plan.raters for place in range(EACH)}
    for (token, place), rows in acts.items():
        person = people[token]
        assert [bool(row.get("undo")) for row in rows] == [number % 2 == 1 for number in range(len(rows))]
        assert rows[-1]["label"] == person.labels[place]
        assert rows[-1].get("reason", "") == person.reasons[place]
        assert rows[-1]["key"] == plan.raters[token].order[place]


def export(folder: Path, out: Path) -> None:
    done = CliRunner().invoke(cli.main, ["rate", "export", str(folder), "--html", str(out)])
    assert done.exit_code == 0, done.output


def test_a_file_from_the_disk_is_rated_closed_reopened_and_handed_back(browser: Any, tmp_path: Path) -> None:
    folder = tmp_path / "plan"
    plan = make_plan(folder, people=2, each=10)
    export(folder, tmp_path)
    context = browser.new_context(accept_downloads=True)
    asked: list[str] = []
    context.on("request", lambda request: asked.append(request.url))
    for name, begun, count in (("rater-1", 0, 4), ("rater-1", 4, 10), ("rater-2", 0, 6)):
        page = context.new_page()
        page.goto((tmp_path / f"{name}.html").as_uri())
        page.wait_for_selector("body[data-ready=yes]")
        if page.locator("#start").is_visible():
            page.click("#start")
        for place in range(begun, count):
            page.wait_for_selector(f"body[data-open='{place}']")
            page.keyboard.press(str(place % 3 + 1))
        if count < 10:
            page.wait_for_selector(f"body[data-open='{count}']")
            page.keyboard.press("p")
        page.wait_for_selector("#hand", state="visible")
        with page.expect_download() as got:
            page.click("#download")
        assert got.value.suggested_filename == f"{name}-ratings.json"
        got.value.save_as(tmp_path / f"{name}-{count}.json")
        assert not any(model in page.content() for model in NAMES)
        page.close()
    context.close()
    assert all(url.startswith(("file://", "blob:")) for url in asked)
    files = [str(tmp_path / name) for name in ("rater-1-10.json", "rater-2-6.json", "rater-1-4.json")]
    done = CliRunner().invoke(cli.main, ["rate", "collect", str(folder), *files])
    assert done.exit_code == 0, done.output
    told = json.loads((folder / "consistency.json").read_text())["raters"]
    assert [len(told[name]["indexes"]) for name in ("rater-1", "rater-2")] == [10, 6]
    rows = [json.loads(line) for line in (folder / "ratings.jsonl").read_text().splitlines()]
    assert all(row["rating"] == LABELS[row["index"] % 3] for row in rows) and plan.people == 2


def test_a_conversation_is_shown_as_turns_with_the_time_that_is_left(browser: Any, tmp_path: Path) -> None:
    replies = [item for item in made_replies(30) if item.dialogue]
    drawn = draw_plan(replies, people=1, each=10, seed=0, unit="conversation")
    write_plan(drawn.plan, drawn.texts, tmp_path)
    export(tmp_path, tmp_path)
    page = browser.new_page()
    page.goto((tmp_path / "rater-1.html").as_uri())
    page.click("#start")
    assert page.locator("#about .turn").count() == 4 and not page.locator("#exchange").is_visible()
    assert page.inner_text(".count") == "0 of 10 about 2 min left"
    page.close()


@pytest.mark.parametrize(("width", "scheme"), [(1180, "light"), (390, "dark")])
def test_the_page_is_readable(
    open_tab: Any, tmp_path: Path, width: int, scheme: str, assert_readable: Any
) -> None:
    plan = make_plan(tmp_path, people=1, each=5)
    with serving_plan(tmp_path) as client:
        page = open_tab(f"{client.base_url}/", width=width, scheme=scheme)
        assert_readable(page)
        page.goto(f"{client.base_url}/r/{next(iter(plan.raters))}")
        page.wait_for_selector("body[data-ready=yes]")
        assert_readable(page)
        page.click("#start")
        for place in range(5):
            page.wait_for_selector(f"body[data-open='{place}']")
            assert_readable(page)
            page.keyboard.press("2")
        page.wait_for_selector("body[data-view=done][data-unsaved='0']")
        assert_readable(page)
        page.click("#undo-last")
        page.click("#pause")
        assert_readable(page)
        page.click("#resume")
        page.wait_for_selector("body[data-open='4'][data-unsaved='0']")
    page.keyboard.press("1")
    page.wait_for_selector("#status.unsaved", timeout=60_000)
    assert_readable(page)
