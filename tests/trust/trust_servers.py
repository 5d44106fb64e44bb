"""Both servers killed without a warning while they are asked, many times: `serve`, and the rating page's.

    python tests/trust/trust_servers.py --kills 100

Started again on the same port, `serve` must answer as before, and no rating that was acknowledged may be lost
or be there twice. As JSON; the exit code is 1 where one was.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from threading import Event, Semaphore, Thread
from time import monotonic
from typing import Any, Final, NamedTuple

import httpx

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from faults import Nursery, open_nursery  # noqa: E402
from rating_plans import make_plan  # noqa: E402

from data.records import LABELS  # noqa: E402
from rating.plan import read_plan  # noqa: E402

LOADED: Final = ("commands.serve", "server.app", "server.process", "rating.rating_server", "h11", "uvicorn")
LONGEST_START: Final = 300.0  # seconds, on a busy machine
MOST_ANSWERS: Final = 15  # that it gives before it is killed
LONGEST_LIFE: Final = 30.0  # seconds, where it is slow
# One for all: each would read certificates first. No connection is kept: its server may be dead.
CLIENT: Final = httpx.Client(timeout=60, limits=httpx.Limits(max_keepalive_connections=0), trust_env=False)


class Limits(NamedTuple):
    """How often each server is killed, and for how long that may go on."""

    kills: int
    seconds: float


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def started(nursery: Nursery, words: list[str], port: int, path: str) -> Iterator[None]:
    """The server as a process that answers; killed at the end without a warning."""
    waiting, deadline = Event(), monotonic() + LONGEST_START
    with nursery.started(ROOT, *words, "--port", port):
        while True:
            with suppress(httpx.TransportError):
                if CLIENT.get(f"http://127.0.0.1:{port}{path}").status_code < 500:
                    break
            assert monotonic() < deadline, f"{words[0]} does not start again"
            waiting.wait(0.02)
        yield


def ask_until(stop: Event, once: Callable[[], None], answered: Semaphore) -> None:
    """Ask again and again; a server that dies in the midst is what this is about."""
    while not stop.is_set():
        with suppress(httpx.TransportError):
            once()
            answered.release()


def kill_while_asked(
    nursery: Nursery,
    words: list[str],
    path: str,
    limits: Limits,
    ask: Callable[[int], Callable[[], None]],
) -> int:
    """Start it, ask it from two threads, kill it somewhere in between; and again, on the same port.

    Returns how often.
    """
    port, chance, until = free_port(), Random(words[0]), monotonic() + limits.seconds
    for number in range(limits.kills):
        if monotonic() > until:
            return number
        with started(nursery, words, port, path):
            stop, answered = Event(), Semaphore(0)
            threads = [Thread(target=ask_until, args=(stop, ask(port), answered)) for _ in range(2)]
            for thread in threads:
                thread.start()
            for _ in range(chance.randrange(1, MOST_ANSWERS)):
                answered.acquire(timeout=LONGEST_LIFE)
        stop.set()
        for thread in threads:
            thread.join(60)
    return limits.kills


def kill_serve(nursery: Nursery, limits: Limits) -> dict[str, Any]:
    """The judge's server: every answer must be the same, before and after."""
    body = {
        "exchanges": [{"id": "1", "prompt": "I won!", "response": "Lovely! When was it?"}],
        "explain": True,
    }
    answers: Counter[str] = Counter()

    def ask(port: int) -> Callable[[], None]:
        def once() -> None:
            answered = CLIENT.post(f"http://127.0.0.1:{port}/v1/score", json=body)
            answers[answered.text if answered.status_code == 200 else f"HTTP {answered.status_code}"] += 1

        return once

    kills = kill_while_asked(nursery, ["serve", "--judge", "length"], "/health", limits, ask)
    return {"kills": kills, "answers": answers.total(), "different_answers": max(0, len(answers) - 1)}


def kill_rating_page(nursery: Nursery, limits: Limits) -> dict[str, Any]:
    """The rating page's server: what was acknowledged is in the journal once, and in what is collected."""
    with TemporaryDirectory() as place:
        folder = Path(place) / "plan"
        plan = make_plan(folder, people=40, each=50, prompts=60)
        places = iter([(token, n) for token, rater in plan.raters.items() for n in range(len(rater.order))])
        acknowledged: dict[tuple[str, int], str] = {}
        held: list[tuple[str, int]] = []  # sent without an answer: sent again, as the page does

        def ask(port: int) -> Callable[[], None]:
            def once() -> None:
                token, number = held.pop() if held else next(places)
                label = LABELS[number % 3]
                act = {"place": number, "key": plan.raters[token].order[number], "n": 1, "label": label}
                try:
                    url = f"http://127.0.0.1:{port}/r/{token}/ratings"
                    answered = CLIENT.post(url, json=act)
                except httpx.TransportError:
                    held.append((token, number))
                    raise
                if answered.status_code == 200:
                    acknowledged[token, number] = label
                else:
                    held.append((token, number))

            return once

        words = ["rate", "open", str(folder)]
        kills = kill_while_asked(nursery, words, f"/r/{next(iter(plan.raters))}", limits, ask)
        lines = (folder / "journal.jsonl").read_bytes().split(b"\n")[:-1]
        rows = Counter((row["token"], row["place"]) for row in map(json.loads, lines))
        said = {(row["token"], row["place"]): row["label"] for row in map(json.loads, lines)}
        done = subprocess.run(
            [sys.executable, str(ROOT / "cli.py"), "rate", "collect", str(folder), "--json"],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        read_plan(folder)
        return {
            "kills": kills,
            "acknowledged": len(acknowledged),
            "lost": sum(said.get(key) != label for key, label in acknowledged.items()),
            "doubled": sum(count > 1 for count in rows.values()),
            "collected": json.loads(done.stdout)["ratings"] if done.returncode == 0 else None,
        }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=100, help="of each server")
    parser.add_argument("--seconds", type=float, default=3600.0, help="for each server at most")
    limits = Limits(**vars(parser.parse_args()))
    with open_nursery(*LOADED) as nursery:
        found = {"serve": kill_serve(nursery, limits), "rate open": kill_rating_page(nursery, limits)}
    print(json.dumps(found, indent=2))
    page = found["rate open"]
    harm = found["serve"]["different_answers"] + page["lost"] + page["doubled"] + (page["collected"] is None)
    return int(harm > 0)


if __name__ == "__main__":
    sys.exit(main())
