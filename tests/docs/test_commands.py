"""Every command line in the documentation is one that the commands take."""

import re
import shlex
import tomllib
from collections.abc import Iterator
from types import ModuleType

import click
import pytest
from click.testing import CliRunner
from repository import ROOT

from empathy_judge.commands import main as cli

SKILL = ROOT / "commands" / "skill.md"
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", SKILL, *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^ *```(\w*)[^\n]*\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
CALL = re.compile(r"(?:\S*python3? cli\.py|(?<!-)(?:\S*/)?empathy-judge)\s")
PLACEHOLDERS = {"…", "..."}


def command_lines() -> Iterator[tuple[str, str]]:
    """Where a command of ours is called, and how."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        blocks = [(block.start(2), block[2].replace("\\\n", " ")) for block in FENCE.finditer(text)]
        blocks += [(code.start(), code[1]) for code in INLINE.finditer(FENCE.sub("", text))]
        for start, block in blocks:
            for line in block.splitlines():
                if call := CALL.search(line.removeprefix("$ ").lstrip() + " "):
                    yield f"{page.relative_to(ROOT)}@{start}", line.removeprefix("$ ").strip()[call.end() :]


def test_every_command_line_is_taken() -> None:
    lines, refused = set(command_lines()), {}
    commands = {line.split()[0] for _, line in lines if line}
    assert {"score", "calibrate", "compare", "train", "nightly", "import"} <= commands
    for place, line in lines:
        try:
            _parse(cli.main, _words(line))
        except (click.ClickException, LookupError) as error:
            refused[f"{place}: {line}"] = str(error)
    assert not refused
    with pytest.raises(click.NoSuchOption):
        _parse(cli.main, ["score", "responses.jsonl", "--juge", "length"])


def _words(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|;>&")
    lexer.whitespace_split = True
    words = []
    for word in lexer:
        if word and set(word) <= set("|;>&"):
            break  # the shell's from here on
        words.append(word)
    words = [word for word in words if word not in PLACEHOLDERS]
    if words and words[-1].isdigit() and line.partition(words[-1])[2].startswith(">"):
        words.pop()  # 2>&1
    return words


def _parse(command: click.Command, words: list[str]) -> None:
    while isinstance(command, click.Group):
        if not words or words[0].startswith("-"):
            return
        inner = command.get_command(click.Context(command), words[0])
        if inner is None:
            raise LookupError(f"no command {words[0]!r}")
        command, words = inner, words[1:]
    if "--help" in words or not words:
        return
    # Required options may be left out of a sentence; an unknown option or a value of the wrong kind may not.
    try:
        command.make_context(command.name, words)
    except click.MissingParameter:
        command.make_context(command.name, words, resilient_parsing=True)


def test_the_page_for_assistants_names_the_main_commands_and_every_exit_code(fill: ModuleType) -> None:
    said = CliRunner().invoke(cli.main, ["skill"])
    assert said.exit_code == 0 and said.output == SKILL.read_text(encoding="utf-8")
    lines = [line for place, line in command_lines() if place.startswith("commands/skill.md@")]
    assert {"score", "compare", "rate", "calibrate"} <= {line.split()[0] for line in lines if line}
    codes = re.findall(r"^\| `(\d+)`", fill.reference_tables.exit_codes(), re.MULTILINE)
    assert re.findall(r"^\| (\d+) \|", said.output, re.MULTILINE) == list(dict.fromkeys(codes))


def test_every_target_of_make_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    pages = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert (
        {"demo", "install"} <= set(re.findall(r"(?:`|^\$ |^)make ([a-z]+)", pages, re.MULTILINE)) <= targets
    )


def test_the_extras_that_pages_install_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pages = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    asked = set(",".join(re.findall(r"\.\[([a-z,]+)\]", pages)).split(","))
    assert asked <= set(project["optional-dependencies"])
