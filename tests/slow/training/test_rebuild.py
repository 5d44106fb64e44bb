"""Shipped weights: `training/rebuild.sh` makes all of them, and `train --from-card` accepts every card."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import run
from repository import ROOT, dataset

from empathy_judge.data.records import Exchange
from empathy_judge.data.storage import digest_file
from empathy_judge.judge.base import WEIGHTS, load_judge
from empathy_judge.judge.onnx_model import read_card
from empathy_judge.training import make
from empathy_judge.training.export import ABOUT
from empathy_judge.training.model_card import read_recorded, write_card
from empathy_judge.training.rated_sets import RECIPES
from empathy_judge.training.recipe import Recipe, lineage, read_recipe
from empathy_judge.training.training_data import TrainingData

CARDS = {"classifier": "default", "classifier-large": "teacher-large"}  # with their recipes


def test_every_shipped_card_has_a_command_that_rebuilds_it() -> None:
    assert {path.parent.name for path in WEIGHTS.glob("*/card.json")} == {*CARDS, "minilm"}
    assert {**ABOUT, "files": read_card(WEIGHTS / "minilm")["files"]} == read_card(WEIGHTS / "minilm")


@pytest.mark.parametrize("name", CARDS)
def test_a_shipped_card_records_its_recipe_and_the_data_of_this_repository(name: str) -> None:
    card, recipes = read_recorded(WEIGHTS / name)
    assert recipes == lineage(read_recipe(CARDS[name]))
    own = TrainingData().digests(recipes)
    assert own and own.items() <= card["provenance"]["digests"].items()
    if len(recipes) > 1:
        assert card["provenance"]["targets"] == digest_file(RECIPES / make.TARGETS)
    assert (WEIGHTS / name / "README.md").read_text() == write_card(card)
    assert card["files"] == {path: digest_file(WEIGHTS / name / path) for path in card["files"]}


@pytest.mark.parametrize("name", CARDS)
def test_train_accepts_a_shipped_card_with_the_published_data(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything but the training itself, and the large base where it is not at hand."""
    monkeypatch.chdir(tmp_path)
    bases = read_card(WEIGHTS / name)["provenance"]["bases"]
    begun: list[dict[str, Any]] = []

    def make_judge(*arguments: object, **options: Any) -> dict[str, Any]:
        begun.append(options)
        raise KeyboardInterrupt

    monkeypatch.setattr(make, "make_judge", make_judge)
    if name == "classifier-large":
        monkeypatch.setattr(make, "digest_base", bases.__getitem__)
        monkeypatch.setattr("empathy_judge.training.recipe.find_base", Path)
    study = [dataset("empathy-study"), dataset("empathy-study-sixth")]
    training = ["train", "study/exchanges.jsonl", "study/ratings.jsonl", "--out", "out"]
    for words in (
        ["import", "empathy-study", *study, "--out", "study"],
        [*training, "--sets", study[0].parent, "--from-card", WEIGHTS / name, "--device", "cpu"],
    ):
        done = run(*words)
    assert len(begun) == 1, done.output
    assert begun[0]["is_averaged"] == (name == "classifier-large") and len(begun[0]["rows"]) > 30_000


def test_the_script_makes_all_weights_on_a_toy_base(
    tmp_path: Path,
    rated_files: tuple[Path, Path],
    sets_folder: Path,
    tiny_recipe: Recipe,
    tiny_decoder: Path,
    write_recipe: Callable[[Recipe], Path],
) -> None:
    (tmp_path / "study").mkdir()
    for path in rated_files:
        (tmp_path / "study" / path.name).write_bytes(path.read_bytes())
    small = replace(tiny_recipe, base=str(tiny_decoder), epochs=1)
    large = write_recipe(replace(small, rank=2, sets={"epitome": 0.5, "ieval": 0.5}))
    recipe = write_recipe(replace(small, teachers=[str(large)], texts=20, sharpness=0.0))
    places = {"RECIPE": recipe, "LARGE_RECIPE": large, "SETS": sets_folder, "OUT": tmp_path}
    environment = os.environ | {name: str(path) for name, path in places.items()} | {"AVERAGE": ""}
    environment |= {"PYTHON": sys.executable, "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    script = ROOT / "training" / "rebuild.sh"
    done = subprocess.run(script, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name in CARDS:
        card = read_card(tmp_path / name)
        assert card["name"] == name and "model-apart" in card["evidence"]
        assert (tmp_path / name / "calibration.json").exists()
        judge = load_judge(str(tmp_path / f"{name}.toml"))
        assert judge.judge(Exchange(id="1", prompt="rain", response="a hug for you")).score is not None
    first, second = (tmp_path / name for name in ("classifier/teacher-0", "classifier-large"))
    assert digest_file(first / "network-0.safetensors") == digest_file(second / "network-0.safetensors")
    files = json.loads((tmp_path / "minilm" / "card.json").read_text())["files"]
    assert files == read_card(WEIGHTS / "minilm")["files"]
    # The large judge is built again by the same command as the others.
    again = ["train", *rated_files, "--sets", sets_folder, "--from-card", tmp_path / "classifier-large"]
    rebuilt = run(*again, "--out", tmp_path / "again")
    assert "identical" in rebuilt.stdout, rebuilt.output
    assert read_card(tmp_path / "again") == read_card(tmp_path / "classifier-large")
