"""How sure a judge may be: sections on what its probabilities mean, and on sets of labels."""

from collections.abc import Callable, Iterator
from typing import Any, Literal

from data.text import Row, estimate, number, part, rows, show_estimate, text_of
from reports.charts import Curve, Line, Mark, interval_dots, reliability
from reports.page import Figure, Section, Table, row

MOST_ASKED = 10
Stage = Literal["before", "after"]
STAGES: tuple[Stage, ...] = ("before", "after")
ERRORS: dict[str, Callable[[Row], Any]] = {
    "expected calibration error": lambda stage: stage.get("ece"),
    "Brier error": lambda stage: part(stage, "brier").get("brier"),
    "of it, reliability": lambda stage: part(stage, "brier").get("reliability"),
    "of it, resolution (more is better)": lambda stage: part(stage, "brier").get("resolution"),
    "log-loss": lambda stage: stage.get("log_loss"),
}


def reliability_section(result: Row) -> Section | None:
    """Whether probabilities mean what they say, before and after the map."""
    found = part(result, "reliability")
    stages = {name: part(found, name) for name in STAGES if part(found, name)}
    if not stages:
        return None
    label, mapping = found.get("label", "Good"), part(result, "mapping")
    is_same = len(stages) == 2 and stages["before"] == stages["after"]
    drawn = {name: stage for name, stage in stages.items() if not is_same or name == "after"}
    words = {
        "before": "as the judge said it",
        "after": "as the judge said it" if is_same else "after the map",
    }
    return Section(
        name="reliability",
        title="Do its probabilities mean what they say?",
        short="Reliability",
        is_beside=True,
        text=(
            f"Among responses of which the judge says {label} with 60 %, people should call 60 % {label}: "
            f"points on the dashed diagonal. {_say_map(mapping)}",
        ),
        key=(*((name, words[name]) for name in drawn), ("reference", "said as often as seen")),
        figures=(
            Figure(
                caption=f"Probability of {label}",
                svg=reliability(
                    [Curve(look=name, points=tuple(_points(stage))) for name, stage in drawn.items()],
                    name="reliability-figure",
                    title=f"Reliability of the probability of {label}",
                    description=_describe_curve(list(drawn.values())[-1]),
                ),
            ),
        ),
        tables=tuple(_reliability_tables(stages, mapping)),
    )


def _say_map(mapping: Row) -> str:
    chosen = mapping.get("chosen")
    if not chosen:
        return ""
    if chosen == "identity":
        return "No map of its probabilities did better on ratings it had not seen, so they stay as they are."
    return f"The map chosen by log-loss on ratings it had not seen: {chosen}."


def _points(stage: Row) -> Iterator[tuple[float, float, float | None, float | None, int]]:
    for item in rows(stage, "curve"):
        if item.get("predicted") is not None and item.get("value") is not None:
            yield item["predicted"], item["value"], item.get("low"), item.get("high"), item.get("count", 0)


def _describe_curve(stage: Row) -> str:
    return "; ".join(f"said {100 * said:.0f} %, seen {100 * seen:.0f} %" for said, seen, *_ in _points(stage))


def _reliability_tables(stages: dict[Stage, Row], mapping: Row) -> Iterator[Table]:
    yield Table(
        caption="Errors of the probabilities; smaller is better",
        head=("error", *stages),
        rows=tuple(
            row(name, *(number(value(stage), 4) for stage in stages.values()))
            for name, value in ERRORS.items()
        ),
    )
    losses = part(mapping, "losses")
    if losses:
        yield Table(
            caption=f"Maps by log-loss on {number(mapping.get('folds'), 0)} parts they were not fitted on",
            head=("map", "log-loss", "above the best", "standard error"),
            rows=tuple(
                row(
                    name,
                    number(item.get("loss"), 4),
                    number(item.get("excess"), 4),
                    number(item.get("excess_error"), 4),
                )
                for name, item in losses.items()
            ),
            is_folded=True,
        )


def conformal_section(result: Row) -> Section | None:
    """Sets of labels: whether they hold people's rating as often as promised."""
    found = part(result, "conformal")
    if not found:
        return None
    wanted = found.get("wanted")
    lines = {
        "all ratings": found.get("coverage"),
        **{f"people say {key}": item for key, item in part(found, "by_label").items()},
    }
    sizes = found.get("sizes") or []
    said = [
        f"{100 * size:.0f} % name {count} label{'s' if count > 1 else ''}"
        for count, size in enumerate(sizes, 1)
    ]
    return Section(
        name="sets",
        title="Sets of labels that keep a promise",
        short="Sets",
        text=(
            "Instead of one label the judge can give a set that is to hold people's label "
            f"{number(wanted, 0, scale=100)} % of the time, whichever label that is. On ratings they were "
            f"not made from, sets have {number(found.get('mean_size'))} labels on average"
            f"{': ' + ', '.join(said) if said else ''}. Large sets are the responses to show to people.",
        ),
        key=(("judge", "ratings inside the set"), ("reference", "promised")),
        figures=(
            Figure(
                caption="Coverage, per cent of ratings",
                svg=interval_dots(
                    [
                        Line(
                            name=name,
                            figure=show_estimate(item, is_share=True),
                            marks=(Mark(look="judge", **estimate(item)),),
                        )
                        for name, item in lines.items()
                    ],
                    name="sets-figure",
                    title="How often a set holds people's label",
                    description="; ".join(
                        f"{name} {show_estimate(item, is_share=True)} %" for name, item in lines.items()
                    ),
                    tick=lambda value: f"{100 * value:.3g}",
                    reference=wanted,
                ),
            ),
        ),
        tables=tuple(_asked(found)),
    )


def _asked(found: Row) -> Iterator[Table]:
    asked = rows(found, "ask_first")
    if asked:
        labels = list(part(asked[0], "probabilities"))
        yield Table(
            caption=f"Ask people about these first (all {len(asked)} are in report.json)",
            head=("response", "model", "set", *labels),
            rows=tuple(
                row(
                    text_of(item, "id"),
                    text_of(item, "model"),
                    ", ".join(map(str, item.get("set") or [])),
                    *(number(part(item, "probabilities").get(label)) for label in labels),
                )
                for item in asked[:MOST_ASKED]
            ),
            words=frozenset({0, 1, 2}),
            is_folded=True,
        )
