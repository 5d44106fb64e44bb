"""Looks the packages of a lock up among known vulnerabilities; skips, and says why, where nobody answers.

python tests/trust/audit.py requirements.lock
"""

import json
import subprocess
import sys
from importlib.util import find_spec


def main(locks: list[str]) -> int:
    """1 where something is known against a package; 0 where nothing is, or where nobody could be asked."""
    if find_spec("pip_audit") is None:
        return skip("pip-audit is not installed")
    options = [word for lock in locks for word in ("--requirement", lock)]
    command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--no-deps", "--format", "json", *options]
    done = subprocess.run(command, capture_output=True, text=True)
    try:
        rows = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return skip((done.stderr.strip().splitlines() or ["pip-audit said nothing"])[-1][:200])
    return tell(rows)


def tell(rows: list[dict[str, object]]) -> int:
    """What was found; pip-audit itself takes a package it could not look up for one without fault."""
    asked = [row for row in rows if "skip_reason" not in row]
    found = [row for row in asked if row.get("vulns")]
    if not asked:
        return skip(f"the service knew none of the {len(rows)} packages; can it be reached?")
    for row in found:
        print(f"{row['name']} {row['version']}: {json.dumps(row['vulns'])[:500]}")
    print(f"{len(asked)} of {len(rows)} packages looked up, {len(found)} with known vulnerabilities")
    return int(bool(found))


def skip(why: str) -> int:
    print(f"audit skipped: {why}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
