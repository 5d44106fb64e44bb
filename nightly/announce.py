"""What the gates found, for machines that run nights: JUnit XML, GitHub annotations, plain sentences."""

import re
from collections.abc import Iterable, Sequence
from typing import Final
from xml.etree import ElementTree

from nightly.gate import Outcome, Result, overall

# XML 1.0 has no place for these, escaped or not; a model's name may hold anything.
NOT_IN_XML: Final = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
TAGS: Final[dict[Outcome, str]] = {
    "regression": "failure",
    "failed": "error",
    "stale": "error",
    "inconclusive": "skipped",
    "skipped": "skipped",
}
COMMANDS: Final[dict[Outcome, str]] = {
    "regression": "error",
    "failed": "error",
    "stale": "warning",
    "inconclusive": "warning",
}


def as_junit(results: Sequence[Result], *, name: str = "nightly") -> str:
    """One suite a model and one case a gate.

    A regression is a failure; a failed night or a stale calibration an error; an inconclusive gate counts as
    skipped, since JUnit has no other word for "not known", and says so in its message.
    """
    root = ElementTree.Element("testsuites", {"name": _clean(name), **_counts(results)})
    for model in dict.fromkeys(result.model for result in results):
        own = [result for result in results if result.model == model]
        suite = ElementTree.SubElement(root, "testsuite", {"name": _clean(model), **_counts(own)})
        for result in own:
            case = ElementTree.SubElement(
                suite, "testcase", {"name": _clean(result.gate.name), "classname": _clean(model), "time": "0"}
            )
            if result.outcome in TAGS:
                said = {"message": _clean(result.sentence)}
                if (tag := TAGS[result.outcome]) != "skipped":
                    said["type"] = result.outcome
                ElementTree.SubElement(case, tag, said)
            else:
                ElementTree.SubElement(case, "system-out").text = _clean(result.sentence)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def as_annotations(results: Iterable[Result]) -> list[str]:
    """Lines GitHub Actions shows beside a run; what passed or was skipped is not worth one."""
    return [
        f"::{COMMANDS[result.outcome]} title={_property(f'{result.outcome}: {result.gate.name}')}"
        f"::{_data(result.sentence)}"
        for result in results
        if result.outcome in COMMANDS
    ]


def as_sentences(results: Sequence[Result]) -> list[str]:
    """The outcome, then what is not fine, then how many gates passed."""
    bad = [result for result in results if result.outcome not in ("pass", "skipped")]
    skipped = [result.sentence for result in results if result.outcome == "skipped"]
    passed = sum(result.outcome == "pass" for result in results)
    head = f"Outcome: {overall(results)} ({passed} of {len(results)} gates passed)."
    order = sorted(bad, key=lambda result: list(COMMANDS).index(result.outcome))
    return [head, *(result.sentence for result in order), *skipped]


def _counts(results: Sequence[Result]) -> dict[str, str]:
    tags = [TAGS.get(result.outcome) for result in results]
    counted = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    return {
        "tests": str(len(tags)),
        **{name: str(tags.count(tag)) for name, tag in counted.items()},
        "time": "0",
    }


def _clean(text: str) -> str:
    return NOT_IN_XML.sub("\ufffd", text)


def _data(text: str) -> str:
    # The rules of the runner that reads these lines; % first, or it would escape our own escapes.
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
