"""The top of the dashboard: each model's change since its baseline, the worst first, and a sentence on it.

A change is the judge's own, on the same prompts both nights, so that its interval is much narrower than that
of a level. Where the judge moved, its part is taken off.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from data.text import ends_of, listed, percent, points
from nightly.changes import name_nights
from nightly.dashboard.series import ModelSeries, NightSeries, is_known, share_of
from nightly.gates import gravest
from nightly.schema import ChangeResult
from reports.charts import Line, Mark, dot_plot, signed_tick
from reports.page import Figure

NAMED: Final = 4  # models in a sentence
DRAWN: Final = 40  # models in the chart; the table has all
LEAST_SPAN: Final = 4.0  # points across the chart: less would make much of nothing
# The order on the page.
RANKS: Final = ("regression", "failed", "fell", "stale", "inconclusive", "", "not run")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTonight:
    """A model on the newest night: the gravest that gates said, its change, and its limit if it has one."""

    model: ModelSeries
    outcome: str
    change: ChangeResult | None
    limit: float | None

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model.name

    @property
    def rank(self) -> tuple[int, float, str]:
        """Its place on the page, the gravest first."""
        change = self.change
        kinds = (self.outcome, "fell" if has_fallen(change) else self.outcome)
        at = min(RANKS.index(kind) if kind in RANKS else RANKS.index("") for kind in kinds)
        return at, 0.0 if change is None else change.shown.value, self.name

    @property
    def is_regression(self) -> bool:
        """Whether a gate failed."""
        return self.outcome == "regression"


def has_fallen(change: ChangeResult | None) -> bool:
    """Whether tonight's interval of a change lies wholly below 0."""
    ends = None if change is None else change.shown.interval
    return ends is not None and ends.high < 0


def models_tonight(series: NightSeries) -> list[ModelTonight]:
    """Every model on the newest night, the one in trouble first."""
    tonight = []
    for model in series.models:
        gates = [item for item in series.tonight if item.model == model.name]
        outcome: str = gravest(item.outcome for item in gates) or "no gate"
        if model.points[-1] is None and outcome != "failed":
            outcome = "not run"
        drops = [item.limit for item in gates if (item.gate, item.subject) == ("good_share_drop", "baseline")]
        tonight.append(
            ModelTonight(
                model=model,
                outcome=outcome,
                change=_known(model.changes[-1]),
                limit=drops[0] if drops else None,
            )
        )
    return sorted(tonight, key=lambda item: item.rank)


def headline(series: NightSeries, tonight: Sequence[ModelTonight]) -> str:
    """Return the result of the newest night in one sentence or two."""
    run = [item for item in tonight if item.outcome not in ("not run", "failed")]
    if not run:
        return f"No model could be measured on {series.nights[-1].night}."
    changed = [item for item in run if item.change is not None]
    broken = [item for item in run if item.is_regression]
    fallen = [item for item in changed if has_fallen(item.change)]
    sure = [item for item in fallen if item in broken]
    if sure:
        others = [item for item in run if item not in sure]
        maybe = [item for item in fallen if item not in sure]
        rest = f" {_list(maybe)} may have too." if maybe else ""
        if others and not maybe:
            rest = f" The other {len(others)} model{'s are' if len(others) > 1 else ' is'} not shown to have."
        return f"{_list(sure)} got worse: {_changes(sure)}.{rest}"
    if broken:
        return f"{_list(broken)} failed a gate, though no drop of Good since the baseline is shown."
    if fallen:
        return f"{_list(fallen)} may have got worse: {_changes(fallen)}. This can be chance: no gate failed."
    if not changed:
        return f"Nothing to compare with yet: {_levels(run)}."
    lowest = changed[0]
    assert lowest.change is not None
    name = f"{lowest.name} has" if len(changed) == 1 else f"the lowest, {lowest.name}, has"
    change = points(lowest.change.shown)
    return f"No model is shown to be worse than on {_since(changed)}: {name} {change} points Good."


def change_figure(tonight: Sequence[ModelTonight]) -> Figure | None:
    """The changes of all models with tonight's intervals, in points; None where there is none."""
    drawn = [item for item in tonight if item.change is not None][:DRAWN]
    if not drawn:
        return None
    lines, ends = [], [0.0]
    for item in drawn:
        assert item.change is not None
        value, low, high = (100 * (end or 0.0) for end in ends_of(item.change.shown))
        is_found = item.is_regression or has_fallen(item.change)
        lines.append(
            Line(
                name=item.name,
                figure=points(item.change.shown),
                marks=(Mark(look="found" if is_found else "judge", value=value, low=low, high=high),),
                band=None if item.limit is None else (-100.0, -item.limit),
            )
        )
        ends += [low, high]
    room = max(0.05 * (max(ends) - min(ends)), (LEAST_SPAN - (max(ends) - min(ends))) / 2)
    return dot_plot(
        f"Change of the Good share since {_since(drawn)}, in points",
        lines,
        name="changes",
        title="Change of each model's Good share since its baseline",
        tick=signed_tick,
        unit=" points",
        reference=0.0,
        domain=(min(ends) - room, max(ends) + room),
    )


def describe_missing_changes(tonight: Sequence[ModelTonight]) -> str:
    """Return a sentence on models that are not in the chart."""
    missing = [item for item in tonight if item.change is None]
    if not missing or len(missing) == len(tonight):
        return ""
    more = len([item for item in tonight if item.change is not None]) - DRAWN
    beyond = f" {more} more are in the table." if more > 0 else ""
    return f"Without a change tonight: {_list(missing)}.{beyond}"


def _list(items: Sequence[ModelTonight]) -> str:
    names = [item.name for item in items]
    return listed(names if len(names) <= NAMED else [*names[: NAMED - 1], f"{len(names) - NAMED + 1} more"])


def _since(items: Sequence[ModelTonight]) -> str:
    nights = {name_nights(item.change.nights) for item in items if item.change}
    return nights.pop() if len(nights) == 1 else "their baselines"


def _changes(items: Sequence[ModelTonight]) -> str:
    changes = [points(item.change.shown) for item in items[: NAMED - 1] if item.change]
    return f"{listed(changes)} points Good since {_since(items)}"


def _levels(run: Sequence[ModelTonight]) -> str:
    shares = {item.name: share_of(item.model.points[-1], item.model.kind) for item in run}
    ranked = sorted((-share.value, name) for name, share in shares.items() if is_known(share))
    levels = [f"{name} {percent(-value)}%" for value, name in ranked[:NAMED]]
    return f"Good shares are {listed(levels)}" if levels else "no share is known"


def _known(change: ChangeResult | None) -> ChangeResult | None:
    return change if change is not None and change.shown.interval is not None else None
