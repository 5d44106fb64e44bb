"""What it takes: sections on how many ratings settle a comparison, and on what agreement costs."""

from collections.abc import Callable, Mapping

from calibration.fit import CalibrationReport, RunRow
from calibration.shares.planning import RATINGS_EACH, RatingsPlan
from data.text import AnyEstimate, number, show_estimate
from reports.calibration.agreement import METRIC_NAMES, as_matched
from reports.calibration.verdict import count_worth
from reports.page import Section, Table, row, table_of

TABLE_METRICS = ("qwk_matched", "qwk", "spearman", "balanced_accuracy")
COSTS = ("usd_per_1000", "seconds_per_1000")


def planning_section(report: CalibrationReport) -> Section:
    """Return the section on how many ratings settle a comparison."""
    scale, digits, unit = (100, 0, " points") if report.data.has_shares else (1, 2, "")
    worth = count_worth(report)
    columns: dict[str, Callable[[RatingsPlan], str]] = {
        "difference": lambda plan: number(plan.difference, digits, scale=scale) + unit,
        "ratings": lambda plan: number(plan.ratings, 0),
    }
    told = f"On a model nobody rated, this judge is as exact as {worth} of it would be."
    return Section(
        name="planning",
        title="How many ratings settle a comparison",
        short="Planning",
        text=(
            *([told] if worth is not None else []),
            "Ratings of each of two models that detect a difference between them with 80% power, at 95%"
            f" confidence. Each is of a new reply, by people who rate about {RATINGS_EACH} of a model; rating"
            " the same replies again is less precise.",
        ),
        tables=(table_of(report.planning, columns, caption="Ratings of each model"),),
    )


def runs_section(report: CalibrationReport) -> Section | None:
    """Several judges by agreement, money and time, with baselines and people in the same table."""
    runs = report.runs
    judges = [run for run in runs if run.kind == "judge"]
    has_costs = any(getattr(run, cost) is not None for run in judges for cost in COSTS)
    if len(judges) < 2 and not has_costs:
        return None
    shown = [name for name in TABLE_METRICS if any(name in run.metrics for run in runs)]
    table = Table(
        caption="Agreement with people, and cost per 1,000 responses",
        head=("who", *(METRIC_NAMES[name] for name in shown), "US dollars", "seconds", "ratings"),
        rows=tuple(
            row(
                f"{run.name} (baseline)" if run.kind == "baseline" else run.name,
                *(show_estimate(_matched(run).get(name)) for name in shown),
                number(run.usd_per_1000),
                number(run.seconds_per_1000, 1),
                run.n or "none",
            )
            for run in runs
        ),
    )
    return Section(
        name="runs",
        title="What agreement costs",
        short="Costs",
        tables=(table,),
        notes=tuple(f"{run.name}: {run.note}." for run in runs if run.note),
    )


def _matched(run: RunRow) -> Mapping[str, AnyEstimate]:
    return as_matched(run.metrics) if run.kind == "people" else run.metrics
