"""Replies unlike those that people rated are counted at every door, until a calibration covers them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from command_line import run
from repository import SAMPLES
from served import serving
from topics import on_topic

from empathy_judge.data.rated_range import RatedRange
from empathy_judge.data.tables import write_rows
from empathy_judge.judge.base import load_judge
from empathy_judge.judge.baselines import LengthJudge

JUDGE = ("--judge", "length")
STUDY = RatedRange(replies=8000, words=(19, 62, 84), long=77, late=0, situation=1.0, markdown=0.0)
LONG = "15 of 15 replies are longer than nearly all rated replies ("
BARE = "15 of 15 replies have no `situation`"


@pytest.fixture(scope="module", autouse=True)
def rated_range() -> Iterator[None]:
    """The crowd study's replies, for a judge that is fast."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LengthJudge, "rated", STUDY)
        yield


def printed_by(*arguments: object) -> str:
    return " ".join(run(*arguments, code=0).stdout.split())


REPLIES = [  # letters of some 400 words, without situations
    {"id": f"{model}-{n}", "model": model, "prompt": prompt, "response": opening + " so sorry" * (200 + n)}
    for model in ("one", "two", "three")
    for n in range(5)
    for prompt, opening in [on_topic(n)]
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("outside")
    write_rows(folder / "replies.jsonl", REPLIES)
    assert LONG in printed_by("score", folder / "replies.jsonl", *JUDGE, "--out", folder / "run")
    return folder


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def test_score_says_it_and_keeps_the_counts(folder: Path) -> None:
    summary, manifest = (read(folder / "run" / name) for name in ("summary.json", "manifest.json"))
    for start in (LONG, BARE):
        assert [line.startswith(start) for line in summary["caveats"]].count(True) == 1
    found = manifest["outside"]
    assert found == summary["outside"]
    assert (found["replies"], found["longer"]["count"], found["without_situation"]) == (15, 15, 15)


def test_replies_like_those_that_people_rated_need_no_word(tmp_path: Path) -> None:
    source = SAMPLES / "responses.jsonl"
    printed = printed_by("score", source, *JUDGE, "--limit", 12, "--out", tmp_path / "run")
    assert "people rated" not in printed and "`situation`" not in printed
    assert read(tmp_path / "run" / "summary.json")["outside"]["outside"] == 0


def test_compare_says_it_on_its_page_too(folder: Path) -> None:
    printed = printed_by("compare", folder / "run", "--out", folder / "compared")
    page = (folder / "compared" / "report.md").read_text(encoding="utf-8")
    notes = read(folder / "compared" / "report.json")["notes"]
    assert LONG in printed and LONG in page and any(note.startswith(LONG) for note in notes)


def test_the_server_says_it_of_a_request() -> None:
    with serving(load_judge("length")) as url:
        told = httpx.post(f"{url}/v1/score", json={"exchanges": REPLIES[:2]}, timeout=60).json()
    assert any(line.startswith("2 of 2 replies are longer than") for line in told["caveats"])


@pytest.mark.slow
def test_a_calibration_that_covers_them_lifts_it(folder: Path) -> None:
    ratings = [
        {"id": row["id"], "rater": f"{rater}", "rating": 1 + (n + rater) % 3}
        for n, row in enumerate(REPLIES)
        for rater in range(3)
    ]
    write_rows(folder / "ratings.jsonl", ratings)
    printed_by("calibrate", folder / "run", folder / "ratings.jsonl", "--out", folder / "mine")
    covers = read(folder / "mine" / "calibration.json")["covers"]
    longest = max(len(row["response"].split()) for row in REPLIES)
    assert (covers["replies"], covers["words"][2], covers["situation"]) == (15, longest, 0.0)
    calibrated = ("--calibration", folder / "mine", "--out", folder / "covered")
    printed = printed_by("score", folder / "replies.jsonl", *JUDGE, *calibrated)
    assert "people rated (" not in printed and "`situation`" not in printed
    compared = json.loads(printed_by("compare", folder / "run", "--calibration", folder / "mine", "--json"))
    assert "outside" not in compared and not any("people rated (" in note for note in compared["notes"])
