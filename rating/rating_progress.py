"""Progress of a plan: its ratings as a table, how wide the interval is, and how many each rater has done."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from calibration.comparison.stop_rule import CrossedRatings, Width, width_so_far
from calibration.pairing import LEAST_RATERS
from data.records import LABELS
from rating.collect import CONSISTENCY_FILE, collect, rating_row, read_collected
from rating.journal import Entry, read_journal
from rating.plan import RatingPlan


def interval_width(plan: RatingPlan, ratings: Sequence[tuple[str, Entry]]) -> Width | None:
    """Return half the interval of two models' difference in Good, or of the share of a single model.

    It is the stop rule's, which holds at every look. None while too few have rated.
    """
    rows = [
        rating_row(plan, token, entry) for token, entry in ratings if not plan.is_check(token, entry.place)
    ]
    return width_so_far(crossed_ratings(plan, rows), plan.count_design()) if rows else None


def crossed_ratings(plan: RatingPlan, rows: Iterable[Mapping[str, Any]]) -> CrossedRatings:
    """Return rows of ratings.jsonl as columns, with chances as the plan has them now."""
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


def read_all_ratings(folder: Path, plan: RatingPlan, files: Sequence[Path] = ()) -> CrossedRatings:
    """Return the ratings of the journal, of files, and of an earlier collection."""
    rows = {(row["rater"], row["id"]): row for row in read_collected(folder)}
    rows |= {(row["rater"], row["id"]): row for row in collect(folder, files).rows}
    return crossed_ratings(plan, rows.values())


def count_rated(folder: Path, plan: RatingPlan) -> dict[str, int]:
    """Return the number of ratings by rater's token: given on the page, or collected from files."""
    places = _collected_places(folder, plan)
    for token, entry in read_journal(folder, plan):  # the page counts: there a rating may be undone
        (places[token].discard if entry.label is None else places[token].add)(entry.place)
    return {token: len(found) for token, found in places.items()}


def _collected_places(folder: Path, plan: RatingPlan) -> dict[str, set[int]]:
    """Return the places of each rater's order that were collected; checks are in a file of their own."""
    path = folder / CONSISTENCY_FILE
    checks = json.loads(path.read_text(encoding="utf-8"))["raters"] if path.exists() else {}
    ratings = {(row["rater"], row["id"]) for row in read_collected(folder)}
    places = {}
    for token, rater in plan.raters.items():
        mine = checks.get(rater.name, {"anchors": {}, "repeats": {}})
        places[token] = {
            place
            for place, key in enumerate(rater.order)
            if (name := plan.items[key].id) in mine["repeats"]
            or (
                not plan.is_repeat(token, place)
                and (name in mine["anchors"] or (rater.name, name) in ratings)
            )
        }
    return places
