"""Ask a judge about the same replies several times, and count the labels that change."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Final

from empathy_judge.calibration.fit import Repeats
from empathy_judge.data.storage import find_sources
from empathy_judge.data.tables import notice_unit, read_responses
from empathy_judge.data.text import money
from empathy_judge.judge.base import load_judge
from empathy_judge.judge.budget import Budget

REPLIES: Final = 30


def repeat_judgments(
    files: Sequence[Path],
    name: str,
    times: int,
    *,
    budget: Budget,
    on_read: Callable[[Sequence[str]], object],
) -> Repeats:
    """Judge some replies of the files so often without reuse, and count those whose label changed.

    The calls and what they may cost are announced by `on_read`.
    """
    with closing(load_judge(name, unit=notice_unit(find_sources(files)))) as judge:
        judge.use_budget(budget)
        found = list(read_responses(files, on_bad=lambda bad: None, unit=judge.unit))
        replies = Random(0).sample(found, min(REPLIES, len(found)))
        calls = f"{judge.name}: {len(replies)} replies {times} times for --repeat"
        if judge.endpoints:
            costs = [judge.most_cost(item) for item in replies]
            most = "unknown" if None in costs else f"at most about {money(times * sum(filter(None, costs)))}"
            calls += f"; cost {most}"
        on_read([calls])
        with ThreadPoolExecutor(judge.concurrency) as threads:
            labels = list(threads.map(lambda item: judge.judge(item).label, [*replies] * times))
    changed = sum(len(set(labels[place :: len(replies)])) > 1 for place in range(len(replies)))
    return Repeats(replies=len(replies), times=times, changed=changed)
