"""The ceiling of a judge's agreement with people: how well people agree with each other.

It takes several ratings of one response. With one rating each, noise of the response and of the rater look
the same: the ceiling is *not identifiable*.
"""

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from empathy_judge.calibration.agreement import metrics
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
    """Return how far people agree among themselves, and whether the judge could be one of them."""
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
    paired = paired.take(ratings[codes] > 1)
    names, rows = np.unique(paired.rater, return_inverse=True)
    _, first, columns = np.unique(paired.id, return_index=True, return_inverse=True)
    table: Floats = np.full((len(names), len(first)), np.nan)  # (raters, items), nan without a rating
    table[rows, columns] = paired.rating
    prompts = np.unique(paired.prompt[first], return_inverse=True)[1]
    count = int(prompts.max()) + 1
    drawn = resample_clusters(count, rng=rng, draws=draws if count > 1 else 0)
    person, judge = _leave_out(table, paired.label[first], prompts, paired.levels, drawn)
    given = (table[:, :, None] == np.arange(1, paired.levels + 1)).sum(axis=0)
    alphas = [metrics.alpha_of(np.repeat(given, times[prompts], axis=0)) for times in drawn]
    alpha = Sampled(metrics.alpha_of(given), np.array(alphas)).estimate()
    return Ceiling(
        **sizes,
        population="these raters only" if sizes["raters"] < PANEL else "general",
        alpha_ordinal=metrics.refused_by_rarity({"alpha_ordinal": alpha}, table)["alpha_ordinal"],
        person_against_rest=person.estimate(),
        judge_against_rest=judge.estimate(),
        gap=(judge - person).estimate(),
    )


def _leave_out(
    table: Floats, judge: Integers, prompts: Integers, levels: int, drawn: Draws
) -> tuple[Sampled, Sampled]:
    """Compare person and judge with the median of the others, each person left out in turn."""
    turns = []
    for row, own in enumerate(table):
        items = np.flatnonzero(np.isfinite(own))
        others = np.delete(table[:, items], row, axis=0)
        is_shared = np.isfinite(others).any(axis=0)
        items = items[is_shared]
        rest = np.rint(np.nanmedian(others[:, is_shared], axis=0)) if len(items) else np.zeros(0)
        turns.append((items, own[items], rest))
    items, person, rest = (np.concatenate(part).astype(np.intp) for part in zip(*turns, strict=True))
    parties = {"person": person, "judge": judge[items]}
    qwk = metrics.TABLE_STATISTICS["qwk"]
    made = {name: metrics.from_table(qwk, labels, rest, levels) for name, labels in parties.items()}
    sampled = sample(made, prompts[items], drawn)
    values = {name: metrics.library_value("qwk", rest, labels, levels) for name, labels in parties.items()}
    one, other = (replace(sampled[name], value=value) for name, value in values.items())
    return one, other
