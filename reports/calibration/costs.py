"""What it takes: sections on how many ratings settle a comparison, and on what agreement costs."""

from collections.abc import Sequence

from data.text import (
    METRIC_NAMES,
    Row,
    estimate,
    headline_of,
    is_share,
    number,
    part,
    rows,
    show_estimate,
    text_of,
    worth_of,
)
from reports.charts import Look, Spot, frontier
from reports.page import Figure, Section, Table, row

LOOKS: dict[str, Look] = {"judge": "judge", "baseline": "rival", "people": "people"}
SAID = "Judges, baselines and people together. The dotted line is the best to be had for a given cost."
KEY = (
    ("judge", "a judge"),
    ("rival", "a baseline"),
    ("people", "people"),
    ("reference", "people, where their cost is unknown"),
)
TABLE_METRICS = ("qwk_matched", "qwk", "spearman", "balanced_accuracy")


def planning_section(result: Row) -> Section | None:
    """How many ratings settle a comparison, with the judge and without."""
    plans = rows(result, "planning")
    if not plans:
        return None
    shares = is_share(part(result, "data").get("columns") or [])
    scale, digits, unit = (100, 0, " points") if shares else (1, 2, "")
    worth = worth_of(part(result, "between"))
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
                        number(plan.get("difference"), digits, scale=scale) + unit,
                        f"{number(plan.get('power'), 0, scale=100)} %",
                        *(number(plan.get(key), 0) for key in ("people_only", "with_judge", "with_line")),
                        number(plan.get("line_detects"), 1 if shares else 2, scale=scale) + unit,
                    )
                    for plan in plans
                ),
            ),
        ),
    )


def runs_section(result: Row) -> Section | None:
    """Several judges by agreement, money and time, with baselines and people in the same table."""
    runs = rows(result, "runs")
    if sum(run.get("kind") == "judge" for run in runs) < 2 and not any(
        run.get(key) is not None
        for run in runs
        if run.get("kind") == "judge"
        for key in ("usd_per_1000", "seconds_per_1000")
    ):
        return None
    metric = headline_of(result)
    costs = (("usd_per_1000", "US dollars"), ("seconds_per_1000", "seconds"))
    figures = [
        _frontier(runs, key, unit, metric)
        for key, unit in costs
        if any(run.get(key) is not None for run in runs if run.get("kind") == "judge")
    ]
    return Section(
        name="runs",
        title="What agreement costs",
        short="Costs",
        text=(SAID,) if figures else (),
        key=KEY if figures else (),
        figures=tuple(figures),
        tables=(_run_table(runs),),
        notes=tuple(f"{text_of(run, 'name')}: {run['note']}." for run in runs if run.get("note")),
    )


def _run_table(runs: Sequence[Row]) -> Table:
    shown = [name for name in TABLE_METRICS if any(name in part(run, "metrics") for run in runs)]
    return Table(
        caption="Agreement with people, and cost per 1,000 responses",
        head=("who", *(METRIC_NAMES[name] for name in shown), "US dollars", "seconds", "ratings"),
        rows=tuple(
            row(
                _who(run),
                *(show_estimate(_matched(run).get(name)) for name in shown),
                number(run.get("usd_per_1000")),
                number(run.get("seconds_per_1000"), 1),
                run.get("n") or "none",
            )
            for run in runs
        ),
    )


def _who(run: Row) -> str:
    kind = run.get("kind")
    return f"{text_of(run, 'name')} (baseline)" if kind == "baseline" else text_of(run, "name")


def _matched(run: Row) -> Row:
    """People's labels are as frequent as ratings: their kappa is the same by label and by order."""
    metrics = part(run, "metrics")
    if run.get("kind") == "people" and "qwk" in metrics:
        return {"qwk_matched": metrics["qwk"], **metrics}
    return metrics


def _frontier(runs: Sequence[Row], key: str, unit: str, metric: str) -> Figure:
    spots = [
        Spot(
            name=text_of(run, "name"),
            look=LOOKS.get(text_of(run, "kind"), "judge"),
            cost=run.get(key),
            **estimate(_matched(run).get(metric)),
        )
        for run in runs
    ]
    name = METRIC_NAMES.get(metric, metric)
    return Figure(
        caption=f"{unit[0].upper()}{unit[1:]} per 1,000 responses",
        svg=frontier(
            spots,
            name=f"runs-{key.replace('_', '-')}",
            title=f"{name} against {unit} per 1,000 responses",
            description="; ".join(
                f"{spot.name}: {number(spot.cost)} {unit}, {number(spot.value)}" for spot in spots
            ),
            axis=f"{unit} per 1,000 responses",
            value_axis=name,
            tick=lambda cost: "free" if not cost and key.startswith("usd") else f"{cost:,.10g}",
        ),
    )
