"""Conversations: the mean over their replies, and language models that read them whole."""

import json
import random
from itertools import chain
from pathlib import Path

import pytest
from command_line import run, run_checked, write_toml
from talks import HEARD, KIND, STUCK, messages, talk

from empathy_judge.data.errors import UserError
from empathy_judge.data.readers.conversations import split_conversation
from empathy_judge.data.tables import write_rows
from empathy_judge.judge.base import load_judge
from empathy_judge.judge.composite import ReplyMean
from empathy_judge.judge.llm.prompt_injection import delimit_exchange


def test_a_language_model_is_shown_the_whole_conversation_turn_by_turn() -> None:
    judge = write_toml("judge.toml", kind="prompted", model="m", base_url="http://127.0.0.1:9/v1")
    asked = load_judge(judge, unit="conversation")
    assert asked.unit == "conversation"
    (request,) = asked.write_requests(talk(HEARD, STUCK))
    system, shown = (message["content"] for message in request["messages"])
    assert "the listener of a whole conversation" in system
    delimited = delimit_exchange(talk(HEARD, STUCK), whole=True)
    assert delimited.text in shown
    assert f"--- {delimited.mark} turn 6, said by the listener ---" in shown
    assert load_judge(judge).version != asked.version


def test_score_notices_conversations_and_prints_a_level_without_an_interval() -> None:
    about = [{"id": f"c{n}", "model": "bot", "scenario": f"s{n}"} for n in range(12)]
    chats = [{**item, "messages": messages(KIND if n % 2 else STUCK)} for n, item in enumerate(about)]
    write_rows(Path("chats.jsonl"), chats)
    score = ("score", "chats.jsonl", "--judge", "length")
    printed = run_checked(*score, "--out", "run", "--html", "page.html").output
    assert "Trust the order" in printed and "95% CI" not in Path("page.html").read_text()
    manifest, summary = (json.loads(Path(f"run/{name}.json").read_text()) for name in ("manifest", "summary"))
    assert (manifest["unit"], manifest["judge"]) == ("conversation", "conversation:length")
    (model,) = summary["models"]
    assert all(share["low"] is share["high"] is None for share in model["shares"].values())
    rows = [json.loads(line) for line in Path("run/judgments.jsonl").read_text().splitlines()]
    assert [len(row["curve"]) for row in rows] == [3] * 12
    assert len({row["prompt_digest"] for row in rows}) == 12
    run_checked(*score, "--unit", "reply", "--out", "last")
    assert json.loads(Path("last/summary.json").read_text())["unit"] == "reply"
    refused = run(*score, "--explain", "c0", code=2)
    assert "--unit reply" in refused.output and not Path("runs").exists()


def test_the_score_of_a_conversation_is_the_mean_over_its_replies() -> None:
    replies, whole = load_judge("length"), load_judge("length", unit="conversation")
    exchange = talk(HEARD, STUCK)
    judged = [replies.judge(reply) for reply in split_conversation(exchange)]
    judgment = whole.judge(exchange)
    assert judgment.curve == tuple(item.score for item in judged)
    assert judgment.score == pytest.approx(sum(item.score or 0.0 for item in judged) / 3, abs=1e-6)
    assert whole.count_runs(exchange) == 3
    with pytest.raises(UserError, match="set a judge of replies"):
        ReplyMean(replies="conversation")
    write_toml("llm.toml", kind="prompted", model="gpt-4o-mini", base_url="http://127.0.0.1:9/v1")
    calls = [*map(load_judge("llm.toml").guess_calls, split_conversation(exchange))]
    assert len(calls) == 3 and ReplyMean(replies="llm.toml").guess_calls(exchange) == [*chain(*calls)]


@pytest.mark.slow
def test_ratings_by_the_id_of_a_conversation_calibrate_its_judge() -> None:
    rng, rows, ratings = random.Random(4), [], []
    for model, longest in (("one", 40), ("two", 20), ("three", 8)):
        for number in range(12):
            lengths = [rng.randrange(3, longest) for _ in range(3)]
            about = {"conversation": f"{model}-{number}", "model": model, "prompt": "Today it went wrong."}
            rows += [
                {**about, "turn": turn, "response": "work " * words} for turn, words in enumerate(lengths)
            ]
            for rater in range(3):
                level = min(3, max(1, round(sum(lengths) / 25 + rng.gauss(0, 0.5))))
                ratings.append({"id": f"{model}-{number}", "rater": f"p{rater}", "rating": level})
    write_rows(Path("rows.jsonl"), rows)
    write_rows(Path("ratings.jsonl"), ratings)
    score = ("score", "rows.jsonl", "--judge", "length")
    run_checked(*score, "--out", "run")
    words = ("ratings.jsonl", "--exchanges", "rows.jsonl", "--out", "cal", "--json")
    report = json.loads(run("calibrate", "run", *words).stdout)
    assert report["judge"]["unit"] == "conversation"
    assert (report["data"]["responses"], report["data"]["unjudged"]) == (36, 0)
    assert report["agreement"]["spearman"]["low"] > 0.2
    run_checked(*score, "--calibration", "cal/calibration.json", "--out", "new")
    summary = json.loads(Path("new/summary.json").read_text())
    assert all(model["corrected"] or model["refused"] for model in summary["models"])
    run_checked(*score, "--unit", "reply", "--out", "replies")
    assert "calibrate them separately" in run("calibrate", "run", "replies", "ratings.jsonl").output
