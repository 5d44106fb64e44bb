"""A calibration on a terminal: the verdict first, then tables that fit into 80 columns."""

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from calibration.artifact import Calibration
from calibration.from_trials import left_out_rows
from data.judgments import say_flags
from data.text import Row, headline_of, part, printable, rows, show, show_estimate, total, worth_of
from data.text import number as number_of
from reports.calibration.agreement import agreement_section, confusion_section
from reports.calibration.bias import attacks_section, bias_section, probes_section
from reports.calibration.costs import planning_section, runs_section
from reports.calibration.disagreements import disagreements_section, emotions_section, policy_section
from reports.calibration.per_model import models_section, raters_section
from reports.calibration.probabilities import conformal_section, reliability_section
from reports.page import Page, Section
from reports.page import Table as Table_sections
from reports.page import row as row_of
from reports.terminal import open_screen, print_table

METRICS: Final = {
    "qwk": "QWK",
    "qwk_matched": "QWK matched",
    "spearman": "Spearman",
    "balanced_accuracy": "bal. acc.",
    "exact": "exact",
}
WORDS: Final = 24  # of a name, as much as a column of a table of six can hold


def print_report(report: Mapping[str, Any], written: Sequence[Path]) -> None:
    """The verdict, the runs beside baselines and people, the models, the audits; and where the rest lies."""
    console = open_screen()
    for sentence in report["verdict"]:
        lines = textwrap.wrap(printable(sentence), max(40, min(console.width, 100) - 2))
        console.print(Text("\n  ".join([f"- {lines[0]}", *lines[1:]])), soft_wrap=True)
    console.print()
    print_table(console, _runs(report["runs"]))
    console.print()
    print_table(console, _models(report))
    if found := _audits(report):
        console.print()
        print_table(console, found)
    about = report["calibration"]
    data = report["data"]
    clusters = {"batch": "batches", "rater": "raters"}.get(data["clusters"], "prompts")
    notes = [
        f"{_people(report)}; 95 % intervals, {data['draws']:,} draws of {data['cluster_count']:,} {clusters}",
        f"calibration {about['digest'][:12]}, until {about['expires']}",
        *say_flags(report.get("flagged")),
        *(f"written {path}" for path in written),
    ]
    for note in notes:
        console.print(Text(printable(note)), style="dim", soft_wrap=True)


def _people(report: Mapping[str, Any]) -> str:
    data = report["data"]
    return f"{data['ratings']:,} ratings of {data['responses']:,} responses by {data['raters']:,} people"


def _table(head: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, name in enumerate(head):
        table.add_column(name, justify="right" if number else "left", overflow="fold")
    return table


def _runs(rows: Sequence[Mapping[str, Any]]) -> Table:
    has_costs = any(row.get("usd_per_1000") or row.get("seconds_per_1000") for row in rows)
    table = _table(["", *METRICS.values(), *(["USD/1,000", "s/1,000"] if has_costs else [])])
    for row in rows:
        cells = [_short(row["metrics"].get(name), has_interval=not has_costs) for name in METRICS]
        costs = [_cost(row.get(key)) for key in ("usd_per_1000", "seconds_per_1000")]
        table.add_row(_name(row["name"]), *cells, *(costs if has_costs else []))
    return table


def _models(report: Mapping[str, Any]) -> Table:
    """Of the last column, Good or the mean."""
    column = report["data"]["columns"][-1]
    scale, digits = (1.0, 2) if column == "mean" else (100.0, 1)
    table = _table([f"model ({column})", "people", "judge", "corrected", "by", "had nobody rated it", "n"])
    for row in report["models"]:
        alone, level = row["left_out"].get(column), row["corrected"].get(column)
        held = {True: "", False: " missed", None: ""}[row["covered"].get(column)]
        table.add_row(
            _name(row["model"]),
            _number(row["crowd"].get(column), scale, digits),
            _number(row["judge"].get(column), scale, digits),
            show(level, scale=scale, digits=digits, glue="\n") if level else "refused",
            row["how"],
            (show(alone, scale=scale, digits=digits, glue="\n") if alone else "-") + held,
            f"{row['ratings']:,}",
        )
    return table


def _audits(report: Mapping[str, Any]) -> Table | None:
    """The findings, and what asks for more ratings in one line each; single models and emotions if found."""
    findings = (report["bias"] or {}).get("findings", [])
    shown = [item for item in findings if not item["about"] or item["verdict"] == "found"]
    if not shown:
        return None
    table = _table(["bias", "effect, in points", "could find", "verdict"])
    for item in shown:
        about = f" ({item['about']})" if item["about"] else ""
        table.add_row(
            _name(f"{item['audit']}{about}"),
            _short(item["effect"], has_interval=True),
            "-" if item["detectable"] is None else f"{item['detectable']:.2f}",
            Text(item["verdict"]),
        )
    return table


def print_shipped(calibration: Calibration, path: Path, *, as_json: bool) -> None:
    """What a calibration from trials would have said of each model, had that model been new."""
    rows = left_out_rows(calibration)
    if as_json:
        print(json.dumps({"digest": calibration.digest, "file": str(path), "models": rows}, indent=2))
        return
    console = open_screen()
    table = _table(["left out", *calibration.between, "inside"])
    for row in rows:
        cells = [
            f"{show(cell, scale=100, digits=1, glue=chr(10))}\ncrowd {100 * cell['crowd']:.1f}"
            for cell in row["columns"].values()
        ]
        held = [cell["covered"] for cell in row["columns"].values()]
        table.add_row(_name(row["model"]), *cells, f"{sum(held)} of {len(held)}")
    print_table(console, table)
    spread = calibration.lines[list(calibration.between)[-1]]["between_sd"]
    for note in (
        f"judge {calibration.judge} {calibration.version}, {calibration.count:,} ratings",
        f"map {calibration.mapping['kind']}; spread between models "
        f"{'undefined' if spread is None else f'{100 * spread:.1f} points'}",
        f"calibration {calibration.digest[:12]}, until {calibration.expires}",
        f"written {path}",
    ):
        console.print(Text(printable(note)), style="dim", soft_wrap=True)


def print_self_test(found: Mapping[str, Any], *, as_json: bool) -> None:
    """Coverage of the intervals on data whose answer is known."""
    if as_json:
        print(json.dumps(found, indent=2))
        return
    console = open_screen()
    table = _table(["ratings", "raters", "shares", "differences", "new model", "both", "judge alone"])
    for row in found["rows"]:
        table.add_row(
            str(row["ratings"]),
            str(row["raters"]),
            *(_range(row[key]) for key in ("shares", "differences")),
            *(f"{100 * row[key]:.1f}" for key in ("unrated_good", "both_good")),
            _range(row["naive_shares"]),
        )
    print_table(console, table)
    lines = [f"per cent of 95 % intervals that hold the truth, {found['draws']:,} draws"]
    if bias := found["bias"]:
        lines.append(
            f"a planted bias of {bias['effect']:.2f} is found in {100 * bias['found']:.0f} % "
            f"(stated {100 * bias['stated']:.0f} %); one not there in {100 * bias['false_alarms']:.0f} %"
        )
    lines += [f"problem: {problem}" for problem in found["problems"]] or ["passed"]
    for line in lines:
        console.print(Text(line), soft_wrap=True)


def _range(shares: Mapping[str, float]) -> str:
    return f"{100 * min(shares.values()):.1f}-{100 * max(shares.values()):.1f}"


def _short(estimate: Mapping[str, float | None] | None, *, has_interval: bool) -> str:
    if estimate is None or estimate["value"] is None:
        return "-"
    shown = estimate if has_interval else {**estimate, "low": None, "high": None}
    return show(shown, digits=2, zero=False, glue="\n" if has_interval else " ")


def _number(value: float | None, scale: float, digits: int) -> str:
    return "-" if value is None else f"{scale * value:.{digits}f}"


def _cost(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}" if value < 100 else f"{value:,.0f}"


def _name(name: str) -> Text:
    clean = printable(name)
    return Text(clean if len(clean) <= WORDS else f"{clean[: WORDS - 1]}\N{HORIZONTAL ELLIPSIS}")


# A calibration's result as a page: which sections, in which order, and what stands at the top of it.

ORDER = (
    agreement_section,
    models_section,
    planning_section,
    confusion_section,
    reliability_section,
    emotions_section,
    bias_section,
    probes_section,
    attacks_section,
    raters_section,
    conformal_section,
    policy_section,
    disagreements_section,
    runs_section,
)
READING = (
    "An interval in brackets holds the true figure 95 times of 100 if ratings come as these did; another "
    "crowd, rubric or kind of model is another question.",
    "Kappa is 1 for perfect agreement and 0 for chance. The ceiling is not 1: people do not agree with each "
    "other either. By label, it takes the judge's likeliest label; by order, it asks only whether better "
    "replies score higher.",
    "Compare the judge with the baselines beside it before you believe it: one that is no better than "
    "counting words may have read nothing.",
    "A corrected share is the answer; the judge's own is shown to tell how far off it would have been.",
    "“None found” is not “could not have been found”: the grey bands say which it is.",
    "“Undefined” is no number: the data do not determine it.",
)
MISUSE = (
    "To rate single people, or to decide about anyone.",
    "For crisis lines, therapy or medical advice: empathy in a crowd's eyes is neither safety nor truth.",
    "To train a model and then measure that model: what is optimised stops being a measure.",
    "To compare levels across calibrations, languages or kinds of conversation that nobody rated.",
    "To quote a share without its interval, or a rank where intervals overlap.",
)
LEFT_OUT = ("models", "columns", "shares")  # of the data: told in sections of their own


def make_page(result: Row) -> Page:
    """The page of a result; sections it has no data for are left out."""
    made = [section for make in ORDER if (section := make(result)) is not None]
    return Page(
        title=f"How far to trust {part(result, 'judge').get('name') or 'a judge'}",
        subtitle=_subtitle(part(result, "data")),
        verdict=(*_verdict(result), *(f"{line}." for line in say_flags(result.get("flagged")))),
        facts=tuple(_facts(result)),
        sections=(*made, *_reading(), *_provenance(result)),
        foot="All figures are in report.json beside this page.",
    )


def _subtitle(data: Row) -> str:
    if not data:
        return "No data were given."
    counts = [f"{data.get(key) or 0:,} {words}" for key, words in _COUNTED.items()]
    models = data.get("models") or []
    named = f"; {len(models)} model{'s' if len(models) > 1 else ''}: {', '.join(map(str, models))}"
    return f"{' '.join(counts)}{named if models else ''}"


_COUNTED = {"ratings": "ratings of", "responses": "responses by", "raters": "people"}


def _verdict(result: Row) -> Iterator[str]:
    sentences = result.get("verdict")
    if sentences:
        yield from [sentences] if isinstance(sentences, str) else map(str, sentences)
        return
    qwk = part(part(result, "agreement"), "qwk")
    if qwk.get("value") is None:
        yield "Nothing can be said of this judge: its agreement with people is undefined."
    else:
        yield f"This judge agrees with people by a weighted kappa of {show_estimate(qwk)}."


def _facts(result: Row) -> Iterator[tuple[str, str, str]]:
    metrics, ceiling = part(result, "agreement"), part(result, "ceiling")
    if metrics:
        found = part(metrics, headline_of(result))
        yield "Weighted kappa with people", number_of(found.get("value")), _interval(found)
    if ceiling.get("not_identifiable"):
        for bound in rows(ceiling, "bounds")[:1]:
            reach = number_of(part(bound, "second_person").get("qwk"))
            yield "A second person would reach", reach, "supposed, not measured"
    elif ceiling:
        found = part(ceiling, "person_against_rest")
        yield "A person against the others", number_of(found.get("value")), _interval(found)
    tau = part(part(result, "over_models"), "tau")
    if tau:
        yield "Order of models (tau)", number_of(tau.get("value")), _interval(tau)
    worth = worth_of(part(result, "between"))
    if worth is not None:
        yield "On an unrated model as exact as", number_of(worth, 0), "ratings of it"
    unscored = part(part(result, "data"), "unscored")
    if unscored:
        reasons = ", ".join(f"{reason} ({number_of(count, 0)})" for reason, count in unscored.items())
        yield "Unscored", f"{total(unscored):,}", reasons


def _interval(found: Row) -> str:
    if found.get("low") is None or found.get("high") is None:
        return ""
    return f"{number_of(found['low'])} to {number_of(found['high'])}"


def _reading() -> Iterator[Section]:
    yield Section(name="reading", title="How to read this", short="Reading", points=READING)
    yield Section(name="misuse", title="What it must not be used for", short="Not for", points=MISUSE)


def _provenance(result: Row) -> Iterator[Section]:
    """Where every figure comes from: the judge, the data, the seed, and hashes where given."""
    data = {key: value for key, value in part(result, "data").items() if key not in LEFT_OUT}
    named = {"judge": part(result, "judge"), "": data, "calibration": part(result, "calibration")}
    facts = {key: value for name, found in named.items() for key, value in _flat(found, name).items()}
    if not facts:
        return
    table = Table_sections(
        caption="What was calibrated, on what, and how",
        head=("fact", "value"),
        rows=tuple(row_of(name, value) for name, value in facts.items()),
        words=frozenset({0, 1}),
    )
    yield Section(name="provenance", title="Where the figures come from", short="Provenance", tables=(table,))


def _flat(found: Mapping[str, Any], name: str) -> dict[str, str]:
    """Nested facts as one list of names and texts; what is empty is left out."""
    flat: dict[str, str] = {}
    for key, value in found.items():
        full = f"{name} {key}".strip().replace("_", " ")
        if isinstance(value, Mapping):
            flat |= _flat(value, full)
        elif isinstance(value, list):
            flat |= {full: ", ".join(map(str, value))} if value else {}
        elif isinstance(value, float):
            flat[full] = f"{value:.4g}"
        elif value not in (None, ""):
            flat[full] = str(value)
    return flat
