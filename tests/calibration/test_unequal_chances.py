"""Replies drawn to be rated with unequal chances: by 1 / chance the estimates are those of all replies."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from empathy_judge.calibration.comparison.compare_ratings import RatedLevel, compare_sheet
from empathy_judge.calibration.pairing import pair
from empathy_judge.calibration.shares.model_table import fit_models, rated_models
from empathy_judge.calibration.shares.ppi import RatedModel, one_hot, ppi_estimate
from empathy_judge.data.errors import UserError
from empathy_judge.data.rating_files.rated_inputs import read_people
from empathy_judge.data.records import Exchange, Rating, judgment_of
from empathy_judge.data.tables import write_rows

REPLIES, RATERS, DRAWN = 400, 8, 120
TRUTH = 0.5406  # of Good, over qualities and raters as below
LIKELY, RARE = 0.6, 0.1  # chances: replies the judge finds good are drawn less often


def drawn(rng: np.random.Generator) -> RatedModel:
    """A model's replies, of which those the judge likes are rated less often."""
    quality = rng.normal(0.2, 1, REPLIES)
    judge = 1 / (1 + np.exp(-quality - rng.normal(0, 0.7, REPLIES)))
    chance = np.where(judge > np.median(judge), RARE, LIKELY)
    taken = np.flatnonzero(rng.random(REPLIES) < chance)
    rater = rng.integers(RATERS, size=len(taken))
    severity = rng.normal(0, 0.3, RATERS)
    good = rng.random(len(taken)) < 1 / (1 + np.exp(-quality[taken] + severity[rater]))
    return RatedModel(
        judged=np.column_stack([0.7 * (1 - judge), 0.3 * (1 - judge), judge]),
        item=taken,
        value=one_hot(np.where(good, 3, 1), 3),
        cluster=rater,
        chance=chance[taken],
    )


def test_shares_are_those_of_all_replies_and_their_intervals_hold() -> None:
    rng = np.random.default_rng(0)
    errors, plain, held = [], [], []
    for _ in range(60):
        model = drawn(rng)
        found = ppi_estimate(model)
        errors.append(found.value[-1] - TRUTH)
        unweighted = replace(model, chance=None, judged=np.full_like(model.judged, 1 / 3))
        plain.append(ppi_estimate(unweighted).value[-1] - TRUTH)
        held.append(found.low[-1] <= TRUTH <= found.high[-1])
        assert found.value.sum() == pytest.approx(1)
    assert abs(np.mean(errors)) < 0.015 < 0.05 < abs(np.mean(plain))
    assert np.mean(held) >= 0.92


def plan_rows(rng: np.random.Generator) -> list[dict[str, Any]]:
    """Both models are Good on half of the prompts; of those where B is, three times as many were drawn."""
    rows: list[dict[str, Any]] = []
    for prompt in range(60):
        favours_b = prompt % 4 > 0
        for model in "AB":
            for rater in range(6):
                is_good = rng.random() < (0.8 if favours_b == (model == "B") else 0.2)
                row = {"id": f"{model}{prompt}", "rater": f"r{rater}", "model": model}
                row |= {"rating": "Good" if is_good else "Bad", "prompt_key": str(prompt)}
                rows.append(row | {"chance": 0.3 if favours_b else 0.1})
    return rows


def compare(path: Path, rows: list[dict[str, Any]]) -> RatedLevel:
    write_rows(path, rows)
    return compare_sheet(read_people(path), path, baselines=["A"]).groups[0].models[1]


def test_compare_weighs_a_plans_ratings(tmp_path: Path) -> None:
    rows = plan_rows(np.random.default_rng(2))
    model = compare(tmp_path / "ratings.jsonl", rows)
    assert abs(model.points) < 0.1 and model.test.p > 0.05
    assert model.test.difference.value == pytest.approx(model.points)
    assert model.shares["Good"].value == pytest.approx(0.5, abs=0.07)
    plain = [{name: value for name, value in row.items() if name != "chance"} for row in rows]
    assert compare(tmp_path / "plain.jsonl", plain).points > 0.2


def test_calibrate_weighs_a_plans_ratings() -> None:
    rows = plan_rows(np.random.default_rng(3))
    replies = {row["id"]: (row["prompt_key"], row["model"]) for row in rows}
    judgments = [
        judgment_of(
            Exchange(id=key, prompt=prompt, response=key, model=model), {"Bad": 0.3, "Okay": 0.2, "Good": 0.5}
        )
        for key, (prompt, model) in replies.items()
    ]
    ratings = [
        Rating(id=row["id"], rater=row["rater"], rating=level, extra={"chance": row["chance"]})
        for row in rows
        for level in [3.0 if row["rating"] == "Good" else 1.0]
    ]
    models = rated_models(pair(judgments, ratings), judgments)
    crowd = {row.model: row.crowd["Good"] for row in fit_models(models).rows}
    assert crowd == {"A": pytest.approx(0.5, abs=0.07), "B": pytest.approx(0.5, abs=0.07)}


@pytest.mark.parametrize("chance", [0, 1.5, "often"])
def test_a_chance_that_is_none_is_refused(tmp_path: Path, chance: object) -> None:
    rows = plan_rows(np.random.default_rng(4))
    rows[5]["chance"] = chance
    with pytest.raises(UserError, match=r"chance .* above 0 and up to 1"):
        compare(tmp_path / "ratings.jsonl", rows)
