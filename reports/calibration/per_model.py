"""The report section on the corrected levels of each model."""

from collections.abc import Callable, Iterator, Mapping
from math import isfinite

from empathy_judge.calibration.estimate import Estimate, Interval
from empathy_judge.calibration.fit import CalibrationReport
from empathy_judge.calibration.shares.correction import ModelCorrection
from empathy_judge.data.records import NOUNS
from empathy_judge.data.text import UNDEFINED, listed, number, percent, show
from empathy_judge.reports.charts import Line, Mark, dot_plot, percent_tick
from empathy_judge.reports.page import Figure, Section, Table, row, table_of

REACH = 1.96  # standard errors to either side in a 95% confidence interval
HOW = {
    "ratings": "its own ratings",
    "line": "the judge alone, by the calibration line",
    "both": "ratings and judge",
    "refused": "refused",
}


def models_section(report: CalibrationReport) -> Section:
    """Return every model's corrected levels, beside the judge's own and the human ones."""
    crowd_errors = {
        item.model: item.people_standard_error
        for item in report.agreement.levels.models
        if report.data.has_shares and isfinite(item.people_standard_error)
    }
    refused = [item.model for item in report.models.rows if item.how == "refused"]
    text = [
        "The judge's shares are corrected with human ratings of the model if there are any, otherwise with "
        "the calibration line through rated models. No level is given if that line does not apply."
    ]
    if crowd_errors:
        low, high = min(crowd_errors.values()), max(crowd_errors.values())
        text.append(
            "Human shares are uncertain too: their standard error, clustered by batch, is "
            f"{100 * low:.1f} to {100 * high:.1f} points per model."
        )
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
            _level_figure(report, column, f"models-{position}", crowd_errors)
            for position, column in enumerate(report.data.columns)
        ),
        tables=tuple(_model_tables(report)),
    )


def _level_figure(
    report: CalibrationReport, column: str, name: str, crowd_errors: Mapping[str, float]
) -> Figure:
    shares = report.data.has_shares
    what = f"{column}, % of {NOUNS[report.judge.unit]}" if shares else "mean"
    lines = []
    for item in report.models.rows:
        corrected, crowd = item.corrected.get(column), item.crowd[column]
        people, error = Mark("people", crowd), crowd_errors.get(item.model)
        if column == "Good" and crowd is not None and error is not None:
            ends = Interval(max(0.0, crowd - REACH * error), min(1.0, crowd + REACH * error))
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
                *(show_in(name, item.corrected) for name in columns),
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
