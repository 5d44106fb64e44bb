"""Try the lowest and the newest packages we allow, on each Python.

python tests/slow/packaging/try_versions.py .venv/uv/bin/uv 3.11 3.12

Every pair gets a fresh environment, in which the shipped judge must judge as it does in this environment, and
the golden test and some others must pass. A lowest version that is above the one pyproject.toml states was
not tried, so it fails, too. Packages are fetched.
"""

import json
import math
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# Without torch and Ray, which are gigabytes; the lock's versions of these are the only ones tried.
EXTRAS = ("calibrate", "excel", "nightly", "parquet", "prompted", "serve", "test")
TESTS = (
    "golden/test_golden",
    "judge/test_prompted",
    "judge/test_optimize",
    "server/test_wires",
    "data/test_shapes",
)
RESOLUTIONS = ("lowest-direct", "highest")
NEAR = 1e-6


def main(uv: str, pythons: list[str]) -> int:
    """Try every pair; return 1 where one fails."""
    failed = False
    with TemporaryDirectory() as folder:
        judged = judge_samples(Path(sys.executable), Path(folder, "here"))
        for python, resolution in product(pythons, RESOLUTIONS):
            place = Path(folder, f"{python}-{resolution}")
            problems = list(try_pair(uv, python, resolution, place, judged))
            print(f"Python {python}, {resolution}: {'; '.join(problems) or 'the same'}", flush=True)
            failed |= bool(problems)
    return int(failed)


def try_pair(
    uv: str, python: str, resolution: str, place: Path, judged: list[dict[str, float]]
) -> Iterator[str]:
    """Yield what fails with these packages."""
    environment = place / "bin" / "python"
    asked = f"{ROOT}[{','.join(EXTRAS)}]"
    for command in (
        [uv, "venv", "--quiet", "--python", python, place],
        [uv, "pip", "install", "--quiet", "--python", environment, "--resolution", resolution, "-e", asked],
    ):
        if problem := run(*command):
            yield problem
            return
    if resolution == RESOLUTIONS[0]:
        yield from untried(uv, environment)
    found = judge_samples(environment, place / "judged")
    if any(not math.isclose(a[k], b[k], abs_tol=NEAR) for a, b in zip(judged, found, strict=True) for k in a):
        yield "the shipped judge judges otherwise"
    # Without the rule that a warning is an error: newer packages warn of what is to go.
    words = ("-m", "pytest", "-p", "no:cacheprovider", "-W", "default", "--tb=short")
    if problem := run(environment, *words, *(f"tests/{name}.py" for name in TESTS)):
        yield problem


def run(*command: object) -> str:
    """Return the end of what a command printed, where it failed."""
    words = list(map(str, command))
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"{' '.join(words[:4])}\n{(done.stdout + done.stderr)[-3000:]}"


def judge_samples(python: Path, out: Path) -> list[dict[str, float]]:
    """The shipped judge's probabilities of 24 sample replies."""
    script = [python, "cli.py", "score", "data/samples/responses.jsonl", "--limit", "24", "--out", out]
    if problem := run(*script):
        sys.exit(problem)
    rows = (out / "judgments.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(row)["probabilities"] for row in rows]


def untried(uv: str, environment: Path) -> Iterator[str]:
    """Stated lowest versions that others of our packages do not allow."""
    command = [uv, "pip", "list", "--quiet", "--format", "json", "--python", str(environment)]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    installed = {canonicalize_name(row["name"]): Version(row["version"]) for row in json.loads(listed)}
    groups = (PROJECT["dependencies"], *(PROJECT["optional-dependencies"][name] for name in EXTRAS))
    for requirement in {Requirement(text) for group in groups for text in group}:
        lowest = min((Version(item.version) for item in requirement.specifier), default=Version("0"))
        tried = installed[canonicalize_name(requirement.name)]
        if tried > lowest:
            yield f"{requirement}: the lowest that goes together with the others is {tried}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
