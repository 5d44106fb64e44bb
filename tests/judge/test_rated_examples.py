"""Rated replies in a judge's prompt: of all levels, of ordinary length, and never of the judged prompt."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from command_line import write_toml
from servers import ScriptedServer, answer_chat, shares

from empathy_judge.data.errors import UserError
from empathy_judge.data.records import Exchange
from empathy_judge.data.tables import write_rows
from empathy_judge.judge.base import load_judge
from empathy_judge.judge.llm.prompted import PromptedJudge
from empathy_judge.judge.llm.rated_examples import INTRODUCTION

LEVELS = {"Bad": "Whatever.", "Okay": "I see.", "Good": "I am so sorry."}
RATED = re.compile(r"what the speaker said ---\n(.*)\n.*\n(.*)\n=== \w+ end ===\nRatings: (.*)")
OTHER = Exchange(id="x", prompt="Something else.", response="Oh no!")


def write_rated(prompts: int, *, extra: Sequence[dict[str, str]] = ()) -> list[str]:
    """Write replies of each level to every prompt, each rated by three people, of whom one differs."""
    replies = [
        {"id": f"{label}{n}", "prompt": f"Day {n}.", "response": f"{text} {'So. ' * (n % 3)}".strip()}
        for n in range(prompts)
        for label, text in LEVELS.items()
    ]
    replies += extra
    ratings = [
        {
            "id": row["id"],
            "rater": rater,
            "rating": "Okay" if rater == "c" else row["id"].rstrip("0123456789"),
        }
        for row in replies
        for rater in "abc"
    ]
    write_rows(Path("replies.jsonl"), replies)
    write_rows(Path("ratings.jsonl"), ratings)
    by_id = {row["id"]: row for row in replies}
    write_rows(Path("rated.jsonl"), [by_id[row["id"]] | row for row in ratings])
    return ["replies.jsonl", "ratings.jsonl"]


def make(examples: str | list[str] = "", **options: object) -> PromptedJudge:
    table = {"kind": "prompted", "model": "m", "base_url": "http://127.0.0.1:9/v1", **options}
    judge = load_judge(write_toml("judge.toml", **table, **({"examples": examples} if examples else {})))
    assert isinstance(judge, PromptedJudge)
    return judge


def shown(judge: PromptedJudge, exchange: Exchange = OTHER) -> list[tuple[str, str, str]]:
    """The prompts, replies and ratings that a request shows before the exchange."""
    (body,) = judge.write_requests(exchange)
    system = body["messages"][0]["content"]
    assert system.count(INTRODUCTION) == 1 and exchange.response not in system
    return RATED.findall(system)


@pytest.mark.parametrize(("prompts", "count"), [(7, 7), (8, 8), (40, 8)])
def test_six_to_eight_of_all_levels_with_what_people_said(prompts: int, count: int) -> None:
    rated = shown(make(write_rated(prompts)))
    assert len(rated) == count == len({prompt for prompt, _, _ in rated}), "each of another prompt"
    ratings = {
        next(label for label, text in LEVELS.items() if text in reply): said for _, reply, said in rated
    }
    assert ratings == {"Bad": "2 Bad, 1 Okay", "Okay": "3 Okay", "Good": "1 Okay, 2 Good"}
    times = [sum(text in reply for _, reply, _ in rated) for text in LEVELS.values()]
    assert max(times) - min(times) <= 1


def test_of_one_level_those_of_ordinary_length_are_shown() -> None:
    long = [{"id": f"Good9{n}", "prompt": f"Long {n}.", "response": f"So? {n} " * 500} for n in range(20)]
    assert not [prompt for prompt, _, _ in shown(make(write_rated(20, extra=long))) if "Long" in prompt]


@pytest.mark.parametrize("mode", ["shares", "label", "analytic"])
def test_none_is_of_the_judged_prompt(mode: str) -> None:
    judge = make(write_rated(8), mode=mode)
    every = [prompt for prompt, _, _ in shown(judge)]
    for prompt in every:
        judged = Exchange(id="x", prompt=prompt, response="Hello there!")
        assert [other for other, _, _ in shown(judge, judged)] == [name for name in every if name != prompt]


def test_they_decide_the_version_and_reach_the_server() -> None:
    versions = {make().version, *(make(write_rated(prompts)).version for prompts in (7, 8))}
    assert len(versions) == 3
    with ScriptedServer(lambda call: answer_chat(call, shares(60, 30))) as server:
        judge = make(write_rated(8), base_url=server.base_url)
        assert judge.version in versions and judge.judge(OTHER).label == "Good"
        judge.close()
        (call,) = server.calls
    assert call.body["messages"] == judge.write_requests(OTHER)[0]["messages"]


def test_one_file_or_two() -> None:
    two = make(write_rated(8))
    assert shown(two) == shown(make("rated.jsonl")) and two.version == make("rated.jsonl").version


def test_ratings_of_too_few_prompts_are_refused() -> None:
    with pytest.raises(UserError, match="examples: rated replies to 7 prompts are needed, not to 6"):
        make(write_rated(6))
