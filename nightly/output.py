"""A finished night as a terminal table, JSON and GitHub annotations."""

import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from empathy_judge.data.records import NOUNS, to_plain
from empathy_judge.data.text import listed, number, points, printable
from empathy_judge.judge.llm.responder import say_counts
from empathy_judge.nightly.changes import describe_variation, name_nights
from empathy_judge.nightly.config import NightlyConfig
from empathy_judge.nightly.gates import AGAINST, EXIT_CODES, NOT_CALIBRATED, gravest
from empathy_judge.nightly.history import show_place
from empathy_judge.nightly.schema import FINE, GateResult, ModelResult, NightRecord
from empathy_judge.reports.outputs import CheckOutcome, append_summary, print_command
from empathy_judge.reports.page import Cell, Page, Section, Table, name_ends, share_cells

COMMANDS: Final = {"regression": "error", "failed": "error"} | dict.fromkeys(
    ("stale", "not calibrated", "inconclusive"), "warning"
)
FINDING_KEYS: Final = ("model", "limit", "outcome", "sentence", "value", "low", "high", "emotions")
QUIET: Final = "neither shown"  # a change not worth a sentence
NAMED: Final = 4  # models in a sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedNight:
    """A night as the history has it, and whether it was added just now."""

    record: NightRecord
    is_new: bool

    @property
    def exit_code(self) -> int:
        """What the command ends with."""
        return EXIT_CODES.get(self.record.status, 5)


def check_outcomes(gates: Sequence[GateResult]) -> tuple[CheckOutcome, ...]:
    """Return the gates as checks of JUnit."""
    return tuple(
        CheckOutcome(model=gate.model, name=gate.name, outcome=gate.outcome, sentence=gate.sentence)
        for gate in gates
    )


def as_annotations(results: Iterable[GateResult]) -> list[str]:
    """Return the lines that GitHub Actions shows beside a run, for gates that did not pass."""

    def escape(text: str) -> str:
        return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")  # % first

    lines = []
    for result in results:
        if result.outcome in COMMANDS:
            title = escape(f"{result.outcome}: {result.name}").replace(":", "%3A").replace(",", "%2C")
            lines.append(f"::{COMMANDS[result.outcome]} title={title}::{escape(result.sentence)}")
    return lines


def print_night(night: FinishedNight, config: NightlyConfig, *, as_json: bool) -> None:
    """Print the table and the sentences, or JSON, and the lines that GitHub reads."""
    from empathy_judge.reports.terminal import print_page

    if as_json:
        print(json.dumps(as_dict(night), indent=2, allow_nan=False))
    else:
        print_page(as_page(night, config))
    if config.outputs.github:
        for line in as_annotations(night.record.gates):  # GitHub reads both streams
            print_command(printable(line), sys.stderr if as_json else sys.stdout)
        append_summary(as_page(night, config))


def as_dict(night: FinishedNight) -> dict[str, Any]:
    """Return the whole night without its single judgments, ready for JSON."""
    record = night.record
    left_out = ("judgments", "anchors", "emotions")
    names = [item.name for item in fields(record) if item.name not in left_out]
    plain = {name: to_plain(getattr(record, name)) for name in names}
    return plain | {
        "outcome": plain.pop("status"),
        "exit_code": night.exit_code,
        "is_new": night.is_new,
        "sentences": sentences(record),
        "findings": [
            {"gate": gate.name} | {name: getattr(gate, name) for name in FINDING_KEYS}
            for gate in record.gates
            if gate.outcome not in FINE
        ],
    }


def as_page(night: FinishedNight, config: NightlyConfig) -> Page:
    """Return a compact table, and beneath it the notes that are needed to read it."""
    record = night.record
    refused: dict[str, list[str]] = {}
    for model in record.models:
        if model.refused and not model.is_unresponsive:
            refused.setdefault(model.refused, []).append(model.model)
    notes = (
        "" if night.is_new else "This night is in the history already; nothing was run.",
        record.calibration_note,
        f"history {show_place(config.history)}",
        *(f"{', '.join(models)}: not corrected ({reason})" for reason, models in refused.items()),
        f"dashboard {config.dashboard / 'index.html'}" if config.dashboard else "",
    )
    tables = (_table(record),) if record.models else ()
    shown = tuple(filter(None, notes))
    models = Section(name="models", title="Models", short="models", tables=tables, notes=shown)
    return Page(
        title=f"{record.config}, night {record.night}: {record.status}",
        subtitle=f"judge {' '.join(record.judge_key)}",
        verdict=tuple(sentences(record)),
        sections=(models,),
    )


def sentences(record: NightRecord) -> list[str]:
    """Return the outcome, failures, shifts of the judge, results of gates, and comparisons with the study."""
    gates = record.gates
    counts = Counter(gate.outcome for gate in gates)
    skipped = f", {counts['skipped']} skipped" if counts["skipped"] else ""
    lines = [f"Outcome: {record.status} ({counts['pass']} of {len(gates)} gates passed{skipped})."]
    lines += [line for model in record.models if (line := describe_unresponsive(model))]
    newest = [item for item in record.changes if item.against == "baseline"]
    newest.sort(key=lambda item: item.shown.value)  # the largest drop first
    if shown := [f"{item.model} {points(item.shown)}" for item in newest]:
        more = [f"{len(shown) - NAMED} more"] if len(shown) > NAMED else []
        lines.append(f"Change from the baseline, points (Good share): {listed([*shown[:NAMED], *more])}.")
    lines += [note for note in (record.rubric_note, record.judge_note) if note]
    lines += [f"{model}: failed: {reason}." for model, reason in record.failed.items()]
    if moved := record.judge_moved:
        lines.append(f"{moved[0].upper()}{moved[1:]}.")
    if record.stale:
        is_new = record.stale.startswith(NOT_CALIBRATED)
        lines.append(f"{record.stale.capitalize()}." if is_new else f"Stale: {record.stale}.")
    elif counts["stale"]:
        lines.append(
            f"{counts['stale']} gates are stale: calibrate again, and set a night of this judge as baseline."
        )
    unresponsive = {model.model for model in record.models if model.is_unresponsive}
    told = [gate for gate in gates if gate.model not in unresponsive or gate.value is not None]
    for outcome in ("regression", "inconclusive"):
        lines += [gate.sentence for gate in told if gate.outcome == outcome]
    if unheld := dict.fromkeys(gate.name for gate in gates if gate.outcome == "skipped"):
        lines.append(f"Skipped, because there is nothing to compare with: {', '.join(unheld)}.")
    for model in record.models:
        if model.unscored_share:
            counted = f"{model.missing:,} of {model.n + model.missing:,} {NOUNS[record.unit]} are unscored"
            part = f"{100 * model.unscored_share:.1f}%"
            lines.append(f"{model.model}: {counted} ({part}): {say_counts(model.unscored)}.")
        changes = {item.against: item for item in record.changes if item.model == model.model}
        since: dict[tuple[str, ...], str] = {}  # one sentence if both changes are since the same night
        for against, change in changes.items():
            if change.verdict != QUIET:
                sentence = f"since {against} ({name_nights(change.nights)}): {change.sentence}"
                since.setdefault(change.nights, f"{model.model} {sentence}")
        notes = (describe_variation(changes.get("baseline")), *model.notes)
        lines += [*since.values(), *(f"{model.model}: {note}" for note in notes if note)]
    return [*lines, *record.study]


def describe_unresponsive(model: ModelResult) -> str | None:
    """Return a warning where responses do not respond to their prompts."""
    if not model.is_unresponsive:
        return None
    return f"Warning: {model.model}: {model.refused}. It has no Good share, and its gates on shares fail."


def _table(record: NightRecord) -> Table:
    head = ["model", "Good", "Bad", "vs baseline", "vs last night", "fit", "n", "unscored", "gates"]
    rows = [_row(model, record) for model in record.models]
    if not any(model.missing for model in record.models):
        for row in (head, *rows):
            del row[-2]  # no reply is unscored
    kind = "corrected" if any(model.corrected for model in record.models) else "uncorrected"
    ends = name_ends([model.shares["Good"] for model in record.models if model.shares])
    return Table(
        caption=f"% of {NOUNS[record.unit]}, {kind}, {ends}; vs: change of the Good share, uncorrected",
        head=tuple(head),
        rows=tuple(tuple(map(Cell, row)) for row in rows),
        words=frozenset({0, len(head) - 1}),
    )


def _row(model: ModelResult, record: NightRecord) -> list[str]:
    bad, _, good = share_cells(model.shares)
    since = {item.against: item for item in record.changes if item.model == model.model}
    return [
        model.model,
        good,
        bad,
        *(points(since[night].total if night in since else None, glue="\n") for night in AGAINST.values()),
        number(model.fit.estimate.value if model.fit else None, 2),
        f"{model.n:,}",
        f"{model.missing:,}",
        gravest(gate.outcome for gate in record.gates if gate.model == model.model) or "no gate",
    ]
