"""Kills at random steps and times, failing disks and two processes at once: nothing is lost or doubled.

    python tests/trust/kills.py [--kills 100] [--seed 0] [--only score ...]

The same seed puts the faults at the same steps; every other kill comes at a random time. Prints a table
with a row for each command; the exit code is 1 if anything was lost or doubled.
"""

import argparse
import json
import os
import socket
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support"), str(ROOT / "tests" / "slow" / "faults")]

import httpx  # noqa: E402
from faults import Campaign, Harm, Nursery, open_nursery  # noqa: E402
from rating_plans import make_plan  # noqa: E402
from test_kills import CASES, KINDS, LOADED  # noqa: E402

from empathy_judge.data.records import LABELS  # noqa: E402
from empathy_judge.rating.journal import JOURNAL_FILE  # noqa: E402

COMMANDS: Final = (
    "nightly",
    "calibrate",
    "rate open",
    *(name for name in CASES if name not in ("nightly", "calibrate")),
)  # the slowest first


@dataclass
class Row:
    """What happened to one command."""

    command: str
    kills: int = 0
    disk: int = 0
    races: int = 0
    lost: int = 0
    doubled: int = 0
    seconds: int = 0
    stories: list[str] = field(default_factory=list)

    def attempt(self, act: Callable[..., int | None], *given: Any, **options: Any) -> int:
        """Return how often a fault struck, and count what it did."""
        try:
            return act(*given, **options) or 0
        except Harm as harm:
            self.lost, self.doubled = self.lost + harm.lost, self.doubled + harm.doubled
            self.stories.append(str(harm)[-1500:])
        except AssertionError as error:  # a message that does not help, or a traceback
            self.lost += 1
            self.stories.append(str(error)[-1500:])
        return 1


def disturb(name: str, wanted: int, first: int) -> Row:
    """Kill a command `wanted` times, fail its disk half as often, and run it twice at once."""
    row, started = Row(name), monotonic()
    with ExitStack() as stack:
        nursery, place = start_nursery(stack)
        if name == "rate open":
            row.attempt(rate_while_killed, row, nursery, place, wanted, Random(first))
        else:
            make, _ = CASES[name]
            campaign = Campaign(replace(make(stack), name=name), nursery, place)
            for seed in range(first, first + 10 * wanted):
                if row.kills >= wanted:
                    break
                row.kills += row.attempt(campaign.kill, seed, times=min(2, wanted - row.kills))
            for seed in range(first, first + wanted // 8):
                for kind in KINDS:
                    row.attempt(campaign.fail, seed, kind)
                    row.disk += 1
            other, _ = start_nursery(stack)
            for _ in range(wanted // 10):
                row.attempt(campaign.race, other)
                row.races += 1
    row.seconds = round(monotonic() - started)
    return row


def start_nursery(stack: ExitStack) -> tuple[Nursery, Path]:
    modules = (
        *LOADED,
        "empathy_judge.rating.rating_app",
        "empathy_judge.server.process",
        "empathy_judge.server.middleware",
    )
    return stack.enter_context(open_nursery(*modules)), Path(stack.enter_context(TemporaryDirectory()))


def rate_while_killed(row: Row, nursery: Nursery, place: Path, wanted: int, chance: Random) -> None:
    """Rate on a page whose server is killed; a rating without an answer is sent again.

    Every rating that was acknowledged must be in the journal once.
    """
    plan = make_plan(place / "plan", people=8, each=50)
    acts = [
        (token, {"place": number, "key": key, "n": 1, "label": chance.choice(LABELS)})
        for token, rater in plan.raters.items()
        for number, key in enumerate(rater.order)
    ]
    chance.shuffle(acts)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    done = 0
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        for number in range(wanted):
            until = len(acts) if number == wanted - 1 else min(len(acts), done + chance.randrange(1, 8))
            with nursery.started(place, "rate", "open", "plan", "--port", port):
                wait_until_up(client)
                if number % 2 and until < len(
                    acts
                ):  # killed while it works on a rating that nobody waits for
                    token, act = acts[until]
                    with suppress(httpx.HTTPError):
                        client.post(f"/r/{token}/ratings", json=act, timeout=chance.random() * 0.01 + 1e-4)
                for token, act in acts[done:until]:
                    client.post(f"/r/{token}/ratings", json=act).raise_for_status()
            done, row.kills = until, row.kills + 1
    lines = (place / "plan" / JOURNAL_FILE).read_text(encoding="utf-8").splitlines()
    found = Counter((each["token"], each["key"], each["label"]) for each in map(json.loads, lines))
    expected = Counter((token, act["key"], act["label"]) for token, act in acts)
    lost, more = (expected - found).total(), (found - expected).total()
    if lost or more:
        raise Harm("rate open", lost=lost, doubled=more)


def wait_until_up(client: httpx.Client) -> None:
    deadline = monotonic() + 60  # against hanging only
    while monotonic() < deadline:
        with suppress(httpx.TransportError):
            client.get("/")
            return
    raise AssertionError("rate open does not start")


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill commands, fail their disks, run two at once.")
    parser.add_argument("--kills", type=int, default=100, help="for each command")
    parser.add_argument("--seed", type=int, default=0, help="of the places of the faults")
    parser.add_argument("--only", nargs="+", choices=COMMANDS, default=list(COMMANDS))
    options = parser.parse_args()
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    first, rows = options.seed * 10_000, []
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(disturb, name, options.kills, first) for name in options.only]
        print("| command | kills | disk failures | two processes | lost | doubled | seconds |", flush=True)
        print("|---|---|---|---|---|---|---|", flush=True)
        for future in as_completed(waiting):
            rows.append(row := future.result())
            cells = (row.command, row.kills, row.disk, row.races, row.lost, row.doubled, row.seconds)
            print("| " + " | ".join(map(str, cells)) + " |", flush=True)
    for story in (story for row in rows for story in row.stories):
        print(story, file=sys.stderr)
    return int(any(row.lost or row.doubled or row.stories for row in rows))


if __name__ == "__main__":
    sys.exit(main())
