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
from empathy_judge.judge.base import load_judge
from empathy_judge.judge.budget import Budget, say_calls

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
        text = f"{judge.name}: {len(replies)} replies {times} times for --repeat"
        calls = [call for item in replies for call in judge.guess_calls(item)]
        on_read([f"{text}: {say_calls(calls, times)}" if calls else text])
        with ThreadPoolExecutor(judge.concurrency) as threads:
            labels = list(threads.map(lambda item: judge.judge(item).label, [*replies] * times))
    changed = sum(len(set(labels[place :: len(replies)])) > 1 for place in range(len(replies)))
    return Repeats(replies=len(replies), times=times, changed=changed)
