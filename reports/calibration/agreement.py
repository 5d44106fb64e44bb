"""Report sections on agreement with people, beside ceiling, baselines and costs, and on confusion."""

from collections.abc import Iterator, Mapping
from typing import Final

from calibration.estimate import OF_THESE_RATERS
from calibration.fit import CalibrationReport, RunRow
from data.records import NOUNS, PROMPT_NOUNS
from data.text import AnyEstimate, number, show_estimate
from reports.calibration.verdict import say_ceiling
from reports.charts import Line, Look, dot_plot, mark
from reports.page import Cell, Section, Table, row

METRIC_NAMES = {
    "qwk": "Weighted kappa, by label",
    "qwk_matched": "Weighted kappa, by order",
    "spearman": "Spearman correlation",
    "balanced_accuracy": "Balanced accuracy",
    "exact": "Exact agreement",
    "alpha_ordinal": "Krippendorff's alpha, ordinal",
}
SHOWN = ("qwk_matched", "spearman", "qwk", "balanced_accuracy")  # of all metrics, those with a figure
# Not by their own names: the judge may be `length` too.
BASELINES: Final = {"length": "counting words", "majority": "the most common label"}
Party = tuple[str, Look, Mapping[str, AnyEstimate]]  # who is compared: name, look and metrics


CLUSTERS: Final = {"batch": "batches", "rater": "raters"}


def agreement_section(report: CalibrationReport) -> Section:
    """Return the judge's agreement with people beside trivial baselines and the human ceiling."""
    parties, data = list(_parties(report)), report.data
    figures = [
        dot_plot(
            METRIC_NAMES[metric],
            [
                Line(name=name, figure=show_estimate(metrics[metric]), marks=(mark(look, metrics[metric]),))
                for name, look, metrics in parties
                if metric in metrics
            ],
            name=f"agreement-{metric}",
            title=f"{METRIC_NAMES[metric]}: the judge, baselines and people",
            tick=lambda value: f"{value:.2g}",
            reference=0.0 if metric != "balanced_accuracy" else None,
        )
        for metric in SHOWN
        if metric in report.agreement.metrics
    ]
    tables = [
        Table(
            caption="Agreement with human ratings, with 95% confidence intervals",
            head=("statistic", *(name for name, _, _ in parties)),
            rows=tuple(
                row(title, *(show_estimate(metrics.get(metric)) for _, _, metrics in parties))
                for metric, title in METRIC_NAMES.items()
                if any(metric in metrics for _, _, metrics in parties)
            ),
            is_folded=True,
        )
    ]
    if report.ceiling.left_out:
        people = Table(
            caption="Weighted kappa with the median of the other raters: each person, and the judge",
            head=("person", NOUNS[report.judge.unit], "person", "judge"),
            rows=tuple(
                row(item.rater, item.responses, number(item.person), number(item.judge))
                for item in report.ceiling.left_out
            ),
        )
        tables.insert(0, people)
    intervals = (
        f"95% confidence intervals over {data.cluster_count:,} whole {_clusters(report)}: ratings within one "
        "are not independent."
    )
    if data.speaks_for != "people":
        intervals += f" {OF_THESE_RATERS.capitalize()}."
    return Section(
        name="agreement",
        title="Agreement, with ceiling and baselines",
        short="Agreement",
        text=tuple(_describe_ceiling(report)),
        key=(
            ("judge", "the judge"),
            ("rival", "a baseline"),
            ("people", "a person"),
        ),
        figures=tuple(figures),
        tables=tuple(tables),
        notes=(
            *([intervals] if data.draws else []),
            *(
                f"{METRIC_NAMES[name]} is undefined: {reason}."
                for name, reason in report.agreement.undefined.items()
            ),
        ),
    )


def _parties(report: CalibrationReport) -> Iterator[Party]:
    ceiling = report.ceiling
    yield report.judge.name, "judge", report.agreement.metrics
    for baseline in report.baselines:
        yield BASELINES.get(baseline.name, baseline.name), "rival", baseline.metrics
    if not ceiling.not_identifiable:
        yield (
            "a person",
            "people",
            as_matched({"qwk": ceiling.person_against_rest, "alpha_ordinal": ceiling.alpha_ordinal}),
        )


def as_matched(metrics: Mapping[str, AnyEstimate]) -> Mapping[str, AnyEstimate]:
    """Add the matched kappa of people: their labels are as frequent as ratings, so it is the same."""
    return {**metrics, "qwk_matched": metrics["qwk"]}


def _clusters(report: CalibrationReport) -> str:
    units = {"prompt": PROMPT_NOUNS[report.judge.unit], "id": NOUNS[report.judge.unit]}
    return {**CLUSTERS, **units}[report.data.clusters]


def _describe_ceiling(report: CalibrationReport) -> Iterator[str]:
    ceiling, test = report.ceiling, report.ceiling.alternative
    yield say_ceiling(report)
    if not ceiling.not_identifiable:
        yield (
            f"{ceiling.shared:,} {NOUNS[report.judge.unit]} have two ratings or more, by {ceiling.raters:,} "
            f"people. The judge's kappa minus a person's is {show_estimate(ceiling.gap)}."
        )
        if ceiling.speaks_for != "people":
            yield "So few raters are a panel: these figures describe these raters, not people in general."
    if test and test.undefined:
        yield f"The alternative-annotator test is undefined: {test.undefined}."
    elif test:
        yield (
            f"To pass the alternative-annotator test, the judge must beat half of the raters (epsilon "
            f"{number(test.epsilon)}); its mean advantage is {show_estimate(test.advantage)}."
        )


def confusion_section(report: CalibrationReport) -> Section:
    """Return the confusion matrix: human ratings down, the judge's labels across."""
    labels, counts = report.agreement.scale, report.agreement.confusion
    body = []
    for label, line in zip(labels, counts, strict=True):
        total = sum(line)
        cells = [
            Cell(f"{count:,} ({100 * count / total:.0f} %)", -count / total) if total else Cell(f"{count:,}")
            for count in line
        ]
        body.append(row(label, *cells, total))
    sums = [sum(column) for column in zip(*counts, strict=True)]
    body.append(row("all", *sums, sum(sums)))
    return Section(
        name="confusion",
        title="Confusion matrix",
        short="Confusion",
        text=("Each row is a human label; the darker a cell, the larger its part of the row.",),
        tables=(
            Table(
                caption="Ratings by human label and label of the judge (part of the row)",
                head=("human label", *(f"judge: {label}" for label in labels), "ratings"),
                rows=tuple(body),
            ),
        ),
    )


def runs_section(report: CalibrationReport) -> Section | None:
    """Return judges, baselines and people in one table, by agreement, cost and time."""
    runs = report.runs
    judges = [run for run in runs if run.kind == "judge"]
    has_costs = any(run.usd_per_1000 is not None or run.seconds_per_1000 is not None for run in judges)
    if len(judges) < 2 and not has_costs:
        return None
    shown = [name for name in SHOWN if any(name in run.metrics for run in runs)]
    table = Table(
        caption=f"Agreement with people, and cost per 1,000 {NOUNS[report.judge.unit]}",
        head=("who", *(METRIC_NAMES[name] for name in shown), "US dollars", "seconds", "ratings"),
        rows=tuple(
            row(
                f"{run.name} (baseline)" if run.kind == "baseline" else run.name,
                *(show_estimate(_metrics_of(run).get(name)) for name in shown),
                number(run.usd_per_1000),
                number(run.seconds_per_1000, 1),
                run.n or "none",
            )
            for run in runs
        ),
    )
    return Section(
        name="runs",
        title="Agreement and cost",
        short="Costs",
        tables=(table,),
        notes=tuple(f"{run.name}: {run.note}." for run in runs if run.note),
    )


def _metrics_of(run: RunRow) -> Mapping[str, AnyEstimate]:
    return as_matched(run.metrics) if run.kind == "people" else run.metrics
