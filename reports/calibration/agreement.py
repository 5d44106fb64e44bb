"""Report sections on judges, agreement beside ceiling and baselines, confusion and reliability."""

from collections.abc import Iterator, Mapping

from empathy_judge.calibration.estimate import THESE_RATERS_ONLY
from empathy_judge.calibration.fit import CalibrationReport
from empathy_judge.data.records import NOUNS, PROMPT_NOUNS
from empathy_judge.data.text import AnyEstimate, money, number, percent, show
from empathy_judge.reports.calibration.verdict import RIVALS, say_ceiling
from empathy_judge.reports.charts import Line, Look, Mark, dot_plot, reliability
from empathy_judge.reports.page import Cell, Section, Table, row

METRIC_NAMES = {
    "qwk": "Weighted kappa, by label",
    "qwk_matched": "Weighted kappa, by order",
    "spearman": "Spearman correlation",
    "balanced_accuracy": "Balanced accuracy",
    "exact": "Exact agreement",
    "alpha_ordinal": "Krippendorff's alpha, ordinal",
}
SHOWN = ("qwk_matched", "spearman", "qwk", "balanced_accuracy")  # of all metrics, those with a figure


def agreement_section(report: CalibrationReport) -> Section:
    """Return the judge's agreement with people beside trivial baselines and the human ceiling."""
    parties, data = list(_parties(report)), report.data
    figures = [
        dot_plot(
            METRIC_NAMES[metric],
            [
                Line(name=name, figure=show(metrics[metric]), marks=(Mark(look, metrics[metric]),))
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
                row(title, *(show(metrics.get(metric)) for _, _, metrics in parties))
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
    nouns = {"prompt": PROMPT_NOUNS[report.judge.unit], "id": NOUNS[report.judge.unit]}
    clusters = {"batch": "batches", "rater": "raters", **nouns}[data.clusters]
    intervals = (
        f"95% confidence intervals over {data.cluster_count:,} whole {clusters}: ratings within one are not "
        "independent."
    )
    if data.population != "general":
        intervals += f" {THESE_RATERS_ONLY.capitalize()}."
    return Section(
        name="agreement",
        title="Agreement, with ceiling and baselines",
        text=tuple(_describe_ceiling(report)),
        key=(("judge", "the judge"), ("rival", "a baseline"), ("people", "a person")),
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


def _parties(report: CalibrationReport) -> Iterator[tuple[str, Look, Mapping[str, AnyEstimate]]]:
    """Yield who is compared: name, look and metrics."""
    ceiling = report.ceiling
    yield report.judge.name, "judge", report.agreement.metrics
    for baseline in report.baselines:
        yield RIVALS.get(baseline.name, baseline.name), "rival", baseline.metrics
    if not ceiling.not_identifiable:
        yield ("a person", "people", {**report.runs[-1].metrics, "alpha_ordinal": ceiling.alpha_ordinal})


def _describe_ceiling(report: CalibrationReport) -> Iterator[str]:
    ceiling = report.ceiling
    yield say_ceiling(report)
    if not ceiling.not_identifiable:
        yield (
            f"{ceiling.shared:,} {NOUNS[report.judge.unit]} have two ratings or more, by {ceiling.raters:,} "
            f"people. The judge's kappa minus a person's is {show(ceiling.gap)}."
        )
        if ceiling.population != "general":
            yield "So few raters are a panel: these figures describe these raters, not people in general."


def confusion_section(report: CalibrationReport) -> Section:
    """Return the confusion matrix: human ratings down, the judge's labels across."""
    labels, counts = report.agreement.scale, report.agreement.confusion
    body = []
    for label, line in zip(labels, counts, strict=True):
        total = sum(line)
        cells = [
            Cell(f"{count:,} ({100 * count / total:.0f}%)", -count / total) if total else Cell(f"{count:,}")
            for count in line
        ]
        body.append(row(label, *cells, total))
    sums = [sum(column) for column in zip(*counts, strict=True)]
    body.append(row("all", *sums, sum(sums)))
    return Section(
        name="confusion",
        title="Confusion matrix",
        text=("Each row is a human label; darker cells are larger shares of the row.",),
        tables=(
            Table(
                caption="Ratings by human label and label of the judge (share of the row)",
                head=("human label", *(f"judge: {label}" for label in labels), "ratings"),
                rows=tuple(body),
            ),
        ),
    )


def judges_section(report: CalibrationReport) -> Section:
    """Return judges, baselines and people in one table, by agreement, level error, cost and time."""
    shares, rows = report.data.has_shares, []
    error = "level error, points" if shares else "level error of the mean"
    judges = [run for run in report.runs if run.kind not in ("baseline", "people")]
    is_measured = any(run.usd_per_1000 is not None or run.seconds_per_1000 is not None for run in judges)
    for run in report.runs:
        name, figures = run.name, [percent(run.level_error) if shares else show(run.level_error)]
        if is_measured:  # not for tables of other tools
            figures += (money(run.usd_per_1000), number(run.seconds_per_1000, 1))
        if run.kind == "baseline":
            name = f"{RIVALS.get(name, name)} (baseline)"
        elif run.kind == "people":
            name, figures = "one person (ceiling)", [""] * len(figures)
        rows.append(row(name, show(run.metrics[report.headline]), *figures, run.n or "none"))
    return Section(
        name="judges",
        title="Judges",
        tables=(
            Table(
                caption="Agreement with human ratings"
                + (f"; cost and time per 1,000 {NOUNS[report.judge.unit]}" if is_measured else ""),
                head=("judge", "weighted kappa", error, *(("cost", "seconds") * is_measured), "ratings"),
                rows=tuple(rows),
            ),
        ),
        notes=(
            f"{METRIC_NAMES[report.headline]}. The level error is the mean absolute difference between the"
            " judge and people over models, before correction. The ceiling is one person's agreement with the"
            " median of the others.",
        ),
    )


def reliability_section(report: CalibrationReport) -> Section | None:
    """Return whether the judge's probabilities match observed frequencies; None where it gives none."""
    found = report.reliability
    if found is None:
        return None
    label = found.label
    return Section(
        name="reliability",
        title="Reliability of the probabilities",
        is_beside=True,
        text=(
            f"Among {NOUNS[report.judge.unit]} with a probability of 60% for {label}, people should rate 60% "
            f"as {label}: points on the dashed diagonal.",
        ),
        key=(("judge", "the judge, 95% CI"), ("reference", "perfect calibration")),
        figures=(
            reliability(
                f"Probability of {label}",
                [(item.predicted, item.observed) for item in found.curve],
                name="reliability-figure",
                title=f"Reliability of the probability of {label}",
            ),
        ),
        tables=(
            Table(
                caption="Errors of the probabilities; smaller is better",
                head=("error", "value"),
                rows=(
                    row("expected calibration error", number(found.ece, 4)),
                    row("log-loss", number(found.log_loss, 4)),
                ),
            ),
        ),
    )
