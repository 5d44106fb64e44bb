"""Report sections on the corrected levels of each model, and on how many ratings compare two."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import isfinite

from calibration.fit import CalibrationReport
from calibration.shares.correction import ModelCorrection
from calibration.shares.planning import RATINGS_EACH, RatingsPlan
from data.records import NOUNS
from data.text import UNDEFINED, listed, number, show, show_estimate
from reports.calibration.verdict import count_worth
from reports.charts import Line, dot_plot, mark, percent_tick
from reports.page import Figure, Section, Table, row, table_of

REACH = 1.96  # standard errors to either side in a 95 % interval
HOW = {
    "ratings": "its own ratings",
    "line": "the judge alone, by the other models' line",
    "both": "ratings and judge",
    "refused": "refused",
}


def models_section(report: CalibrationReport) -> Section:
    """Every model's corrected levels, beside what the judge alone and the crowd alone say."""
    crowd_errors = {
        item.model: item.people_standard_error
        for item in report.agreement.levels.models
        if report.data.has_shares and isfinite(item.people_standard_error)
    }
    refused = [item.model for item in report.models.rows if item.how == "refused"]
    text = [
        "The judge's own figures are never the answer: they are corrected by people's ratings where a model "
        "has some, by a line through rated models where it has none, and refused where that line does not "
        "reach."
    ]
    if crowd_errors:
        low, high = min(crowd_errors.values()), max(crowd_errors.values())
        text.append(
            "The crowd is uncertain too: with whole batches of ratings counted, the standard error of its "
            f"Good share is {100 * low:.1f} to {100 * high:.1f} points a model."
        )
    text += [f"{item.warning}." for item in report.models.rows if item.warning]
    if refused:
        text.append(f"No level is given for {listed(refused)}; why is said in the table.")
    return Section(
        name="models",
        title=f"Corrected {'shares' if report.data.has_shares else 'mean'} of each model",
        short="Models",
        text=tuple(text),
        key=(
            ("judge", "corrected, with its 95 % interval"),
            ("people", "the crowd's own"),
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
    what = f"{column}, per cent of {NOUNS[report.judge.unit]}" if shares else "mean"
    lines = []
    for item in report.models.rows:
        corrected, crowd = item.corrected.get(column), item.crowd[column]
        people, error = mark("people", crowd), crowd_errors.get(item.model)
        if column == "Good" and crowd is not None and error is not None:
            low, high = max(0.0, crowd - REACH * error), min(1.0, crowd + REACH * error)
            people = replace(people, low=low, high=high)
        figure = "refused" if item.how == "refused" else show_estimate(corrected, is_share=shares)
        marks = (mark("judge", corrected), mark("raw", item.judge.get(column)), people)
        lines.append(Line(name=item.model, figure=figure, marks=marks))
    return dot_plot(
        what,
        lines,
        name=name,
        title=f"Corrected level of each model: {what}",
        tick=percent_tick if shares else (lambda value: f"{value:.3g}"),
    )


def _model_tables(report: CalibrationReport) -> Iterator[Table]:
    """All corrected levels; the last column, Good or the mean, in full; and the lines."""
    columns, shares, fit = report.data.columns, report.data.has_shares, report.models
    column = columns[-1]
    scale, digits = (100, 1) if shares else (1, 2)
    covered = {None: UNDEFINED, True: "yes", False: "no"}
    yield Table(
        caption="Corrected levels" + (" in per cent" if shares else "") + ", with 95 % intervals",
        head=("model", *columns, "comes from", "judged", "ratings"),
        rows=tuple(
            row(
                item.model,
                *(show_estimate(item.corrected.get(name), is_share=shares) for name in columns),
                f"{HOW[item.how]}: {item.reason}" if item.how == "refused" else HOW[item.how],
                item.judged,
                item.ratings,
            )
            for item in fit.rows
        ),
        words=frozenset({0, len(columns) + 1}),
    )
    told: dict[str, Callable[[ModelCorrection], str]] = {
        "model": lambda item: item.model,
        "crowd": lambda item: number(item.crowd[column], digits, scale=scale),
        "judge alone": lambda item: number(item.judge.get(column), digits, scale=scale),
        "corrected": lambda item: show_estimate(item.corrected.get(column), is_share=shares),
    }
    caption = f"{column}: the crowd, the judge alone, and both together"
    has_left_out = any(show_estimate(item.left_out.get(column)) != UNDEFINED for item in fit.rows)
    if has_left_out:
        caption = f"{column}: the crowd, the judge alone, and what could be said had nobody rated the model"
        told |= {
            "had nobody rated it": lambda item: show_estimate(item.left_out.get(column), is_share=shares),
            "holds the crowd's": lambda item: covered[item.covered.get(column)],
            "worth, in ratings": lambda item: show(item.worth_in_ratings, digits=0),
        }
    yield table_of(fit.rows, told, caption=caption)
    yield table_of(
        fit.lines,
        {
            "level": str,
            "intercept": lambda name: number(fit.lines[name].intercept, 3),
            "slope": lambda name: number(fit.lines[name].slope),
            "spread between models": lambda name: number(fit.lines[name].between_sd, 3),
            "reaches from": lambda name: number(fit.calibrated[name].range[0], 3),
            "to": lambda name: number(fit.calibrated[name].range[1], 3),
        },
        caption="The line from the judge's level to the crowd's, through models",
        is_folded=True,
    )


def planning_section(report: CalibrationReport) -> Section:
    """Return how many ratings detect a difference between two models."""
    scale, digits, unit = (100, 0, " points") if report.data.has_shares else (1, 2, "")
    worth = count_worth(report)
    columns: dict[str, Callable[[RatingsPlan], str]] = {
        "difference": lambda plan: number(plan.difference, digits, scale=scale) + unit,
        "ratings": lambda plan: number(plan.ratings, 0),
    }
    alone = f"On a model nobody rated, this judge is as exact as {worth} of it would be."
    return Section(
        name="planning",
        title="How many ratings settle a comparison",
        short="Planning",
        text=(
            *([alone] if worth is not None else []),
            "Ratings of each of two models that detect a difference between them with 80% power, at 95%"
            f" confidence. Each is of a new {report.judge.unit}, by people who rate about {RATINGS_EACH} of a"
            " model; rating"
            f" the same {NOUNS[report.judge.unit]} again is less precise.",
        ),
        tables=(table_of(report.planning, columns, caption="Ratings of each model"),),
    )
