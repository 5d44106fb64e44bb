"""The stop rule on crossed ratings: what it says, and a small version of how often it errs."""

from dataclasses import replace

import numpy as np
import pytest
from crossed_worlds import PEOPLE, World, draw, run

from empathy_judge.calibration.comparison.stop_rule import CrossedRatings, standing, standings

SMALL = World(raters=6, prompts=30, each=30)


def ratings_of(world: World, *, seed: int = 0, share: float = 1.0) -> CrossedRatings:
    """One history as the columns of a plan: the models are A and B, whoever rated first comes first."""
    value, when, weight, _ = draw(world, 1, np.random.default_rng(seed))
    rows = np.argwhere(np.isfinite(when[0]))
    rows = rows[np.argsort(when[0][tuple(rows.T)])][: int(share * len(rows))]
    rater, prompt, model = rows.T
    return CrossedRatings(
        rater=np.array([f"rater-{number}" for number in rater]),
        prompt=prompt,
        model=np.array(["A", "B"])[model],
        value=value[0][tuple(rows.T)].astype(float),
        chance=1 / np.broadcast_to(weight, when.shape)[0][tuple(rows.T)],
    )


def test_a_large_difference_is_settled_and_ratings_run_out_on_none() -> None:
    found = standing(ratings_of(replace(SMALL, gap=0.5, taste=0.1)), "A", "B")
    assert (str(found), found.better) == ("settled: B is better", "B")
    assert str(standing(ratings_of(replace(SMALL, gap=-0.5, taste=0.1)), "A", "B")) == "settled: A is better"
    wide = standing(ratings_of(replace(SMALL, taste=0.0)), "A", "B", margin=0.6)
    assert str(wide) == "settled: similar within 60 points"
    early = standing(ratings_of(replace(SMALL, gap=0.3, taste=0.0), share=0.25), "A", "B")
    assert early.verdict == "inconclusive" and early.more and early.difference.interval


def test_few_people_who_differ_are_told_to_be_too_few() -> None:
    found = [
        standing(ratings_of(World(raters=4, prompts=200, each=200, gap=0.15, taste=0.8), seed=seed), "A", "B")
        for seed in range(6)
    ]
    assert any(item.people and not item.more for item in found)


def test_one_rater_or_none_has_no_interval() -> None:
    ratings = ratings_of(replace(SMALL, raters=1, gap=0.5))
    for other in "BC":
        found = standing(ratings, "A", other)
        assert found.difference.interval is None and found.verdict == "inconclusive"


def test_three_models_share_the_error_and_a_baseline_asks_for_less() -> None:
    two, third = ratings_of(SMALL), ratings_of(SMALL, seed=1)
    both = CrossedRatings(
        rater=np.concatenate([two.rater, third.rater]),
        prompt=np.concatenate([two.prompt, third.prompt]),
        model=np.concatenate([two.model, np.char.replace(np.char.replace(third.model, "A", "C"), "B", "D")]),
        value=np.concatenate([two.value, third.value]),
        chance=np.concatenate([two.chance, third.chance]),
    )
    widths = []
    for found in (standings(two), standings(both, baseline="A"), standings(both)):
        ends = next(item.difference.interval for item in found if (item.one, item.other) == ("A", "B"))
        widths.append(ends.high - ends.low)
    assert len(standings(both)) == 6 and widths == sorted(widths) and widths[0] < widths[-1]


def test_chances_undo_what_unequal_draws_did() -> None:
    world = World(raters=6, prompts=60, each=60, taste=0.0, fit=1.5, strata=True)
    weighted = [ratings_of(world, seed=seed) for seed in range(20)]
    plain = [replace(ratings, chance=np.ones(len(ratings.value))) for ratings in weighted]
    gaps = [
        np.mean([standing(item, "A", "B").difference.value for item in each]) for each in (weighted, plain)
    ]
    assert abs(gaps[0]) < 0.06 < 0.15 < gaps[1]


@pytest.mark.parametrize("people", PEOPLE)
def test_looked_at_after_every_rating_it_seldom_errs(people: str) -> None:
    found = run(replace(SMALL, prompts=12, each=12, **PEOPLE[people]), 150, looks=1000, seed=3)
    assert found.wrong <= 0.04 and found.covered >= 0.96
