"""What a plan's ratings say so far: where its models stand, and how wide the interval is."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from calibration.comparison.stop_rule import CrossedRatings, Width
from calibration.comparison.stop_rule import width_so_far as crossed_width
from calibration.pairing import LEAST_RATERS
from data.records import LABELS
from data.tables import read_rows
from rating.collect import CONSISTENCY_FILE, RATINGS_FILE, collect, rating_row
from rating.journal import Entry, read_journal
from rating.plan import Plan


def width_so_far(plan: Plan, ratings: Sequence[tuple[str, Entry]]) -> Width | None:
    """Half the interval of two models' difference in Good, or of the share where there is one model.

    It is the stop rule's, which may be looked at after every rating. None while too few have rated.
    """
    rows = [
        rating_row(plan, token, entry)
        for token, entry in ratings
        if plan.raters[token].order[entry.place] not in plan.anchors
        and not plan.is_repeat(token, entry.place)
    ]
    return crossed_width(crossed_ratings(plan, rows), plan.count_design()) if rows else None


def crossed_ratings(plan: Plan, rows: Iterable[Mapping[str, Any]]) -> CrossedRatings:
    """Rows of ratings.jsonl as columns, with chances as the plan has them now."""
    chance = {item.id: item.chance for item in plan.items.values()}
    taken = [row for row in rows if row["id"] in chance]
    return CrossedRatings(
        rater=np.array([row["rater"] for row in taken]),
        prompt=np.array([row["prompt_key"] for row in taken]),
        model=np.array([row["model"] for row in taken]),
        value=np.array([float(row["rating"] == LABELS[-1]) for row in taken]),
        chance=np.array([chance[row["id"]] for row in taken]),
        speaks_for="people" if plan.people >= LEAST_RATERS else "these raters",
    )


def read_so_far(folder: Path, plan: Plan, files: Sequence[Path] = ()) -> CrossedRatings:
    """All ratings there are: the journal's, those in files, and those that were collected before."""
    rows = {(row["rater"], row["id"]): row for row in _collected(folder)}
    rows |= {(row["rater"], row["id"]): row for row in collect(folder, files).rows}
    return crossed_ratings(plan, rows.values())


def count_rated(folder: Path, plan: Plan) -> dict[str, int]:
    """How many ratings of each rater there are, by token: given on the page, or collected from files."""
    places = _collected_places(folder, plan)
    for token, entry in read_journal(folder, plan):  # the page knows better: there a rating may be taken back
        (places[token].discard if entry.label is None else places[token].add)(entry.place)
    return {token: len(found) for token, found in places.items()}


def _collected_places(folder: Path, plan: Plan) -> dict[str, set[int]]:
    """Which places of each rater's order were collected; what was for consistency is in a file of its own."""
    path = folder / CONSISTENCY_FILE
    told = json.loads(path.read_text(encoding="utf-8"))["raters"] if path.exists() else {}
    ratings = {(row["rater"], row["id"]) for row in _collected(folder)}
    places = {}
    for token, rater in plan.raters.items():
        about = told.get(rater.name, {"anchors": {}, "repeats": {}})
        places[token] = {
            place
            for place, key in enumerate(rater.order)
            if (name := plan.items[key].id) in about["repeats"]
            or (
                not plan.is_repeat(token, place)
                and (name in about["anchors"] or (rater.name, name) in ratings)
            )
        }
    return places


def _collected(folder: Path) -> list[dict[str, Any]]:
    path = folder / RATINGS_FILE
    return [row for _, row in read_rows(path)] if path.exists() else []
