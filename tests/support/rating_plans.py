"""Rating plans of made-up replies, and the models' names that no rater may meet."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx
from served import LONGEST, running

from empathy_judge.data.records import Exchange, Turn
from empathy_judge.rating.plan import RatingPlan, draw_plan, write_plan
from empathy_judge.rating.rating_app import PublicStudy, make_rating_app

NAMES = ("quorvex-large", "blimtar-7b", "zendolo-mini")


def made_replies(prompts: int = 40, models: tuple[str, ...] = NAMES) -> list[Exchange]:
    """Every model's reply to every prompt; a speaker of the earlier turns bears the model's name."""
    return [
        Exchange(
            id=f"{model}/{number}",
            model=model,
            prompt=f"I lost my key number {number}.",
            response=f"Oh no, key {number}! Where did you have it last? ({index})",
            situation=f"Somebody stands before door {number}." if number % 2 else None,
            dialogue=(Turn(speaker="user", text="Hello."), Turn(speaker=model, text="Hello, you."))
            if number % 3 == 0
            else (),
        )
        for number in range(prompts)
        for index, model in enumerate(models)
    ]


def make_plan(folder: Path, *, people: int = 3, each: int = 12, prompts: int = 40) -> RatingPlan:
    """Draw a plan into a folder."""
    drawn = draw_plan(made_replies(prompts), people=people, each=each, seed=1)
    write_plan(drawn.plan, drawn.texts, folder)
    return drawn.plan


@contextmanager
def serving_plan(folder: Path, study: PublicStudy | None = None) -> Iterator[httpx.Client]:
    """Yield a client of a server of this plan, which is there as long as the `with` block."""
    with (
        running(partial(make_rating_app, folder, study=study)) as url,
        httpx.Client(base_url=url, timeout=LONGEST) as client,
    ):
        yield client
