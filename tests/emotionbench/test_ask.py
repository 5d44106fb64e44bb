"""A model fills in questionnaires: what it reads, how its answers are kept, and what is left after a kill."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from servers import Answer, Call, ScriptedServer, answer_chat

from empathy_judge.data.errors import BudgetSpent, OperationalError
from empathy_judge.data.runs import FinishedRun
from empathy_judge.emotionbench import administer
from empathy_judge.emotionbench.administer import Inquiry
from empathy_judge.emotionbench.questionnaires import read_questionnaire, read_sheets
from empathy_judge.emotionbench.situations import EvokingSituation
from empathy_judge.judge.llm.responder import ModelConfig

PANAS = read_questionnaire("PANAS")
WAIT = EvokingSituation(id="Anger-0/own-9", factor="Anger-0", text="You wait in the rain.")
TWO = (WAIT, EvokingSituation(id="Fear-1/own-9", factor="Fear-1", text="You are stuck in a lift."))


def words_of(call: Call) -> list[str]:
    """The items in the order this call asks for them."""
    lines = call.text.split("\n\n")[-2].splitlines()
    return [line.partition(". ")[2] for line in lines]


def mark_of(word: str, text: str) -> int:
    """A model that is upset by rain and nothing else."""
    return 5 if word == "upset" and "rain" in text else 1 + PANAS.texts.index(word) % 4


def answer_sheet(call: Call) -> Answer:
    marks = {str(number): mark_of(word, call.text) for number, word in enumerate(words_of(call), start=1)}
    return answer_chat(call, json.dumps(marks))


def fill(
    folder: Path, base_url: str, *, inquiry: Mapping[str, Any] | None = None, **settings: Any
) -> FinishedRun:
    max_cost = settings.pop("max_cost", None)
    config = ModelConfig(**{"model": "m", "base_url": base_url, "retries": 0, "concurrency": 4, **settings})
    asked = {"questionnaire": PANAS, "situations": TWO, "orders": 3, "defaults": 4, **(inquiry or {})}
    reporter = administer.SelfReporter(config, Inquiry(**asked))
    return administer.run_alignment(reporter, administer.plan_alignment(reporter), folder, max_cost=max_cost)


def test_orders_follow_from_the_seed_and_the_first_is_the_questionnaires_own() -> None:
    inquiry = Inquiry(questionnaire=PANAS, situations=(), seed=3)
    assert inquiry.order(0) == list(range(1, 21))
    orders = [tuple(inquiry.order(number)) for number in range(100)]
    assert len(set(orders)) == 100, "any number of orders"
    assert all(sorted(order) == list(range(1, 21)) for order in orders)
    again = Inquiry(questionnaire=PANAS, situations=TWO, seed=3)
    assert again.order(7) == list(orders[7])
    assert Inquiry(questionnaire=PANAS, situations=(), seed=4).order(7) != list(orders[7])


def test_a_run_asks_for_every_sheet_and_puts_marks_back_in_their_place(tmp_path: Path) -> None:
    with ScriptedServer(answer_sheet) as server:
        run = fill(tmp_path / "run", server.base_url)
    assert run.asked == len(server.calls) == 4 + 2 * 3
    sheets = read_sheets(tmp_path / "run")
    assert [sheet.factor for sheet in sheets] == [None] * 4 + ["Anger-0"] * 3 + ["Fear-1"] * 3
    for sheet in sheets:
        rain = "rain" if sheet.factor == "Anger-0" else ""
        assert dict(sheet.marks) == {
            item: mark_of(word, rain) for item, word in enumerate(PANAS.texts, start=1)
        }
    assert [sheet.pair for sheet in sheets[:4]] == ["order-0", "order-1", "order-2", "order-3"]
    assert len({tuple(words_of(call)) for call in server.calls}) == 4
    body = server.calls[0].body
    assert body["temperature"] == 0
    assert body["response_format"]["json_schema"]["schema"] == administer.sheet_schema(PANAS)
    manifest = run.manifest
    assert manifest["counts"] == {"sheets": 10, "complete": 10, "incomplete": 0}
    assert manifest["missing"] == {} and manifest["variant"] == ""


def test_repeats_are_other_draws_at_a_temperature(tmp_path: Path) -> None:
    with ScriptedServer(answer_sheet) as server:
        run = fill(tmp_path / "run", server.base_url, inquiry={"repeats": 2}, temperature=0.7, seed=5)
    assert run.manifest["counts"]["sheets"] == 20
    assert {call.body["seed"] for call in server.calls} == {5, 6}
    assert {call.body["temperature"] for call in server.calls} == {0.7}


def test_a_server_without_schemas_is_asked_for_text(tmp_path: Path) -> None:
    def no_schema(call: Call) -> Answer:
        if "response_format" in call.body:
            return Answer(status=400, body={"error": {"message": "response_format is not supported"}})
        marks = [f"{word}: {mark_of(word, call.text)}/5" for word in words_of(call)]
        text = "\n".join(f"{number}. {mark}" for number, mark in enumerate(marks, start=1))
        return answer_chat(call, f"Sure! Here you go:\n{text}")

    with ScriptedServer(no_schema) as server:
        run = fill(tmp_path / "run", server.base_url, concurrency=1)
    assert run.manifest["counts"]["complete"] == 10
    assert run.manifest["left_out"] == ["schema"]
    assert len(server.calls) == 11, "it is refused once, and never sent again"
    assert read_sheets(tmp_path / "run")[-4].marks[4] == 5


def test_refusals_and_missing_marks_are_data(tmp_path: Path) -> None:
    def moody(call: Call) -> Answer:
        if "lift" in call.text:
            return answer_chat(call, "I'm sorry, but I can't answer that.")
        if "rain" in call.text:
            return answer_chat(call, json.dumps({str(n): 9 if n == 1 else 3 for n in range(1, 21)}))
        return answer_sheet(call)

    with ScriptedServer(moody) as server:
        run = fill(tmp_path / "run", server.base_url)
    assert run.manifest["missing"] == {"incomplete": 3, "refused": 3}
    assert run.manifest["counts"] == {"sheets": 10, "complete": 4, "incomplete": 3}
    sheets = read_sheets(tmp_path / "run")
    assert [len(sheet.marks) for sheet in sheets] == [20] * 4 + [19] * 3 + [0] * 3
    assert {sheet.missing for sheet in sheets[-3:]} == {"refused"}


def test_a_call_without_an_answer_is_a_sheet_without_marks(tmp_path: Path) -> None:
    def broken(call: Call) -> Answer:
        is_long = "rain" in call.text
        return Answer(status=400, body={"error": {"message": "too long"}}) if is_long else answer_sheet(call)

    with ScriptedServer(broken) as server:
        run = fill(tmp_path / "run", server.base_url)
    assert run.manifest["missing"] == {"no answer": 3}
    with ScriptedServer(lambda call: answer_chat(call, "No.")) as server:
        run = fill(tmp_path / "none", server.base_url)
    with pytest.raises(OperationalError, match=r"none of 10 sheets has a mark: no marks \(10\)"):
        administer.check_filled(run)


def test_the_money_is_kept_to_and_the_run_taken_up_again(tmp_path: Path) -> None:
    prices = {"input": 1000.0, "output": 1000.0}  # 0.205 USD a call
    with ScriptedServer(answer_sheet) as server:
        with pytest.raises(BudgetSpent):
            fill(tmp_path / "run", server.base_url, prices=prices, max_cost=3.0, concurrency=1)
        first = len(server.calls)
        assert 0 < first < 10
        run = fill(tmp_path / "run", server.base_url, prices=prices, max_cost=100.0, concurrency=1)
    assert run.asked == 10 - first
    assert run.manifest["counts"]["complete"] == 10


@pytest.mark.parametrize(
    ("choice", "missing"),
    [
        ({}, "no answer: the server sent no message"),
        ({"message": {"content": "", "refusal": "No."}}, "refused: by the server"),
        ({"message": {"content": "1: 3"}, "finish_reason": "length"}, "cut short: ran out of tokens"),
        ({"message": {"content": None}, "finish_reason": "content_filter"}, "refused: by the server"),
    ],
)
def test_bodies_of_every_kind_are_read(choice: Mapping[str, Any], missing: str) -> None:
    found = administer.read_filled({"choices": [choice]} if choice else {}, PANAS, list(range(1, 21)))
    assert found["missing"].startswith(missing)
