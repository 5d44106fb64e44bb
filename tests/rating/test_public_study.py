"""One link for all: a place for each id, given back after an hour, and nothing that names a person."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from command_line import run_checked as run
from rating_plans import make_plan, serving_plan

from empathy_judge.rating import journal, rating_app
from empathy_judge.rating.handouts import render_markdown
from empathy_judge.rating.rating_app import PublicStudy

COMPLETION = {"code": "C1", "url": "https://panel.example/done?a=1"}


class Clock:
    """The time of the server, which only the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.time = datetime(2026, 1, 1, tzinfo=UTC)
        for module in (journal, rating_app):
            monkeypatch.setattr(module, "now", lambda: self.time)


def join(client: httpx.Client, query: str = "") -> str:
    """Agree to take part, and return the token of the place."""
    answer = client.post(f"/join{query}")
    assert answer.status_code == 303, answer.text
    assert answer.headers["location"].startswith("r/"), "relative, so that a proxy may serve it anywhere"
    return answer.headers["location"].removeprefix("r/")


def rate(client: httpx.Client, token: str, count: int, label: str = "Good") -> Any:
    """Rate so many replies, and return what the page is told after the last."""
    items = client.get(f"/r/{token}/state").json()["items"]
    for index in range(count):
        act = {"index": index, "key": items[index]["key"], "n": 1, "label": label}
        answer = client.post(f"/r/{token}/ratings", json=act)
        assert answer.status_code == 200
    return answer.json()


def test_a_place_is_given_once_and_returns_after_an_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    make_plan(tmp_path, people=2, each=6)
    study = PublicStudy(id_key="ID", completion=COMPLETION)
    with serving_plan(tmp_path, study) as client:
        ann = join(client, "?ID=ann%40x")
        assert rate(client, ann, 6) == {"completion": COMPLETION}
        ben = join(client, "?ID=ben")
        assert rate(client, ben, 5) == {}, "nobody learns the code before the last rating"
        clock.time += timedelta(minutes=59)
        assert client.post("/join?ID=cyd").status_code == 409
        assert "all places are taken" in client.post("/join?ID=cyd").text.lower()
        assert join(client, "?ID=ben") == ben
        clock.time += timedelta(minutes=1)
    with serving_plan(tmp_path, study) as client:
        cyd = join(client, "?ID=cyd")
        assert client.get(f"/r/{cyd}/state").json()["acts"] == [], (
            "the answers of another person are not theirs"
        )
        assert client.post(f"/r/{ben}/ratings", json={}).status_code >= 400
        assert client.get(f"/r/{ben}").status_code == 404
        assert client.post("/join?ID=ben").status_code == 409, "the place has another person now"
        assert join(client, "?ID=ann%40x") == ann
        assert client.post("/join").status_code == 404, "without an id nobody gets a place"
        rate(client, cyd, 3)
    told = run("rate", "people", tmp_path).stdout.splitlines()
    assert [line.split()[:2] for line in told] == [
        ["approve", "ann@x"],
        ["refuse", "ben"],
        ["unfinished", "cyd"],
    ]
    assert "9 ratings by 2 raters; finished: 1" in run("rate", "collect", tmp_path).stdout
    shared = (tmp_path / "ratings.jsonl", tmp_path / "consistency.json", tmp_path / "journal.jsonl")
    assert not any(name in path.read_text() for path in shared for name in ("ann@x", '"ben"', '"cyd"'))
    assert "6 answers" in run("rate", "forget", tmp_path, "ann@x").stdout
    assert "5 answers" in run("rate", "forget", tmp_path, "ben").stdout
    files = "".join(path.read_text() for path in tmp_path.iterdir())
    assert not any(trace in files for trace in ("ann@x", '"ben"', ann, ben)) and cyd in files
    assert "3 ratings by 1 rater" in run("rate", "collect", tmp_path).stdout
    assert "nobody has the id" in run("rate", "forget", tmp_path, "ann@x", code=2).stderr
    with serving_plan(tmp_path, study) as client:
        assert join(client, "?ID=dot"), "the place of somebody who is forgotten is free"


def test_without_ids_a_browser_has_one_place_behind_a_proxy_on_any_path(tmp_path: Path) -> None:
    make_plan(tmp_path, people=2, each=6)
    (tmp_path / "text.md").write_text(
        "# Consent\n\nYou *may* stop:\n\n- **any** time\n- [why](https://x.example)\n\n"
        "<script>1</script> [no](javascript:alert(1))"
    )
    text = render_markdown(tmp_path / "text.md")
    with serving_plan(tmp_path, PublicStudy(consent=text, instructions=text)) as client:
        welcome = client.get("/")
        for piece in (
            "<h1>Consent</h1>",
            "<strong>any</strong>",
            'href="https://x.example"',
            'action="join"',
        ):
            assert piece in welcome.text
        assert "<script" not in welcome.text and 'href="javascript' not in welcome.text
        first = client.post("/join", headers={"X-Forwarded-Host": "evil.example"})
        assert "Path" not in first.headers["set-cookie"] and "evil" not in str(first.headers)
        token = first.headers["location"].removeprefix("r/")
        assert join(client) == token
        assert "<li><strong>any</strong> time</li>" in client.get(f"/r/{token}").text
        client.cookies.clear()
        assert join(client) != token


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--id-key", "ID"), "need --public"),
        (("--public", "--completion-url", "javascript:alert(1)"), "--completion-url"),
        (("--public", "--consent", "absent.md"), "absent.md"),
    ],
)
def test_options_that_cannot_work_are_refused(tmp_path: Path, words: tuple[str, ...], why: str) -> None:
    make_plan(tmp_path)
    assert why in run("rate", "open", tmp_path, *words, code=2).stderr
