"""What `calibrate` makes of made-up judges and ratings, with every part a report can have."""

from functools import cache
from typing import Any

import numpy as np

from empathy_judge.calibration.fit import CalibrationOptions, CalibrationReport, calibrate
from empathy_judge.data.judgments import Judged, judgment_of_row
from empathy_judge.data.records import EMOTIONS, LABELS, Exchange, Rating, judgment_of, unscored

GOOD_SHARES = {"ada": 0.7, "bea/2": 0.5, "cyd": 0.3}
World = tuple[list[Judged], list[Rating], dict[str, Exchange]]


def make_world(*, raters: int = 1, prompts: int = 11, beside: str = "", long: str = "") -> World:
    """Make up three rated models, one that no line reaches, a judge that knows and one that guesses.

    Each reply is rated by so many `raters`, with 0 by somebody who rates nothing else. What is added `beside`
    every name and text, or makes a response `long`, tests the layout of pages.
    """
    chance = np.random.default_rng(0)
    exchanges, ratings, knows, guesses = {}, [], [], []
    for number in range(prompts * len(EMOTIONS)):
        emotion = EMOTIONS[number % len(EMOTIONS)]
        for model, share in {**GOOD_SHARES, "dot": 0.01}.items():
            good = float(np.clip(share + chance.normal(0, 0.05 if share > 0.1 else 0.001), 0.005, 0.95))
            exchange = Exchange(
                id=f"{number}-{model}{beside}",
                prompt=f"prompt {number}{beside}",
                response="so sorry " * (1 + round(10 * good)) + beside + long,
                model=f"{model}{beside}",
                emotion=f"{emotion}{beside}",
            )
            exchanges[exchange.id] = exchange
            parts = {"Bad": 0.4 * (1 - good), "Okay": 0.6 * (1 - good), "Good": good}
            knows.append(judgment_of(exchange, parts))
            guesses.append(judgment_of(exchange, {label: 1 / len(LABELS) for label in LABELS}))
            for rater in range(max(1, raters) if model in GOOD_SHARES else 0):
                rating = 1 + int(chance.choice(len(LABELS), p=list(parts.values())))
                name = f"{model} {number % 15 if raters else number}{beside}"
                if raters > 1:
                    name = f"rater {rater}{beside}"
                ratings.append(Rating(id=exchange.id, rater=name, rating=rating))
    knows[0] = unscored(next(iter(exchanges.values())), f"refused{beside}: no")
    facts: Any = {"version": "3", "rubric": "r1", "source": f"run{beside}", "cost": 0.12, "seconds": 8.0}
    judges = [
        Judged(name=f"tiny{beside}", judgments=tuple(knows), **facts),
        Judged(name=f"guess{beside}", judgments=tuple(guesses), source="table"),
    ]
    return judges, ratings, exchanges


def calibrate_world(world: World) -> CalibrationReport:
    """Calibrate the first judge of a world, with few draws."""
    judges, ratings, exchanges = world
    return calibrate(judges, ratings, exchanges=exchanges, options=CalibrationOptions(draws=40))


@cache
def one_rater() -> CalibrationReport:
    """One person rated each response: how far people agree is not identifiable."""
    return calibrate_world(make_world())


@cache
def on_five_levels() -> CalibrationReport:
    """Scores from 1 to 5 and no probabilities: models have means, not shares."""
    _, ratings, exchanges = make_world(raters=0, prompts=3)
    scale = tuple("12345")
    ratings = [Rating(id=item.id, rater=item.rater, rating=2 * item.rating - 1) for item in ratings]
    judgments = tuple(
        judgment_of_row(
            {"id": item.id, "model": item.model, "prompt": item.prompt, "score": 1 + len(item.response) % 5},
            scale=scale,
        )
        for item in exchanges.values()
    )
    options = CalibrationOptions(scale=scale, draws=40)
    return calibrate([Judged(name="tool", judgments=judgments)], ratings, options=options)


@cache
def single_rating() -> CalibrationReport:
    """One rating of one response: hardly anything is defined."""
    judges, ratings, _ = make_world()
    one = Judged(name="tiny", judgments=judges[0].judgments[1:2])
    rated = [item for item in ratings if item.id == one.judgments[0].id]
    return calibrate([one], rated, options=CalibrationOptions(draws=40))
