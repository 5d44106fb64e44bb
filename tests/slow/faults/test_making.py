"""Killed while a judge is trained or tuned: the same command makes the same judge."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from faults import Campaign, Case, Nursery
from servers import Answer, Call, ScriptedServer, answer_chat

from empathy_judge.data.records import LABELS
from empathy_judge.judge.llm.rated_examples import INTRODUCTION
from empathy_judge.training.recipe import Recipe

LOADED = (
    "empathy_judge.judge.llm.optimize_prompt empathy_judge.training.make empathy_judge.training.export "
    "empathy_judge.training.fine_tune dspy transformers.models.llama.modeling_llama onnxscript onnxruntime "
    "sklearn.linear_model pandas"
)


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery(*LOADED.split()) as running:
        yield running


@pytest.mark.campaign
@pytest.mark.parametrize("name", ["train", "train --cross-validate", "train, encoder"])
def test_a_training_killed_at_any_step_makes_the_same_judge(
    name: str,
    nursery: Nursery,
    tmp_path: Path,
    rated_files: tuple[Path, Path],
    tiny_recipe: Recipe,
    tiny_decoder: Path,
    write_recipe: Callable[[Recipe], Path],
) -> None:
    """Also a trial, whose splits are kept one by one; an encoder's export takes ten seconds by itself."""
    words, _, is_encoder = name.partition(", ")
    decoder = replace(tiny_recipe, base=str(tiny_decoder), epochs=2)
    recipe = write_recipe(tiny_recipe if is_encoder else decoder)
    command, *protocol = words.split()
    arguments = [command, *rated_files, "--recipe", recipe, "--device", "cpu", *protocol, "--out", "made"]
    campaign = Campaign(Case(name=name, arguments=arguments, results=["made"]), nursery, tmp_path)
    if is_encoder:
        campaign.kill(0, times=5)
    else:
        campaign.kill_often(2, times=5)
    campaign.fail(0, "ENOSPC")


def learner(call: Call) -> Answer:
    """Answers that most say Okay until it is shown examples."""
    properties = call.body["response_format"]["json_schema"]["schema"]["properties"]
    if "Good" not in properties:
        return answer_chat(call, json.dumps(dict.fromkeys(properties, "Look.")))
    truth = "Good" if "hug" in call.text else "Bad" if "whatever" in call.text else "Okay"
    label = truth if INTRODUCTION in call.body["messages"][0]["content"] else "Okay"
    counts = {name: 98 if name == label else 1 for name in LABELS}
    return answer_chat(call, json.dumps(dict.fromkeys(properties, "Okay") | counts))


def test_a_tuning_killed_at_any_time_leaves_nothing_and_starts_again(
    nursery: Nursery, tmp_path: Path, rated_files: tuple[Path, Path]
) -> None:
    """Where the program is there, it is whole, and the same command refuses to write over it (2)."""
    with ScriptedServer(learner) as server:
        lines = ('kind = "prompted"', 'model = "m"', f'base_url = "{server.base_url}"', "concurrency = 2")
        (tmp_path / "judge.toml").write_text("\n".join((*lines, "retries = 0\n")))
        words = ["optimize", *rated_files, "--judge", tmp_path / "judge.toml", "--out", "tuned.json"]
        case = Case(name="optimize", arguments=[*words, "--max-calls", 300], results=["."], codes=(0, 2))
        campaign = Campaign(case, nursery, tmp_path)
        assert list(campaign.whole) == ["tuned.json"]
        campaign.kill_often(4)
