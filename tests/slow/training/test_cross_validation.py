"""Trials: nothing held out reaches a training, and an interrupted one is resumed."""

import json
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_sets import COLD, WARM, make_sharing_corpus, words_of
from repository import dataset

import empathy_judge.training.fine_tune as fine_tuning
from empathy_judge.data.errors import UserError
from empathy_judge.data.importers import import_source
from empathy_judge.data.rating_files.rated_inputs import RatedExchange, join_ratings
from empathy_judge.data.records import LABELS, Exchange
from empathy_judge.training import cross_validation as cv
from empathy_judge.training.examples import TrainingExample
from empathy_judge.training.network import TrainedNetworks
from empathy_judge.training.rated_sets import RATED_SETS, drop_shared, read_rated_set
from empathy_judge.training.recipe import Recipe, lineage
from empathy_judge.training.training_data import TrainingData

PARTS = ["part-0", "part-1", "part-2"]


class Killed(BaseException):
    """Ends a trial in the middle."""


def run(data: TrainingData, recipe: Recipe, folder: Path, *, kill_at: str = "") -> Any:
    """Return a trial's rows, and the splits that were trained for them."""
    begun: list[str] = []

    def on_split(name: str, number: int, total: int) -> None:
        if name == kill_at:
            raise Killed
        assert (number, total) == (PARTS.index(name), 3)
        begun.append(name)

    cv.cross_validate(data, lineage(recipe), folder, on_split=on_split)
    return list(cv.read_rows(folder)), begun


class WordCounter(TrainedNetworks):
    """Replaces trained networks: knows the warm and the cold word, and how long a reply is."""

    def __init__(self) -> None:
        super().__init__([], None)  # type: ignore[arg-type]

    def predict(self, exchanges: Sequence[Exchange], *, batch_size: int = 512) -> np.ndarray:
        good = np.array([0.3 + 0.2 * (WARM in e.response) - 0.2 * (COLD in e.response) for e in exchanges])
        more = np.array([min(0.05, len(e.response) / 1e4) for e in exchanges])
        context = np.array([0.01 * bool(e.situation) for e in exchanges])
        return np.stack([0.6 - good - context, 0.4 - more, good + more + context], axis=1)


Begun = list[tuple[Recipe, list[TrainingExample]]]


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Begun:
    """The recipe and the examples of every training that was begun; nothing is trained."""
    trainings: Begun = []

    def fine_tune(make_examples: Any, recipe: Recipe, **_: object) -> TrainedNetworks:
        chance = random.Random(0)
        epochs = [make_examples(name, chance) for name in recipe.networks for _ in range(2)]
        trainings.append((recipe, [example for examples in epochs for example in examples]))
        return WordCounter()

    monkeypatch.setattr(fine_tuning, "fine_tune", fine_tune)
    return trainings


def test_no_held_out_text_reaches_teacher_or_student(
    tmp_path: Path, taught_recipe: Recipe, begun: Begun
) -> None:
    """Every word of the made texts shows its source, so that a shortened or joined reply would reveal it."""
    data = make_sharing_corpus()
    splits = list(cv.split_parts(data))
    cv.cross_validate(data, lineage(taught_recipe), tmp_path)
    assert len(begun) == 2 * len(splits)
    for number, split in enumerate(splits):
        test = [rated.exchange for rated in split.raters]
        test += [exchange for item in split.items for exchange in item.exchanges]
        models = {rated.exchange.response for rated in split.models}
        for recipe, examples in begun[2 * number : 2 * number + 2]:
            shown = [exchange for example in examples for exchange in example.exchanges]
            assert {word.strip(".") for word in words_of(shown) & words_of(test)} <= {"Hi", "Hello"}
            assert models.isdisjoint(exchange.response for exchange in shown)
            least = 100 if recipe.teachers else 2 * len(split.train.ratings) - 1
            assert len(examples) > least


def test_no_text_of_a_real_set_is_in_the_training_without_it() -> None:
    folder = dataset("empathy-study")
    study = import_source("empathy-study", folder)
    public = [name for name, facts in RATED_SETS.items() if facts.source]
    items = [item for name in public for item in read_rated_set(name, folder.parent)]
    data = TrainingData(ratings=join_ratings(study.exchanges, study.ratings), items=items)

    def texts_of(exchanges: list[Exchange]) -> set[str]:
        texts = {text for e in exchanges for text in (e.prompt, e.response, e.situation or "")}
        texts |= {turn.text for e in exchanges for turn in e.dialogue}
        plain = {" ".join(re.findall(r"\w+", text.casefold())) for text in texts}
        return {text for text in plain if len(text.split()) >= 8}

    names = []
    for split in cv.split_parts(data):
        test = [exchange for item in split.items for exchange in item.exchanges]
        train = split.train.exchanges()
        names += dict.fromkeys(item.set for item in split.items)
        assert texts_of(train).isdisjoint(texts_of(test)), split.name
        assert len(drop_shared(train, test)) == len(train), "nor two short turns in a row"
        assert len(train) > 0.4 * (len(data.exchanges()) - len(test)), "and most of the others is left"
    assert sorted(names) == sorted(public)


def test_an_interrupted_trial_is_resumed_and_every_rating_has_all_predictions(
    tmp_path: Path, corpus: TrainingData, examples: list[RatedExchange], tiny_recipe: Recipe, begun: Begun
) -> None:
    rows, trained = run(corpus, tiny_recipe, tmp_path / "whole")
    assert trained == PARTS
    with pytest.raises(Killed):
        run(corpus, tiny_recipe, tmp_path / "broken", kill_at="part-1")
    assert run(corpus, tiny_recipe, tmp_path / "broken") == (rows, ["part-1", "part-2"])
    assert run(corpus, tiny_recipe, tmp_path / "broken") == (rows, [])
    rating = {rated.exchange.id: LABELS[rated.target.index(1.0)] for rated in examples}
    by_model = [row for row in rows if row["protocol"] == cv.MODEL_APART]
    assert {row["id"]: row["rating"] for row in by_model} == rating and len(by_model) == len(rating)
    by_rater = [row for row in rows if row["protocol"] == cv.RATERS_APART]
    assert len({row["batch"] for row in by_rater}) == 6 and len(by_rater) == 6 * 2 * 4
    for row in (*by_model, *by_rater):
        assert list(row["predictions"]) == [cv.JUDGE, *cv.BASELINES]
        assert all(sum(parts) == pytest.approx(1, abs=2e-5) for parts in row["predictions"].values())
    assert sum(row["protocol"] == cv.RELEVANCE for row in rows) == len(by_rater)


def test_a_rated_conversation_gets_the_mean_over_its_replies(
    tmp_path: Path, corpus: TrainingData, tiny_recipe: Recipe, begun: Begun
) -> None:
    cv.cross_validate(corpus, [replace(tiny_recipe, sets={"ieval": 1.0})], tmp_path)
    rows = [row for row in cv.read_rows(tmp_path) if row["protocol"] == cv.SETS_APART]
    by_id = {row["id"]: row for row in rows if row["set"] == "ieval"}
    items = [item for item in corpus.items if item.set == "ieval"]
    assert len(by_id) == len(items) == 48
    for item in items:
        row = by_id[item.exchanges[-1].id]
        expected = WordCounter().predict(item.exchanges).mean(axis=0)
        assert row["probabilities"] == pytest.approx(expected, abs=1e-6)
        assert (row["words"], len(item.exchanges)) == (5.0, 2)
        assert (row["rating"], row["system"], row["cluster"]) == (item.rating, item.system, item.cluster)


def test_a_folder_contains_one_trial_only(tmp_path: Path, corpus: TrainingData, tiny_recipe: Recipe) -> None:
    with pytest.raises(Killed):
        run(corpus, tiny_recipe, tmp_path, kill_at="part-0")
    others = {
        "recipe": (corpus, replace(tiny_recipe, seed=9)),
        "digests": (replace(corpus, ratings=corpus.ratings[1:]), tiny_recipe),
    }
    for key, (data, recipe) in others.items():
        with pytest.raises(UserError, match=key):
            run(data, recipe, tmp_path)
    for content in (json.dumps({"judge": "length"}), "{"):
        (tmp_path / cv.PLAN).write_text(content)
        with pytest.raises(UserError, match=str(tmp_path)):
            run(corpus, tiny_recipe, tmp_path)
