"""The large judge: changes to a base kept apart, merged once, and the same probabilities after as before."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from repository import ROOT

from data.errors import UserError
from data.records import Exchange
from judge.base import load_judge
from judge.classifier.examples import Example
from judge.classifier.make import NETWORK, make_judge
from judge.classifier.recipe import Recipe
from judge.classifier.training import train_judge

SHIPPED = ROOT / "judge" / "weights" / "classifier-large"
ABOUT = {"name": "tiny", "summary": "", "licence": "", "data": "", "limits": [], "caveat": "not measured"}


@pytest.fixture(scope="module")
def low_rank(tiny_recipe: Recipe, tiny_decoder: Path) -> Recipe:
    return replace(tiny_recipe, base=str(tiny_decoder), rank=2, epochs=2)


@pytest.fixture(scope="module")
def changes(tmp_path_factory: pytest.TempPathFactory, examples: list[Example], low_rank: Recipe) -> Path:
    folder = tmp_path_factory.mktemp("changes")
    make_judge(examples, low_rank, folder, about=ABOUT, evidence={})
    return folder


def write_toml(path: Path, kind: str, weights: Path, **options: str) -> str:
    lines = [
        f'kind = "{kind}"',
        f'weights = "{weights}"',
        *(f'{key} = "{value}"' for key, value in options.items()),
    ]
    path.write_text("\n".join(lines), encoding="utf-8")
    return str(path)


def test_merged_changes_judge_as_the_trained_network_does(
    tmp_path: Path,
    changes: Path,
    examples: list[Example],
    low_rank: Recipe,
    capsys: pytest.CaptureFixture[str],
) -> None:
    exchanges: list[Exchange] = [example.exchange for example in examples[:12]]
    judge = load_judge(
        write_toml(tmp_path / "l.toml", "classifier-large", changes, cache=str(tmp_path / "cache"))
    )
    found = [list((judge.judge(exchange).probabilities or {}).values()) for exchange in exchanges]
    exact = train_judge(examples, low_rank).predict(exchanges, batch_size=1)
    assert np.abs(np.array(found) - exact).max() < 2e-3  # the changes are kept in half precision
    assert capsys.readouterr().err.count("merging the large judge") == 1
    again = load_judge(
        write_toml(tmp_path / "l.toml", "classifier-large", changes, cache=str(tmp_path / "cache"))
    )
    again.judge(exchanges[0])
    assert capsys.readouterr().err == ""
    left = {path.name for path in (tmp_path / "cache").iterdir()}
    assert left == {"lock", f"classifier-large-{judge.weights[:12]}"}


def test_only_the_changes_are_kept(changes: Path, tiny_decoder: Path) -> None:
    from safetensors.torch import load_file

    names = set(load_file(changes / NETWORK.format(0)))
    assert any(name.endswith(".up") for name in names)
    assert not any("frozen" in name or "embed" in name for name in names)
    assert not (changes / "model.onnx").exists()


def test_one_kind_of_folder_is_not_taken_for_the_other(tmp_path: Path, changes: Path) -> None:
    with pytest.raises(UserError, match=r"no model.onnx on its card, so it is no classifier"):
        load_judge(write_toml(tmp_path / "c.toml", "classifier", changes))


def test_damaged_changes_are_refused(tmp_path: Path, changes: Path) -> None:
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    for path in changes.iterdir():
        (damaged / path.name).write_bytes(path.read_bytes())
    whole = (damaged / NETWORK.format(0)).read_bytes()
    (damaged / NETWORK.format(0)).write_bytes(whole[:-1])
    with pytest.raises(UserError, match="damaged or changed"):
        load_judge(write_toml(tmp_path / "d.toml", "classifier-large", damaged))


def test_the_shipped_changes_are_small_and_match_their_card() -> None:
    judge = load_judge("classifier-large")  # checks the hashes; merges nothing yet
    assert judge.name == "classifier-large"
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) <= 15_000_000
    assert json.loads((SHIPPED / "card.json").read_text())["recipe"]["base"] == "smollm2"
