"""The recorded answers of a language model: to the prompts that ship, and what they decide."""

import json
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from command_line import run, write_toml
from repository import ROOT
from servers import Answer, Call, ScriptedServer, answer_chat

from empathy_judge.data.records import LABELS, Exchange
from empathy_judge.data.rubric import read_rubric
from empathy_judge.data.tables import write_rows
from empathy_judge.judge.llm.judge_prompt import make_form
from empathy_judge.judge.llm.prompted import PromptedJudge
from empathy_judge.training.rated_sets import RECIPES, read_written_replies

FIGURES: dict[str, Any] = json.loads((ROOT / "docs/figures/recorded_judges.json").read_text(encoding="utf-8"))
RECORD: dict[str, Any] = json.loads((RECIPES / "recorded_answers.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("mode", RECORD["prompts"])
def test_the_prompts_that_ship_are_those_that_were_answered(mode: Any) -> None:
    for rubric, template in RECORD["prompts"][mode].items():
        letters = "ABCDEF" if rubric == "crowd" else "ABCD"
        assert list(make_form(mode, read_rubric(rubric), letters=letters).template) == template


def test_the_default_mode_is_the_one_that_surely_agrees_best() -> None:
    """By the lower end of the paired difference over the sets, of the modes that judge one model alone."""
    alone = {mode: means["all"]["low"] for mode, means in FIGURES["means"].items() if "all" in means}
    assert len(alone) == 3
    assert signature(PromptedJudge).parameters["mode"].default == max(alone, key=lambda mode: alone[mode])


def test_good_language_models_are_not_separated_on_the_first_day() -> None:
    pairs = [probability for each in FIGURES["first_day"].values() for probability in each]
    assert len(pairs) == 3 * 10
    assert sum(0.25 < probability < 0.75 for probability in pairs) >= 20
    assert all(0.12 < probability < 0.88 for probability in pairs), "not even probably better"


def test_cruel_replies_are_worse_than_kind_ones_on_the_first_day() -> None:
    answers = RECORD["answers"]["shares"]["own"]
    found: dict[str, list[Exchange]] = {"cruel": [], "excellent": []}
    for reply in read_written_replies():
        if reply.exchange.content_digest in answers:
            found[reply.exchange.model].append(reply.exchange)
    said = {each.response: answers[each.content_digest] for part in found.values() for each in part}

    def replay(call: Call) -> Answer:
        shown = max((text for text in said if text in call.text), key=len)
        return answer_chat(call, json.dumps(dict(zip(LABELS, said[shown], strict=True))))

    for name, part in found.items():
        write_rows(Path(f"{name}.jsonl"), part)
    with ScriptedServer(replay) as server:
        judge = write_toml("judge.toml", kind="prompted", mode="shares", model="m", base_url=server.base_url)
        done = run("compare", "excellent.jsonl", "cruel.jsonl", "--judge", judge, "--json", code=0)
        assert len(server.calls) == len(said) == 80
    (pair,) = (found := json.loads(done.stdout))["pairs"]
    assert (pair["one"], pair["verdict"], pair["probability"] > 0.975) == ("excellent", "better", True)
    assert [model["shares"]["Good"]["value"] for model in found["models"]] == [None, None], "no level"
