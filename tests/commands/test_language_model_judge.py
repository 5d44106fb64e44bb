"""Runs of a language model's judge through the CLI: wrong keys, unusable answers, and what comes next."""

import json
import shlex
import shutil
from collections.abc import Iterator
from math import log
from pathlib import Path

import pytest
from click.testing import Result
from command_line import run, write_toml
from servers import Answer, Call, ScriptedServer, answer_chat
from topics import on_topic

from empathy_judge.data.records import LABELS
from empathy_judge.data.tables import write_rows
from empathy_judge.judge.base import load_judge
from empathy_judge.judge.scoring import ScoringRequest, score_file

MODELS = ("a", "b", "c", "d")
WORDS = {"Whatever.": "Bad", "Alright.": "Okay", "Bless you.": "Good"}  # how a reply ends, and its rating


def score(server: ScriptedServer, *words: object) -> Result:
    write_rows(Path("replies.jsonl"), replies(10))
    table = f"kind = 'prompted'\nmodel = 'm'\nbase_url = '{server.base_url}'\nretries = 0\n"
    Path("my judge.toml").write_text(table)
    return run("score", "replies.jsonl", "--judge", "my judge.toml", "--out", "run", *words)


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_a_run_in_which_nothing_could_be_judged_fails(words: tuple[str, ...]) -> None:
    with ScriptedServer(lambda call: answer_chat(call, text="Lovely weather.")) as server:
        assert score(server, *words).exit_code == 5


def test_the_judge_printed_after_a_calibration_runs() -> None:
    labels = iter(LABELS * 100)

    def script(call: Call) -> Answer:
        return answer_chat(call, text=json.dumps({"reason": "So.", "label": next(labels)}))

    with ScriptedServer(script) as server:
        assert score(server).exit_code == 0
        write_rows(Path("ratings.jsonl"), rated(replies(10)))
        calibrated = run("calibrate", "run", "ratings.jsonl", "--out", "calibration")
        hint, line = calibrated.stderr.splitlines()[-2:]
        options = shlex.split(hint.partition("`score`: ")[2])
        assert options[:2] == ["--judge", "my judge.toml"]
        run("score", "replies.jsonl", *options, code=0)
        run(*shlex.split(line.partition(": empathy-judge ")[2]), code=0)
        write_rows(Path("other.jsonl"), [{"prompt": f"p{n}", "response": "Oh."} for n in range(10)])
        compared = run("compare", "run", "other.jsonl", "--calibration", "none")
        assert compared.exit_code == 0, "the file is judged by the judge of the run"


def replies(count: int = 20) -> list[dict[str, str]]:
    """Replies of four models; how they end decides their rating."""
    return [
        {"id": name, "model": model, "prompt": prompt, "response": f"{opening} {name}: {list(WORDS)[level]}"}
        for n in range(count)
        for place, model in enumerate(MODELS)
        for name, (prompt, opening) in [(f"{model}{n}", on_topic(n))]
        for level in [(n * (place + 1) + place) % 3 if n % 5 else 2 - place % 3]
    ]


def rated(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """Five ratings of every reply."""
    return [
        {"id": row["id"], "rater": f"r{rater}", "rating": rating_of(row["response"])}
        for row in rows
        for rater in range(5)
    ]


def rating_of(text: str) -> str:
    (label,) = (label for words, label in WORDS.items() if words in text)
    return label


def read_label(call: Call, *, logprobs: bool) -> Answer:
    """Answer with the rating of the reply, at a probability of 0.8 where logprobs are given."""
    label = rating_of(call.text)
    answer = answer_chat(call, text=label)
    if logprobs:
        top = [{"token": item, "logprob": log(0.8 if item == label else 0.1)} for item in LABELS]
        token = {"token": label, "logprob": log(0.8), "top_logprobs": top}
        answer.body["choices"][0]["logprobs"] = {"content": [token]}
    return answer


@pytest.fixture
def openai(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    """A server with logprobs in the place of OpenAI's."""
    with ScriptedServer(lambda call: read_label(call, logprobs=True)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-of-openai")
        yield server


def test_a_model_of_openai_is_asked_for_the_label_and_its_probabilities(openai: ScriptedServer) -> None:
    rows = replies()
    write_rows(Path("replies.jsonl"), rows)
    done = run("score", "replies.jsonl", "--judge", "openai:gpt-4o-mini", "--json", code=0)
    assert {call.headers["authorization"] for call in openai.calls} == {"Bearer sk-of-openai"}
    assert all(call.body["logprobs"] and call.body["max_tokens"] == 4 for call in openai.calls)
    found = json.loads(done.stdout)
    assert found["judge"] == "gpt-4o-mini" and "gpt-4o-mini" in found["run"]
    assert found["report"] == []
    good = sum(row["model"] == "a" and rating_of(row["response"]) == "Good" for row in rows) / 20
    (share,) = (row["shares"]["Good"]["value"] for row in found["models"] if row["model"] == "a")
    assert share == pytest.approx(0.8 * good + 0.1 * (1 - good)), "the mean of the distribution"
    spent = 80 * (200 * 0.15 + 5 * 0.60) / 1e6
    assert found["cost"] == pytest.approx(spent)
    (most,) = (line for line in done.stderr.splitlines() if "at most" in line)
    assert spent < float(most.rpartition("$")[2]) < 10 * spent, "the estimate before the run"


def test_a_server_by_its_url_gets_no_key_but_its_own(
    openai: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_rows(Path("replies.jsonl"), replies())

    def script(call: Call) -> Answer:
        if "response_format" in call.body:  # what holds local models to the labels
            return Answer(status=400, body={"error": {"message": "response_format: unknown"}})
        return read_label(call, logprobs=False)

    with ScriptedServer(script) as server:
        named = f"{server.base_url}#org/tiny"
        run("score", "replies.jsonl", "--judge", named, "--max-cost", 1, "--limit", 8)
        assert not any("sk-" in call.headers.get("authorization", "") for call in server.calls)
        monkeypatch.setenv("LLM_API_KEY", "sk-of-the-server")
        done = score_file(
            ScoringRequest(source=Path("replies.jsonl"), judge=load_judge(named))
        )  # as in Python
        assert server.calls[-1].headers["authorization"] == "Bearer sk-of-the-server"
        assert not openai.calls
        assert (server.calls[0].body["model"], done.summary.judge) == ("org/tiny", "tiny")
        assert "no probabilities for 80 of 80" in done.summary.report[0]


def test_several_judges_are_calibrated_at_once_and_one_is_chosen(openai: ScriptedServer) -> None:
    rows = replies()
    write_rows(Path("replies.jsonl"), rows)
    ratings = rated(rows)
    changed = [row for row in ratings[::7] if row["rating"] != "Okay"]
    for row in changed:
        row["rating"] = "Okay"
    write_rows(Path("ratings.jsonl"), ratings)
    with ScriptedServer(lambda call: read_label(call, logprobs=True)) as local:
        judges = ("--judge", "length", "--judge", "openai:gpt-4o-mini", "--judge", f"{local.base_url}#tiny")
        words = ("calibrate", *judges, "replies.jsonl", "ratings.jsonl", "--out", "out")
        write_rows(Path("stars.jsonl"), [{**row, "rating": 5} for row in ratings])
        run("calibrate", *judges, "replies.jsonl", "stars.jsonl", code=2)
        assert not openai.calls and not local.calls, "a wrong scale is found before any call"
        short = run(*words, "--max-cost", 0.001)
        assert short.exit_code == 5 and "Finished judgments are saved" in short.stderr
        run(*words, code=0)
        asked = len(openai.calls), len(local.calls)
        done = run(*words)
        assert asked == (len(openai.calls), len(local.calls)) == (80, 80), "each reply once"
        found = json.loads(Path("out/report.json").read_text())
        table = {row["name"]: row for row in found["runs"]}
        assert [row["name"] for row in found["runs"]] == [
            *("length", "gpt-4o-mini", "tiny", "majority", "length", "people")
        ]
        assert table["gpt-4o-mini"]["metrics"] == table["tiny"]["metrics"]
        assert table["gpt-4o-mini"]["usd_per_1000"] == pytest.approx(1000 * 33e-6)
        assert table["tiny"]["usd_per_1000"] == 0
        assert table["tiny"]["metrics"]["exact"]["value"] == pytest.approx(1 - len(changed) / 400)
        assert found["verdict"][0].startswith("gpt-4o-mini agrees with your raters best")
        assert found["verdict"][0].endswith("tiny is within its confidence interval and free.")
        printed = shlex.split(done.stderr.splitlines()[-1].partition(": empathy-judge ")[2])
        run(*printed, code=0)
        (report,) = Path("calibrations").glob("*/report.json")
        assert json.loads(report.read_text())["judge"]["name"] == "tiny"
        calibration = report.with_name("calibration.json")
        done = run("score", "replies.jsonl", *judges[-2:], "--calibration", calibration)
        assert done.exit_code == 0 and len(local.calls) == 80, "another calibration judges nothing again"


def test_each_reply_is_paid_for_once_in_all_runs_of_a_folder(openai: ScriptedServer) -> None:
    rows = replies(12)
    write_rows(Path("both.jsonl"), rows)
    for part, models in (("one", "ab"), ("two", "cd")):
        write_rows(Path(f"{part}.jsonl"), [row for row in rows if row["model"] in models])
    write_rows(Path("ratings.jsonl"), rated(rows))
    about = {"kind": "prompted", "mode": "label", "model": "gpt-4o-mini", "key_env": "OPENAI_API_KEY"}
    judge = ("--judge", write_toml("judge.toml", base_url=openai.base_url, **about))
    none_asked = "reused 48 of 48 judgments; none asked"

    def count(*words: object, code: int = 0) -> tuple[int, str]:
        before, said = len(openai.calls), run(*words, code=code).stderr
        return len(openai.calls) - before, said

    # A run that was never finished, in another folder: the budget ends after some replies.
    calls, _ = count("score", "one.jsonl", *judge, "--out", "runs/deep/er/one", "--max-cost", 0.0006, code=5)
    rest, said = count("score", "one.jsonl", "two.jsonl", *judge)
    assert 0 < calls < 24 and calls + rest == 48
    assert f"reused {calls} of 48 judgments; {rest} asked" in said and f" {rest} replies cost at most" in said
    manifest = json.loads(next(Path("runs").glob("*-prompted-*/manifest.json")).read_text())
    assert manifest["cost"] == pytest.approx(rest * 33e-6), "what was reused is free"

    calls, said = count("compare", "one.jsonl", "two.jsonl", *judge)
    assert calls == 0 and none_asked in said and "cost" not in said
    calls, said = count("calibrate", "both.jsonl", "ratings.jsonl", *judge, "--out", "out")
    assert calls == 0 and none_asked in said
    judged = json.loads(Path("out/report.json").read_text())["runs"][0]
    assert judged["usd_per_1000"] == pytest.approx(0.033), "the price of a judgment stays known"

    # With other ids, models, situations and emotions they are the same replies; with another prompt not.
    about = {"model": "m", "emotion": "sad", "situation": "At home."}
    other = [{**row, **about, "id": f"x{n}"} for n, row in enumerate(rows)]
    write_rows(Path("other.jsonl"), [*other, {**other[0], "id": "new", "prompt": "Is it you?"}])
    calls, said = count("score", "other.jsonl", *judge)
    assert calls == 1 and "reused 48 of 49 judgments; 1 asked" in said
    (path,) = Path("runs").glob("other-*/judgments.jsonl")
    copied = [json.loads(line) for line in path.read_text().splitlines()]
    assert {row["model"] for row in copied} == {"m"} and copied[0]["id"] == "x0"
    assert [bool(row.get("reused")) for row in copied] == [True] * 48 + [False]
    assert copied[0]["features"]["situation"] == 1

    for folder in set(Path("runs").iterdir()) - {path.parent}:
        shutil.rmtree(folder)
    write_rows(Path("again.jsonl"), [{**row, "emotion": "proud"} for row in other])
    assert count("score", "again.jsonl", *judge)[0] == 0, "a copy is as good"
    path.write_text(path.read_text().replace("Good", "Bad"))
    shutil.rmtree(next(Path("runs").glob("again-*")))
    assert count("score", "again.jsonl", *judge)[0] == 48, "a run that was changed is not reused"

    calls, said = count("compare", "one.jsonl", "two.jsonl", *judge, "--fresh")
    assert calls == 48 and "reused" not in said
    fresh = ("score", "one.jsonl", *judge, "--fresh")
    calls, _ = count(*fresh, "--max-cost", 0.0006, code=5)
    rest, said = count(*fresh)
    assert 0 < calls < 24 and calls + rest == 24 and f"reused {calls} of 24 judgments" in said
