"""How sure a judge may be: sections on what its probabilities mean, and on sets of labels."""

from collections.abc import Callable
from typing import Literal

from calibration.fit import CalibrationReport, ReliabilityStage
from data.records import to_plain
from data.text import number, percent
from reports.charts import Line, dot_plot, mark, percent_tick, reliability
from reports.page import Figure, Section, Table, row, table_of

MOST_ASKED = 10
Stage = Literal["before", "after"]
ERRORS: dict[str, Callable[[ReliabilityStage], float]] = {
    "expected calibration error": lambda stage: stage.ece,
    "Brier error": lambda stage: stage.brier.brier,
    "of it, reliability": lambda stage: stage.brier.reliability,
    "of it, resolution (more is better)": lambda stage: stage.brier.resolution,
    "log-loss": lambda stage: stage.log_loss,
}


def reliability_section(report: CalibrationReport) -> Section:
    """Whether probabilities mean what they say, before and after the map."""
    label, before, after = report.reliability.label, report.reliability.before, report.reliability.after
    stages: dict[Stage, ReliabilityStage] = {"before": before, "after": after} if before else {"after": after}
    is_same = before is not None and to_plain(before) == to_plain(after)
    drawn = {name: stage for name, stage in stages.items() if not is_same or name == "after"}
    words = {
        "before": "as the judge said it",
        "after": "as the judge said it" if is_same else "after the map",
    }
    mapping = report.mapping
    chosen = f"The map chosen by log-loss on ratings it had not seen: {mapping.map.kind}."
    if mapping.map.kind == "identity":
        chosen = (
            "No map of its probabilities did better on ratings it had not seen, so they stay as they are."
        )
    errors = Table(
        caption="Errors of the probabilities; smaller is better",
        head=("error", *(["as the judge said it"] if is_same else drawn)),
        rows=tuple(
            row(name, *(number(error_of(stage), 4) for stage in drawn.values()))
            for name, error_of in ERRORS.items()
        ),
    )
    maps = table_of(
        mapping.losses.items(),
        {
            "map": lambda item: item[0],
            "log-loss": lambda item: number(item[1].loss, 4),
            "above the best": lambda item: number(item[1].excess, 4),
            "standard error": lambda item: number(item[1].excess_error, 4),
        },
        caption=f"Maps by log-loss on {mapping.folds:,} parts they were not fitted on",
        is_folded=True,
    )
    return Section(
        name="reliability",
        title="Do its probabilities mean what they say?",
        short="Reliability",
        is_beside=True,
        text=(
            f"Among responses of which the judge says {label} with 60 %, people should call 60 % {label}: "
            f"points on the dashed diagonal. {chosen}",
        ),
        key=(*((name, words[name]) for name in drawn), ("reference", "said as often as seen")),
        figures=(
            Figure(
                caption=f"Probability of {label}",
                svg=reliability(
                    {name: stage.curve for name, stage in drawn.items()},
                    name="reliability-figure",
                    title=f"Reliability of the probability of {label}",
                    description="; ".join(
                        f"said {100 * item.predicted:.0f} %, seen {100 * item.observed.value:.0f} %"
                        for item in after.curve
                    ),
                ),
            ),
        ),
        tables=(errors, maps) if mapping.losses else (errors,),
    )


def conformal_section(report: CalibrationReport) -> Section:
    """Sets of labels: whether they hold people's rating as often as promised."""
    sets = report.sets
    coverage = {
        "all ratings": sets.coverage,
        **{f"people say {key}": at for key, at in sets.by_label.items()},
    }
    labels, asked = report.data.scale, report.ask_first
    sizes = [
        f"{100 * share:.0f} % name {size} label{'s' if size > 1 else ''}"
        for size, share in enumerate(sets.sizes, 1)
    ]
    return Section(
        name="sets",
        title="Sets of labels that keep a promise",
        short="Sets",
        text=(
            "Instead of one label the judge can give a set that is to hold people's label "
            f"{number(sets.wanted, 0, scale=100)} % of the time, whichever label that is. On ratings they "
            f"were not made from, sets have {number(sets.mean_size)} labels on average"
            f"{': ' + ', '.join(sizes) if sizes else ''}. Large sets are the responses to show to people.",
        ),
        key=(("judge", "ratings inside the set"), ("reference", "promised")),
        figures=(
            dot_plot(
                "Coverage, per cent of ratings",
                [
                    Line(name=name, figure=percent(share), marks=(mark("judge", share),))
                    for name, share in coverage.items()
                ],
                name="sets-figure",
                title="How often a set holds people's label",
                unit=" %",
                tick=percent_tick,
                reference=sets.wanted,
            ),
        ),
        tables=(
            Table(
                caption=f"Ask people about these first (all {len(asked)} are in report.json)",
                head=("response", "model", "set", *labels),
                rows=tuple(
                    row(
                        item.id,
                        item.model,
                        ", ".join(item.set),
                        *(number(item.probabilities[label]) for label in labels),
                    )
                    for item in asked[:MOST_ASKED]
                ),
                words=frozenset({0, 1, 2}),
                is_folded=True,
            ),
        ),
    )
