"""All replies to a prompt graded in one call, in an order drawn by seed, named by letters."""

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from math import ceil
from typing import Any, Final

from empathy_judge.data.readers.conversations import opening_digest
from empathy_judge.data.records import CONVERSATION, Exchange, Judgment
from empathy_judge.data.runs import Run
from empathy_judge.data.tables import to_line, to_row
from empathy_judge.judge.engine import in_threads, still_to_judge
from empathy_judge.judge.llm.prompt_injection import LETTERS

Place = tuple[int, Exchange]  # an exchange with its position in the input
MOST: Final = len(LETTERS)


def score_groups(judge: Any, exchanges: Iterable[Exchange], run: Run, *, limit: int | None = None) -> None:
    """Judge what `run` does not hold yet, in one call for all replies to a prompt."""
    every = list(islice(enumerate(exchanges), limit))
    left = dict(still_to_judge((exchange for _, exchange in every), run, limit))
    groups = (
        group for group in iter_groups(every, seed=judge.seed, unit=judge.unit) if left.keys() & dict(group)
    )

    def keep(group: Sequence[Place], judgments: Sequence[Judgment]) -> None:
        kept = {
            position: to_line(to_row(judgment))
            for (position, _), judgment in zip(group, judgments, strict=True)
            if position in left
        }
        run.keep_lines(list(kept), list(kept.values()))

    in_threads(
        judge.concurrency,
        groups,
        lambda group: judge.judge_group([exchange for _, exchange in group]),
        keep,
        asked=judge,
    )


def iter_groups(places: Iterable[Place], *, seed: int, unit: str) -> Iterator[Sequence[Place]]:
    """Yield the replies to each prompt in random order, in groups of at most eight and of similar size."""
    by_prompt: dict[Any, list[Place]] = {}
    for place in places:
        exchange = place[1]
        key = opening_digest(exchange) if unit == CONVERSATION else (exchange.prompt, exchange.dialogue)
        by_prompt.setdefault(key, []).append(place)
    for group in by_prompt.values():
        order = sorted(group, key=lambda place: place[1].reply_digest)  # whatever order the file has
        random.Random(f"{seed} {order[0][1].content_digest}").shuffle(order)
        size = ceil(len(order) / ceil(len(order) / MOST))
        yield from (order[start : start + size] for start in range(0, len(order), size))
