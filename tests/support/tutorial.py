"""Runs the console blocks of the documentation, and compares or rewrites the figures they show.

    python tests/support/tutorial.py              # prints where figures of a page and its commands differ
    python tests/support/tutorial.py --write      # writes what the commands print now into the pages

A block fenced as `console` holds commands after `$` and what they print. The commands of a page run in order
in one folder that looks like a fresh clone after `make demo`; only installing is left out.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from repository import ROOT

DOCS = ROOT / "docs"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
HIDDEN = {".git", ".venv", "build", "runs", "tests"}  # of the repository, not part of the clone
SECONDS = 300
INSTALLED = (
    f"import sys; sys.path[:0] = [{str(ROOT)!r}]\n"
    "from empathy_judge.commands.main import main; main(prog_name='empathy-judge')"
)
# What differs between two machines or days: bars, digests, dates and times, also beside a cost in a table.
VARYING = re.compile(
    r"[├─●┤·]{9,}|\b(?=[0-9a-f]*\d)[0-9a-f]{8,64}\b|\b20\d\d-\d\d-\d\d\b|\bin \d+(\.\d+)? (s|min)\b"
    r"|(?<=\$0\.00) +[\d.,]+"
)
NUMBER = re.compile(r"(?<![\w.-])[+\N{MINUS SIGN}-]?(?:\d[\d,]*\.?\d*|\.\d+)")


def pages() -> list[Path]:
    """Return the pages with commands to run."""
    return [path for path in sorted(DOCS.rglob("*.md")) if BLOCK.search(path.read_text(encoding="utf-8"))]


def commands_of(block: str) -> Iterator[tuple[str, str]]:
    """Yield every command of a block and what the page shows as its output."""
    lines = block.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("$ ")]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        last = lines.index("END", start) if "<<'END'" in lines[start] else start
        while lines[last].endswith("\\"):
            last += 1
        command = "\n".join([lines[start][2:], *lines[start + 1 : last + 1]])
        yield command, "\n".join(lines[last + 1 : end])


def make_clone(folder: Path) -> None:
    """Make a folder that looks like a clone after `make demo`, with a .venv that is this Python."""
    for path in ROOT.iterdir():
        if path.name not in HIDDEN:
            (folder / path.name).symlink_to(path)
    scripts_folder = folder / ".venv" / "bin"
    scripts_folder.mkdir(parents=True)
    python = shlex.quote(sys.executable)
    for name, line in (
        ("python", f'exec {python} "$@"'),
        ("empathy-judge", f'exec {python} -c {shlex.quote(INSTALLED)} "$@"'),
    ):
        (scripts_folder / name).write_text(f"#!/bin/sh\n{line}\n")
        (scripts_folder / name).chmod(0o755)
    (scripts_folder / "activate").write_text("")
    for stamp in (".python", ".run"):  # newer than what they depend on, so that make installs nothing
        (folder / ".venv" / stamp).touch()


def run(command: str, folder: Path) -> str:
    """Return what a command prints in such a folder; a failure is an error here."""
    environment = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ}
    environment |= {"PATH": f"{folder / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "80"}
    result = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=folder,
        env={**environment, "NO_COLOR": "1", "PYTHONUTF8": "1", "MAKEFLAGS": "-s"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if result.returncode not in (0, 3):  # 3: inconclusive, which a page may show
        raise RuntimeError(f"exit code {result.returncode} of: {command}\n{result.stdout}{result.stderr}")
    # Of stderr only the next step belongs on a page: progress differs by machine.
    steps = [line for line in result.stderr.splitlines() if line.startswith("Next, ")]
    return "\n".join(line.rstrip() for line in [*result.stdout.rstrip().splitlines(), *steps])


def differ(shown: str, printed: str) -> str | None:
    """Return the first figure that differs by more than rounding between two outputs."""
    ours, theirs = ([*map(_value, NUMBER.findall(VARYING.sub(" ", text)))] for text in (shown, printed))
    for (one, room), (other, _) in zip(ours, theirs, strict=False):
        if abs(one - other) > room:
            return f"the page shows {one:g}, the command prints {other:g}"
    return None if len(ours) == len(theirs) else f"{len(ours)} figures on the page, {len(theirs)} printed"


def _value(text: str) -> tuple[float, float]:
    """Return a figure, and how far it may be off on another processor."""
    value = float(text.replace(",", "").replace("\N{MINUS SIGN}", "-"))
    digits = len(text.partition(".")[2])
    # In the thousands it is an estimate of ratings needed; else a count, or a rounded percentage.
    whole = 0.1 * abs(value) if "," in text else float((2 <= value < 100) + (10 <= value < 100))
    return value, {0: whole, 1: 0.5, 2: 0.04}.get(digits, 0.02) + 1e-9


def check(page: Path, *, is_written: bool = False) -> list[str]:
    """Return where the figures of a page differ from those of its commands; rewrite its outputs if asked."""
    problems = []
    with tempfile.TemporaryDirectory() as name:
        make_clone(Path(name))

        def rewrite(block: re.Match[str]) -> str:
            lines = []
            for command, shown in commands_of(block[1]):
                printed = run(command, Path(name))
                if difference := differ(shown, printed):
                    problems.append(f"{page.name}: $ {command}\n  {difference}")
                lines += [f"$ {command}", *printed.splitlines()]
            return "\n".join(["```console", *lines, "```"])

        text = BLOCK.sub(rewrite, page.read_text(encoding="utf-8"))
    if is_written:
        page.write_text(text, encoding="utf-8")
    return problems


def main() -> None:
    is_written = "--write" in sys.argv
    problems = [problem for page in pages() for problem in check(page, is_written=is_written)]
    print("\n".join(problems))
    sys.exit(1 if problems and not is_written else 0)


if __name__ == "__main__":
    main()
