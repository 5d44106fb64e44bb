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
    return {
        "faults": len(rows),
        "by_kind": dict(sorted(Counter(row["kind"] for row in rows).items())),
        "by_case": dict(sorted(Counter(row["case"] for row in rows).items())),
        **{sign: sum(bool(row.get(sign)) for row in rows) for sign in SIGNS},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=24, help="faults of each kind for each command")
    parser.add_argument("--seconds", type=float, default=600.0, help="stop after so long")
    options = parser.parse_args()
    started = monotonic()
    with TemporaryDirectory() as folder:
        tally = Path(folder) / "faults.jsonl"
        tally.touch()
        env = os.environ | {"FAULT_SEEDS": str(options.seeds), "FAULT_TALLY": str(tally)}
        files = sorted(str(path) for path in (TESTS / "slow" / "faults").glob("test_*.py"))
        every = ("-m", "campaign or not campaign", "-p", "no:cacheprovider")
        words = [sys.executable, "-m", "pytest", "-q", *every, *files]
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
