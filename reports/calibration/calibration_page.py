"""The report of a calibration: as a page, as JSON, and on the terminal."""

import textwrap
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from rich.text import Text

from empathy_judge.calibration.estimate import THESE_RATERS_ONLY
from empathy_judge.calibration.fit import CalibrationReport
from empathy_judge.data.crisis import say_flags
from empathy_judge.data.records import NOUNS, to_plain
from empathy_judge.data.text import printable
from empathy_judge.reports.calibration import sections
from empathy_judge.reports.calibration.verdict import (
    count_people,
    refuse_part,
    say_answers,
    say_choice,
    say_effect,
    say_headline,
    say_verdict,
)
from empathy_judge.reports.page import Page, Section, Table, row
from empathy_judge.reports.render import write_page
from empathy_judge.reports.terminal import open_screen, print_lines, print_tables

READING = (
    "A 95% confidence interval is in brackets. It applies to ratings collected in the same way, not to other "
    "raters, rubrics or kinds of models.",
    "Kappa is 1 for perfect agreement and 0 for chance. The ceiling is below 1, because people do not agree "
    "with each other either. By label, it uses the judge's labels; by order, only the order of its scores.",
    "Compare the judge with the baselines: a judge that is no better than counting words may measure length.",
    "Use the corrected share; the judge's own share is shown for comparison.",
    "“None found” differs from “could not have been found”: the gray bands show which it is.",
    "“Undefined” means that the data do not determine the figure.",
)
MISUSE = (
    "To rate individual people, or to decide about anyone.",
    "For crisis lines, therapy or medical advice: rated empathy is neither safety nor truth.",
    "To train a model and then measure that model: optimizing for a measure makes it invalid.",
    "To compare levels across calibrations, languages or unrated kinds of conversation.",
    "To report a share without its interval, or a rank if intervals overlap.",
)


def default_folder(report: CalibrationReport) -> Path:
    """Return the folder of a report for which none was set."""
    name, stem = report.judge.name, Path(report.judge.source).stem
    return Path("calibrations") / (stem if name == stem else f"{stem}-{name}".replace("/", "-"))


def write_report(report: CalibrationReport, folder: str | PathLike[str]) -> list[Path]:
    """Write report.html, report.md and report.json."""
    return write_page(make_page(report), plain_report(report), Path(folder))


def plain_report(report: CalibrationReport) -> dict[str, Any]:
    """Return the report as in report.json: the verdict in words, then all figures."""
    return {"verdict": say_verdict(report), **to_plain(report)}


def make_page(report: CalibrationReport) -> Page:
    """Return the page of a report, all but a few sections folded; those without data are left out."""
    shown = (
        sections.judges_section(report),
        sections.confusion_section(report),
        sections.disagreements_section(report),
    )
    details = (
        sections.agreement_section(report),
        sections.models_section(report),
        sections.bias_section(report),
        sections.reliability_section(report),
        Section(name="reading", title="How to read this", points=READING),
        Section(name="misuse", title="Do not use it for", short="Not for", points=MISUSE),
        _provenance(report),
    )
    data, names, noun = report.data, report.data.models, NOUNS[report.judge.unit]
    models = f"{len(names)} model{'s' if len(names) > 1 else ''}: {', '.join(names)}"
    rated = f"{data.ratings:,} ratings of {data.responses:,} {noun} by {count_people(data.raters)}"
    return Page(
        title="Which judge to trust" if say_choice(report) else f"How far to trust {report.judge.name}",
        subtitle=f"{rated}; {models}",
        verdict=(
            *say_choice(report),
            say_headline(report),
            *filter(None, [refuse_part(report), report.judge.dimension_note]),
            *(f"{line}." for line in say_flags(report.flagged)),
        ),
        answers=tuple(say_answers(report)),
        sections=(
            *filter(None, shown),
            *(replace(section, is_folded=True) for section in details if section is not None),
        ),
        foot="All figures are in report.json beside this page.",
    )


def _provenance(report: CalibrationReport) -> Section:
    """Return the judge, the data, the seed and the hashes behind the figures."""
    judge, data, made = report.judge, report.data, report.calibration
    facts = {
        "judge": f"{judge.name} {judge.version}",
        "rubric": judge.rubric,
        "runs": judge.source,
        "ratings": made.ratings,
        "calibration": f"{made.digest}; created {made.created}, expires {made.expires}",
        "intervals": f"{data.draws} draws of {data.cluster_count} clusters ({data.clusters})",
        "seed": data.seed,
        "notes": "; ".join(data.notes),
    }
    table = Table(
        caption="What was calibrated, on what, and how",
        head=("fact", "value"),
        rows=tuple(row(name, value) for name, value in facts.items() if value),
        words=frozenset({0, 1}),
        is_folded=True,
    )
    return Section(name="provenance", title="Provenance", tables=(table,))


def print_report(report: CalibrationReport, written: Sequence[Path]) -> None:
    """Print the table of judges below the first sentence of the verdict; with several judges no answers."""
    screen = open_screen()
    choice = say_choice(report)
    for number, sentence in enumerate(
        [*choice, say_headline(report), say_effect(report)] if choice else say_verdict(report)
    ):
        if number == 1:
            print_tables(sections.judges_section(report).tables, screen)
        lines = textwrap.wrap(printable(sentence), max(40, min(screen.width, 100) - 2))
        screen.print(Text("\n  ".join([f"- {lines[0]}", *lines[1:]])), soft_wrap=True)
    notes = [
        *([THESE_RATERS_ONLY] if report.data.population != "general" else []),
        *filter(None, [report.judge.dimension_note]),
        *say_flags(report.flagged),
        *(f"written {path}" for path in written),
    ]
    print_lines(notes, screen)
