"""A finished night as a terminal table, JSON, JUnit XML and GitHub annotations, from the history alone."""

import json
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final
from xml.etree import ElementTree

from data.crisis import say_flags
from data.text import percent, points, printable
from nightly.config import NightlyConfig
from nightly.gates import EXIT_CODES, gravest
from nightly.history import read_url, show_url
from nightly.schema import FINE, GateResult, ModelResult, NightRecord, Outcome
from reports.page import Cell, Page, Section, Table

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
GATE_KEYS: Final = ("gate", "model", "subject", "outcome", "value", "limit", "sentence")
FINDING_KEYS: Final = ("limit", "outcome", "sentence", "value", "low", "high", "labels", "nights", "emotions")
QUIET: Final = "neither shown"  # a change not worth a sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedNight:
    """A night as the history has it, and whether it was added just now."""

    record: NightRecord
    is_new: bool

    @property
    def exit_code(self) -> int:
        """What the command ends with."""
        return EXIT_CODES.get(self.record.status, 5)


def as_junit(results: Sequence[GateResult], *, name: str = "nightly") -> str:
    """Write JUnit XML: one suite a model and one case a gate.

    A regression is a failure; a failed night or a stale calibration an error; an inconclusive gate counts as
    skipped, since JUnit has no other word for "not known", and says so in its message.
    """
    root = ElementTree.Element("testsuites", {"name": name, **_counts(results)})
    for model in dict.fromkeys(result.model for result in results):
        of_model = [result for result in results if result.model == model]
        suite = ElementTree.SubElement(root, "testsuite", {"name": model, **_counts(of_model)})
        for result in of_model:
            about = {"name": result.name, "classname": model, "time": "0"}
            case = ElementTree.SubElement(suite, "testcase", about)
            tag = TAGS.get(result.outcome)
            if tag is None:
                ElementTree.SubElement(case, "system-out").text = result.sentence
            else:
                kind = {} if tag == "skipped" else {"type": result.outcome}
                ElementTree.SubElement(case, tag, {"message": result.sentence, **kind})
    ElementTree.indent(root)
    text = NOT_IN_XML.sub("\ufffd", ElementTree.tostring(root, encoding="unicode"))
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _counts(results: Sequence[GateResult]) -> dict[str, str]:
    tags = [TAGS.get(result.outcome) for result in results]
    counted = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    return {
        "tests": str(len(tags)),
        **{name: str(tags.count(tag)) for name, tag in counted.items()},
        "time": "0",
    }


def as_annotations(results: Iterable[GateResult]) -> list[str]:
    """Write the lines GitHub Actions shows beside a run; what passed or was skipped is not worth one."""

    def escape(text: str) -> str:
        # The rules of the runner that reads these lines; % first, or it would escape our own escapes.
        return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    lines = []
    for result in results:
        if result.outcome in COMMANDS:
            title = escape(f"{result.outcome}: {result.name}").replace(":", "%3A").replace(",", "%2C")
            lines.append(f"::{COMMANDS[result.outcome]} title={title}::{escape(result.sentence)}")
    return lines


def print_night(night: FinishedNight, config: NightlyConfig, *, as_json: bool) -> None:
    """Print the table and the sentences, or JSON; and the lines GitHub reads, where these are wanted."""
    from reports.terminal import print_page

    if as_json:
        print(json.dumps(as_dict(night), indent=2, allow_nan=False))
    else:
        print_page(as_page(night, config))
    if config.github:
        for line in as_annotations(night.record.gates):
            # GitHub reads both streams; what is piped on as JSON must stay JSON.
            print(printable(line), file=sys.stderr if as_json else sys.stdout)


def as_dict(night: FinishedNight) -> dict[str, Any]:
    """The whole night but for its single judgments, ready for JSON."""
    record = night.record
    about = {
        name: getattr(record, name)
        for name in ("config", "night", "started", "finished", "judge", "judge_version", "calibration")
    }
    return {
        **about,
        "outcome": record.status,
        "exit_code": night.exit_code,
        "is_new": night.is_new,
        "sentences": sentences(night.record),
        "models": [asdict(model) for model in record.models],
        "gates": [{name: getattr(gate, name) for name in GATE_KEYS} for gate in record.gates],
        **record.details,
        "findings": [
            {"model": gate.model, "gate": gate.name, **{name: getattr(gate, name) for name in FINDING_KEYS}}
            for gate in record.gates
            if gate.outcome not in FINE
        ],
    }


def as_page(night: FinishedNight, config: NightlyConfig) -> Page:
    """A compact table, and beneath it what one must know to read it."""
    record = night.record
    place = show_url(read_url(config.history)).removeprefix("sqlite:///")
    notes = [record.details.get("calibration", ""), f"history {place}"]
    notes += [
        f"{model.model}: as the judge has it, since its level is refused ({model.details['refused']})"
        for model in record.models
        if "refused" in model.details
    ]
    if config.dashboard is not None:
        notes.append(f"dashboard {config.dashboard / 'index.html'}")
    if not night.is_new:
        notes.insert(0, "This night was in the history already: nothing was asked, and nothing changed.")
    return Page(
        title=f"{record.config}, night {record.night}: {record.status}",
        subtitle=f"judge {record.judge} {record.judge_version}",
        verdict=tuple(sentences(night.record)),
        sections=(
            Section(
                name="models",
                title="Models",
                short="models",
                tables=(_table(record),) if record.models else (),
                notes=tuple(note for note in notes if note),
            ),
        ),
    )


def sentences(record: NightRecord) -> list[str]:
    """The outcome, what failed, who moved, what the gates said, and how models stand against the study."""
    details, gates = record.details, record.gates
    passed = sum(gate.outcome == "pass" for gate in gates)
    moved, stale = details.get("judge_moved"), details.get("stale")
    unchecked = sum(gate.outcome == "stale" for gate in gates)
    skipped = dict.fromkeys(gate.name for gate in gates if gate.outcome == "skipped")
    lines = [f"Outcome: {record.status} ({passed} of {len(gates)} gates passed)."]
    lines += [f"{model}: failed: {reason}." for model, reason in details.get("failed", {}).items()]
    lines += [f"{moved[0].upper()}{moved[1:]}."] if moved else []
    lines += [f"The calibration cannot be used: {stale}."] if stale else []
    if unchecked and not stale:
        lines.append(f"So {unchecked} gates tell nothing; calibrate anew and pin a night of this judge.")
    # What is true of all gates was said once: a model that failed, a calibration that cannot be used.
    for outcome in ("regression", "inconclusive"):
        lines += [gate.sentence for gate in gates if gate.outcome == outcome]
    lines += [f"Skipped for want of something to hold against: {', '.join(skipped)}."] if skipped else []
    for model in record.models:
        # Whose changes these are, where one is shown; once where both nights are the same.
        by_night: dict[str, str] = {}
        for against, change in model.details.get("changes", {}).items():
            if change["good"]["verdict"] != QUIET:
                line = f"{model.model} since {against} ({change['night']}): {change['good']['sentence']}"
                by_night.setdefault(change["night"], line)
        lines += by_night.values()
    for model in record.models:
        lines += [f"{model.model}: {line}." for line in say_flags(model.details.get("flagged"))]
    return lines + [item["sentence"] for item in details.get("study", ())]


def _table(record: NightRecord) -> Table:
    head = ["model", "Good", "Bad", "on last night", "on baseline", "n", "unscored", "gates"]
    rows = [_row(model, record) for model in record.models]
    if not any(sum(model.unscored.values()) for model in record.models):
        # A column of zeros is room that names of models need.
        at = head.index("unscored")
        for row in (head, *rows):
            del row[at]
    kind = "corrected" if any(model.corrected for model in record.models) else "as the judge has them"
    return Table(
        caption=f"Per cent of responses, {kind}; changes of Good in points, the judge's own; 95 % intervals",
        head=tuple(head),
        rows=tuple(tuple(map(Cell, row)) for row in rows),
        words=frozenset({0, len(head) - 1}),
    )


def _row(model: ModelResult, record: NightRecord) -> list[str]:
    shares = model.corrected or model.raw
    changes = model.details.get("changes", {})
    return [
        model.model,
        *(
            percent(asdict(shares[label]) if label in shares else None, glue="\n")
            for label in ("Good", "Bad")
        ),
        *(
            points(changes[night]["good"]["total"] if night in changes else None, glue="\n")
            for night in ("last night", "baseline")
        ),
        f"{model.n:,}",
        f"{sum(model.unscored.values()):,}",
        gravest(gate.outcome for gate in record.gates if gate.model == model.model) or "no gate",
    ]
