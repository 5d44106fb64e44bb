"""The ceiling of a judge's agreement with people: how well people agree with each other.

It takes several ratings of one response. With one rating each, noise of the response and of the rater look
the same: the ceiling is *not identifiable*.
"""

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from empathy_judge.calibration.agreement.metrics import (
    TABLE_STATISTICS,
    alpha_of,
    from_table,
    library_value,
    refused_by_rarity,
)
from empathy_judge.calibration.bootstrap import Draws, Sampled, resample_clusters, sample
from empathy_judge.calibration.estimate import UNDEFINED, Estimate, Floats, Integers, Population
from empathy_judge.calibration.pairing import Paired

PANEL: Final = 10  # raters; a smaller panel does not generalize to other raters
MIN_SHARED: Final = 10  # replies with several ratings; fewer give no figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """The agreement of people with each other, or why it is not known.

    `alpha_ordinal` is Krippendorff's, over responses with two ratings or more. `person_against_rest` and
    `judge_against_rest` are the QWKs with the median of the other people, each person left out in turn and
    all turns counted in one table; `gap` is judge - person. Intervals are over prompts: the
    agreement of a small panel is that of these raters.
    """

    raters: int
    responses: int
    shared: int  # responses with two ratings or more
    not_identifiable: str | None = None
    population: Population = "general"
    alpha_ordinal: Estimate = UNDEFINED
    person_against_rest: Estimate = UNDEFINED
    judge_against_rest: Estimate = UNDEFINED
    gap: Estimate = UNDEFINED


def ceiling(paired: Paired, *, rng: np.random.Generator, draws: int = 2000) -> Ceiling:
    """Return how far people agree among themselves, and whether the judge could be one of them.

    Intervals resample prompts.
    """
    names, codes, ratings = np.unique(paired.id, return_inverse=True, return_counts=True)
    shared = int((ratings > 1).sum())
    sizes: dict[str, Any] = {
        "raters": len(np.unique(paired.rater)),
        "responses": len(names),
        "shared": shared,
    }
    if shared < MIN_SHARED:
        few = f"only {shared} replies have two or more ratings" if shared else "every reply has one rating"
        return Ceiling(
            **sizes,
            not_identifiable=f"not identifiable: {few}, so rater noise and judge noise cannot be separated",
        )
    grid = RatingGrid.of(paired.take(ratings[codes] > 1))
    count = int(grid.clusters.max()) + 1
    drawn = resample_clusters(count, rng=rng, draws=draws if count > 1 else 0)
    person, judge = _leave_out(grid, drawn)
    return Ceiling(
        **sizes,
        population="these raters only" if sizes["raters"] < PANEL else "general",
        alpha_ordinal=_alpha(grid, drawn),
        person_against_rest=person.estimate(),
        judge_against_rest=judge.estimate(),
        gap=(judge - person).estimate(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingGrid:
    """Paired ratings as a table, (raters, items), nan where a rater did not rate."""

    table: Floats
    judge: Floats  # the judge's label of each item
    clusters: Integers  # each item's prompt
    raters: tuple[str, ...]
    levels: int

    @classmethod
    def of(cls, paired: Paired) -> "RatingGrid":
        """Return paired ratings as a table, items in order of their ids."""
        names, rows = np.unique(paired.rater, return_inverse=True)
        _, first, columns = np.unique(paired.id, return_index=True, return_inverse=True)
        table = np.full((len(names), len(first)), np.nan)
        table[rows, columns] = paired.rating
        return cls(
            table=table,
            judge=paired.label[first].astype(float),
            clusters=np.unique(paired.prompt[first], return_inverse=True)[1],
            raters=tuple(str(name) for name in names),
            levels=paired.levels,
        )


def _alpha(grid: RatingGrid, drawn: Draws) -> Estimate:
    levels = np.arange(1, grid.levels + 1)
    counts = (grid.table[:, :, None] == levels).sum(axis=0)
    draws = [alpha_of(np.repeat(counts, times[grid.clusters], axis=0)) for times in drawn]
    alpha = Sampled(alpha_of(counts), np.array(draws)).estimate()
    return refused_by_rarity({"alpha_ordinal": alpha}, grid.table)["alpha_ordinal"]


def _leave_out(grid: RatingGrid, drawn: Draws) -> tuple[Sampled, Sampled]:
    """Compare person and judge with the median of the others, each person left out in turn."""
    turns = []
    for row in range(len(grid.raters)):
        items = np.flatnonzero(np.isfinite(grid.table[row]))
        others = np.delete(grid.table[:, items], row, axis=0)
        is_shared = np.isfinite(others).any(axis=0)
        items = items[is_shared]
        rest = np.rint(np.nanmedian(others[:, is_shared], axis=0)) if len(items) else np.zeros(0)
        turns.append((items, grid.table[row, items], rest))
    items, person, rest = (np.concatenate([turn[part] for turn in turns]) for part in range(3))
    items, rest = items.astype(np.intp), rest.astype(np.intp)
    parties = {"person": person.astype(np.intp), "judge": grid.judge[items].astype(np.intp)}
    qwk = TABLE_STATISTICS["qwk"]
    made = {name: from_table(qwk, labels, rest, grid.levels) for name, labels in parties.items()}
    sampled = sample(made, grid.clusters[items], drawn)
    values = {name: library_value("qwk", rest, labels, grid.levels) for name, labels in parties.items()}
    one, other = (replace(sampled[name], value=value) for name, value in values.items())
    return one, other
