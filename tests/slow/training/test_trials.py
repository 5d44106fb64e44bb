"""Trials: nothing held out reaches a training, a broken one goes on, and a teacher is tried as well."""

import json
import random
import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_sets import COLD, WARM, make_sharing_corpus, words_of
from repository import SHARED

import training.fine_tune
from data.errors import UserError
from data.files import locked
from data.importers import import_source
from data.rated_exchanges import RatedExchange, join_ratings
from data.records import LABELS, Exchange
from training.examples import TrainingData, TrainingExample
from training.fine_tune import TrainedNetworks
from training.make import Materials, try_out
from training.rated_sets import RATED_SETS, drop_shared, read_rated_set
from training.recipe import Recipe
from training.trials import (
    BARE,
    PROTOCOLS,
    RIVALS,
    SETS_APART,
    digest_examples,
    read_rows,
    run_trial,
    split_sets_apart,
    trial_folder,
)

MODELS = ["ada", "bea/2", "cyd"]


@pytest.fixture
def brief(tiny_recipe: Recipe) -> Recipe:
    return replace(tiny_recipe, epochs=1)


class Killed(BaseException):
    """Ends a trial where it stands."""


def run(corpus: TrainingData, recipe: Recipe, folder: Path, *, kill_at: str = "") -> Any:
    """A trial's rows, and the splits that were trained for them."""
    begun: list[str] = []

    def on_split(name: str, number: int, total: int) -> None:
        if name == kill_at:
            raise Killed
        assert (number, total) == (MODELS.index(name), 3)
        begun.append(name)

    run_trial(corpus, recipe, ["model-apart"], folder, on_split=on_split)
    return list(read_rows(folder)), begun


class Reader(TrainedNetworks):
    """Stands where trained networks do: knows the warm and the cold word, and how long a reply is."""

    def __init__(self) -> None:
        super().__init__([], None)  # type: ignore[arg-type]

    def predict_each(self, exchanges: Sequence[Exchange], *, batch_size: int = 512) -> np.ndarray:
        good = np.array([0.3 + 0.2 * (WARM in e.response) - 0.2 * (COLD in e.response) for e in exchanges])
        more = np.array([min(0.05, len(e.response) / 1e4) for e in exchanges])
        return np.stack([0.6 - good, 0.4 - more, good + more], axis=1)[np.newaxis]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Recipe, list[TrainingExample]]]:
    """Whose training was begun with which lessons; nothing is trained."""
    given: list[tuple[Recipe, list[TrainingExample]]] = []

    def fine_tune(make_examples: Any, recipe: Recipe, **_: object) -> TrainedNetworks:
        chance = random.Random(0)
        epochs = [make_examples(name, chance) for name in recipe.networks for _ in range(2)]
        given.append((recipe, [lesson for lessons in epochs for lesson in lessons]))
        return Reader()

    monkeypatch.setattr(training.fine_tune, "fine_tune", fine_tune)
    return given


TOGETHER = [SETS_APART, "model-apart"]


@pytest.mark.parametrize("protocols", [[SETS_APART], *([name] for name in PROTOCOLS), TOGETHER])
def test_no_text_that_is_held_out_reaches_teacher_or_pupil(
    tmp_path: Path,
    taught_recipe: Recipe,
    taken: list[tuple[Recipe, list[TrainingExample]]],
    protocols: list[str],
) -> None:
    """Every word of the made texts tells whose it is, so that a piece or a mixture would give it away."""
    corpus = make_sharing_corpus()
    parts: list[list[list[Exchange]]] = [
        [[e for item in split.test for e in item.exchanges] for split in split_sets_apart(corpus)]
        if protocol == SETS_APART
        else [[e.exchange for e in split.test] for split in PROTOCOLS[protocol](corpus.examples)]
        for protocol in protocols
    ]
    held_out = [[*chain(*several)] for several in zip_longest(*parts, fillvalue=[])]
    run_trial(corpus, taught_recipe, protocols, tmp_path)
    for protocol, splits in zip(protocols, parts, strict=True):
        rows = list(read_rows(trial_folder(tmp_path, protocol, protocols)))
        assert len(rows) >= len(splits) and all(("set" in row) == (protocol == SETS_APART) for row in rows)
    assert len(taken) == 2 * len(held_out)
    for number, test in enumerate(held_out):
        for recipe, lessons in taken[2 * number : 2 * number + 2]:
            met = words_of(exchange for lesson in lessons for exchange in lesson.exchanges)
            assert {word.strip(".") for word in met & words_of(test)} <= {"Hi", "Hello"}
            assert len(lessons) > 100 if recipe.teacher else len(lessons) > 20


@pytest.mark.skipif(not (SHARED / "epitome").exists(), reason="public datasets not at hand: set EMPATHY_DATA")
def test_no_text_of_a_real_set_stands_in_the_training_without_it() -> None:
    study = import_source("empathy-study", SHARED / "empathy-study")
    items = [item for name in RATED_SETS for item in read_rated_set(name, SHARED)]
    corpus = TrainingData(examples=join_ratings(study.exchanges, study.ratings), items=items)

    def texts_of(exchanges: list[Exchange]) -> set[str]:
        found = {text for e in exchanges for text in (e.prompt, e.response, e.situation or "")}
        found |= {turn.text for e in exchanges for turn in e.dialogue}
        plain = {" ".join(re.findall(r"\w+", text.casefold())) for text in found}
        return {text for text in plain if len(text.split()) >= 8}

    names = []
    for split in split_sets_apart(corpus):
        test = [exchange for item in split.test for exchange in item.exchanges]
        train = split.train.exchanges()
        names.append(split.name)
        assert texts_of(train).isdisjoint(texts_of(test)), split.name
        assert len(drop_shared(train, test)) == len(train), "nor two short turns in a row"
        assert len(train) > 0.5 * (len(corpus.exchanges()) - len(test)), "and most of the others is left"
    assert names == [*dict.fromkeys(about.source for about in RATED_SETS.values()), "study"]


def test_a_killed_trial_goes_on_where_it_stopped(tmp_path: Path, corpus: TrainingData, brief: Recipe) -> None:
    whole, begun = run(corpus, brief, tmp_path / "whole")
    assert begun == MODELS
    with pytest.raises(Killed):
        run(corpus, brief, tmp_path / "broken", kill_at="bea/2")
    again, begun = run(corpus, brief, tmp_path / "broken")
    assert begun == ["bea/2", "cyd"], "what is there is not trained again"
    assert again == whole
    assert run(corpus, brief, tmp_path / "broken") == (whole, [])


@pytest.mark.parametrize("is_done", [True, False])
def test_a_split_that_another_process_is_at_comes_last_and_only_if_it_was_left_undone(
    tmp_path: Path, corpus: TrainingData, brief: Recipe, taken: list[Any], is_done: bool
) -> None:
    whole, _ = run(corpus, brief, tmp_path / "whole")
    folder, begun = tmp_path / "shared", []
    with ExitStack() as other:
        other.enter_context(locked(folder / "locks" / "ada.jsonl"))

        def on_split(name: str, number: int, total: int) -> None:
            begun.append(name)
            if name == "cyd":
                if is_done:
                    (folder / "ada.jsonl").write_bytes((tmp_path / "whole" / "ada.jsonl").read_bytes())
                other.close()

        run_trial(corpus, brief, ["model-apart"], folder, on_split=on_split)
        rows = list(read_rows(folder))
    assert begun == (["bea/2", "cyd"] if is_done else ["bea/2", "cyd", "ada"])
    assert rows == whole


def test_a_teachers_trial_comes_about_beside_and_both_are_taken_up_split_by_split(
    tmp_path: Path,
    corpus: TrainingData,
    taught_recipe: Recipe,
    taken: list[tuple[Recipe, list[TrainingExample]]],
) -> None:
    materials = Materials(corpus=corpus, recipe=taught_recipe, device="cpu")
    begun: list[str] = []

    def try_again() -> Any:
        begun.clear()
        (result,) = try_out(materials, [SETS_APART], tmp_path, on_split=lambda name, *_: begun.append(name))
        return result

    first = try_again()
    assert begun == ["epitome", "ieval", "study"]
    assert [recipe == taught_recipe for recipe, _ in taken] == [False, True] * 3
    assert [row["set"] for row in first["sets"]] == ["epitome", "ieval", "study"]
    beside = tmp_path / "teacher"
    plans = [json.loads((folder / "plan.json").read_text()) for folder in (tmp_path, beside)]
    assert plans[0]["recipe"]["teacher"] == taught_recipe.teacher
    assert plans[0]["teachers"] == [plans[1]["recipe"]]
    assert plans[1]["recipe"]["sets"] == {"epitome": 0.5, "ieval": 0.5}
    (beside / "ieval.jsonl").unlink()
    (beside / "evaluation.json").unlink()
    assert try_again() == first
    assert begun == ["ieval"], "trained again for what its teacher said, and nothing else"
    tried = json.loads((beside / "evaluation.json").read_text())
    assert sorted(row["set"] for row in tried["sets"]) == ["epitome", "ieval", "study"]
    assert try_again() == first and not begun


def test_a_rated_conversation_gets_the_mean_over_its_replies(
    tmp_path: Path, corpus: TrainingData, brief: Recipe, taken: list[Any]
) -> None:
    run_trial(corpus, replace(brief, sets={"ieval": 1.0}), [SETS_APART], tmp_path)
    rows = list(read_rows(tmp_path))
    by_id = {row["id"]: row for row in rows if row["set"] == "ieval"}
    items = [item for item in corpus.items if item.set == "ieval"]
    assert len(by_id) == len(items) == 48
    for item in items:
        row = by_id[item.exchanges[-1].id]
        assert len(item.exchanges) == 2
        assert row["probabilities"] == pytest.approx(Reader().predict(item.exchanges).mean(axis=0), abs=1e-6)
        assert row["words"] == 5.0
        assert (row["rating"], row["system"], row["cluster"]) == (item.rating, item.system, item.cluster)
    study = [row for row in rows if row["set"] == "study"]
    assert len(study) == 120 and {row["rating"] for row in study} == {1.0, 2.0, 3.0}


def test_every_rating_has_a_row_with_a_word_from_everyone(
    tmp_path: Path, corpus: TrainingData, examples: list[RatedExchange], brief: Recipe
) -> None:
    rows, _ = run(corpus, brief, tmp_path)
    assert sorted(row["id"] for row in rows) == sorted(example.exchange.id for example in examples)
    rating = {example.exchange.id: LABELS[example.target.index(1.0)] for example in examples}
    for row in rows:
        assert row["rating"] == rating[row["id"]]
        assert row["split"] == row["model"]
        assert list(row["predictions"]) == ["judge", BARE, *RIVALS]
        assert all(sum(said) == pytest.approx(1, abs=1e-5) for said in row["predictions"].values())
    assert all(row["predictions"]["judge"] != row["predictions"][BARE] for row in rows)


def test_a_folder_holds_one_trial_only(tmp_path: Path, corpus: TrainingData, brief: Recipe) -> None:
    folder = tmp_path / "trial"
    with pytest.raises(Killed):
        run(corpus, brief, folder, kill_at="ada")
    others = {
        "recipe": (corpus, replace(brief, seed=9)),
        "data": (replace(corpus, examples=corpus.examples[1:]), brief),
        "sets": (replace(corpus, items=corpus.items[1:]), brief),
        "texts": (replace(corpus, texts=[corpus.examples[0].exchange]), brief),
    }
    for what, (data, recipe) in others.items():
        with pytest.raises(UserError, match=f"holds a trial with another {what}; give another --out"):
            run(data, recipe, folder)
    with pytest.raises(UserError, match="holds a trial with another protocol"):
        run_trial(corpus, brief, ["raters-apart"], folder)
    for plan in ({"judge": "length"}, {"recipe": {}, "data": ""}):  # a run of `score`, and a judge
        (folder / "plan.json").write_text(json.dumps(plan))
        with pytest.raises(UserError, match="holds something else than a trial"):
            run(corpus, brief, folder)


def test_data_is_known_by_its_ratings_in_any_order(examples: list[RatedExchange]) -> None:
    assert digest_examples(examples) == digest_examples(examples[::-1])
    changed = replace(examples[0], target=(0.5, 0.5, 0.0))
    assert digest_examples(examples) != digest_examples([changed, *examples[1:]])
    assert digest_examples([replace(examples[0], rater="\ud83d")])
