"""From trained networks to files: nothing is trained twice, and ONNX says what torch said."""

import json
import logging
import shutil
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import Result

import training.fine_tune
import training.make
from data.errors import UserError
from data.rated_exchanges import RatedExchange
from data.records import Exchange
from judge.classifier.judge import CARD, ClassifierJudge
from judge.classifier.preprocessing import normalise, write_context
from training.examples import TrainingData
from training.export import SingleExchangeModel
from training.fine_tune import TrainedNetworks, pad_tokens
from training.make import describe, hash_files, make_judge
from training.network import load_base, load_network, make_network
from training.recipe import Recipe

ABOUT = {"name": "mine", "caveat": "None was measured."}


@pytest.fixture(scope="module")
def kept(made_judge: tuple[Path, Result], tiny_recipe: Recipe) -> TrainedNetworks:
    """The network that lies in the made judge's folder."""
    network, tokeniser = load_network(tiny_recipe, made_judge[0] / "network-0.safetensors")
    return TrainedNetworks([network], tokeniser)


@pytest.fixture(scope="module")
def exchanges(examples: list[RatedExchange]) -> list[Exchange]:
    """As they are read when scoring."""
    return [replace(example.exchange, response=normalise(example.exchange.response)) for example in examples]


def said_by(folder: Path, exchanges: list[Exchange]) -> np.ndarray:
    found = ClassifierJudge(weights=str(folder))
    return np.array([found.predict(exchange) for exchange in exchanges])


def test_int8_stays_close_to_the_network(
    made_judge: tuple[Path, Result], kept: TrainedNetworks, exchanges: list[Exchange]
) -> None:
    folder, _ = made_judge
    change = said_by(folder, exchanges) - kept.predict(exchanges)
    stated = json.loads((folder / CARD).read_text())["int8"]
    assert stated["replies"] == len(exchanges) == 120
    assert np.abs(change).max() == pytest.approx(stated["largest_probability"], abs=1e-3)
    assert np.abs(change @ [1, 2, 3]).mean() == pytest.approx(stated["mean_score"], abs=1e-3)
    assert stated["mean_score"] <= training.make.LARGEST_CHANGE
    assert np.abs(change.mean(axis=0)).max() < 1e-3, "the level is given back"


def test_a_judge_is_taken_up_and_where_int8_costs_too_much_kept_in_full_precision(
    tmp_path: Path,
    made_judge: tuple[Path, Result],
    kept: TrainedNetworks,
    examples: list[RatedExchange],
    exchanges: list[Exchange],
    tiny_recipe: Recipe,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "judge"
    shutil.copytree(made_judge[0], folder)
    monkeypatch.setattr(training.make, "LARGEST_CHANGE", -1.0)

    def train_judge(*_: object, **__: object) -> None:
        raise AssertionError("what is trained is not trained again")

    monkeypatch.setattr(training.fine_tune, "train_judge", train_judge)
    with warnings.catch_warnings(), caplog.at_level(logging.WARNING):
        warnings.simplefilter("error")
        card = make_judge(TrainingData(examples=examples), tiny_recipe, folder, about=ABOUT, evidence={})
    assert card["int8"] == {}
    assert said_by(folder, exchanges) == pytest.approx(kept.predict(exchanges), abs=1e-4)
    assert json.loads((folder / CARD).read_text()) == card
    assert caplog.messages == [], "nobody is told of the exporter's insides"
    assert capfd.readouterr() == ("", "")


def test_another_recipe_or_other_ratings_are_refused_before_any_training(
    made_judge: tuple[Path, Result], examples: list[RatedExchange], tiny_recipe: Recipe
) -> None:
    folder, _ = made_judge
    for data, recipe in ((examples, replace(tiny_recipe, seed=5)), (examples[1:], tiny_recipe)):
        with pytest.raises(UserError, match="holds a judge of another recipe or other ratings"):
            make_judge(TrainingData(examples=data), recipe, folder, about=ABOUT, evidence={})
    assert hash_files(folder) == ClassifierJudge(weights=str(folder)).card["files"]


def test_what_is_exported_of_two_networks_is_their_mean(
    exchanges: list[Exchange], tiny_recipe: Recipe
) -> None:
    networks = [make_network(tiny_recipe)[0].eval() for _ in range(2)]
    trained = TrainedNetworks(networks, load_base(tiny_recipe.base)[1])
    exchange = exchanges[0]
    tokens = trained.tokeniser.encode(write_context(exchange), exchange.response)
    ids, _, segments = pad_tokens([tokens], torch.device("cpu"))
    with torch.no_grad():
        said = SingleExchangeModel(trained.networks)(ids, segments)
    assert said.numpy() == pytest.approx(trained.predict([exchange]), abs=1e-6)


def test_two_networks_are_taken_up(
    tmp_path: Path,
    examples: list[RatedExchange],
    exchanges: list[Exchange],
    corpus: TrainingData,
    tiny_recipe: Recipe,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recipe = replace(tiny_recipe, epochs=1, networks=["all", "all"])
    seen: list[TrainedNetworks] = []

    def export(trained: TrainedNetworks, *_: object) -> dict[str, Any]:
        seen.append(trained)
        return {"files": {}}

    monkeypatch.setattr(training.make, "export", export)
    for _ in range(2):
        make_judge(TrainingData(examples=examples[:32]), recipe, tmp_path, about=ABOUT, evidence={})
    first, again = (trained.predict(exchanges) for trained in seen)
    assert np.array_equal(first, again)
    # Without the study's labels one of the two cannot be trained, and is not looked for.
    recipe = replace(recipe, networks=["sets", "labels"], sets={"epitome": 0.5})
    make_judge(replace(corpus, examples=[]), recipe, tmp_path / "apart", about=ABOUT, evidence={})
    assert len(seen[-1].networks) == 1


def test_the_training_data_is_described(examples: list[RatedExchange]) -> None:
    found = describe(TrainingData(examples=examples))
    assert (found["ratings"], found["raters"], found["models"]) == (120, 30, ["ada", "bea/2", "cyd"])
    labels = [example.target.index(1.0) for example in examples]
    assert found["shares"] == pytest.approx(
        {name: labels.count(n) / 120 for n, name in enumerate(("Bad", "Okay", "Good"))}, abs=1e-4
    )


def test_a_teacher_that_is_there_is_not_trained_again(
    tmp_path: Path, examples: list[RatedExchange], taught_recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever ends a training between teacher and pupil goes on with the pupil."""
    train, calls = training.fine_tune.train_judge, []

    def counted(corpus: TrainingData, recipe: Recipe, **options: Any) -> list[TrainedNetworks]:
        calls.append("pupil" if options["teacher"] else "teacher")
        return train(corpus, recipe, **options)

    monkeypatch.setattr(training.fine_tune, "train_judge", counted)
    monkeypatch.setattr(training.make, "export", lambda *_: {"files": {}})
    recipe = replace(taught_recipe, epochs=1)
    for _ in range(2):
        make_judge(TrainingData(examples=examples[:32]), recipe, tmp_path, about=ABOUT, evidence={})
    assert calls == ["teacher", "pupil"]
    (tmp_path / "plan.json").unlink()
    make_judge(TrainingData(examples=examples[:32]), recipe, tmp_path, about=ABOUT, evidence={})
    assert calls == ["teacher", "pupil", "pupil"]
