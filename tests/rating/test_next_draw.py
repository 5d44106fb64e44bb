"""More replies for a plan, with known chances; and when to stop."""

import json
import random
import re
import shlex
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from command_line import run_checked as run
from rating_plans import made_replies

from empathy_judge.data.errors import UserError
from empathy_judge.data.readers.table_rows import read_rows
from empathy_judge.data.records import Exchange, Judgment, judgment_of
from empathy_judge.data.tables import write_rows
from empathy_judge.rating.journal import Entry, Journal
from empathy_judge.rating.next_draw import draw_next
from empathy_judge.rating.plan import RatingPlan, draw_plan, read_plan, read_texts

PAIR = ("quorvex-large", "blimtar-7b")


def judged(replies: list[Exchange]) -> list[Judgment]:
    """A judge that is sure of the first prompts and unsure of the last."""
    found = []
    for item in replies:
        good = 0.02 if int(item.id.split("/")[1]) < 40 else 0.5
        found.append(judgment_of(item, {"Bad": (1 - good) / 2, "Okay": (1 - good) / 2, "Good": good}))
    return found


def shown(plan: RatingPlan) -> Counter[str]:
    return Counter(plan.items[key].id for rater in plan.raters.values() for key in set(rater.order))


def rate_all(folder: Path, plan: RatingPlan, good: dict[str, float]) -> None:
    """Everybody rates their replies; a model's are Good as often as said."""
    rng, journal = random.Random(7), Journal(folder, plan)
    for token, rater in plan.raters.items():
        done = journal.acts_of(token)
        for index, key in enumerate(rater.order):
            if index not in done:
                label = "Good" if rng.random() < good[plan.items[key].model] else "Bad"
                journal.record(token, key, 1, Entry(index=index, label=label))
    journal.close()


def test_more_is_drawn_where_the_judge_is_unsure_and_the_chances_say_so() -> None:
    replies = made_replies(120, PAIR)
    plan = draw_plan(replies, people=4, each=13, seed=3).plan
    chosen = draw_next(plan, replies, judged(replies), each=20)
    old, new = set(plan.items), set(chosen.plan.items) - set(plan.items)
    assert len(new) == 80 and set(chosen.texts) == new
    sure = [key for key in new if int(chosen.plan.items[key].id.split("/")[1]) < 40]
    assert 2 * len(sure) < len(new) / 2, "a third of the prompts, and less than a quarter of the draws"
    assert chosen.summary.startswith(
        "40 more prompts, from 3 strata of the judge's score; drawing probabilities are now 0.3"
    )
    for token, rater in plan.raters.items():
        after = chosen.plan.raters[token].order
        assert after[: len(rater.order)] == rater.order and len(after) == len(rater.order) + 20
        by_prompt = Counter(chosen.plan.items[key].prompt_key for key in after[len(rater.order) :])
        assert set(by_prompt.values()) == {2}, "both models on every prompt"
    chances = {item.id: item.chance for key, item in chosen.plan.items.items() if key not in plan.anchors}
    assert len({round(value, 9) for value in chances.values()}) <= 6 and old <= set(chosen.plan.items)
    # Weights of 1 / chance stand for all replies that can be drawn.
    assert sum(1 / value for value in chances.values()) == pytest.approx(2 * 119)
    # Rows without an id are called after their file once another file is read beside it.
    renamed = [replace(item, id=f"{item.model}.csv:{item.id}") for item in replies]
    assert len(draw_next(plan, renamed, judged(renamed), each=20).plan.items) == len(chosen.plan.items)
    again = draw_next(chosen.plan, replies, judged(replies), each=20)
    assert len(again.plan.items) == len(chosen.plan.items) + 80
    rest = draw_next(chosen.plan, replies, judged(replies), each=100)
    assert rest.notes == ("fewer than 100 per rater: no more prompts are left",)
    assert {item.chance for key, item in rest.plan.items.items() if key not in plan.anchors} == {1.0}
    with pytest.raises(UserError, match="another --run"):
        draw_next(chosen.plan, replies, each=20)


def test_over_many_draws_a_reply_comes_as_often_as_its_chance_says() -> None:
    replies = made_replies(60, PAIR)
    scores = judged(replies)
    times: Counter[str] = Counter()
    inverse: Counter[str] = Counter()
    for seed in range(100):
        plan = draw_plan(replies, people=4, each=6, seed=seed).plan
        chosen = draw_next(plan, replies, scores, each=6).plan
        for key, item in chosen.items.items():
            if key not in plan.anchors:
                times[item.id] += 1
                inverse[item.id] += 1 / item.chance  # type: ignore[assignment]
    # Every reply but the anchors weighs 1 on average, whatever its stratum.
    weights = [inverse[item.id] / 100 for item in replies]
    assert sum(weights) / len(weights) == pytest.approx(59 / 60, abs=0.02)
    assert max(weights) < 1.9 and min(weights) > 0.4
    assert max(times.values()) > 1.5 * min(times.values())


def test_a_new_model_comes_first_on_prompts_that_people_have_read() -> None:
    replies, third = made_replies(60, PAIR), made_replies(60, ("zendolo-mini",))
    plan = draw_plan(replies, people=4, each=13, seed=3).plan
    chosen = draw_next(plan, [*replies, *third], each=5).plan
    new = {key: item for key, item in chosen.items.items() if key not in plan.items}
    assert new and {item.model for item in new.values()} == {"zendolo-mini"}
    assert all(0 < item.chance <= 1 for item in new.values())
    for rater in chosen.raters.values():
        read = {chosen.items[key].prompt_key for key in rater.order if key not in new}
        assert {new[key].prompt_key for key in rater.order if key in new} <= read


def test_from_a_plan_to_a_verdict_by_the_commands(tmp_path: Path) -> None:
    file, folder = tmp_path / "replies.jsonl", tmp_path / "plan"
    write_rows(file, plain(made_replies(300, PAIR)))
    run("rate", "plan", file, "--people", 6, "--each", 23, "--out", folder)
    good = {"quorvex-large": 0.3, "blimtar-7b": 0.6}
    rate_all(folder, read_plan(folder), good)
    said = run("rate", "status", folder)
    assert ": about " in said.output and "rate next" in said.output
    before = {(row["rater"], row["id"]) for row in collected(folder)}
    said = run("rate", "next", folder, file, "--each", 60)
    assert "360 more to rate by 6 raters" in said.output
    plan = read_plan(folder)
    assert set(read_texts(folder, plan)) == set(plan.items)
    rate_all(folder, plan, good)
    told = json.loads(run("rate", "status", folder, "--json").stdout)
    assert [pair["verdict"] for pair in told["pairs"]] == ["worse"] and told["ratings"] == 480
    after = collected(folder)
    assert before <= {(row["rater"], row["id"]) for row in after}
    assert len({row["chance"] for row in after}) == 1


def plain(replies: list[Exchange]) -> list[Exchange]:
    return [replace(item, situation=None, dialogue=()) for item in replies]


def collected(folder: Path) -> list[dict[str, Any]]:
    run("rate", "collect", folder)
    return [row for _, row in read_rows(folder / "ratings.jsonl")]


def next_words(said: Result) -> list[str]:
    """The words of the printed next command."""
    return shlex.split(said.stderr.splitlines()[-1].partition(": empathy-judge ")[2])


def test_few_raters_decide_nothing_and_more_raters_are_advised(tmp_path: Path) -> None:
    """`rate status` and `compare --ratings` give the same verdict, and advise what runs."""
    file, folder, ratings = tmp_path / "replies.jsonl", tmp_path / "plan", tmp_path / "plan" / "ratings.jsonl"
    write_rows(file, plain(made_replies(100, PAIR)))
    run("rate", "plan", file, "--people", 2, "--each", 203, "--out", folder)
    good = {"quorvex-large": 0.2, "blimtar-7b": 0.8}
    rate_all(folder, read_plan(folder), good)
    collected(folder)
    run("score", file, "--judge", "length", "--out", tmp_path / "run")
    words = ("compare", tmp_path / "run", "--calibration", "none", "--ratings", ratings)
    status, compared = run("rate", "status", folder), run(*words)
    few = re.search(r"2 raters are too few for a verdict; 4 are needed\. Good share .*%\.", status.stdout)
    assert few and few[0] in " ".join(compared.stdout.split())
    assert "settled" not in status.output
    advised = ["rate", "next", str(folder), "--people", "2"]
    assert next_words(status) == next_words(compared) == advised
    links = list(read_plan(folder).raters)
    run(*advised)
    plan = read_plan(folder)
    assert list(plan.raters)[:2] == links and plan.people == 4
    rate_all(folder, plan, good)
    collected(folder)
    status, compared = run("rate", "status", folder), run(*words, "--json")
    assert "settled: blimtar-7b is better" in status.stdout
    (pair,) = json.loads(compared.stdout)["pairs"]
    assert (pair["one"], pair["verdict"]) in {("blimtar-7b", "better"), ("quorvex-large", "worse")}
