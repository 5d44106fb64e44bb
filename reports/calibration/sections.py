"""The sections of a calibration report, such as agreement, models and biases."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isfinite, nan

from empathy_judge.calibration.bias import Disagreement, Finding
from empathy_judge.calibration.estimate import THESE_RATERS_ONLY, Estimate, Interval
from empathy_judge.calibration.fit import CalibrationReport
from empathy_judge.calibration.shares.correction import ModelCorrection
from empathy_judge.data.records import LABELS, NOUNS, PROMPT_NOUNS
from empathy_judge.data.text import UNDEFINED, AnyEstimate, ends_of, listed, money, number, percent, show
from empathy_judge.reports.calibration.verdict import RIVALS, say_ceiling
from empathy_judge.reports.charts import Line, Look, Mark, dot_plot, percent_tick, signed_tick, span
from empathy_judge.reports.page import Cell, Example, Figure, Section, Table, row, share_cells, table_of

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
        text=(
            f"Among {NOUNS[report.judge.unit]} with a probability of 60% for {label}, people should rate 60% "
            f"as {label}: both marks of a line at one place.",
        ),
        key=(("judge", "observed, 95% CI"), ("raw", "predicted by the judge")),
        figures=(
            dot_plot(
                f"Probability of {label}, %",
                [
                    Line(
                        name=f"predicted {percent(item.predicted)}",
                        figure=f"observed {percent(item.observed)}",
                        marks=(Mark("judge", item.observed), Mark("raw", item.predicted)),
                    )
                    for item in found.curve
                ],
                name="reliability-figure",
                title=f"Reliability of the probability of {label}",
                tick=percent_tick,
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


REACH = 1.96  # standard errors to either side in a 95% confidence interval
HOW = {
    "ratings": "its own ratings",
    "line": "the judge alone, by the calibration line",
    "both": "ratings and judge",
    "refused": "refused",
}


def models_section(report: CalibrationReport) -> Section:
    """Return every model's corrected levels, beside the judge's own and the human ones."""
    refused = [item.model for item in report.models.rows if item.how == "refused"]
    text = [
        "The judge's shares are corrected with human ratings of the model if there are any, otherwise with "
        "the calibration line through rated models. No level is given if that line does not apply."
    ]
    if report.calibration.rating_map:
        text.append("The judge's own shares are mapped to these ratings first.")
    text += [f"{item.warning}." for item in report.models.rows if item.warning]
    if refused:
        text.append(f"No level is given for {listed(refused)}; the table has the reason.")
    return Section(
        name="models",
        title=f"Corrected {'shares' if report.data.has_shares else 'mean'} of each model",
        text=tuple(text),
        key=(
            ("judge", "corrected, with its 95% CI"),
            ("people", "human ratings"),
            ("raw", "the judge alone"),
        ),
        figures=tuple(
            _level_figure(report, column, f"models-{position}")
            for position, column in enumerate(report.data.columns)
        ),
        tables=tuple(_model_tables(report)),
    )


def _level_figure(report: CalibrationReport, column: str, name: str) -> Figure:
    shares = report.data.has_shares
    what = f"{column}, % of {NOUNS[report.judge.unit]}" if shares else "mean"
    errors = {item.model: item.people_standard_error for item in report.agreement.levels.models}
    lines = []
    for item in report.models.rows:
        corrected, crowd = item.corrected.get(column), item.crowd[column]
        people, reach = Mark("people", crowd), REACH * errors.get(item.model, nan)
        if column == LABELS[-1] and crowd is not None and isfinite(reach):
            ends = Interval(max(0.0, crowd - reach), min(1.0, crowd + reach))
            people = Mark("people", Estimate(crowd, ends))
        figure = percent(corrected) if shares else show(corrected)
        figure = "refused" if item.how == "refused" else figure
        marks = (Mark("judge", corrected), Mark("raw", item.judge.get(column)), people)
        lines.append(Line(name=item.model, figure=figure, marks=marks))
    return dot_plot(
        what,
        lines,
        name=name,
        title=f"Corrected level of each model: {what}",
        tick=percent_tick if shares else (lambda value: f"{value:.3g}"),
    )


def _model_tables(report: CalibrationReport) -> Iterator[Table]:
    """Return all corrected levels; the last column, Good or the mean, in full; and the lines."""
    columns, shares, fit = report.data.columns, report.data.has_shares, report.models
    column = columns[-1]
    scale, digits = (100, 1) if shares else (1, 2)
    covered = {None: UNDEFINED, True: "yes", False: "no"}

    def show_in(name: str, levels: Mapping[str, Estimate | None]) -> str:
        return percent(levels.get(name)) if shares else show(levels.get(name))

    yield Table(
        caption="Corrected levels" + (", %" if shares else "") + ", with 95% confidence intervals",
        head=("model", *columns, "source", "judged", "ratings"),
        rows=tuple(
            row(
                item.model,
                *(share_cells(item.corrected, glue=" ") if shares else [show_in(column, item.corrected)]),
                f"{HOW[item.how]}: {item.reason}" if item.how == "refused" else HOW[item.how],
                item.judged,
                item.ratings,
            )
            for item in fit.rows
        ),
        words=frozenset({0, len(columns) + 1}),
    )
    shown: dict[str, Callable[[ModelCorrection], str]] = {
        "model": lambda item: item.model,
        "people": lambda item: number(item.crowd[column], digits, scale=scale),
        "judge alone": lambda item: number(item.judge.get(column), digits, scale=scale),
        "corrected": lambda item: show_in(column, item.corrected),
    }
    caption = f"{column}: people, the judge alone, and corrected"
    has_left_out = any(show(item.left_out.get(column)) != UNDEFINED for item in fit.rows)
    if has_left_out:
        caption = f"{column}: people, the judge alone, corrected, and estimated without its ratings"
        shown |= {
            "without its ratings": lambda item: show_in(column, item.left_out),
            "contains people's": lambda item: covered[item.covered.get(column)],
        }
    yield table_of(fit.rows, shown, caption=caption)
    yield table_of(
        fit.lines,
        {
            "level": str,
            "slope": lambda name: number(fit.lines[name].slope),
            "spread between models": lambda name: number(fit.lines[name].model_sd, 3),
            "range from": lambda name: number(fit.calibrated[name].range[0], 3),
            "to": lambda name: number(fit.calibrated[name].range[1], 3),
        },
        caption="The calibration line from the judge's level to the human level",
        is_folded=True,
    )


MOST_EXAMPLES = 10


def bias_section(report: CalibrationReport) -> Section:
    """Return a forest plot of every audit: the effect found, and the effect that is detectable."""
    findings = report.findings
    found = [item.audit for item in findings if item.verdict == "found"]
    hidden = sum(item.verdict == "could not have been found" for item in findings)
    return Section(
        name="bias",
        title="Biases, and what was detectable",
        text=(
            f"Is the judge's error larger for some {NOUNS[report.judge.unit]} than for others? Each effect is"
            " in points of score. The gray band shows effects that are too small to be detected with 80% "
            f"power. An effect of {number(findings[0].threshold)} points matters.",
            f"Found: {listed(found)}. Not detectable: {hidden} of {len(findings)}.",
        ),
        key=(("found", "found"), ("raw", "not found"), ("band", "too small to be detected")),
        figures=(_forest(findings),),
        tables=(
            table_of(
                findings,
                {
                    "audit": lambda item: item.audit,
                    "effect": lambda item: show(item.effect, digits=3),
                    "detectable": lambda item: number(item.detectable, 3),
                    "p": lambda item: number(item.p, 3),
                    "outcome": _outcome,
                    "ratings": lambda item: item.ratings,
                    "question": lambda item: item.what,
                },
                caption="Every audit, in points of score",
                words=frozenset({0, 4, 6}),
                is_folded=True,
            ),
        ),
    )


def _forest(findings: Sequence[Finding]) -> Figure:
    ends = [end for item in findings for end in (*ends_of(item.effect), item.threshold, -item.threshold)]
    return dot_plot(
        "Effects on the judge's error",
        [
            Line(
                name=item.audit,
                figure=f"{number(item.effect.value, 2, sign=True)}, {item.verdict}",
                marks=(Mark("found" if item.verdict == "found" else "raw", item.effect),),
                band=(-item.detectable, item.detectable) if isfinite(item.detectable) else None,
            )
            for item in findings
        ],
        name="bias-general",
        title="Effects on the judge's error",
        tick=signed_tick,
        reference=0.0,
        domain=span(ends, least=0.05),  # a wider band is cut off at the edge
    )


def _outcome(finding: Finding) -> str:
    sizes = {"matters": ", large enough to matter", "small": ", too small to matter", "unclear": ""}
    size = sizes[finding.size] if finding.verdict == "found" else ""
    return f"{finding.verdict}{size}{f' ({finding.note})' if finding.note else ''}"


def disagreements_section(report: CalibrationReport) -> Section | None:
    """Return the responses on which the judge was most certain of another label than people gave."""
    high, low = report.disagreements.too_kind, report.disagreements.too_harsh
    half = max(MOST_EXAMPLES // 2, MOST_EXAMPLES - len(low))
    shown = [*(("Too high", item) for item in high[:half]), *(("Too low", item) for item in low)]
    examples = tuple(_example(item, title) for title, item in shown[:MOST_EXAMPLES])
    if not examples:
        return None
    total = len(high) + len(low)
    return Section(
        name="disagreements",
        title="The worst disagreements",
        text=(
            f"{NOUNS[report.judge.unit].capitalize()} with the highest judge probability for a label other "
            "than the human one. Some are errors of the judge, some of the rater. "
            f"{len(examples)} of {total} are shown; report.json has them all.",
        ),
        examples=examples,
    )


def _example(item: Disagreement, title: str) -> Example:
    chances = (item.probabilities or {}).items()
    facts = [
        ("score", number(item.score)),
        ("probabilities", ", ".join(f"{label} {number(value, 0, scale=100)}%" for label, value in chances)),
        ("emotion", item.emotion),
        ("model", item.model),
        ("id", item.id),
        ("the judge's reason", item.rationale),
    ]
    return Example(
        title=f"{title}: human rating {', '.join(item.ratings)}, judge {item.label}",
        facts=tuple((name, value) for name, value in facts if value),
        prompt=item.prompt,
        response=item.response,
    )
