"""The long campaigns, one after another, and what they found as one JSON file: `make trust`.

    python tests/trust/trust.py [--only PART ...] [--json build/trust.json]

Parts that are not run again keep what an earlier run found. The exit code is 1 if one of them found harm.
"""

import argparse
import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
# Each says by its exit code whether it found harm; all but the last print one JSON object to stdout.
PARTS: Final = {
    "faults": ("tests/trust/trust_faults.py", "--seeds", "8", "--seconds", "900"),
    "kills": ("tests/trust/trust_faults.py", "--kills-only", "--seeds", "100", "--seconds", "7200"),
    "servers": ("tests/trust/trust_servers.py",),
    "inputs": ("tests/fuzz/run.py", "--inputs", "200000"),
    "attacks": ("cli.py", "calibrate", "--attack", "classifier", "--json"),
    "prompted": ("tests/trust/trust_llm_attacks.py", "--sample", "120"),
    "explanations": ("tests/trust/trust_explanations.py",),
    "danger": ("tests/trust/trust_danger.py",),
    "coverage": ("tests/trust/trust_coverage.py",),
    "year": ("tests/trust/trust_year.py",),
    "requests": ("tests/support/fuzz_serving.py",),
    "tests": ("-m", "pytest", "-m", "campaign", "-q", "tests/slow"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=tuple(PARTS), default=tuple(PARTS))
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "trust.json")
    options = parser.parse_args()
    found = json.loads(options.json.read_text(encoding="utf-8")) if options.json.exists() else {}
    harm = False
    for name in options.only:
        print(f"{name} ...", file=sys.stderr, flush=True)
        started = monotonic()
        done = subprocess.run([sys.executable, *PARTS[name]], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        harm = harm or done.returncode != 0
        found[name] = {
            "command": " ".join(("python", *PARTS[name])),
            "ended": datetime.now(UTC).isoformat(timespec="minutes"),
            "seconds": round(monotonic() - started),
            "exit": done.returncode,
            "found": json.loads(done.stdout) if done.stdout.startswith("{") else None,
        }
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(f"{name}: exit {done.returncode}, {found[name]['seconds']} s", flush=True)
    return int(harm)


if __name__ == "__main__":
    sys.exit(main())
