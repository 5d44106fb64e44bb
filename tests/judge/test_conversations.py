"""Conversations: the mean over their replies, and language models that read them whole."""

import json

import pytest
from click.testing import CliRunner
from talks import HEARD, KIND, STUCK, messages, talk

from cli import main
from empathy_judge.data.errors import UserError
from empathy_judge.data.readers.conversations import split_conversation
from empathy_judge.judge.base import load_judge
from empathy_judge.judge.composite import ReplyMean
from empathy_judge.judge.llm.prompt_injection import delimit_exchange


def test_a_language_model_is_shown_the_whole_conversation_turn_by_turn(tmp_path):
    judge = tmp_path / "judge.toml"
    judge.write_text('kind = "prompted"\nmodel = "m"\nbase_url = "http://127.0.0.1:9/v1"\nmode = "label"\n')
    asked = load_judge(str(judge), unit="conversation")
    assert asked.unit == "conversation"
    (request,) = asked.write_requests(talk(HEARD, STUCK))
    system, shown = (message["content"] for message in request["messages"])
    assert "the listener in a whole conversation" in system
    delimited = delimit_exchange(talk(HEARD, STUCK), whole=True)
    assert delimited.text in shown
    assert f"--- {delimited.mark} turn 6, said by the listener ---" in shown
    assert load_judge(str(judge)).version != asked.version


def write_chats(path, count: int = 12) -> None:
    rows = []
    for number in range(count):
        about = {"id": f"c{number}", "model": "bot", "scenario": f"s{number}"}
        rows.append({**about, "messages": messages(KIND if number % 2 else STUCK)})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def score(*words: object):
    done = CliRunner().invoke(main, ["score", *map(str, words)])
    assert done.exit_code == 0, done.output
    return done


def test_score_notices_conversations_and_can_be_told_otherwise(tmp_path):
    chats = tmp_path / "chats.jsonl"
    write_chats(chats)
    whole = score(chats, "--judge", "length", "--out", tmp_path / "whole")
    assert "conversations" in whole.stdout
    assert "whole conversations" in whole.stderr
    manifest = json.loads((tmp_path / "whole" / "manifest.json").read_text())
    assert (manifest["unit"], manifest["judge"]) == ("conversation", "conversation:length")
    rows = [json.loads(line) for line in (tmp_path / "whole" / "judgments.jsonl").read_text().splitlines()]
    assert [len(row["curve"]) for row in rows] == [3] * 12
    assert len({row["prompt_digest"] for row in rows}) == 12
    last = score(chats, "--judge", "length", "--unit", "reply", "--json", "--out", tmp_path / "last")
    assert json.loads(last.stdout)["unit"] == "reply"
    turns = [
        {"conversation": f"c{number}", "turn": turn, "model": "bot", "prompt": heard, "response": said}
        for turn, (heard, said) in enumerate(zip(HEARD, KIND, strict=True))
        for number in range(10)
    ]
    chats.write_text("".join(json.dumps(row) + "\n" for row in turns))
    together = json.loads(score(chats, "--judge", "length", "--json", "--out", tmp_path / "run").stdout)
    assert (together["unit"], together["counts"]["judged"]) == ("conversation", 10)


def test_the_score_of_a_conversation_is_the_mean_over_its_replies():
    replies, whole = load_judge("length"), load_judge("length", unit="conversation")
    exchange = talk(HEARD, STUCK)
    judged = [replies.judge(reply) for reply in split_conversation(exchange)]
    judgment = whole.judge(exchange)
    assert judgment.curve == tuple(item.score for item in judged)
    assert judgment.score == pytest.approx(sum(judgment.curve) / 3, abs=1e-6)
    assert whole.count_runs(exchange) == 3
    with pytest.raises(UserError, match="set a judge of replies"):
        ReplyMean(replies="conversation")


def test_a_conversation_is_not_explained(tmp_path):
    chats = tmp_path / "chats.jsonl"
    write_chats(chats)
    words = ["score", str(chats), "--judge", "length", "--explain", "c0", "--out", str(tmp_path / "run")]
    refused = CliRunner().invoke(main, words)
    assert refused.exit_code == 2 and "--unit reply" in refused.output
    assert not (tmp_path / "run").exists()


def test_a_conversation_costs_at_most_what_its_replies_cost(tmp_path):
    path = tmp_path / "llm.toml"
    path.write_text(
        'kind = "prompted"\nmodel = "m"\nbase_url = "http://127.0.0.1:9/v1"\n'
        "prices = { input = 1.0, output = 2.0 }\n"
    )
    whole = talk(HEARD, KIND)
    replies = [load_judge(str(path)).most_cost(reply) for reply in split_conversation(whole)]
    assert len(replies) == 3 and all(replies)
    assert ReplyMean(replies=str(path)).most_cost(whole) == pytest.approx(sum(filter(None, replies)))
