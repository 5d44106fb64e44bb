"""What can be said of models: sections on their corrected levels and on the raters' part in them."""

from collections.abc import Iterator, Mapping
from math import isfinite

from calibration.agreement.rater_model import RaterModel
from calibration.fit import CalibrationReport
from calibration.shares.model_table import ModelRow
from data.text import UNDEFINED, listed, number, percent, show_estimate
from reports.charts import Line, Mark, dot_plot, mark, percent_tick
from reports.page import Figure, Section, Table, row

REACH = 1.96  # standard errors to either side in a 95 % interval
HOW = {
    "ratings": "its own ratings",
    "judge": "the judge alone, by the other models' line",
    "both": "ratings and judge",
    "refused": "refused",
}


def models_section(report: CalibrationReport) -> Section:
    """Every model's corrected levels, beside what the judge alone and the crowd alone say."""
    columns = report.data.columns
    shares = report.data.has_shares
    crowd_errors = {
        item.model: item.crowd_standard_error
        for item in report.agreement.shares or ()
        if isfinite(item.crowd_standard_error)
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
    if refused:
        text.append(f"No level is given for {listed(refused)}; why is said in the table.")
    return Section(
        name="models",
        title="Corrected shares of each model" if shares else "Corrected mean of each model",
        short="Models",
        text=tuple(text),
        key=(
            ("judge", "corrected, with its 95 % interval"),
            ("people", "the crowd's own"),
            ("raw", "the judge alone"),
        ),
        figures=tuple(
            _level_figure(report, column, f"models-{position}", crowd_errors)
            for position, column in enumerate(columns)
        ),
        tables=(_level_table(report), _column_table(report), _line_table(report)),
    )


def _level_figure(
    report: CalibrationReport, column: str, name: str, crowd_errors: Mapping[str, float]
) -> Figure:
    shares = report.data.has_shares
    what = f"{column}, per cent of responses" if shares else "mean"
    return dot_plot(
        what,
        [
            Line(
                name=item.model,
                figure="refused"
                if item.how == "refused"
                else show_estimate(item.corrected.get(column), is_share=shares),
                marks=(
                    mark("judge", item.corrected.get(column)),
                    mark("raw", item.judge.get(column)),
                    _crowd_mark(item, column, crowd_errors),
                ),
            )
            for item in report.models.rows
        ],
        name=name,
        title=f"Corrected level of each model: {what}",
        tick=percent_tick if shares else (lambda value: f"{value:.3g}"),
    )


def _crowd_mark(item: ModelRow, column: str, crowd_errors: Mapping[str, float]) -> Mark:
    share, error = item.crowd[column], crowd_errors.get(item.model)
    if column != "Good" or share is None or error is None:
        return mark("people", share)
    return Mark(
        look="people", value=share, low=max(0.0, share - REACH * error), high=min(1.0, share + REACH * error)
    )


def _level_table(report: CalibrationReport) -> Table:
    columns = report.data.columns
    shares = report.data.has_shares
    return Table(
        caption="Corrected levels" + (" in per cent" if shares else "") + ", with 95 % intervals",
        head=("model", *columns, "comes from", "judged", "ratings"),
        rows=tuple(
            row(
                item.model,
                *(show_estimate(item.corrected.get(column), is_share=shares) for column in columns),
                f"{HOW[item.how]}: {item.reason}" if item.reason else HOW[item.how],
                item.judged,
                item.ratings,
            )
            for item in report.models.rows
        ),
        words=frozenset({0, len(columns) + 1}),
    )


def _column_table(report: CalibrationReport) -> Table:
    """The last column, Good or the mean, in full."""
    column = report.data.columns[-1]
    shares = report.data.has_shares
    scale, digits = (100, 1) if shares else (1, 2)
    covered = {None: UNDEFINED, True: "yes", False: "no"}
    return Table(
        caption=f"{column}: the crowd, the judge alone, and what could be said had nobody rated the model",
        head=(
            "model",
            "crowd",
            "judge alone",
            "corrected",
            "had nobody rated it",
            "holds the crowd's",
            "worth, in ratings",
        ),
        rows=tuple(
            row(
                item.model,
                number(item.crowd[column], digits, scale=scale),
                number(item.judge.get(column), digits, scale=scale),
                show_estimate(item.corrected.get(column), is_share=shares),
                show_estimate(item.left_out.get(column), is_share=shares),
                covered[item.covered.get(column)],
                number(item.worth_in_ratings, 0),
            )
            for item in report.models.rows
        ),
    )


def _line_table(report: CalibrationReport) -> Table:
    return Table(
        caption="The line from the judge's level to the crowd's, through models",
        head=("level", "intercept", "slope", "spread between models", "reaches from", "to"),
        rows=tuple(
            row(
                name,
                number(line.intercept, 3),
                number(line.slope),
                number(line.between_sd, 3),
                *(number(end, 3) for end in report.models.calibrated[name].range),
            )
            for name, line in report.models.lines.items()
        ),
        is_folded=True,
    )


def raters_section(report: CalibrationReport) -> Section:
    """How much of the ratings is the raters."""
    model = report.rater_model
    title = "How much of a rating is the rater"
    if model.undefined:
        return Section(name="raters", title=title, short="Raters", text=(f"Undefined: {model.undefined}.",))
    parts = ", ".join(f"{number(share, 0, scale=100)} % {name}" for name, share in model.variance.items())
    figure = dot_plot(
        "The raters' part of the variance, per cent, by the model they rated",
        [
            Line(name=name, figure=percent(share), marks=(mark("people", share),))
            for name, share in model.rater_share.items()
        ],
        name="raters-figure",
        title="The raters' part of the variance of ratings, by model",
        unit=" %",
        tick=percent_tick,
        reference=0.0,
    )
    return Section(
        name="raters",
        title=title,
        short="Raters",
        text=(
            f"{model.raters:,} people gave {model.ratings:,} ratings; some are harsher than others. Of all "
            f"that varies in the ratings: {parts}. What is called severity is the raters' own and tells "
            "nothing of responses.",
        ),
        figures=(figure,) if model.rater_share else (),
        tables=tuple(_adjusted(model)),
    )


def _adjusted(model: RaterModel) -> Iterator[Table]:
    if model.adjusted:
        labels = list(next(iter(model.adjusted.values())))
        yield Table(
            caption="The crowd's shares in per cent, as rated and as all these raters together would have",
            head=("model", *(f"{label}, {way}" for label in labels for way in ("as rated", "adjusted"))),
            rows=tuple(
                row(
                    name,
                    *(
                        text
                        for label in labels
                        for text in (number(model.raw[name][label], 1, scale=100), percent(levels[label]))
                    ),
                )
                for name, levels in model.adjusted.items()
            ),
            is_folded=True,
        )
