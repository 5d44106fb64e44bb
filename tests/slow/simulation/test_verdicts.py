"""How often `compare` gives each verdict where the truth is known: the limits that the docs promise."""

import pytest
from verdict_worlds import World, rates

DRAWS = 100


def shares(world: World) -> tuple[float, float]:
    """How often it was better or worse, and how often it was probably so."""
    found = rates(world, draws=DRAWS)
    told = found.get("better", 0) + found.get("worse", 0)
    return told, found.get("probably better", 0) + found.get("probably worse", 0)


# Chance takes 5 % beyond 11 of 100, and 20 % beyond 29, in fewer than 1 of 100 tries.
@pytest.mark.parametrize(
    "world",
    [
        World(gap=0.0, prompts=64),
        World(gap=0.0, prompts=160),
        World(gap=0.0, prompts=64, alike=0.5, are_variants=True),
        World(gap=0.0, prompts=64, middle=0.36),  # at the edge of what people rated
    ],
    ids=["unrelated-64", "unrelated-160", "variants-64", "edge-64"],
)
def test_models_that_do_not_differ_are_seldom_told_apart(world: World) -> None:
    told, leant = shares(world)
    assert told <= 0.11 and leant <= 0.29


def test_variants_ten_points_apart_get_a_verdict() -> None:
    told, leant = shares(World(gap=0.1, prompts=160, alike=0.8, are_variants=True))
    assert told + leant >= 0.8


def test_the_wrong_model_is_hardly_ever_preferred() -> None:
    found = rates(World(gap=0.1, prompts=64), draws=DRAWS)
    assert found.get("worse", 0) <= 0.03 and found.get("probably worse", 0) <= 0.08
