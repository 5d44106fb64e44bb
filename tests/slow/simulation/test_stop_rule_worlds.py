"""The stop rule, looked at all along: it errs in at most 5 %, and its interval covers in at least 95 %."""

from dataclasses import replace

import pytest
from crossed_worlds import PEOPLE, WORLDS, run

pytestmark = pytest.mark.campaign


@pytest.mark.parametrize("people", PEOPLE)
@pytest.mark.parametrize(
    "plan", ["4 raters, 20 prompts shared", "6 raters, 60 prompts shared", "8 raters, 40 prompts shared"]
)
@pytest.mark.parametrize(("gap", "margin"), [(0.0, 0.05), (0.2, 0.2)])
def test_it_errs_in_at_most_one_in_twenty(people: str, plan: str, gap: float, margin: float) -> None:
    found = run(replace(WORLDS[plan], gap=gap, **PEOPLE[people]), 1000, margin=margin, looks=30, seed=7)
    assert found.wrong <= 0.05
    assert found.covered >= 0.95


@pytest.mark.parametrize("plan", ["8 raters, 160 prompts", "12 raters, 200 prompts"])
@pytest.mark.parametrize("people", ["as most", "strong preferences", "drawn by chances"])
def test_with_prompts_of_each_raters_own_too(people: str, plan: str) -> None:
    found = run(replace(WORLDS[plan], **PEOPLE[people]), 300, looks=25, seed=8)
    assert found.wrong <= 0.05 and found.covered >= 0.95


def test_after_every_single_rating() -> None:
    found = run(WORLDS["4 raters, 20 prompts shared"], 1000, looks=1000, seed=9)
    assert found.wrong <= 0.05 and found.covered >= 0.95
