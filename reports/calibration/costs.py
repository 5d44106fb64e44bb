"""What it takes: sections on how many ratings settle a comparison, and on what agreement costs."""

from collections.abc import Callable, Mapping
from math import isfinite

from calibration.fit import CalibrationReport, RunRow
from calibration.shares.planning import RATINGS_EACH, RatingsPlan
from data.text import AnyEstimate, number, show_estimate
from reports.calibration.agreement import METRIC_NAMES, as_matched
from reports.calibration.verdict import count_worth
from reports.page import Section, Table, row, table_of

TABLE_METRICS = ("qwk_matched", "qwk", "spearman", "balanced_accuracy")
COSTS = ("usd_per_1000", "seconds_per_1000")


def planning_section(report: CalibrationReport) -> Section:
    """How many ratings settle a comparison, with the judge and without."""
    scale, digits, finer, unit = (100, 0, 1, " points") if report.data.has_shares else (1, 2, 2, "")
    worth = count_worth(report)
    columns: dict[str, Callable[[RatingsPlan], str]] = {
        "difference": lambda plan: number(plan.difference, digits, scale=scale) + unit,
        "power": lambda plan: f"{number(plan.power, 0, scale=100)} %",
        "people only": lambda plan: number(plan.people_only, 0),
        "judge and ratings": lambda plan: number(plan.with_judge, 0),
    }
    has_line = any(isfinite(plan.line_detects) for plan in report.planning)
    if has_line:
        columns |= {
            "and the line": lambda plan: number(plan.with_line, 0),
            "line alone finds": lambda plan: number(plan.line_detects, finer, scale=scale) + unit,
        }
    told = f"On a model nobody rated, this judge is as exact as {worth} of it would be."
    return Section(
        name="planning",
        title="How many ratings settle a comparison",
        short="Planning",
        text=(
            *([told] if worth is not None else []),
            "Ratings of each of two models that are needed to find a difference between them, with 95 % "
            "confidence and the power given: each of a new reply, by people who rate about "
            f"{RATINGS_EACH} of a model. Rating the same replies again does less."
            + (
                " The last column is what the judge alone, by the line through models, would find with no "
                "rating at all."
                if has_line
                else ""
            ),
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
