"""What can be said of models: sections on their corrected levels and on the raters' part in them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from data.text import (
    HOW,
    UNDEFINED,
    Row,
    estimate,
    is_share,
    listed,
    number,
    part,
    rows,
    show_estimate,
    text_of,
)
from reports.charts import Line, Mark, interval_dots
from reports.page import Figure, Section, Table, row

REACH = 1.96  # standard errors to either side in a 95 % interval


def models_section(result: Row) -> Section | None:
    """Every model's corrected levels, beside what the judge alone and the crowd alone say."""
    models = rows(result, "models")
    if not models:
        return None
    columns = list(part(result, "data").get("columns") or part(models[0], "judge"))
    shares = is_share(columns)
    crowd_errors = {
        item.get("model"): item.get("crowd_standard_error")
        for item in rows(part(result, "over_models"), "shares")
    }
    refused = [text_of(model, "model") for model in models if model.get("how") == "refused"]
    text = [
        "The judge's own figures are never the answer: they are corrected by people's ratings where a model "
        "has some, by a line through rated models where it has none, and refused where that line does not "
        "reach.",
        *_say_crowd(crowd_errors),
    ]
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
            _level_figure(models, column, f"models-{position}", shares, crowd_errors)
            for position, column in enumerate(columns)
        ),
        tables=(_level_table(models, columns, shares), *_line_tables(result, models, columns, shares)),
    )


def _say_crowd(errors: Mapping[Any, float | None]) -> Iterator[str]:
    known = [error for error in errors.values() if error is not None]
    if known:
        yield (
            "The crowd is uncertain too: with whole batches of ratings counted, the standard error of its "
            f"Good share is {100 * min(known):.1f} to {100 * max(known):.1f} points a model."
        )


def _crowd_mark(model: Row, column: str, errors: Mapping[Any, float | None]) -> Mark:
    value, error = part(model, "crowd").get(column), errors.get(model.get("model"))
    if column != "Good" or value is None or error is None:
        return Mark(look="people", value=value)
    return Mark(
        look="people", value=value, low=max(0.0, value - REACH * error), high=min(1.0, value + REACH * error)
    )


def _level_figure(
    models: Sequence[Row], column: str, name: str, shares: bool, errors: Mapping[Any, float | None]
) -> Figure:
    lines = [
        Line(
            name=text_of(model, "model"),
            figure="refused"
            if model.get("how") == "refused"
            else show_estimate(part(model, "corrected").get(column), is_share=shares),
            marks=(
                Mark(look="judge", **estimate(part(model, "corrected").get(column))),
                Mark(look="raw", value=part(model, "judge").get(column)),
                _crowd_mark(model, column, errors),
            ),
        )
        for model in models
    ]
    what = f"{column}, per cent of responses" if shares else "mean"
    return Figure(
        caption=what,
        svg=interval_dots(
            lines,
            name=name,
            title=f"Corrected level of each model: {what}",
            description="; ".join(f"{line.name} {line.figure}" for line in lines),
            tick=(lambda value: f"{100 * value:.3g}") if shares else (lambda value: f"{value:.3g}"),
        ),
    )


def _level_table(models: Sequence[Row], columns: Sequence[str], shares: bool) -> Table:
    return Table(
        caption="Corrected levels" + (" in per cent" if shares else "") + ", with 95 % intervals",
        head=("model", *columns, "comes from", "judged", "ratings"),
        rows=tuple(
            row(
                text_of(model, "model"),
                *(show_estimate(part(model, "corrected").get(column), is_share=shares) for column in columns),
                _say_how(model),
                model.get("judged"),
                model.get("ratings"),
            )
            for model in models
        ),
        words=frozenset({0, len(columns) + 1}),
    )


def _say_how(model: Row) -> str:
    how = text_of(model, "how")
    said = HOW.get(how, how)
    return f"{said}: {model['reason']}" if model.get("reason") else said


def _say_covered(is_covered: bool | None) -> str:
    return UNDEFINED if is_covered is None else "yes" if is_covered else "no"


def _line_tables(result: Row, models: Sequence[Row], columns: Sequence[str], shares: bool) -> Iterator[Table]:
    column = "Good" if "Good" in columns else columns[-1]
    scale, digits = (100, 1) if shares else (1, 2)
    yield Table(
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
                text_of(model, "model"),
                number(part(model, "crowd").get(column), digits, scale=scale),
                number(part(model, "judge").get(column), digits, scale=scale),
                show_estimate(part(model, "corrected").get(column), is_share=shares),
                show_estimate(part(model, "left_out").get(column), is_share=shares),
                _say_covered(part(model, "covered").get(column)),
                number(model.get("worth_in_ratings"), 0),
            )
            for model in models
        ),
    )
    lines = part(part(result, "between"), "lines")
    if lines:
        yield Table(
            caption="The line from the judge's level to the crowd's, through models",
            head=("level", "intercept", "slope", "spread between models", "reaches from", "to"),
            rows=tuple(
                row(
                    name,
                    number(line.get("intercept"), 3),
                    number(line.get("slope")),
                    number(line.get("between_sd"), 3),
                    *(number(end, 3) for end in (line.get("range") or (None, None))),
                )
                for name, line in lines.items()
            ),
            is_folded=True,
        )


def raters_section(result: Row) -> Section | None:
    """How much of the ratings is the raters."""
    found = part(result, "rater_model")
    if not found:
        return None
    title = "How much of a rating is the rater"
    if found.get("undefined"):
        return Section(
            name="raters", title=title, short="Raters", text=(f"Undefined: {found['undefined']}.",)
        )
    variance = part(found, "variance")
    said = ", ".join(f"{number(value, 0, scale=100)} % {name}" for name, value in variance.items())
    shared = part(found, "rater_share")
    lines = [
        Line(
            name=name,
            figure=show_estimate(item, is_share=True),
            marks=(Mark(look="people", **estimate(item)),),
        )
        for name, item in shared.items()
    ]
    return Section(
        name="raters",
        title=title,
        short="Raters",
        text=(
            f"{number(found.get('raters'), 0)} people gave {number(found.get('ratings'), 0)} ratings; some "
            f"are harsher than others. Of all that varies in the ratings: {said}. What is called severity is "
            "the raters' own and tells nothing of responses.",
        ),
        figures=(
            Figure(
                caption="The raters' part of the variance, per cent, by the model they rated",
                svg=interval_dots(
                    lines,
                    name="raters-figure",
                    title="The raters' part of the variance of ratings, by model",
                    description="; ".join(f"{line.name} {line.figure} %" for line in lines),
                    tick=lambda value: f"{100 * value:.3g}",
                    reference=0.0,
                ),
            ),
        )
        if lines
        else (),
        tables=tuple(_adjusted(found)),
    )


def _adjusted(found: Row) -> Iterator[Table]:
    adjusted, raw = part(found, "adjusted"), part(found, "raw")
    if adjusted:
        labels = list(next(iter(adjusted.values())))
        shares = is_share(labels)
        yield Table(
            caption="The crowd's shares in per cent, as rated and as all these raters together would have",
            head=("model", *(f"{label}, {way}" for label in labels for way in ("as rated", "adjusted"))),
            rows=tuple(
                row(
                    model,
                    *(
                        text
                        for label in labels
                        for text in (
                            number(part(raw, model).get(label), 1, scale=100),
                            show_estimate(levels.get(label), is_share=shares),
                        )
                    ),
                )
                for model, levels in adjusted.items()
            ),
            is_folded=True,
        )
