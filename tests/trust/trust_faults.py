"""The fault campaign at length: the tests of `tests/slow/faults` with many seeds, counted as JSON.

    python tests/trust/trust_faults.py --seeds 24

A line for each fault is kept while it runs, so that one that is stopped still tells what it did.
"""

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
SIGNS = ("lost", "doubled", "bad_message")


def count(lines: list[str]) -> dict[str, Any]:
    """The faults by kind, and how many of them did harm."""
    rows = [json.loads(line) for line in lines]
    by_kind: Counter[str] = Counter()
    by_case: Counter[str] = Counter()
    for row in rows:
        by_kind[row["kind"]] += row["times"]
        by_case[row["case"]] += row["times"]
    return {
        "faults": by_kind.total(),
        "by_kind": dict(sorted(by_kind.items())),
        "by_case": dict(sorted(by_case.items())),
        **{sign: sum(bool(row.get(sign)) for row in rows) for sign in SIGNS},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=24, help="kills, and other faults, of each command")
    parser.add_argument("--seconds", type=float, default=600.0, help="stop after so long")
    parser.add_argument("--only", default="", metavar="WORDS", help="only such tests, as pytest -k says it")
    parser.add_argument("--kills-only", action="store_true", help="no failing disks and damaged files")
    options = parser.parse_args()
    started = monotonic()
    with TemporaryDirectory() as folder:
        tally = Path(folder) / "faults.jsonl"
        tally.touch()
        env = os.environ | {"FAULT_SEEDS": str(options.seeds), "FAULT_TALLY": str(tally)}
        env |= {"FAULT_DISKS": "0"} if options.kills_only else {}
        names = ("test_kills.py", "test_making.py") if options.kills_only else ("test_*.py",)
        files = sorted(str(path) for name in names for path in (TESTS / "slow" / "faults").glob(name))
        every = ("-m", "campaign or not campaign", "-p", "no:cacheprovider")
        words = [sys.executable, "-m", "pytest", "-q", *every, *files]
        words += ["-k", options.only] if options.only else []
        try:
            # What pytest says goes to the other stream: ours is for the JSON.
            code: int | None = subprocess.run(
                words, cwd=TESTS.parent, env=env, stdout=sys.stderr, timeout=options.seconds
            ).returncode
        except subprocess.TimeoutExpired:
            code = None
        found = count(tally.read_text(encoding="utf-8").splitlines())
    ended = {0: "all passed", None: "out of time"}.get(code, "failures")
    print(json.dumps({**found, "ended": ended, "seconds": round(monotonic() - started, 1)}, indent=2))
    return 0 if code == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
