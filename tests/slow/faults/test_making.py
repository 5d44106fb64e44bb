"""Killed while a judge is trained or tuned: the same command makes the same judge."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults import SEEDS, Campaign, Case, Nursery, open_nursery, seeds, tally
from servers import Answer, Call, ScriptedServer, answer_chat

LOADED = ("judge.tuning.optimize", "dspy")


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with open_nursery(*LOADED) as running:
        yield running


@pytest.mark.campaign
def test_a_training_killed_at_any_step_makes_the_same_judge(
    nursery: Nursery, tmp_path: Path, rated_files: tuple[Path, Path], tiny_toml: Path
) -> None:
    case = Case(
        name="train",
        arguments=["train", *rated_files, "--recipe", tiny_toml, "--device", "cpu", "--out", "made"],
        results=["made"],
    )
    campaign = Campaign(case, nursery, tmp_path)
    for seed in range(max(1, SEEDS // 8)):
        campaign.kill(seed, times=1)
        campaign.fail(seed, "ENOSPC")


def learner(call: Call) -> Answer:
    """Says Okay until it is shown examples."""
    properties = call.body["response_format"]["json_schema"]["schema"]["properties"]
    if "label" not in properties:
        return answer_chat(call, json.dumps(dict.fromkeys(properties, "Look.")))
    truth = "Good" if "hug" in call.text else "Bad" if "whatever" in call.text else "Okay"
    label = truth if len(call.body["messages"]) > 2 else "Okay"
    return answer_chat(call, json.dumps({"reason": f"It reads {label}.", "label": label}))


def test_a_tuning_killed_at_any_call_leaves_nothing_and_starts_again(
    nursery: Nursery, tmp_path: Path, rated_files: tuple[Path, Path]
) -> None:
    """It keeps no journal: what is promised is a program that is whole or not there, never half of one."""
    with ScriptedServer(learner) as server:
        lines = ('kind = "prompted"', 'model = "m"', f'base_url = "{server.base_url}"', "concurrency = 2")
        (tmp_path / "judge.toml").write_text("\n".join((*lines, "retries = 0\n")))
        words = ["optimize", *rated_files, "--judge", tmp_path / "judge.toml", "--out", "tuned.json"]
        case = Case(
            name="optimize",
            arguments=[*words, "--max-calls", 160, "--demos", 1],
            results=["tuned.json"],
            read={"tuned.json": lambda path: str(json.loads(path.read_text())["rubric"])},
        )
        campaign = Campaign(case, nursery, tmp_path)
        for seed in seeds(1):
            folder = campaign.new_folder()
            ended = campaign.run(folder, {"kind": "kill", "at": seed % campaign.steps})
            assert ended.is_killed
            tally("optimize", "kill")
            assert not (folder / "tuned.json").exists() or seed % campaign.steps == campaign.steps - 1
            if not (folder / "tuned.json").exists():
                campaign.finish(folder, None, [ended.last], before=0, spare=0)
            assert [item.name for item in folder.iterdir()] == ["tuned.json"]
