"""A year of nights through the real command: two models, one of which falls for good on a known night.

    python tests/trust/trust_year.py --nights 365 --fall 240

Every night is `nightly` itself, with answers that differ from night to night; every thirtieth is given twice,
and the week before the fall is missed. What must hold: the history has every night once, no command fails,
the steady model raises no alarm, and the fall does. As JSON; the exit code is 1 where one does not hold.
"""

import argparse
import json
import os
import sys
from collections import Counter
from datetime import date, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, process_time
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from click.testing import CliRunner  # noqa: E402
from simulated import CURT, World, start_world  # noqa: E402

import cli  # noqa: E402
from nightly.history import open_history  # noqa: E402

STEADY, FALLING = "ann", "bob"
FIRST: Final = date(2026, 1, 1)
MISSED: Final = 7


def main() -> int:
    """Live through the nights, and count."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nights", type=int, default=365)
    parser.add_argument("--fall", type=int, default=240, help="the night from which on one model is curt")
    parser.add_argument("--seconds", type=float, default=3600.0, help="stop after so long, and count")
    options = parser.parse_args()
    started = monotonic()
    with TemporaryDirectory() as place, start_world(Path(place)) as world:
        world.write()  # its pages are made once, at the end
        codes: Counter[str] = Counter()
        seconds, asked = [], 0
        nights = [n for n in range(options.nights) if not options.fall - MISSED <= n < options.fall]
        for done, number in enumerate(nights):
            if monotonic() - started > options.seconds:
                nights = nights[:done]
                break
            world.mood = f"night {number}"
            world.curt = (
                frozenset((FALLING, feeling) for feeling in CURT[:2])
                if number >= options.fall
                else frozenset()
            )
            began = process_time()  # of the processor: a busy machine says nothing of a night
            codes[_live(world, number)] += 1
            seconds.append(process_time() - began)
            if number % 30 == 29:  # given twice, it asks nobody
                before = sum(world.asked.values())
                codes[f"again: {_live(world, number)}"] += 1
                asked += sum(world.asked.values()) - before
            if done % 10 == 9:
                print(f"{done + 1} nights, {seconds[-1]:.1f} s the last", file=sys.stderr, flush=True)
        found = _count(world, nights, options.fall)
        size = os.path.getsize(world.folder / "nights.sqlite")
        _run(world, "dashboard", "nights.sqlite", "--out", "site")
        pages = [path for path in (world.folder / "site").rglob("*") if path.is_file()]
    tenth = max(1, len(seconds) // 10)
    found |= {
        "exit_codes": dict(codes),
        "asked_twice": asked,
        "history_MB": round(size / 1e6, 2),
        "dashboard_files": len(pages),
        "processor_seconds_a_night_first_tenth": round(sum(seconds[:tenth]) / tenth, 2),
        "processor_seconds_a_night_last_tenth": round(sum(seconds[-tenth:]) / tenth, 2),
        "seconds": round(monotonic() - started),
    }
    print(json.dumps(found, indent=2))
    failed = [code for code in codes if code.removeprefix("again: ") not in ("0", "1", "3")]
    harm = failed or asked or not found["is_whole"] or found["regressions"].get(STEADY)
    harm = harm or (nights[-1] > options.fall + 30 and not found["regressions"].get(FALLING))
    return int(bool(harm))


def _live(world: World, number: int) -> str:
    """One night by the command; its exit code."""
    night = (FIRST + timedelta(days=number)).isoformat()
    now = f"{datetime.fromisoformat(night).date()}T02:00:00+00:00"
    return _run(world, "nightly", "n.toml", "--night", night, "--now", now)


def _run(world: World, *words: str) -> str:
    here = os.getcwd()
    os.chdir(world.folder)
    try:
        done = CliRunner().invoke(cli.main, words)
    finally:
        os.chdir(here)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        return repr(done.exception)
    return str(done.exit_code)


def _count(world: World, nights: list[int], fall: int) -> dict[str, Any]:
    """What the history says of the year."""
    with open_history(world.folder / "nights.sqlite", must_exist=True) as history:
        kept = [night.night for night in history.nights()]
        gates = [row for row in history.rows("gates") if row["outcome"] == "regression"]
    wanted = [(FIRST + timedelta(days=number)).isoformat() for number in nights]
    since_fall = [
        wanted.index(row["night"]) - sum(number < fall for number in nights)
        for row in gates
        if row["model"] == FALLING and row["night"] in wanted
    ]
    return {
        "nights": len(nights),
        "is_whole": sorted(kept) == sorted(wanted),
        "regressions": dict(Counter(row["model"] for row in gates)),
        "false_alarms_before_the_fall": sum(place < 0 for place in since_fall),
        "first_alarm_after_the_fall": min((place for place in since_fall if place >= 0), default=None),
    }


if __name__ == "__main__":
    sys.exit(main())
