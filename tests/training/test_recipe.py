"""Recipes: the shipped ones load, and a mistake in one is named."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from empathy_judge.data.errors import UserError
from empathy_judge.data.rating_files.rated_inputs import RatedExchange
from empathy_judge.judge.classifier.large_judge import PUBLISHED_BASES
from empathy_judge.training.cross_validation import measure_rows, read_rows
from empathy_judge.training.rated_sets import RATED_SETS, RECIPES, read_rated_set
from empathy_judge.training.recipe import BASES, STUDY, Recipe, build_recipe, lineage, read_recipe
from empathy_judge.training.training_data import TrainingData

OPEN_JUDGE = Path(__file__).parents[2] / "docs" / "figures" / "open-judge"
APACHE = ("smollm2", "qwen2.5-coder-1.5b")  # bases that their publishers offer under Apache-2.0


@pytest.mark.parametrize("name", sorted(path.stem for path in RECIPES.glob("*.toml")))
def test_a_shipped_recipe_loads_and_so_do_its_teachers(name: str) -> None:
    for recipe in lineage(read_recipe(name)):
        assert recipe.base in (*BASES, *PUBLISHED_BASES)
        assert bool(recipe.sets) != bool(recipe.teachers), "human ratings first, then the teachers' targets"
        assert not recipe.texts or recipe.teachers


def test_a_recipe_file_changes_what_it_names_and_no_more(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("base = 'x'\nepochs = 7\n[sets]\nieval = 1\n'judging-empathy/epitome' = 0.5\n")
    sets = {"ieval": 1, "judging-empathy/epitome": 0.5}
    assert read_recipe(str(path)) == Recipe(base="x", epochs=7, sets=sets)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("epoch = 3", "epoch: unknown key"),
        ("epochs = 2.5", "epochs: input should be a valid integer"),
        ("sets = 3", "sets: input should be a valid dictionary"),
        ("[sets]\npoems = 1", r"sets\.poems: unknown set 'poems'; known: epitome, ieval"),
        ("[sets]\nieval = -1", r"sets\.ieval: input should be greater than or equal to 0"),
        ("dropout = nan", "dropout: input should be a finite number"),
        ("networks = []", "networks: value should have at least 1 item"),
        ("networks = ['set']", r"networks\.0: input should be 'all', 'sets', 'synthetic' or 'labels'"),
        ("epochs = ", r"not TOML"),
    ],
)
def test_a_mistake_in_a_recipe_is_named(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(content)
    with pytest.raises(UserError, match=rf"mine\.toml: {said}"):
        read_recipe(str(path))


def test_unknown_recipes_and_teachers_with_teachers_are_refused(tmp_path: Path) -> None:
    for name in ("defualt", "none.toml"):
        with pytest.raises(UserError, match=rf"unknown recipe '{name}'; known: default, .*teacher"):
            read_recipe(name)
    path = tmp_path / "one.toml"
    path.write_text("teachers = ['default']")
    assert len(lineage(read_recipe("default"))) == 3
    with pytest.raises(UserError, match="of default, one has teachers itself"):
        lineage(read_recipe(str(path)))


@pytest.mark.slow
def test_the_open_recipe_learns_only_from_what_companies_may_use(examples: list[RatedExchange]) -> None:
    recipes = lineage(read_recipe("open"))
    trained = {name for recipe in recipes for name, weight in recipe.sets.items() if weight}
    assert trained == {"ieval", "scenes", "chats"}
    assert {RATED_SETS[name].licence for name in trained} == {"CC BY", "CC0"}
    for recipe in recipes:
        assert recipe.base in APACHE and not recipe.grades, "grades are of texts under other licenses"
        assert recipe.drop_context == 1, "the situations of iEval are under CC BY-NC"
    evaluated = frozenset(recipes[-1].sets) - trained
    assert evaluated == {STUDY, *RATED_SETS} - trained
    own = [item for name in ("scenes", "chats") for item in read_rated_set(name, Path())]
    other = [replace(item, set="epitome") for item in own[:3]]
    data = TrainingData(ratings=examples, items=[*own, *other], evaluated=evaluated)
    read = data.for_recipe(recipes[0])
    assert not read.ratings and list(read.items) == own
    described = data.describe(recipes)["sets"]
    assert set(described) == {"scenes", "chats", "graded replies", "constants"}
    assert {facts["licence"] for facts in described.values()} == {"CC0"}
    assert sum(described[name]["items"] for name in ("scenes", "chats")) == len(own)
    assert {"ratings", "epitome", "grades"}.isdisjoint(data.digests(recipes))


@pytest.mark.slow
def test_the_published_card_of_the_open_recipe_counts_what_it_learned_from() -> None:
    card = json.loads((OPEN_JUDGE / "card.json").read_text(encoding="utf-8"))
    (recipe,) = lineage(read_recipe("open"))
    assert build_recipe(card["recipe"], "card") == recipe
    own = [item for name in ("scenes", "chats") for item in read_rated_set(name, Path())]
    described = TrainingData(items=own).describe([recipe])["sets"]
    assert card["trained_on"]["sets"].pop("ieval")["licence"] == "CC BY"
    assert card["trained_on"]["sets"] == described and card["trained_on"]["ratings"] == 0
    digests = TrainingData(items=own).digests([recipe])
    assert {name: card["provenance"]["digests"][name] for name in digests} == digests
    assert set(card["provenance"]["digests"]) - set(digests) == {"ieval"}
    again = measure_rows(read_rows(OPEN_JUDGE))
    assert {name: again[name] for name in card["evidence"]} == card["evidence"]


def test_chats_and_scenes_are_as_the_docs_say() -> None:
    """Grades of chats rise with length; those of scenes depend neither on length nor on manner."""
    ranks = []
    for name in ("chats", "scenes"):
        lines = (RECIPES / f"{name}.jsonl").read_text("utf-8").splitlines()
        replies = [reply for line in lines for reply in json.loads(line)["replies"]]
        words = np.array([len(reply["text"].split()) for reply in replies])
        scores = np.array([reply["score"] for reply in replies])
        ranks.append(spearmanr(words, scores).statistic)
    assert ranks == [pytest.approx(0.45, abs=0.005), pytest.approx(0, abs=0.1)]
    assert len({reply["text"] for reply in replies}) == len(replies) > 2000 and np.mean(words > 80) > 1 / 3
    for manner in {reply["manner"] for reply in replies}:
        own = scores[[reply["manner"] == manner for reply in replies]]
        assert len(own) < 20 or abs(own.mean() - scores.mean()) < 15
