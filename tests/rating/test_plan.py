"""Who rates what: balanced whatever the numbers, with known chances, and blind."""

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from rating_plans import NAMES, made_replies, make_plan

from empathy_judge.data.errors import UserError
from empathy_judge.data.records import Exchange
from empathy_judge.rating.plan import ANCHORS, Drawn, RatingPlan, draw_plan, read_plan, read_texts


def counts_of(plan: RatingPlan) -> Counter[str]:
    """How many people rate each reply, anchors apart."""
    return Counter(
        key for rater in plan.raters.values() for key in set(rater.order) if key not in plan.anchors
    )


def count_models(plan: RatingPlan, token: str) -> Counter[str]:
    """How often a rater sees each model, without anchors and repeats."""
    return Counter(plan.items[key].model for key in set(plan.raters[token].order) - set(plan.anchors))


def check_design(drawn: Drawn, replies: list[Exchange], *, people: int, each: int) -> None:
    plan = drawn.plan
    models = {item.model for item in replies}
    assert len(plan.raters) == people
    lengths = {len(rater.order) for rater in plan.raters.values()}
    assert len(lengths) == 1 and max(lengths) <= each
    if each < 12:
        assert plan.count_design() == plan.count_ratings(), "of so few replies none are checks"
    if len(replies) >= each + len(models):
        assert lengths == {each}
    counts = counts_of(plan)
    everybody = len(plan.items) - len(plan.anchors)
    for token, rater in plan.raters.items():
        seen = count_models(plan, token)
        assert max(seen.values()) - min(seen[model] for model in models) <= 1
        repeated = [key for key, times in Counter(rater.order).items() if times > 1]
        assert len(repeated) == (each >= 12) and not set(repeated) & set(plan.anchors)
        assert set(plan.anchors) <= set(rater.order)
        by_prompt = Counter(plan.items[key].prompt_key for key in set(rater.order) - set(plan.anchors))
        assert sum(times < len(models) for times in by_prompt.values()) <= 2, "cut at either end only"
    assert max(counts.values()) - min(counts.values()) <= 1
    if max(counts.values()) > 1:
        kept = len(replies) - (len(models) * -(-ANCHORS // len(models)) if plan.anchors else 0)
        assert everybody == kept, "no reply twice before all are rated once"
    total = sum(item.chance for key, item in plan.items.items() if key not in plan.anchors) / everybody
    assert total == pytest.approx(min(1.0, everybody / len(replies)), rel=1e-9)


def test_random_designs_are_balanced() -> None:
    rng = random.Random(17)
    for seed in range(300):
        models = tuple(f"m{number}" for number in range(rng.randint(1, 6)))
        replies = made_replies(rng.randint(2, 40), models)
        people, each = rng.randint(1, 12), rng.randint(5, 60)
        drawn = draw_plan(replies, people=people, each=each, seed=seed)
        check_design(drawn, replies, people=people, each=each)


def test_chances_are_how_often_a_reply_is_drawn() -> None:
    replies, drawn = made_replies(10, NAMES[:2]), Counter[str]()
    for seed in range(2000):
        plan = draw_plan(replies, people=2, each=4, seed=seed).plan
        design = {item.id: item.chance for key, item in plan.items.items() if key not in plan.anchors}
        assert next(iter(design.values())) == pytest.approx(8 / 20)
        drawn.update(design.keys())
    assert all(abs(drawn[item.id] / 2000 - 8 / 20) < 0.05 for item in replies)


def test_models_without_common_prompts_are_still_seen_alike_and_that_is_said() -> None:
    apart = [
        replace(item, prompt=f"{item.prompt} Says {item.model}.") for item in made_replies(30, NAMES[:2])
    ]
    drawn = draw_plan(apart, people=4, each=20, seed=0)
    assert any("on different prompts" in note for note in drawn.notes)
    for token in drawn.plan.raters:
        assert sorted(count_models(drawn.plan, token).values()) == [8, 9]
    uneven = [*apart, replace(apart[0], id="more", prompt="Another.")]
    plan = draw_plan(uneven, people=1, each=20, seed=0).plan
    chances = {item.model: item.chance for key, item in plan.items.items() if key not in plan.anchors}
    assert chances == pytest.approx({apart[0].model: 8.5 / 31, apart[1].model: 8.5 / 30})


def test_a_plan_is_read_as_written_and_its_tokens_are_secrets(tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    assert read_plan(tmp_path) == plan
    assert set(read_texts(tmp_path, plan)) == set(plan.items)
    assert all(len(token) == 32 and int(token, 16) for token in plan.raters)
    again = draw_plan(made_replies(), people=3, each=12, seed=1).plan
    assert not set(again.raters) & set(plan.raters), "tokens are secrets, not seeded"
    ids = [[plan.items[key].id for key in rater.order] for rater in plan.raters.values()]
    assert ids == [[again.items[key].id for key in rater.order] for rater in again.raters.values()]


def test_replies_that_are_left_out_or_name_their_model_are_noted() -> None:
    replies = made_replies()[:-1]
    replies[0] = replace(replies[0], response=f"I am {NAMES[1].upper()} and I am sorry.")
    drawn = draw_plan(replies, people=8, each=50, seed=0)
    assert any("2 of 119 replies are left out" in note for note in drawn.notes)
    assert any("1 replies mention a model" in note and replies[0].id in note for note in drawn.notes)
    check_design(drawn, replies[:-2], people=8, each=50)


def test_what_cannot_be_a_plan_is_refused(tmp_path: Path) -> None:
    make_plan(tmp_path)
    table = json.loads((tmp_path / "plan.json").read_text())
    (tmp_path / "plan.json").write_text(json.dumps(table | {"format": 9}))
    with pytest.raises(UserError, match="format 9"):
        read_plan(tmp_path)
    next(iter(table["raters"].values()))["order"].append("nothing")
    (tmp_path / "plan.json").write_text(json.dumps(table))
    with pytest.raises(UserError, match="no item has the key 'nothing'"):
        read_plan(tmp_path)
