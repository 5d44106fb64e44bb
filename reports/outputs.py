"""Output for continuous integration: JUnit, GitHub's summary, and streams without workflow commands."""

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from stat import S_ISREG
from typing import Any, Final, TextIO
from xml.etree import ElementTree

from empathy_judge.data.files import disk_errors, replacing
from empathy_judge.reports.page import Page
from empathy_judge.reports.render import as_markdown

SUMMARY: Final = "GITHUB_STEP_SUMMARY"  # the variable that names the file, in a job of GitHub
MOST_SUMMARY: Final = 900_000  # bytes; GitHub shows none of a step's summary that has more than 1 MiB
# XML 1.0 has no place for these, escaped or not; a model's name may hold anything.
NOT_IN_XML: Final = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# The runner of GitHub Actions obeys a line that starts with :: after white space, and ##[ anywhere.
COMMAND: Final = re.compile(r"(?:\A|(?<=[\r\n]))[^\S\r\n]*:(?=:)|##(?=\[)")
TAGS: Final = {
    "regression": "failure",
    "failed": "error",
    "stale": "error",
    "not calibrated": "error",
} | dict.fromkeys(("inconclusive", "skipped"), "skipped")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOutcome:
    """A comparison with a limit or another model; the outcome is `pass` or one of TAGS."""

    model: str
    name: str
    outcome: str
    sentence: str


def as_junit(checks: Sequence[CheckOutcome], *, name: str) -> str:
    """Write JUnit XML: one suite a model and one case a check.

    A regression is a failure; what failed or is stale is an error; an inconclusive check counts as skipped,
    since JUnit has no other word for "not known"; the message explains it.
    """
    root = ElementTree.Element("testsuites", {"name": name, **_counts(checks)})
    for model in dict.fromkeys(check.model for check in checks):
        of_model = [check for check in checks if check.model == model]
        suite = ElementTree.SubElement(root, "testsuite", {"name": model, **_counts(of_model)})
        for check in of_model:
            about = {"name": check.name, "classname": model, "time": "0"}
            case = ElementTree.SubElement(suite, "testcase", about)
            tag = TAGS.get(check.outcome)
            if tag is None:
                ElementTree.SubElement(case, "system-out").text = check.sentence
            else:
                kind = {} if tag == "skipped" else {"type": check.outcome}
                ElementTree.SubElement(case, tag, {"message": check.sentence, **kind})
    ElementTree.indent(root)
    text = NOT_IN_XML.sub("\ufffd", ElementTree.tostring(root, encoding="unicode"))
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _counts(checks: Sequence[CheckOutcome]) -> dict[str, str]:
    tags = [TAGS.get(check.outcome) for check in checks]
    counted = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    numbers = {name: str(tags.count(tag)) for name, tag in counted.items()}
    return {"tests": str(len(tags)), **numbers, "time": "0"}


def write_junit(checks: Sequence[CheckOutcome], path: Path, *, name: str) -> None:
    """Write JUnit XML into a file, whole or not at all."""
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as partial:
            partial.write_text(as_junit(checks, name=name), encoding="utf-8")


def append_summary(page: Page) -> bool:
    """Add a page to GitHub's summary of the job, without examples; False outside of such a job."""
    place = os.environ.get(SUMMARY)
    if not place:
        return False
    page = replace(page, sections=tuple(replace(section, examples=()) for section in page.sections))
    text = escape_commands(as_markdown(page)).encode()
    if len(text) > MOST_SUMMARY:
        text = text[:MOST_SUMMARY].rpartition(b"\n")[0] + b"\n\nThe rest is too long for this page.\n"
    with disk_errors(Path(place)), Path(place).open("ab") as stream:
        stream.write(text + b"\n")
    return True


def escape_commands(text: str) -> str:
    """Put a space into whatever the runner would take for a workflow command.

    >>> escape_commands("::error::x"), escape_commands("a::b ##[error]x")
    (': :error::x', 'a::b ## [error]x')
    """
    return COMMAND.sub(r"\g<0> ", text)


class EscapedStream:
    """A text stream that escapes workflow commands, also those written in parts."""

    buffer = None  # click would write past us into that of a stream that is not UTF-8

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self._line = ""  # the relevant part of the line

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        escaped = escape_commands(self._line + text)[len(self._line) :]
        line = re.split(r"[\r\n]", self._line + text)[-1]
        self._line = line if line.strip() in ("", ":") else f"x{line[-2:]}"
        self.stream.write(escaped)
        return len(text)


def escape_streams() -> None:
    """Escape workflow commands on stdout and stderr, but not in a file that they are written to."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        try:
            is_file = S_ISREG(os.fstat(stream.fileno()).st_mode)
        except OSError:  # a stream in memory
            is_file = False
        if not is_file and not isinstance(stream, EscapedStream):
            setattr(sys, name, EscapedStream(stream))


def print_command(line: str, stream: TextIO) -> None:
    """Print a workflow command of this program."""
    print(line, file=stream.stream if isinstance(stream, EscapedStream) else stream)
