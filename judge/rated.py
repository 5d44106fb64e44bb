"""Rated exchanges for tuning a prompted judge, in parts that share no prompt."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from data.errors import UserError
from data.records import LABELS, Exchange
from judge.examples import Example
from judge.program import present


@dataclass(frozen=True, slots=True, kw_only=True)
class Rated:
    """An exchange with all its ratings, 1 to 3, and the fenced text that a judge is shown of it."""

    exchange: Exchange
    text: str
    ratings: tuple[int, ...]
    batches: tuple[str, ...]
    group: str

    @property
    def label(self) -> str:
        """What most of its raters said; of equally frequent ratings, the middle one."""
        most = max(map(self.ratings.count, self.ratings))
        tied = sorted(rating for rating in set(self.ratings) if self.ratings.count(rating) == most)
        return LABELS[tied[len(tied) // 2] - 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Rated exchanges in three parts that share neither prompt nor, where that can be, rating batch.

    Examples to show come from `learn`, the best candidate is chosen on `choose`, and `held_out` is asked
    about before and after and used for nothing else.
    """

    learn: tuple[Rated, ...]
    choose: tuple[Rated, ...]
    held_out: tuple[Rated, ...]
    batches_apart: bool


def merge_ratings(examples: Sequence[Example]) -> list[Rated]:
    """One entry for each exchange, with the ratings of all its raters."""
    found: dict[str, list[Example]] = {}
    for example in examples:
        found.setdefault(example.exchange.content, []).append(example)
    return [
        Rated(
            exchange=items[0].exchange,
            text=present(items[0].exchange).text,
            ratings=tuple(1 + item.target.index(max(item.target)) for item in items),
            batches=tuple(item.batch for item in items),
            group=items[0].group,
        )
        for items in found.values()
    ]


def split_rated(rated: Sequence[Rated], *, held_out_part: float, seed: int) -> Parts:
    """Whole prompts and rating batches to each part; prompts alone where batches tie them all together."""
    if not 0 < held_out_part < 1:
        raise UserError(f"--held-out {held_out_part:g}: a part between 0 and 1 is needed")
    batches_apart = len(_clusters(rated, batches_apart=True)) >= 3
    clusters = _clusters(rated, batches_apart=batches_apart)
    if len(clusters) < 3:
        raise UserError(
            f"{len(clusters)} prompts cannot be split into three parts; bring ratings of more prompts"
        )
    random.Random(seed).shuffle(clusters)
    held_out = _take(clusters, held_out_part * len(rated), leave=2)
    choose = _take(clusters, sum(map(len, clusters)) / 2, leave=1)
    learn = [item for cluster in clusters for item in cluster]
    return Parts(
        learn=tuple(learn), choose=tuple(choose), held_out=tuple(held_out), batches_apart=batches_apart
    )


def _clusters(rated: Sequence[Rated], *, batches_apart: bool) -> list[list[Rated]]:
    """Exchanges tied together by a prompt or a batch, directly or through others."""
    found: list[tuple[set[str], list[Rated]]] = []
    for item in rated:
        ties = {f"prompt {item.group}"}
        if batches_apart:
            ties |= {f"batch {name}" for name in item.batches}
        members = [item]
        for cluster in [cluster for cluster in found if cluster[0] & ties]:
            ties |= cluster[0]
            members = cluster[1] + members
            found.remove(cluster)
        found.append((ties, members))
    return [members for _, members in found]


def _take(clusters: list[list[Rated]], size: float, *, leave: int) -> list[Rated]:
    """Clusters off the end until there are about `size` exchanges; at least one, and some are left."""
    taken: list[Rated] = []
    while len(clusters) > leave and (not taken or len(taken) + len(clusters[-1]) / 2 < size):
        taken += clusters.pop()
    return taken
