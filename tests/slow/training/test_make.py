"""From trained networks to files: nothing is trained twice, and ONNX predicts what torch predicted."""

import logging
import shutil
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

import empathy_judge.training.make as making
from empathy_judge.data.errors import UserError
from empathy_judge.data.rating_files.rated_inputs import RatedExchange
from empathy_judge.data.records import Exchange
from empathy_judge.judge.classifier.judge import ClassifierJudge
from empathy_judge.judge.classifier.preprocessing import normalize
from empathy_judge.judge.onnx_model import read_card
from empathy_judge.training.make import make_judge
from empathy_judge.training.model_card import DEFAULT_TEXT
from empathy_judge.training.network import TrainedNetworks, load_network
from empathy_judge.training.recipe import Recipe, lineage
from empathy_judge.training.training_data import TrainingData

TEXT = {"name": "mine", **DEFAULT_TEXT}


@pytest.fixture(scope="module")
def saved(made_judge: tuple[Path, Result], tiny_recipe: Recipe) -> TrainedNetworks:
    """The network in the made judge's folder."""
    network, tokenizer = load_network(tiny_recipe, made_judge[0] / "network-0.safetensors")
    return TrainedNetworks([network], tokenizer)


@pytest.fixture(scope="module")
def exchanges(examples: list[RatedExchange]) -> list[Exchange]:
    """Normalized as in scoring."""
    return [replace(rated.exchange, response=normalize(rated.exchange.response)) for rated in examples]


def predicted(folder: Path, exchanges: list[Exchange]) -> np.ndarray:
    judge = ClassifierJudge(weights=str(folder))
    return np.array([judge.predict(exchange) for exchange in exchanges])


def test_int8_stays_close_to_the_network(
    made_judge: tuple[Path, Result], saved: TrainedNetworks, exchanges: list[Exchange]
) -> None:
    folder, _ = made_judge
    change = predicted(folder, exchanges) - saved.predict(exchanges)
    stated = read_card(folder)["int8"]
    assert stated["replies"] == len(exchanges) == 120
    assert np.abs(change).max() == pytest.approx(stated["largest_probability"], abs=1e-3)
    assert np.abs(change @ [1, 2, 3]).mean() == pytest.approx(stated["mean_score"], abs=1e-3)
    assert stated["mean_score"] <= making.MAX_INT8_CHANGE
    assert np.abs(change.mean(axis=0)).max() < 1e-3, "the level is restored"


def test_a_judge_is_not_trained_again_nor_made_where_int8_costs_too_much(
    tmp_path: Path,
    made_judge: tuple[Path, Result],
    examples: list[RatedExchange],
    tiny_recipe: Recipe,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "judge"
    shutil.copytree(made_judge[0], folder)
    monkeypatch.setattr(making.fine_tune, "train_judge", None)
    data = TrainingData(ratings=examples)
    with warnings.catch_warnings(), caplog.at_level(logging.WARNING):
        warnings.simplefilter("error")
        card = make_judge(data, [tiny_recipe], folder, text=TEXT)
    assert card["caveat"].endswith("was not measured.") and read_card(folder) == card
    assert caplog.messages == [] and capfd.readouterr() == ("", ""), "no noise from the exporter"
    monkeypatch.setattr(making, "MAX_INT8_CHANGE", -1.0)
    with pytest.raises(UserError, match="this base cannot be quantized"):
        make_judge(data, [tiny_recipe], folder, text=TEXT)
    with pytest.raises(UserError, match="exported as one network"):
        make_judge(data, [replace(tiny_recipe, networks=["all", "all"])], tmp_path / "two", text=TEXT)
    assert read_card(folder) == card and not (tmp_path / "two").exists()


def test_trained_networks_are_reused_and_a_teacher_is_not_trained_again(
    tmp_path: Path,
    examples: list[RatedExchange],
    taught_recipe: Recipe,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    train, calls, exported = making.fine_tune.train_judge, [], []

    def counted(data: TrainingData, recipes: Any, **options: Any) -> TrainedNetworks:
        calls.append("first" if options["targets"] is None else "student")
        return train(data, recipes, **options)

    def export(trained: TrainedNetworks, *_: object) -> dict[str, Any]:
        exported.append(trained)
        return {"files": {}, "int8": {}}

    monkeypatch.setattr(making.fine_tune, "train_judge", counted)
    monkeypatch.setattr(making, "export", export)
    data = TrainingData(ratings=examples[:32])
    recipes = lineage(replace(taught_recipe, epochs=1))
    for _ in range(2):
        make_judge(data, recipes, tmp_path / "taught", text=TEXT)
    assert calls == ["first", "student"]
    (tmp_path / "taught" / "network-0.safetensors").unlink()
    make_judge(data, recipes, tmp_path / "taught", text=TEXT)
    assert calls == ["first", "student", "student"]
    (tmp_path / "taught" / "network-0.safetensors").unlink()
    shutil.rmtree(tmp_path / "taught" / "teacher-0")
    make_judge(data, recipes, tmp_path / "taught", text=TEXT)
    assert calls[3:] == ["student"], "the teachers' probabilities are enough"
    first, again, rebuilt, _ = (each.predict([examples[0].exchange]) for each in exported)
    assert np.array_equal(first, again) and np.array_equal(first, rebuilt)
