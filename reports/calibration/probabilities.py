"""The report section on the reliability of probabilities."""

from collections.abc import Callable
from typing import Literal

from calibration.fit import CalibrationReport, ReliabilityStage
from data.records import NOUNS, to_plain
from data.text import number
from reports.charts import reliability
from reports.page import Figure, Section, Table, row, table_of

Stage = Literal["before", "after"]
ERRORS: dict[str, Callable[[ReliabilityStage], float]] = {
    "expected calibration error": lambda stage: stage.ece,
    "log-loss": lambda stage: stage.log_loss,
}


def reliability_section(report: CalibrationReport) -> Section:
    """Return whether probabilities match observed frequencies, before and after the map."""
    label, before, after = report.reliability.label, report.reliability.before, report.reliability.after
    stages: dict[Stage, ReliabilityStage] = {"before": before, "after": after} if before else {"after": after}
    is_same = before is not None and to_plain(before) == to_plain(after)
    drawn = {name: stage for name, stage in stages.items() if not is_same or name == "after"}
    words = {
        "before": "as the judge gave it",
        "after": "as the judge gave it" if is_same else "after the map",
    }
    mapping = report.mapping
    chosen = f"Map chosen by log-loss on held-out ratings: {mapping.map.kind}."
    if mapping.map.kind == "identity":
        chosen = "No map of its probabilities is better on held-out ratings, so they are used as they are."
    errors = Table(
        caption="Errors of the probabilities; smaller is better",
        head=("error", *(["as the judge gave it"] if is_same else drawn)),
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
        caption=f"Maps by held-out log-loss, {mapping.folds:,} folds",
        is_folded=True,
    )
    return Section(
        name="reliability",
        title="Reliability of the probabilities",
        short="Reliability",
        is_beside=True,
        text=(
            f"Among {NOUNS[report.judge.unit]} with a probability of 60% for {label}, people should rate 60% "
            f"as {label}: points on the dashed diagonal. {chosen}",
        ),
        key=(*((name, words[name]) for name in drawn), ("reference", "perfect calibration")),
        figures=(
            Figure(
                caption=f"Probability of {label}",
                svg=reliability(
                    {
                        name: [(item.predicted, item.observed) for item in stage.curve]
                        for name, stage in drawn.items()
                    },
                    name="reliability-figure",
                    title=f"Reliability of the probability of {label}",
                    description="; ".join(
                        f"predicted {100 * item.predicted:.0f}%, observed {100 * item.observed.value:.0f}%"
                        for item in after.curve
                    ),
                ),
            ),
        ),
        tables=(errors, maps) if mapping.losses else (errors,),
    )
