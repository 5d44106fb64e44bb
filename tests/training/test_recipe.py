"""Recipes: the shipped ones load, and a mistake in one is named."""

from pathlib import Path

import pytest

from data.errors import UserError
from training.environment import BASES, PUBLISHED_BASES
from training.recipe import RECIPES, Recipe, lineage, read_recipe


@pytest.mark.parametrize("name", sorted(path.stem for path in RECIPES.glob("*.toml")))
def test_a_shipped_recipe_loads_and_so_do_its_teachers(name: str) -> None:
    for recipe in lineage(read_recipe(name)):
        assert recipe.base in (*BASES, *PUBLISHED_BASES)
        assert bool(recipe.sets) != bool(recipe.teachers), "human ratings first, then the teachers' targets"
        assert not recipe.texts or recipe.teachers


def test_a_recipe_file_changes_what_it_names_and_no_more(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        "base = 'x'\nepochs = 7\nlearning_rate = 1\n[sets]\nieval = 1\n'judging-empathy/epitome' = 0.5\n"
    )
    sets = {"ieval": 1, "judging-empathy/epitome": 0.5}
    assert read_recipe(str(path)) == Recipe(base="x", epochs=7, learning_rate=1.0, sets=sets)


def test_a_teacher_with_teachers_is_refused(tmp_path: Path) -> None:
    one = tmp_path / "one.toml"
    one.write_text("teachers = ['default']")
    assert len(lineage(read_recipe("default"))) == 3
    with pytest.raises(UserError, match="of default, one has teachers itself"):
        lineage(read_recipe(str(one)))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("epoch = 3", "epoch: unknown key"),
        ("epochs = 2.5", "epochs: input should be a valid integer"),
        ("epochs = true", "epochs: input should be a valid integer"),
        ("epochs = 0", "epochs: input should be greater than or equal to 1"),
        ("sets = 3", "sets: input should be a valid dictionary"),
        ("[sets]\npoems = 1", r"sets\.poems: unknown set 'poems'; known: epitome, ieval"),
        ("[sets]\nieval = -1", r"sets\.ieval: input should be greater than or equal to 0"),
        ("dropout = '0.1'", "dropout: input should be a valid number"),
        ("dropout = nan", "dropout: input should be a finite number"),
        ("networks = []", "networks: value should have at least 1 item"),
        ("networks = ['set']", r"networks\.0: input should be 'all', 'sets', 'ours' or 'labels'"),
        ("epochs = ", r"not TOML"),
        ("\x00", r"not TOML"),
    ],
)
def test_a_mistake_in_a_recipe_is_named(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(content)
    with pytest.raises(UserError, match=rf"mine\.toml: {said}"):
        read_recipe(str(path))


@pytest.mark.parametrize("name", ["defualt", "none.toml"])
def test_an_unknown_recipe_is_answered_with_those_we_know(name: str) -> None:
    with pytest.raises(UserError, match=rf"unknown recipe '{name}'; known: default, .*teacher"):
        read_recipe(name)
