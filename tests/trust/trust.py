"""The long campaigns, one after another: `make trust`.

    python tests/trust/trust.py [--only PART ...]
    python tests/trust/trust.py --audit requirements.lock ...   # look packages up among known vulnerabilities

The exit code is 1 if one of them found harm. Reports go to build/trust.json.
"""

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from contextlib import chdir
from datetime import date, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
EVERY: Final = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "")
# Each shows by its exit code whether it found harm.
PARTS: Final = {
    "faults": (*EVERY, "tests/slow/faults", "tests/slow/processes"),
    "inputs": (*EVERY, "tests/slow/fuzz"),
    "year": ("tests/trust/trust.py", "--year", "365"),
    "campaigns": ("-m", "pytest", "-q", "-m", "campaign", "tests/slow"),
}
STEADY, FALLING, FALL = "ann", "bob", 240  # models, and the night from which on one of them is worse
FIRST: Final = date(2026, 1, 1)


def run_year(nights: int) -> int:
    """Run a year of nights by the command: a week is missed, and every thirtieth night is run twice.

    The history must have every night once, a repeated night must ask no model, the steady model must raise no
    alarm and the other one only after it got worse.
    """
    sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]
    from nightly_world import CURT, start_world

    from empathy_judge.nightly.history import open_history

    codes: Counter[str] = Counter()
    repeated = 0
    numbers = [number for number in range(nights) if not FALL - 7 <= number < FALL]
    with TemporaryDirectory() as folder, start_world(Path(folder)) as world, chdir(folder):
        world.write()
        for number in numbers:
            world.mood = f"night {number}"
            world.curt = (
                frozenset((FALLING, emotion) for emotion in CURT[:2]) if number >= FALL else frozenset()
            )
            codes[_run_night(number)] += 1
            if number % 30 == 29:
                before = sum(world.asked.values())
                codes[_run_night(number)] += 1
                repeated += sum(world.asked.values()) - before
        with open_history(Path("nights.sqlite"), must_exist=True) as history:
            stored = sorted(night.night for night in history.nights())
            alarms = [row for row in history.rows("gates") if row["outcome"] == "regression"]
    expected = [(FIRST + timedelta(days=number)).isoformat() for number in numbers]
    fall = (FIRST + timedelta(days=FALL)).isoformat()
    report = {
        "exit_codes": dict(codes),
        "asked_twice": repeated,
        "is_whole": stored == sorted(expected),
        "false_alarms": sum(row["model"] == STEADY or row["night"] < fall for row in alarms),
        "first_alarm": min((row["night"] for row in alarms if row["night"] >= fall), default=None),
    }
    print(json.dumps(report, indent=2))
    is_detected = report["first_alarm"] is not None or nights < FALL + 30
    is_harmless = not repeated and report["is_whole"] and not report["false_alarms"] and is_detected
    return int(not (is_harmless and set(codes) <= {"0", "1", "3"}))


def _run_night(number: int) -> str:
    from click.testing import CliRunner

    from empathy_judge.commands import main as cli

    night = (FIRST + timedelta(days=number)).isoformat()
    words = ["nightly", "n.toml", "--night", night, "--now", f"{night}T02:00:00+00:00"]
    result = CliRunner().invoke(cli.main, words)
    is_error = result.exception is not None and not isinstance(result.exception, SystemExit)
    return repr(result.exception) if is_error else str(result.exit_code)


def audit(locks: list[str]) -> int:
    """Return 1 where a package has a known vulnerability; 0 also where the service cannot be reached."""
    options = [word for lock in locks for word in ("--requirement", lock)]
    command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--no-deps", "--format", "json", *options]
    result = subprocess.run(command, capture_output=True, text=True)
    try:
        rows = json.loads(result.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        print(f"audit skipped: {(result.stderr.strip().splitlines() or ['no output'])[-1][:200]}")
        return 0
    # pip-audit takes a package that it could not look up for one without vulnerabilities.
    known = [row for row in rows if "skip_reason" not in row]
    vulnerable = [row for row in known if row.get("vulns")]
    for row in vulnerable:
        print(f"{row['name']} {row['version']}: {json.dumps(row['vulns'])[:500]}")
    print(f"{len(known)} of {len(rows)} packages looked up, {len(vulnerable)} with known vulnerabilities")
    return int(bool(vulnerable))


def run_parts(names: list[str], path: Path) -> int:
    """Run campaigns and store what they report."""
    reports: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.parent.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"FAULT_SEEDS": "100", "FUZZ_INPUTS": "4000", "FUZZ_REQUESTS": "10000"}
    is_harmful = False
    for name in names:
        started = monotonic()
        result = subprocess.run(
            [sys.executable, *PARTS[name]], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
        )
        is_harmful |= result.returncode != 0
        report = json.loads(result.stdout) if result.stdout.startswith("{") else result.stdout[-500:]
        reports[name] = {"exit": result.returncode, "seconds": round(monotonic() - started), "report": report}
        path.write_text(json.dumps(reports, indent=1) + "\n", encoding="utf-8")
        print(f"{name}: exit {result.returncode}, {reports[name]['seconds']} s", flush=True)
    return int(is_harmful)


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the long campaigns.")
    parser.add_argument("--only", nargs="+", choices=tuple(PARTS), default=list(PARTS))
    parser.add_argument("--year", type=int, metavar="NIGHTS", help="run so many nights instead")
    parser.add_argument("--audit", nargs="+", metavar="LOCK", help="look up the packages of locks instead")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "trust.json")
    options = parser.parse_args()
    if options.year:
        return run_year(options.year)
    return audit(options.audit) if options.audit else run_parts(options.only, options.json)


if __name__ == "__main__":
    sys.exit(main())
