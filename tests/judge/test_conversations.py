"""The judge of conversations: what it counts, how it is fitted, and what `score` makes of it."""

import json

import pytest
from click.testing import CliRunner
from talks import HEARD, KIND, STUCK, messages, talk

from cli import main
from empathy_judge.data.errors import UserError
from empathy_judge.data.readers.conversations import split_conversation
from empathy_judge.judge.base import WEIGHTS, load_judge
from empathy_judge.judge.conversations.conversation_judge import ConversationJudge, read_card, read_weights
from empathy_judge.judge.conversations.features import conversation_features
from empathy_judge.judge.llm.prompt_injection import delimit_exchange
from empathy_judge.training.rated_sets import RATED_SETS


def test_what_only_the_whole_shows_is_counted():
    kind, stuck = (
        conversation_features(split_conversation(talk(HEARD, said)), [2.0, 2.0, 2.0])
        for said in (KIND, STUCK)
    )
    assert stuck["repeats_itself"] == stuck["asks_again"] == stuck["lost"] == 1
    assert kind["repeats_itself"] == kind["asks_again"] == 0 < kind["new_questions"]
    assert kind["lost"] < 1 / 2
    assert min(kind["validates"], kind["feeling_words"]) > 0
    answered = conversation_features(
        split_conversation(talk([*HEARD[:2], "What? I told you already."], KIND)), [2]
    )
    assert answered["speaker_cold"] > 0 < answered["speaker_asks_back"]


def test_the_shipped_card_is_whole_and_says_what_it_was_fitted_on(tmp_path):
    card = read_card(WEIGHTS / "conversation")
    assert {name: RATED_SETS[name].licence for name in card["trained_on"]} == {
        name: item["licence"] for name, item in card["trained_on"].items()
    }
    good = []
    for said in (KIND, STUCK):
        weights = read_weights(card["weights"]["person"])
        place = weights.place(conversation_features(split_conversation(talk(HEARD, said)), [2.2] * 3))
        chances = weights.probabilities(place)
        assert sum(chances.values()) == pytest.approx(1)
        assert min(chances.values()) > 0
        good.append(chances["Good"])
    assert good[0] > 2 * good[1]
    card = json.loads((WEIGHTS / "conversation" / "card.json").read_text()) | {"caveat": "Perfect."}
    (tmp_path / "card.json").write_text(json.dumps(card))
    with pytest.raises(UserError, match="changed since it was written"):
        ConversationJudge(replies="length", weights=str(tmp_path))


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


def test_an_explanation_names_the_replies_and_the_counts_that_moved_a_conversation(tmp_path):
    chats = tmp_path / "chats.jsonl"
    write_chats(chats)
    told = score(chats, "--out", tmp_path / "run", "--limit", 2, "--explain", "c0", "--json")
    (explained,) = json.loads(told.stdout)["explanations"]
    assert [part["text"].partition(":")[0] for part in explained["parts"]] == [
        f"Reply {n}" for n in (1, 2, 3)
    ]
    counted = explained["counted"]
    assert list(counted.values()) == sorted(counted.values(), key=abs, reverse=True)
    assert counted["repeated questions: more than usual"] < 0
    seen = score(chats, "--out", tmp_path / "run", "--limit", 2, "--explain", "c0").stdout
    assert "Counts over the whole conversation" in seen
    judge = tmp_path / "judge.toml"
    judge.write_text('kind = "prompted"\nmodel = "m"\nbase_url = "http://127.0.0.1:9/v1"\n')
    words = ["score", str(chats), "--judge", str(judge), "--explain", "c0", "--out", str(tmp_path / "other")]
    refused = CliRunner().invoke(main, words)
    assert refused.exit_code == 2
    assert "cannot attribute the score" in refused.output


def test_a_conversation_costs_at_most_what_its_replies_cost(tmp_path):
    path = tmp_path / "llm.toml"
    path.write_text(
        'kind = "prompted"\nmodel = "m"\nbase_url = "http://127.0.0.1:9/v1"\n'
        "prices = { input = 1.0, output = 2.0 }\n"
    )
    whole = talk(HEARD, KIND)
    replies = [load_judge(str(path)).most_cost(reply) for reply in split_conversation(whole)]
    assert len(replies) == 3 and all(replies)
    assert ConversationJudge(replies=str(path)).most_cost(whole) == pytest.approx(sum(filter(None, replies)))
