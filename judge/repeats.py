"""Ask a judge about the same replies several times, and count the labels that change."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Final

from empathy_judge.calibration.fit import Repeats
from empathy_judge.data.records import Exchange
from empathy_judge.data.tables import read_responses
from empathy_judge.data.text import money
from empathy_judge.judge.base import Judge

REPLIES: Final = 30


def draw_replies(files: Sequence[Path], *, unit: str, seed: int = 0) -> list[Exchange]:
    """Draw some replies of the files."""
    found = list(read_responses(files, on_bad=lambda bad: None, unit=unit))
    return Random(seed).sample(found, min(REPLIES, len(found)))


def describe_repeats(judge: Judge, replies: Sequence[Exchange], times: int) -> str:
    """Announce the calls and what they may cost."""
    costs = [judge.most_cost(item) for item in replies]
    most = "unknown" if None in costs else f"at most about {money(times * sum(filter(None, costs)))}"
    calls = f"{judge.name}: {len(replies)} replies {times} times for --repeat"
    return f"{calls}; cost {most}" if judge.endpoints else calls


def repeat_judgments(judge: Judge, replies: Sequence[Exchange], times: int) -> Repeats:
    """Judge every reply so often without reuse, and count those whose label changed."""
    with ThreadPoolExecutor(judge.concurrency) as threads:
        labels = list(threads.map(lambda item: judge.judge(item).label, [*replies] * times))
    changed = sum(len(set(labels[place :: len(replies)])) > 1 for place in range(len(replies)))
    return Repeats(replies=len(replies), times=times, changed=changed)
