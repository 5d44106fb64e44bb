"""A finished night as a terminal table, JSON and GitHub annotations, and as other tools are told of it."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from data.coverage import say_outside
from data.crisis import LEFT_OUT, say_flags
from data.readers.conversations import speak_of
from data.records import REPLY
from data.text import percent, points, printable
from judge.llm.answer_prompts import say_counts
from nightly.changes import baseline_nights, say_moods, say_nights
from nightly.config import NightlyConfig
from nightly.gates import EXIT_CODES, gravest
from nightly.history import read_url, show_url
from nightly.schema import FINE, GateResult, ModelResult, NightRecord, Outcome
from reports.outputs import CheckOutcome, Evaluation, GoodShare, append_summary
from reports.page import Cell, Page, Section, Table

COMMANDS: Final[dict[Outcome, str]] = {
    "regression": "error",
    "failed": "error",
    "stale": "warning",
    "inconclusive": "warning",
}
GATE_KEYS: Final = ("gate", "model", "subject", "outcome", "value", "limit", "sentence")
FINDING_KEYS: Final = ("limit", "outcome", "sentence", "value", "low", "high", "nights", "emotions")
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


def as_evaluation(night: FinishedNight) -> Evaluation:
    """The night as other tools are told of it."""
    record = night.record
    return Evaluation(
        kind="nightly",
        name=f"{record.config}, night {record.night}",
        outcome=record.status,
        exit_code=night.exit_code,
        sentences=tuple(sentences(record)),
        judge=record.judge,
        judge_version=record.judge_version,
        models=tuple(map(_good_share, record.models)),
        checks=check_outcomes(record.gates),
    )


def check_outcomes(gates: Sequence[GateResult]) -> tuple[CheckOutcome, ...]:
    """The gates as checks of JUnit and webhooks."""
    return tuple(
        CheckOutcome(model=gate.model, name=gate.name, outcome=gate.outcome, sentence=gate.sentence)
        for gate in gates
    )


def _good_share(model: ModelResult) -> GoodShare:
    good = (model.corrected or model.raw).get("Good")
    share, low, high = (good.share, good.low, good.high) if good else (None, None, None)
    unscored = sum(model.unscored.values())
    return GoodShare(model=model.model, share=share, low=low, high=high, replies=model.n, unscored=unscored)


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
        append_summary(as_page(night, config))


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
    refused: dict[str, list[str]] = {}
    for model in record.models:
        if "refused" in model.details:
            refused.setdefault(model.details["refused"], []).append(model.model)
    notes += [
        f"{', '.join(models)}: as the judge has it, since its level is refused ({reason})"
        for reason, models in refused.items()
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
    unheld = sum(gate.outcome == "skipped" for gate in gates)
    also = f", {unheld} skipped" if unheld else ""  # a first night passes by none
    lines = [f"Outcome: {record.status} ({passed} of {len(gates)} gates passed{also})."]
    lines += [note] if (note := details.get("dimension_note")) else []
    lines += [f"{model}: failed: {reason}." for model, reason in details.get("failed", {}).items()]
    lines += [bridge["told"]] if (bridge := details.get("bridge")) else []
    lines += [f"{moved[0].upper()}{moved[1:]}."] if moved else []
    lines += [f"The calibration cannot be used: {stale}."] if stale else []
    if unchecked and not stale:
        lines.append(f"So {unchecked} gates tell nothing; calibrate anew and pin a night of this judge.")
    # What is true of all gates was said once: a model that failed, a calibration that cannot be used.
    for outcome in ("regression", "inconclusive"):
        lines += [gate.sentence for gate in gates if gate.outcome == outcome]
    lines += [f"Skipped for want of something to hold against: {', '.join(skipped)}."] if skipped else []
    lines += [line for model in record.models if (line := say_missing(model))]
    for model in record.models:
        # Whose changes these are, where one is shown; once where both nights are the same.
        by_night: dict[str, str] = {}
        for against, change in model.details.get("changes", {}).items():
            if change["good"]["verdict"] != QUIET:
                nights = baseline_nights(model.details) if against == "baseline" else (change["night"],)
                line = f"{model.model} since {against} ({say_nights(nights)}): {change['good']['sentence']}"
                by_night.setdefault(change["night"], line)
        lines += by_night.values()
    lines += [
        f"{model.model}: {line}" for model in record.models if (line := say_moods(model.details.get("watch")))
    ]
    for model in record.models:
        lines += [f"{model.model}: {line}" for line in say_outside(model.details.get("outside"))]
        lines += [f"{model.model}: {line}." for line in say_flags(model.details.get("flagged"), LEFT_OUT)]
    return [words_of(record)(line) for line in (*lines, *_against_study(details.get("study", ())))]


def words_of(record: NightRecord) -> Callable[[str], str]:
    """What makes sentences speak of conversations, where a night judged these."""
    return speak_of(record.details.get("unit", REPLY), [model.model for model in record.models])


def _against_study(pairs: Sequence[Mapping[str, str]]) -> list[str]:
    """How models stand against the study's; where nothing can be said of several for one reason, once."""
    lines: dict[tuple[str, str], list[str]] = {}
    for pair in pairs:
        refused = pair.get("refused", "")
        lines.setdefault((pair["study"], refused) if refused else (pair["sentence"], ""), []).append(
            pair["model"]
        )
    return [
        f"Cannot say how {', '.join(sorted(models))} compare with {about}: {refused}." if refused else about
        for (about, refused), models in lines.items()
    ]


def say_missing(model: ModelResult) -> str | None:
    """How many replies are missing and why: cut short, refused or not judged, which is not to be worse.

    >>> say_missing(ModelResult(model="m", n=30, unscored={"no response: cut short": 2}))
    'm: 2 of 32 replies are missing, which is not counted as worse: no response: cut short (2).'
    """
    missing = sum(model.unscored.values())
    if not missing:
        return None
    counted = f"{missing:,} of {model.n + missing:,} replies are missing"
    return f"{model.model}: {counted}, which is not counted as worse: {say_counts(model.unscored)}."


def _table(record: NightRecord) -> Table:
    head = ["model", "Good", "Bad", "on last night", "on baseline", "n", "unscored", "gates"]
    rows = [_row(model, record) for model in record.models]
    if not any(sum(model.unscored.values()) for model in record.models):
        # A column of zeros is room that names of models need.
        at = head.index("unscored")
        for row in (head, *rows):
            del row[at]
    noun = words_of(record)("responses")
    kind = "corrected" if any(model.corrected for model in record.models) else "as the judge has them"
    return Table(
        caption=f"Per cent of {noun}, {kind}; changes of Good in points, the judge's own; 95 % intervals",
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
