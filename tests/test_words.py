"""User-visible text is plain English: no odd, British or personifying phrases."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from repository import ROOT

from cli import main

PACKAGES = "calibration commands data emotionbench empathy_judge judge nightly rating reports server training"
BANNED = re.compile(
    r"(?i)(?<![\w-])(graphics card|per cent|\d %(?!})|% sure|points of Good|points Good|strays?|errs?"
    r"|moods?|leans? to|(told|tells?) apart|cannot be told|h[eo]lds? (\w+ ){0,4}against"
    r"|tak(e|es|en) (\w+ ){0,3}up again|go(es)? on|(is|are) kept|says so|say which|the way out|crowd's"
    r"|a crowd|anew|mend(s|ed)?|lessons?|whoever|without a word|give (the|its) (same )?(\S+ )?command again"
    r"|stands? (at|in|there|here|first|twice)|shown to have|not shown to"
    r"|lies? (above|below|between|further)|tries its hand|has not met|as judged|hardly|learnt|licence"
    r"|colour\w*|neighbour\w*|favour\w*|behaviour|judgement|catalogue|centre)(?![\w-])"
)
# Texts that models read and patterns of speech, which decide scores, and the key of a file format.
EXEMPT = (
    *("judge/llm/responder.py", "judge/llm/prompt_injection.py"),
    *("judge/input_checks.toml", "judge/robustness/", "data/crisis.toml"),
    *("data/rubrics/", "data/samples/", "emotionbench/administer.py", "emotionbench/scales/", "licence = "),
)


def strings_of(path: Path) -> Iterator[str]:
    """Yield the strings of several words in a module, docstrings among them."""
    found = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    strings = (node.value for node in found if isinstance(node, ast.Constant) and isinstance(node.value, str))
    yield from (re.sub(r"\s+", " ", text) for text in strings if " " in text)


def help_of(command: click.Command, context: click.Context) -> Iterator[str]:
    """Yield the help of a command and of those under it."""
    yield re.sub(r"\s+", " ", command.get_help(context))
    for name in command.list_commands(context) if isinstance(command, click.Group) else ():
        if (below := command.get_command(context, name)) is not None:
            yield from help_of(below, click.Context(below, info_name=name, parent=context))


@pytest.mark.parametrize("package", PACKAGES.split())
def test_strings_and_templates_are_in_plain_english(package: str) -> None:
    paths = sorted((ROOT / package).rglob("*"))
    paths = [path for path in paths if not str(path.relative_to(ROOT)).startswith(EXEMPT)]
    texts = [(path, text) for path in paths if path.suffix == ".py" for text in strings_of(path)]
    files = [path for path in paths if path.suffix in {".toml", ".html", ".j2", ".js"}]
    texts += [(path, line) for path in files for line in path.read_text(encoding="utf-8").splitlines()]
    found = [(str(path), match[0], text) for path, text in texts for match in BANNED.finditer(text)]
    assert not [item for item in found if not item[-1].startswith(EXEMPT)]


@pytest.mark.parametrize("name", ["action.yml", "pyproject.toml", "NOTICE.md", "README.md"])
def test_files_at_the_top_are_in_plain_english(name: str) -> None:
    text = re.sub(r"\s+", " ", (ROOT / name).read_text(encoding="utf-8"))
    assert not [text[match.start() - 40 : match.end() + 40] for match in BANNED.finditer(text)]


def test_help_is_in_plain_english() -> None:
    texts = list(help_of(main, click.Context(main, info_name="empathy-judge")))
    assert len(texts) > 20 and not [match[0] for text in texts for match in BANNED.finditer(text)]
