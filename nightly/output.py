"""What a person, or the machine that ran the night, is told in the morning; all of it from the history."""

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeVar
from xml.etree import ElementTree

from data.judgments import say_flags
from data.text import printable
from nightly.config import NightlyConfig
from nightly.dashboard.series import gravest
from nightly.gates import AGAINST, EXIT_CODES, Gate, Outcome, Result, overall
from nightly.schema import GateResult, ModelResult, NightRecord, ShareResult
from reports.page import Cell, Page, Section, Table

# What the gates found, for machines that run nights: JUnit XML, GitHub annotations, plain sentences.

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


def read_results(kept: Iterable[GateResult], findings: Sequence[Mapping[str, Any]]) -> list[Result]:
    """The gates' results back from the history, those in `findings` with the emotions that drove them."""
    emotions = {(item["model"], item["gate"]): tuple(item["emotions"]) for item in findings}
    results = []
    for row in kept:
        is_change = row.subject in AGAINST.values()
        gate = Gate(
            kind=row.gate,  # type: ignore[arg-type]  # one of ours, as `keep_gate` wrote it
            limit=row.limit or 0.0,
            against=row.subject if is_change else None,  # type: ignore[arg-type]
            emotion=None if is_change else row.subject or None,
        )
        results.append(
            Result(
                model=row.model,
                gate=gate,
                outcome=row.outcome,  # type: ignore[arg-type]
                sentence=row.sentence,
                value=float("nan") if row.value is None else row.value,
                emotions=emotions.get((row.model, gate.name), ()),
            )
        )
    return results


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A night as the history has it, and whether it was added just now."""

    record: NightRecord
    is_new: bool

    @property
    def exit_code(self) -> int:
        return EXIT_CODES.get(self.record.status, 5)  # type: ignore[call-overload,no-any-return]

    @property
    def results(self) -> list[Result]:
        """What every gate said of every model."""
        return read_results(self.record.gates, self.record.details.get("findings", ()))


Item = TypeVar("Item")
UNDEFINED: Final = "\N{EN DASH}"
QUIET: Final = "neither shown"  # a change not worth a sentence


def print_night(ran: Ran, config: NightlyConfig, *, as_json: bool) -> None:
    """The table and the sentences, or JSON; and the lines GitHub reads, where these are wanted."""
    from reports.terminal import print_page

    if as_json:
        print(json.dumps(as_dict(ran), indent=2, allow_nan=False))
    else:
        print_page(as_page(ran, config))
    if config.github:
        for line in as_annotations(ran.results):
            # GitHub reads both streams; what is piped on as JSON must stay JSON.
            print(printable(line), file=sys.stderr if as_json else sys.stdout)


def as_dict(ran: Ran) -> dict[str, Any]:
    """The whole night but for its single judgments, ready for JSON."""
    record = ran.record
    about = {
        name: getattr(record, name)
        for name in ("config", "night", "started", "finished", "judge", "judge_version", "calibration")
    }
    return {
        **about,
        "outcome": record.status,
        "exit_code": ran.exit_code,
        "is_new": ran.is_new,
        "sentences": sentences(ran),
        "models": [asdict(model) for model in record.models],
        "gates": [asdict(gate) for gate in record.gates],
        **record.details,
    }


def as_page(ran: Ran, config: NightlyConfig) -> Page:
    """A compact table, and beneath it what one must know to read it."""
    record = ran.record
    notes = [record.details.get("calibration", ""), f"history {_history(config)}"]
    refused = {model.model: model.details["refused"] for model in record.models if "refused" in model.details}
    notes += [
        f"{model}: as the judge has it, since its level is refused ({reason})"
        for model, reason in refused.items()
    ]
    if config.dashboard is not None:
        notes.append(f"dashboard {config.dashboard / 'index.html'}")
    if not ran.is_new:
        notes.insert(0, "This night was in the history already: nothing was asked, and nothing changed.")
    return Page(
        title=f"{record.config}, night {record.night}: {record.status}",
        subtitle=f"judge {record.judge} {record.judge_version}",
        verdict=tuple(sentences(ran)),
        sections=(
            Section(
                name="models",
                title="Models",
                short="models",
                tables=(_table(ran),) if record.models else (),
                notes=tuple(note for note in notes if note),
            ),
        ),
    )


def sentences(ran: Ran) -> list[str]:
    """The outcome, what failed, who moved, what the gates said, and how models stand against the study."""
    details, results = ran.record.details, ran.results
    passed = sum(result.outcome == "pass" for result in results)
    moved, stale = details.get("judge_moved"), details.get("stale")
    unchecked = [result for result in results if result.outcome == "stale"]
    skipped = dict.fromkeys(result.gate.name for result in results if result.outcome == "skipped")
    # What is true of all gates is said once: a model that failed, a calibration that cannot be used.
    told = [result for result in results if result.outcome in ("regression", "inconclusive")]
    said = [f"Outcome: {ran.record.status} ({passed} of {len(results)} gates passed)."]
    said += [f"{model}: failed: {reason}." for model, reason in details.get("failed", {}).items()]
    said += [f"{moved[0].upper()}{moved[1:]}."] if moved else []
    said += [f"The calibration cannot be used: {stale}."] if stale else []
    if unchecked and not stale:
        said.append(f"So {len(unchecked)} gates tell nothing; calibrate anew and pin a night of this judge.")
    said += as_sentences(told)[1:]
    said += [f"Skipped for want of something to hold against: {', '.join(skipped)}."] if skipped else []
    said += [sentence for model in ran.record.models for sentence in _say_changes(model)]
    for model in ran.record.models:
        said += [f"{model.model}: {line}." for line in say_flags(model.details.get("flagged"))]
    return said + [item["sentence"] for item in details.get("study", ())]


def _say_changes(model: ModelResult) -> list[str]:
    """Whose changes these are, where one is shown; once where both nights are the same."""
    by_night: dict[str, str] = {}
    for against, change in model.details.get("changes", {}).items():
        if change["good"]["verdict"] != QUIET:
            said = f"{model.model} since {against} ({change['night']}): {change['good']['sentence']}"
            by_night.setdefault(change["night"], said)
    return list(by_night.values())


def _table(ran: Ran) -> Table:
    is_corrected = any(model.corrected for model in ran.record.models)
    # A column of zeros is room that names of models need.
    is_short = not any(sum(model.unscored.values()) for model in ran.record.models)
    head = ["model", "Good", "Bad", "on last night", "on baseline", "n", "unscored", "gates"]
    rows = [_row(model, ran) for model in ran.record.models]
    if is_short:
        head, rows = _without(head, 6), [_without(row, 6) for row in rows]
    kind = "corrected" if is_corrected else "as the judge has them"
    return Table(
        caption=f"Per cent of responses, {kind}; changes of Good in points, the judge's own; 95 % intervals",
        head=tuple(head),
        rows=tuple(map(tuple, rows)),
        words=frozenset({0, len(head) - 1}),
    )


def _without(row: list[Item], at: int) -> list[Item]:
    return [*row[:at], *row[at + 1 :]]


def _row(model: ModelResult, ran: Ran) -> list[Cell]:
    shares = model.corrected or model.raw
    changes = model.details.get("changes", {})
    outcomes = [result.outcome for result in ran.results if result.model == model.model]
    return [
        Cell(text)
        for text in (
            model.model,
            _share(shares.get("Good")),
            _share(shares.get("Bad")),
            _change(changes.get("last night")),
            _change(changes.get("baseline")),
            f"{model.n:,}",
            f"{sum(model.unscored.values()):,}",
            gravest(outcomes),
        )
    ]


def _share(share: ShareResult | None) -> str:
    if share is None or share.share is None:
        return UNDEFINED
    return _interval(f"{100 * share.share:.1f}", share.low, share.high, "")


def _change(change: Mapping[str, Any] | None) -> str:
    total = change["good"]["total"] if change else None
    if total is None or total["value"] is None:
        return UNDEFINED
    return _interval(f"{100 * total['value']:+.1f}", total["low"], total["high"], "+")


def _interval(text: str, low: float | None, high: float | None, sign: str) -> str:
    if low is None or high is None:
        return text
    return f"{text}\n[{100 * low:{sign}.1f}, {100 * high:{sign}.1f}]"


def _history(config: NightlyConfig) -> str:
    from nightly.history import read_url, show_url

    return show_url(read_url(config.history)).removeprefix("sqlite:///")
