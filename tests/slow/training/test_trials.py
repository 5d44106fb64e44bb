"""Trials: a broken one goes on where it stopped, and a folder holds one trial only."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from data.errors import UserError
from data.records import LABELS
from judge.classifier.examples import Example
from judge.classifier.recipe import Recipe
from judge.classifier.trials import BARE, RIVALS, digest_examples, run_trial


@pytest.fixture
def brief(tiny_recipe: Recipe) -> Recipe:
    return replace(tiny_recipe, epochs=1)


class Killed(BaseException):
    """Ends a trial where it stands."""


def run(examples: list[Example], recipe: Recipe, folder: Path, *, kill_at: str = "") -> Any:
    """A trial's rows, and the splits that were trained for them."""
    begun: list[str] = []

    def on_split(name: str, number: int, total: int) -> None:
        if name == kill_at:
            raise Killed
        assert (number, total) == (["ada", "bea/2", "cyd"].index(name), 3)
        begun.append(name)

    rows = list(run_trial(examples, recipe, "model-apart", folder, on_split=on_split))
    return rows, begun


def test_a_killed_trial_goes_on_where_it_stopped(
    tmp_path: Path, examples: list[Example], brief: Recipe
) -> None:
    whole, begun = run(examples, brief, tmp_path / "whole")
    assert begun == ["ada", "bea/2", "cyd"]
    with pytest.raises(Killed):
        run(examples, brief, tmp_path / "broken", kill_at="bea/2")
    again, begun = run(examples, brief, tmp_path / "broken")
    assert begun == ["bea/2", "cyd"], "what is there is not trained again"
    assert again == whole
    assert run(examples, brief, tmp_path / "broken") == (whole, [])


def test_every_rating_has_a_row_with_a_word_from_everyone(
    tmp_path: Path, examples: list[Example], brief: Recipe
) -> None:
    rows, _ = run(examples, brief, tmp_path)
    assert sorted(row["id"] for row in rows) == sorted(example.exchange.id for example in examples)
    rating = {example.exchange.id: LABELS[example.target.index(1.0)] for example in examples}
    for row in rows:
        assert row["rating"] == rating[row["id"]]
        assert row["split"] == row["model"]
        assert list(row["predictions"]) == ["judge", BARE, *RIVALS]
        assert all(sum(said) == pytest.approx(1, abs=1e-5) for said in row["predictions"].values())
    assert all(row["predictions"]["judge"] != row["predictions"][BARE] for row in rows)


def test_a_folder_holds_one_trial_only(tmp_path: Path, examples: list[Example], brief: Recipe) -> None:
    folder = tmp_path / "trial"
    with pytest.raises(Killed):
        run(examples, brief, folder, kill_at="ada")
    with pytest.raises(UserError, match="holds a trial with another recipe; give another --out"):
        run(examples, replace(brief, seed=9), folder)
    with pytest.raises(UserError, match="holds a trial with another data"):
        run(examples[1:], brief, folder)
    with pytest.raises(UserError, match="holds a trial with another protocol"):
        list(run_trial(examples, brief, "raters-apart", folder))
    for plan in ({"judge": "length"}, {"recipe": {}, "data": ""}):  # a run of `score`, and a judge
        (folder / "plan.json").write_text(json.dumps(plan))
        with pytest.raises(UserError, match="holds something else than a trial"):
            run(examples, brief, folder)


def test_data_is_known_by_its_ratings_in_any_order(examples: list[Example]) -> None:
    assert digest_examples(examples) == digest_examples(examples[::-1])
    changed = replace(examples[0], target=(0.5, 0.5, 0.0))
    assert digest_examples(examples) != digest_examples([changed, *examples[1:]])
    assert digest_examples([replace(examples[0], rater="\ud83d")])
