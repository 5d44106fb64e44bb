"""Runs the console blocks of the documentation, and compares or rewrites what they show.

    python tests/support/tutorial.py                  # says where a page and its commands differ
    python tests/support/tutorial.py --write          # puts what the commands print now into the pages
    python tests/support/tutorial.py --write docs/tutorial.md

A block fenced as `console` holds commands after `$` and what they print. The commands of a page run in order
in one folder that looks like a fresh clone after `make demo`; only installing is left out.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from repository import ROOT

DOCS = ROOT / "docs"
sys.path.append(str(DOCS))

from filling.console import BLOCK, commands_of  # noqa: E402  # needs the line above

SHOWN = (
    "Makefile",
    "cli.py",
    "data",
    "examples",
    "judge",
    "calibration",
    "commands",
    "emotionbench",
    "nightly",
    "reports",
    "rating",
    "server",
)
LOCKS = ("constraints.txt", "requirements.lock", "requirements-run.lock")
SECONDS = 300

# What differs between two machines or two days, and says nothing.
VARYING = (
    (re.compile(r"[├─●┤·]{9,}"), "BAR"),  # its figures stand beside it
    (re.compile(r"\.venv/bin/python cli\.py"), "python cli.py"),  # as `make` calls it in a clone
    (re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{8,64}\b"), "DIGEST"),
    (re.compile(r"\b20\d\d-\d\d-\d\d\b"), "DATE"),
    # On which side of next to nothing a prompt lies.
    (
        re.compile(r"(prefers \S+ +on)\s+\d+(\s+of\s+\d+\s+prompts,\s+\S+\s+on)\s+\d+(;\s+on)\s+\d+"),
        r"\1 N\2 N\3 N",
    ),
    # Which prompt comes third where two differ as much: on another processor it is the other.
    (re.compile(r"^3\. .+?(?=\n\nWhat would settle it)", re.MULTILINE | re.DOTALL), "3. SOME PROMPT"),
    (re.compile(r"\bin \d+(\.\d+)? (s|min)\b"), "in TIME"),
    (re.compile(r"^(\w\S* .*\b0\.00) +\d[\d.]*$", re.MULTILINE), r"\1 TIME"),  # s/1,000 in a table of judges
)
INSTALLED = f"import sys; sys.path[:0] = [{str(ROOT)!r}]; import cli; cli.main(prog_name='empathy-judge')"
NUMBER = re.compile(r"[+\N{MINUS SIGN}-]?(?:\d[\d,]*\.?\d*|\.\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A command of a page, and what the page says it prints."""

    place: str
    command: str
    printed: str


def pages() -> list[Path]:
    """The pages with commands to run."""
    return [path for path in sorted(DOCS.rglob("*.md")) if BLOCK.search(path.read_text(encoding="utf-8"))]


def steps_of(page: Path) -> list[Step]:
    """The commands of a page, in order."""
    text = page.read_text(encoding="utf-8")
    steps = []
    for block in BLOCK.finditer(text):
        line = text.count("\n", 0, block.start()) + 2
        for command, printed, at in commands_of(block[1]):
            steps.append(
                Step(place=f"{page.relative_to(ROOT)}:{line + at}", command=command, printed=printed)
            )
    return steps


def make_clone(folder: Path) -> None:
    """A folder that looks like a clone after `make demo`: the same files, and a .venv that is this Python."""
    for name in (*SHOWN, *LOCKS):
        (folder / name).symlink_to(ROOT / name)
    (folder / "pyproject.toml").symlink_to(ROOT / "pyproject.toml")
    bin_ = folder / ".venv" / "bin"
    bin_.mkdir(parents=True)
    python = shlex.quote(sys.executable)
    scripts = {
        "python": f'exec {python} "$@"',
        "empathy-judge": f'exec {python} -c {shlex.quote(INSTALLED)} "$@"',
        "pip": f'exec {python} {shlex.quote(__file__)} --pip "$@"',
    }
    for name, line in scripts.items():
        (bin_ / name).write_text(f"#!/bin/sh\n{line}\n")
        (bin_ / name).chmod(0o755)
    (bin_ / "activate").write_text("")
    for stamp in (".python", ".run"):  # newer than what they depend on, so that make installs nothing
        (folder / ".venv" / stamp).touch()


def run(command: str, folder: Path) -> str:
    """What a command prints in such a folder; a failure is an error here."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=folder,
        env=_environment(folder),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if done.returncode not in (0, 3):  # 3: what was asked cannot be told, which a page may show
        raise RuntimeError(f"exit code {done.returncode} of: {command}\n{done.stdout}{done.stderr}")
    # Of what goes to stderr only the next step belongs on a page: progress differs by machine.
    steps = [line for line in done.stderr.splitlines() if line.startswith("Next, ")]
    return "\n".join(line.rstrip() for line in [*done.stdout.rstrip().splitlines(), *steps])


def _environment(folder: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ}
    path = f"{folder / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return {**kept, "PATH": path, "COLUMNS": "80", "NO_COLOR": "1", "PYTHONUTF8": "1", "MAKEFLAGS": "-s"}


def differ(shown: str, printed: str) -> str | None:
    """Where two outputs differ by more than rounding, another machine or another day; None where nowhere."""
    one, other = (_plain(text).split() for text in (shown, printed))
    for number, (left, right) in enumerate(zip(one, other, strict=False)):
        if not _alike(left, right):
            around = " ".join(one[max(0, number - 4) : number])
            return f"after {around!r}: the page says {left!r}, the command {right!r}"
    if len(one) != len(other):
        longer = (one if len(one) > len(other) else other)[min(len(one), len(other)) :]
        return f"only {'the page' if len(one) > len(other) else 'the command'} says {' '.join(longer)[:80]!r}"
    return None


def _plain(text: str) -> str:
    for pattern, instead in VARYING:
        text = pattern.sub(instead, text)
    return text


def _alike(left: str, right: str) -> bool:
    if left == right:
        return True
    # A hyphen is no minus sign, however near the numbers are.
    if NUMBER.sub("#", left) != NUMBER.sub("#", right) or ("-" in left) != ("-" in right):
        return False
    return all(
        _near(one, other) for one, other in zip(NUMBER.findall(left), NUMBER.findall(right), strict=True)
    )


def _near(one: str, other: str) -> bool:
    """The same figure on another processor: the last digits of a probability may move."""
    values = [float(text.replace(",", "").replace("\N{MINUS SIGN}", "-")) for text in (one, other)]
    digits = len(one.partition(".")[2])
    # Without digits behind the point it is a count, or a whole per cent, which may be rounded otherwise; in
    # the thousands it is a rounded estimate of how many ratings are needed.
    whole = 0.1 * abs(values[0]) if "," in one else float(10 <= values[0] < 100)
    room = {0: whole, 1: 0.2, 2: 0.04}.get(digits, 0.02)
    return abs(values[0] - values[1]) <= room + 1e-9


def check(page: Path) -> list[str]:
    """What a page shows that its commands do not print."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_clone(folder)
        return [
            f"{step.place}: $ {step.command}\n  {difference}"
            for step in steps_of(page)
            if (difference := differ(step.printed, run(step.command, folder)))
        ]


def write(page: Path) -> int:
    """Put what the commands print now into the page where it differs; how many outputs changed."""
    changed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_clone(folder)

        def rewrite(block: re.Match[str]) -> str:
            nonlocal changed
            lines = []
            for command, shown, _ in commands_of(block[1]):
                printed = run(command, folder)
                if differ(shown, printed):
                    changed, shown = changed + 1, printed
                lines += [f"$ {command}", *shown.splitlines()]
            return "\n".join(["```console", *lines, "```"])

        text = BLOCK.sub(rewrite, page.read_text(encoding="utf-8"))
    if changed:
        page.write_text(text, encoding="utf-8")
    return changed


def pip(arguments: Sequence[str]) -> None:
    """Stands in for pip, since tests install nothing: says whether the extras asked for exist."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for extras in re.findall(r"\.\[(.*?)\]", " ".join(arguments)):
        if missing := set(extras.split(",")) - set(project["optional-dependencies"]):
            raise SystemExit(f"pyproject.toml has no extra {', '.join(sorted(missing))}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path, help="all pages with commands, if none is named")
    parser.add_argument("--write", action="store_true", help="rewrite the pages where they differ")
    given = parser.parse_args()
    problems = 0
    for page in [path.resolve() for path in given.pages] or pages():
        if given.write:
            print(f"{page.relative_to(ROOT)}: {write(page)} outputs rewritten")
            continue
        differences = check(page)
        problems += len(differences)
        print("\n".join(differences) or f"{page.relative_to(ROOT)}: as its commands print")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--pip"]:
        pip(sys.argv[2:])
    else:
        main()
