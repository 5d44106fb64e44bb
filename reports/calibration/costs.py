"""What it takes: sections on how many ratings settle a comparison, and on what agreement costs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Literal

from calibration.fit import CalibrationReport, RunRow
from data.text import AnyEstimate, number, show_estimate
from reports.calibration.agreement import METRIC_NAMES, as_matched
from reports.charts import Look, Spot, frontier, mark
from reports.page import Figure, Section, Table, row

LOOKS: dict[str, Look] = {"judge": "judge", "baseline": "rival", "people": "people"}
EXPLAINED = "Judges, baselines and people together. The dotted line is the best to be had for a given cost."
KEY = (
    ("judge", "a judge"),
    ("rival", "a baseline"),
    ("people", "people"),
    ("reference", "people, where their cost is unknown"),
)
TABLE_METRICS = ("qwk_matched", "qwk", "spearman", "balanced_accuracy")
Cost = Literal["usd_per_1000", "seconds_per_1000"]
UNITS: dict[Cost, str] = {"usd_per_1000": "US dollars", "seconds_per_1000": "seconds"}


def planning_section(report: CalibrationReport) -> Section:
    """How many ratings settle a comparison, with the judge and without."""
    shares = report.data.has_shares
    scale, digits, unit = (100, 0, " points") if shares else (1, 2, "")
    worth = report.models.as_exact_as
    told = f"On a model nobody rated, this judge is as exact as {number(worth, 0)} ratings of it would be."
    return Section(
        name="planning",
        title="How many ratings settle a comparison",
        short="Planning",
        text=(
            *([told] if worth is not None else []),
            "Ratings of each of two models that are needed to find a difference between them, with 95 % "
            "confidence and the power given. The last column is what the judge alone, by the line through "
            "models, would find with no rating at all.",
        ),
        tables=(
            Table(
                caption="Ratings of each model",
                head=(
                    "difference",
                    "power",
                    "people only",
                    "judge and ratings",
                    "and the line",
                    "line alone finds",
                ),
                rows=tuple(
                    row(
                        number(plan.difference, digits, scale=scale) + unit,
                        f"{number(plan.power, 0, scale=100)} %",
                        *(number(count, 0) for count in (plan.people_only, plan.with_judge, plan.with_line)),
                        number(plan.line_detects, 1 if shares else 2, scale=scale) + unit,
                    )
                    for plan in report.planning
                ),
            ),
        ),
    )


def runs_section(report: CalibrationReport) -> Section | None:
    """Several judges by agreement, money and time, with baselines and people in the same table."""
    runs = report.runs
    judges = [run for run in runs if run.kind == "judge"]
    figures = [
        _frontier(runs, cost, report.headline)
        for cost in UNITS
        if any(getattr(run, cost) is not None for run in judges)
    ]
    if len(judges) < 2 and not figures:
        return None
    return Section(
        name="runs",
        title="What agreement costs",
        short="Costs",
        text=(EXPLAINED,) if figures else (),
        key=KEY if figures else (),
        figures=tuple(figures),
        tables=(_run_table(runs),),
        notes=tuple(f"{run.name}: {run.note}." for run in runs if run.note),
    )


def _run_table(runs: Sequence[RunRow]) -> Table:
    shown = [name for name in TABLE_METRICS if any(name in run.metrics for run in runs)]
    return Table(
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


def _matched(run: RunRow) -> Mapping[str, AnyEstimate]:
    return as_matched(run.metrics) if run.kind == "people" else run.metrics


def _frontier(runs: Sequence[RunRow], cost: Cost, metric: str) -> Figure:
    unit, name = UNITS[cost], METRIC_NAMES[metric]
    spots = [
        Spot(
            name=run.name, cost=getattr(run, cost), **asdict(mark(LOOKS[run.kind], _matched(run).get(metric)))
        )
        for run in runs
    ]
    return Figure(
        caption=f"{unit[0].upper()}{unit[1:]} per 1,000 responses",
        svg=frontier(
            spots,
            name=f"runs-{cost.replace('_', '-')}",
            title=f"{name} against {unit} per 1,000 responses",
            description="; ".join(
                f"{spot.name}: {number(spot.cost)} {unit}, {number(spot.value)}" for spot in spots
            ),
            axis=f"{unit} per 1,000 responses",
            value_axis=name,
            tick=lambda value: "free" if not value and cost == "usd_per_1000" else f"{value:,.10g}",
        ),
    )
