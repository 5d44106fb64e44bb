"""How fast and how small everything is, on this machine: `make bench`, explained in docs/performance.md.

    bench.py [--only NAME ...] [--json FILE] [--quick]
    bench.py --page docs/performance.md [--json FILE] [--only NAME ...]

Each part runs in a process of its own, measures its contenders in turns and takes the median. What it finds
goes into one JSON file, beside what other parts left there. A busy machine makes every figure worse; the exit
code is 1 when a limit is missed.
"""

import argparse
import json
import os
import platform
import sys
from collections.abc import Collection
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PARTS = {
    "start": "A command from the shell to the shell",
    "rows": "Many rows by a judge that costs nothing",
    "host": "What a row costs beside the network",
    "network": "The classifiers' networks against ONNX Runtime as it comes",
    "classifier": "The classifier against the same network elsewhere",
    "bootstrap": "Bootstrap against library loops",
    "engine": "Judges that ask a server, against a bare client and peers",
    "serving": "The server under load",
    "ray": "Ray against one process",
    "million": "A million rows by Ray, killed once",
    "device": "A graphics card",
    "judgments": "A card's judgments beside the CPU's",
}
ELSEWHERE = {"device", "judgments"}  # on another machine, which stands with their tables, not for the page
PACKAGES = (
    "numpy",
    "onnxruntime",
    "torch",
    "transformers",
    "sentence-transformers",
    "dspy",
    "openai",
    "fastapi",
    "uvicorn",
    "ray",
)


def measure_part(name: str, quick: bool) -> list[dict[str, Any]]:
    """The figures of one part, printed as they come."""
    with TemporaryDirectory() as scratch:
        figures = []
        for figure in import_module(f"bench_{name}").measure(Path(scratch), quick=quick):
            print(figure, flush=True)
            figures.append({**asdict(figure), "limit": figure.limit, "is_met": figure.is_met})
        return figures


def describe_machine() -> dict[str, Any]:
    """What the figures hold for."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "absent"
    return {
        "machine": f"{platform.system()} {platform.machine()}, {len(os.sched_getaffinity(0))} cores",
        "processor": _processor(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "versions": found,
    }


def _processor() -> str:
    """What decides about int8: on Arm the features are the only name that Linux gives."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    known = dict(line.replace("\t", "").split(": ", 1) for line in lines if ": " in line)
    features = known.get("Features") or known.get("flags") or ""
    wanted = ("asimddp", "i8mm", "bf16", "sve", "avx2", "avx512_vnni", "avx_vnni", "amx_int8")
    have = [name for name in wanted if name in features.split()]
    return f"{known.get('model name', 'no name given')}; of {', '.join(wanted)}: {', '.join(have) or 'none'}"


def read_found(path: Path, about: dict[str, Any], *, quick: bool) -> dict[str, Any]:
    """What other parts left there, if it was the same machine with the same packages."""
    if path.exists():
        before: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if all(before.get(key) == value for key, value in {**about, "quick": quick}.items()):
            return before
    return {**about, "quick": quick, "parts": {}}


def fill_page(page: str, found: dict[str, Any], only: Collection[str] = tuple(PARTS)) -> str:
    """The page with what was found between its marks, part by part; what was not measured stays as it is.

    >>> print(fill_page("<!-- machine --><!-- end -->", {"machine": "m", "processor": "p", "memory_gib": 1,
    ...     "versions": {"python": "3"}, "parts": {}}))
    <!-- machine -->
    <BLANKLINE>
    m; p; 1 GiB; python 3.
    <BLANKLINE>
    <!-- end -->
    """
    versions = ", ".join(f"{name} {number}" for name, number in found["versions"].items())
    about = f"{found['machine']}; {found['processor']}; {found['memory_gib']} GiB; {versions}."
    measured = [name for name, part in found["parts"].items() if name in only and part["figures"]]
    tables = {name: write_table(name, found) for name in measured}
    if set(tables) <= ELSEWHERE and tables:
        texts = {name: f"{table}\n\n{about}" for name, table in tables.items()}
    else:
        texts = {"machine": about, **tables}
    for name, text in texts.items():
        start, mark, rest = page.partition(f"<!-- {name} -->")
        if not mark:
            raise SystemExit(f"no <!-- {name} --> on the page")
        page = f"{start}{mark}\n\n{text}\n\n<!-- end -->{rest.partition('<!-- end -->')[2]}"
    return page


def write_table(name: str, found: dict[str, Any]) -> str:
    """The figures of one part as Markdown."""
    from bench_figures import write_value

    part = found["parts"][name]
    about = f"{part['date']}, {part['seconds']:.0f} s, load before it {part['load_before']:g}"
    lines = [f"`python tests/bench/bench.py --only {name}` ({about})", ""]
    lines += ["| figure | value | limit | what it is |", "|---|---|---|---|"]
    for item in part["figures"]:
        limit = item["limit"] + ("" if item["is_met"] else " (missed)")
        value = write_value(item["value"], item["unit"])
        lines.append(f"| {item['name']} | {value} | {limit} | {item['about']} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure speed, start and memory.")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="NAME")
    parser.add_argument("--json", type=Path, default=Path("build/bench.json"), help="where the figures go")
    parser.add_argument("--quick", action="store_true", help="only whether it runs; limits do not count")
    parser.add_argument("--page", type=Path, help="measure nothing; put what the file holds on this page")
    options = parser.parse_args()
    # As a script, Python looks for modules beside it only.
    sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]
    if options.page:
        found = json.loads(options.json.read_text(encoding="utf-8"))
        page = fill_page(options.page.read_text(encoding="utf-8"), found, options.only)
        options.page.write_text(page, encoding="utf-8")
        return 0
    found = read_found(options.json, describe_machine(), quick=options.quick)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    for name in options.only:
        print(f"{name}: {PARTS[name]}", flush=True)
        start, load = perf_counter(), os.getloadavg()[0]
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            figures = pool.submit(measure_part, name, options.quick).result()
        found["parts"][name] = {
            "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "load_before": round(load, 2),  # of others, or of the part before
            "seconds": round(perf_counter() - start, 1),
            "figures": figures,
        }
        options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(f"{found['machine']}; written to {options.json}")
    met = [item["is_met"] for name in options.only for item in found["parts"][name]["figures"]]
    return 0 if all(met) or options.quick else 1


if __name__ == "__main__":
    sys.exit(main())
