"""The longer campaign: hundreds of thousands of changed inputs over all targets, counted as JSON.

    python tests/fuzz/run.py --inputs 200000 --seed 0 > fuzz.json

The same seed gives the same inputs. Each target runs in a process of its own, so that a reader that brings
the interpreter down is found too. An input that breaks a reader is kept in `corpus/<target>/crash-...`, where
the tests try it from then on. The exit code is 1 if there is one.
"""

import argparse
import json
import multiprocessing
import signal
import sys
import traceback
import warnings
from hashlib import sha256
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parent))

from harness import CORPUS, TARGETS, corpus_of, try_input
from mutate import mutate

SLOW: Final = {  # a tenth of the inputs: each takes milliseconds
    "nights.sqlite", "emotionbench.xlsx", "journal.jsonl", "program.json", "judge.toml", "run.json",
    "any.xlsx", "rating-sheet.xlsx",
}  # fmt: skip
LONGEST_INPUT: Final = 10  # seconds; what takes longer hangs
MOST_CRASHES: Final = 5  # kept of a target; one place breaks in many ways


class Hangs(Exception):
    """An input that a reader does not get done with."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--inputs", type=int, default=200_000, help="over all targets")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", action="append", choices=sorted(TARGETS), help="only these")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--keep", type=Path, default=CORPUS, help="where inputs that break a reader are kept")
    given = parser.parse_args()
    started = monotonic()
    names = given.target or list(TARGETS)
    tasks = [(name, count, given.seed, given.keep) for name, count in share(names, given.inputs).items()]
    # Spawned: a fork of a process with threads may hang, and pyarrow starts some.
    with multiprocessing.get_context("spawn").Pool(given.processes, maxtasksperchild=1) as pool:
        waiting = {task[0]: pool.apply_async(fuzz, (task,)) for task in tasks}
        found = {name: _result(job, name) for name, job in waiting.items()}
    total = {key: sum(row[key] for row in found.values()) for key in ("inputs", "read", "refused", "crashes")}
    print(
        json.dumps(
            {"seed": given.seed, **total, "seconds": round(monotonic() - started), "targets": found}, indent=1
        )
    )
    return int(total["crashes"] > 0)


def share(names: list[str], inputs: int) -> dict[str, int]:
    """How many inputs each target gets, rounded up."""
    weights = {name: 1 if name in SLOW else 10 for name in names}
    return {name: -(-inputs * weight // sum(weights.values())) for name, weight in weights.items()}


def _result(job: Any, name: str) -> dict[str, Any]:
    """A target's counts; a process that died has none, and counts as a crash."""
    try:
        row: dict[str, Any] = job.get(timeout=1800)
    except multiprocessing.TimeoutError:
        row = {"inputs": 0, "read": 0, "refused": 0, "crashes": 1, "problems": ["the process died or hung"]}
    print(f"{name}: {json.dumps(row)}", file=sys.stderr, flush=True)
    return row


def fuzz(task: tuple[str, int, int, Path]) -> dict[str, Any]:
    """Try one target's seeds and changes of them; returns what came of them."""
    name, count, seed, keep = task
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, _stop)
    seeds, chance, started = corpus_of(name), Random(f"{seed} {name}"), monotonic()
    found: dict[str, Any] = {"inputs": 0, "read": 0, "refused": 0, "crashes": 0}
    problems: dict[str, tuple[str, bytes]] = {}
    for number in range(max(count, len(seeds))):
        data = seeds[number] if number < len(seeds) else mutate(seeds, chance)
        found["inputs"] += 1
        signal.alarm(
            LONGEST_INPUT if number >= len(seeds) else 0
        )  # the first of them also import what is needed
        try:
            found["read" if try_input(name, data) else "refused"] += 1
        except Exception as error:
            found["crashes"] += 1
            place = _place(error)
            if place not in problems or len(data) < len(problems[place][1]):  # the shortest says most
                problems[place] = (repr(error)[:120], data)
        finally:
            signal.alarm(0)
    for _, data in list(problems.values())[:MOST_CRASHES]:
        folder = keep / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"crash-{sha256(data).hexdigest()[:10]}").write_bytes(data)
    found["seconds"] = round(monotonic() - started, 1)
    return found | ({"problems": [f"{at}: {said}" for at, (said, _) in problems.items()]} if problems else {})


def _place(error: Exception) -> str:
    """Where and as what an input broke: one line for the same bug."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    ours = [frame for frame in traceback.extract_tb(error.__traceback__) if "/tests/" not in frame.filename]
    own = [
        frame
        for frame in ours
        if "site-packages" not in frame.filename and "/lib/python" not in frame.filename
    ]
    at = (own or [last])[-1]
    return f"{type(error).__name__} at {Path(at.filename).name}:{at.lineno}"


def _stop(*_: object) -> None:
    raise Hangs(f"more than {LONGEST_INPUT} s")


if __name__ == "__main__":
    sys.exit(main())
