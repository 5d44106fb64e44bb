"""Parts of empathy: a rubric for each, named beside every figure, and refused below a floor."""

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import run
from servers import Answer, Call, ScriptedServer, answer_chat

from empathy_judge.data.errors import UserError
from empathy_judge.data.records import Exchange
from empathy_judge.data.rubric import RUBRICS, read_rubric
from empathy_judge.judge.base import load_judge

WORDS = ("day", "garden", "rain", "week", "long", "walk", "tea", "house", "letter", "light")
NOTE = "These figures measure explorations, not empathy as a whole. Good means: a particular feeling"
PARTS = sorted(path.stem for path in RUBRICS.glob("*.toml") if read_rubric(path.stem).is_part)


def answer(call: Call) -> Answer:
    """Good where the reply asks about the day, Okay where it asks at all, as the rubric has it."""
    shown = call.body["messages"][-1]["content"]
    return answer_chat(call, "Good" if "your day?" in shown else "Okay" if "?" in shown else "Bad")


def write_judge(base_url: str, rubric: str = "explorations") -> str:
    Path("judge.toml").write_text(
        f'kind = "prompted"\nmodel = "m"\nbase_url = "{base_url}"\nmode = "label"\n'
        f'rubric = "{rubric}"\nprobabilities = "none"\n'
    )
    return "judge.toml"


def write_data(seed: int, *, follow: bool, each: int = 20) -> None:
    """Replies of four models, and levels 0 to 2 by four people: by what is asked, or by the length alone."""
    rng, rows, ratings = random.Random(seed), [], []
    for place, model in enumerate(("a", "b", "c", "d")):
        for number in range(each):
            count = rng.randrange(4, 40)
            level = rng.choices((0, 1, 2), (4 - place, 2, 1 + place))[0]
            asked = ("", "Really?", "How was your day?")[level]
            response = f"{' '.join(rng.choices(WORDS, k=count))}. {asked}".strip()
            identity = f"{model}{number}"
            rows.append(
                {"id": identity, "model": model, "prompt": f"Day {number} was hard.", "response": response}
            )
            for rater in range(4):
                seen = level if follow else count // 14
                said = min(2, max(0, round(seen + rng.gauss(0, 0.45))))
                about = {"id": identity, "rater": f"p{rater}", "dimension": "explorations"}
                ratings += [{**about, "rating": said}, {**about, "dimension": "empathy", "rating": 1}]
    Path("replies.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("ratings.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ratings))


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(answer) as server:
        yield server


def test_every_part_has_a_rubric_that_reaches_the_prompt() -> None:
    assert len(PARTS) == 11
    for name in PARTS:
        judge = load_judge(write_judge("http://127.0.0.1:9/v1", name))
        assert (judge.name, judge.rubric.dimension) == (f"prompted:{name}", name)
        (request,) = judge.write_requests(Exchange(id="1", prompt="I lost my keys.", response="Oh no!"))
        told = request["messages"][0]["content"]
        assert judge.rubric.question.strip() in told and judge.rubric.labels["Good"] in told
        assert ("of a whole conversation" in told) == (judge.unit == "conversation")
    Path("odd.toml").write_text(
        (RUBRICS / "crowd.toml").read_text().replace("title", "dimension = 3\ntitle", 1)
    )
    with pytest.raises(UserError, match="dimension: input should be a valid string"):
        read_rubric("odd.toml")


def test_a_part_is_named_beside_its_figures(server: ScriptedServer) -> None:
    write_data(1, follow=True, each=10)
    judge = write_judge(server.base_url)
    scored = run("score", "replies.jsonl", "--judge", judge, "--out", "run", code=0)
    assert NOTE in " ".join(scored.stdout.split())
    for name in ("summary.json", "manifest.json"):
        assert json.loads(Path("run", name).read_text())["dimension"] == "explorations"
    compared = run("compare", "run", "--baseline", "a", "--html", "compared.html")
    assert "By explorations alone" in compared.stdout and NOTE in " ".join(compared.stdout.split())
    assert "prompted:explorations" in Path("compared.html").read_text()


@pytest.mark.slow
def test_a_part_that_is_not_shown_to_beat_counting_words_is_refused(server: ScriptedServer) -> None:
    write_data(2, follow=False)
    judge = write_judge(server.base_url)
    run("score", "replies.jsonl", "--judge", judge, "--out", "run", code=0)
    options = ("--exchanges", "replies.jsonl", "--out", "cal")
    told = run("calibrate", "run", "ratings.jsonl", "--scale", "0-2", *options, code=3)
    assert "Explorations cannot be calibrated: with a weighted kappa of" in " ".join(told.stdout.split())
    assert "counting words (" in " ".join(told.stdout.split())
    assert not Path("cal/calibration.json").exists()
    assert "cannot be calibrated" in Path("cal/report.html").read_text()
    without = run("calibrate", "run", "ratings.jsonl", "--scale", "0-2", "--out", "other")
    assert without.exit_code == 2
    assert "--exchanges: needed to compare the judge with counting words" in without.output
