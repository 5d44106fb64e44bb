"""The next replies to rate, drawn with known chances, so that weights of 1 / chance leave no bias.

Unrated models come first, on prompts that each rater has read. Otherwise further prompts are drawn, with all
models' replies to each. With a judge's run they come from strata of its Good share, most from strata where
ratings vary most by the judge's score (Neyman 1934). A prompt's chance is the drawn share of its stratum.
"""

import random
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from empathy_judge.data.errors import UserError
from empathy_judge.data.records import LABELS, Exchange, Judgment
from empathy_judge.rating.plan import Drawn, RatingPlan, blind_text, columns_of_models, item_of, named_models

STRATA: Final = 3
LEAST_IN_STRATUM: Final = 4  # prompts; of fewer no strata are made
LEAST_VARIANCE: Final = 0.05  # of a rating: judges are surer of single replies than they should be
Row = tuple[Exchange, ...]  # all models' replies to one prompt


def draw_next(
    plan: RatingPlan, pool: Sequence[Exchange], judgments: Sequence[Judgment] = (), *, each: int
) -> Drawn:
    """Give every rater about `each` more replies of a `pool`: the plan's files, and those of new models."""
    known = {item.id for item in plan.items.values()}
    pool = _under_known_ids(plan, pool)
    if not known & {item.id for item in pool}:
        raise UserError("rate next: none of these replies is in the plan; pass the plan's files")
    rng = random.Random(f"{plan.seed}-{plan.count_ratings()}")
    models = {item.model for item in plan.items.values()}
    unrated = {item.model for item in pool} - models
    if unrated:
        return _add_models(plan, pool, unrated, each, rng)
    rows = _rows(plan, pool)
    strata = _strata(rows, _good_shares(pool, judgments) if judgments else None)
    return _add_prompts(plan, rows, strata, each, rng)


def _under_known_ids(plan: RatingPlan, pool: Sequence[Exchange]) -> list[Exchange]:
    """Return the replies with the plan's ids: ids of rows without one depend on the files read together."""
    ids = {item.id for item in pool}
    known = {
        (item.model, item.content_digest): item.id
        for item in plan.items.values()
        if item.content_digest and item.id not in ids
    }
    found = [(item, known.pop((item.model, item.content_digest), item.id)) for item in pool]
    return [item if item.id == identity else replace(item, id=identity) for item, identity in found]


def _rows(plan: RatingPlan, pool: Sequence[Exchange]) -> list[Row]:
    """Return the prompts that may be drawn, without those of anchors, in the plan's random order."""
    columns, notes = columns_of_models(pool, plan.each, random.Random(plan.seed))
    if notes:
        raise UserError("rate next: too few prompts have replies by all models; make a new plan")
    anchors = {plan.items[key].id for key in plan.anchors}
    return [row for row in zip(*columns, strict=True) if not anchors & {item.id for item in row}]


def _good_shares(pool: Sequence[Exchange], judgments: Sequence[Judgment]) -> dict[str, float]:
    """Return the judge's probability of Good by reply, or 1 and 0 for a judge with labels only."""
    judged = {
        item.content_digest: float(item.label == LABELS[-1])
        if item.probabilities is None
        else item.probabilities[LABELS[-1]]
        for item in judgments
        if item.unscored is None
    }
    found = {item.id: judged[item.content_digest] for item in pool if item.content_digest in judged}
    if len(found) < len(pool) / 2:
        raise UserError(
            f"--run: it scored {len(found)} of these {len(pool)} replies; score the same files, or omit --run"
        )
    return found


@dataclass(frozen=True, slots=True)
class Stratum:
    """Prompts that have the same chance; `spread` is the standard deviation of a rating, by the judge."""

    rows: Sequence[Row]
    spread: float


def _strata(rows: Sequence[Row], good: Mapping[str, float] | None) -> list[Stratum]:
    """Return prompts by the judge's mean share of Good, in parts of equal size; one without a judge."""
    if good is None or len(rows) < STRATA * LEAST_IN_STRATUM:
        return [Stratum(rows, 1.0)]
    middle = sum(good.values()) / len(good)

    def shares(row: Row) -> list[float]:
        return [good.get(item.id, middle) for item in row]

    ordered = sorted(rows, key=lambda row: (sum(shares(row)), row[0].id))
    ends = [len(rows) * part // STRATA for part in range(STRATA + 1)]
    strata = []
    for start, end in pairwise(ends):
        part = ordered[start:end]
        variances = [share * (1 - share) for row in part for share in shares(row)]
        strata.append(Stratum(part, (LEAST_VARIANCE + sum(variances) / len(variances)) ** 0.5))
    return strata


def _add_prompts(
    plan: RatingPlan, rows: Sequence[Row], strata: Sequence[Stratum], each: int, rng: random.Random
) -> Drawn:
    taken = {item.id for item in plan.items.values()}
    models = len(rows[0]) if rows else 1
    wanted = max(len(strata), round(plan.people * each / models))
    free = [[row for row in part.rows if not taken & {item.id for item in row}] for part in strata]
    if not any(free):
        raise UserError("rate next: every reply is in the plan already; add raters with --people N")
    counts = _allocate([(len(part.rows), part.spread) for part in strata], list(map(len, free)), wanted)
    new = [row for part, count in zip(free, counts, strict=True) for row in rng.sample(part, count)]
    rng.shuffle(new)
    drawn = taken | {item.id for row in new for item in row}
    chances: dict[str, float] = {}
    for part in strata:
        _check_chances(plan, part)
        for column in zip(*part.rows, strict=True):
            share = sum(item.id in drawn for item in column) / len(column)
            chances |= {item.id: share for item in column}
    added = {
        token: [item.id for row in new[number :: plan.people] for item in row]
        for number, token in enumerate(plan.raters)
    }
    shown = [chances[identity] for identity in drawn if identity in chances]
    spread = " to ".join(dict.fromkeys(f"{chance:.2g}" for chance in (min(shown), max(shown))))
    by_judge = f", from {len(strata)} strata of the judge's score" if len(strata) > 1 else ""
    drawn_now = _extend(plan, [item for row in new for item in row], chances, added, rng)
    few = () if len(new) == wanted else (f"fewer than {each} per rater: no more prompts are left",)
    return replace(
        drawn_now,
        plan=replace(drawn_now.plan, undrawn=sum(map(len, free)) - len(new)),
        summary=f"{len(new)} more prompts{by_judge}; drawing probabilities are now {spread}",
        notes=(*few, *drawn_now.notes),
    )


def _allocate(sizes: Sequence[tuple[int, float]], free: Sequence[int], wanted: int) -> list[int]:
    """Return how many prompts to draw of each stratum: by size times spread, and one at least.

    >>> _allocate([(100, 0.5), (100, 0.25)], [90, 90], 40)
    [30, 10]
    """
    done = [size - left for (size, _), left in zip(sizes, free, strict=True)]
    wanted = min(wanted, sum(free))
    parts = [size * spread for size, spread in sizes]
    counts = [0] * len(sizes)
    for _ in range(wanted):
        # The stratum that lacks most of its part; one without any draw first.
        lacking = [
            (done[at] + counts[at] > 0, (done[at] + counts[at]) / part, at)
            for at, part in enumerate(parts)
            if counts[at] < free[at]
        ]
        counts[min(lacking)[-1]] += 1
    return counts


def _check_chances(plan: RatingPlan, part: Stratum) -> None:
    """Refuse strata that are not those of the last draw: within each, all chances are equal."""
    ids = {item.id for row in part.rows for item in row}
    chances = Counter((item.model, round(item.chance, 9)) for item in plan.items.values() if item.id in ids)
    if len(chances) > len({model for model, _ in chances}):
        raise UserError(
            "rate next: the last replies were drawn with another --run or other files; pass the same again"
        )


def _add_models(
    plan: RatingPlan, pool: Sequence[Exchange], unrated: set[str], each: int, rng: random.Random
) -> Drawn:
    """Add new models' replies to prompts that each rater has read already, as many as `each` allows."""
    replies: dict[str, dict[str, Exchange]] = {}
    for item in rng.sample(pool, len(pool)):
        if item.model in unrated:
            replies.setdefault(item.prompt_digest, {})[item.model] = item
    anchors, chance = set(plan.anchors), dict[str, float]()
    read: dict[str, list[str]] = {}
    for token, rater in plan.raters.items():
        mine = {plan.items[key].prompt_key: plan.items[key].chance for key in set(rater.order) - anchors}
        chance |= mine
        read[token] = sorted(prompt for prompt in mine if len(replies.get(prompt, ())) == len(unrated))
    there = sorted({prompt for prompts in read.values() for prompt in prompts})
    names = ", ".join(sorted(unrated))
    if not there:
        raise UserError(f"rate next: {names} have no reply to a prompt of the plan; make a new plan")
    count = max(1, each // len(unrated))
    share = min(1.0, count / max(map(len, read.values())))
    # One order of prompts for all raters: the number taken is then a share of all.
    kept = set(rng.sample(there, len(there))[: max(1, round(share * len(there)))])
    share = len(kept) / len(there)
    new = [item for prompt in sorted(kept) for item in replies[prompt].values()]
    chances = {item.id: share * chance[item.prompt_digest] for item in new}
    added = {
        token: [item.id for prompt in prompts if prompt in kept for item in replies[prompt].values()]
        for token, prompts in read.items()
    }
    drawn = _extend(plan, new, chances, added, rng)
    return replace(drawn, summary=f"{names}: on {len(kept)} prompts that are in the plan")


def _extend(
    plan: RatingPlan,
    new: Sequence[Exchange],
    chances: Mapping[str, float],
    added: Mapping[str, list[str]],
    rng: random.Random,
) -> Drawn:
    """Return the plan with new replies, `added` to each rater's in random order; both are by id."""
    keys = {item.id: secrets.token_hex(6) for item in new}
    items = {**plan.items, **{keys[item.id]: item_of(item, chance=chances[item.id]) for item in new}}
    items = {key: replace(item, chance=chances.get(item.id, item.chance)) for key, item in items.items()}
    more = {token: [keys[reply] for reply in rng.sample(ids, len(ids))] for token, ids in added.items()}
    raters = {
        token: replace(rater, order=(*rater.order, *more[token])) for token, rater in plan.raters.items()
    }
    each = max(len(rater.order) for rater in raters.values())
    return Drawn(
        plan=replace(plan, items=items, raters=raters, each=each),
        texts={keys[item.id]: blind_text(item) for item in new},
        notes=tuple(named_models(new, {item.model for item in items.values()})),
    )
