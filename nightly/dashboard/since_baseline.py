"""What leads the dashboard: each model's change since its baseline, the one in trouble first, in a sentence.

A change is the judge's own, on the same prompts both nights, so that its interval is much narrower than that
of a level. Where the judge moved, its part is taken off.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from data.text import interval, listed, number, percent, points
from nightly.changes import baseline_nights, say_nights
from nightly.dashboard.series import Model, NightSeries, share_of
from nightly.gates import gravest
from nightly.schema import ModelResult
from reports.charts import Line, Mark, dot_plot, signed_tick
from reports.page import Figure

NAMED: Final = 4  # models in a sentence
DRAWN: Final = 40  # models in the chart; the table has all
LEAST_SPAN: Final = 4.0  # points across the chart: less would make much of nothing
# The order on the page: what is broken, what could not be seen, what fell, what nobody can tell.
RANKS: Final = ("regression", "failed", "fell", "stale", "inconclusive", "", "not run")
Verdict = Literal["fell", "rose", "neither"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineChange:
    """A change of a model's Good share since a night, as parts of 1; an alarm holds on all nights at once."""

    nights: tuple[str, ...]
    prompts: int
    value: float
    low: float
    high: float
    is_alarm: bool = False

    @property
    def since(self) -> str:
        """The nights of the baseline, by name."""
        return say_nights(self.nights)

    @property
    def verdict(self) -> Verdict:
        """Where tonight's interval lies."""
        return "fell" if self.high < 0 else "rose" if self.low > 0 else "neither"

    @property
    def text(self) -> str:
        """In points, with its interval."""
        return points({"value": self.value, "low": self.low, "high": self.high})


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTonight:
    """A model on the newest night: the gravest that gates said, its change, and its limit if it has one."""

    model: Model
    outcome: str
    change: BaselineChange | None
    limit: float | None

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model.name

    @property
    def rank(self) -> tuple[int, float, str]:
        """Its place on the page, the gravest first."""
        change = self.change
        fell = "fell" if change is not None and change.verdict == "fell" else self.outcome
        at = min(RANKS.index(word) if word in RANKS else RANKS.index("") for word in (self.outcome, fell))
        return at, 0.0 if change is None else change.value, self.name


def change_of(result: ModelResult | None) -> BaselineChange | None:
    """A night's change since the baseline, as the history kept it; None where there is none."""
    details = {} if result is None else result.details
    kept = details.get("changes", {}).get("baseline")
    if kept is None:
        return None
    own = kept["good"]["model" if details.get("since_baseline", {}).get("judge_moved") else "total"]
    value, low, high = own["value"], own.get("low"), own.get("high")
    if value is None or low is None or high is None:
        return None
    alarm = details.get("watch", {}).get("alarm", {})
    return BaselineChange(
        nights=baseline_nights(details),
        prompts=kept["prompts"],
        value=value,
        low=low,
        high=high,
        is_alarm=bool(alarm.get("is_raised")),
    )


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
                change=change_of(model.points[-1]),
                limit=drops[0] if drops else None,
            )
        )
    return sorted(tonight, key=lambda item: item.rank)


def say_tonight(series: NightSeries, tonight: Sequence[ModelTonight]) -> str:
    """The finding, in one sentence or two."""
    run = [item for item in tonight if item.outcome not in ("not run", "failed")]
    if not run:
        return f"No model could be measured on {series.nights[-1].night}."
    changed = [item for item in run if item.change is not None]
    broken = [item for item in run if item.outcome == "regression"]
    fell = [item for item in changed if item.change and item.change.verdict == "fell"]
    sure = [item for item in fell if item in broken or (item.change and item.change.is_alarm)]
    if sure:
        others = len(run) - len(sure)
        rest = f" {_others(others, [item for item in changed if item not in sure])}" if others else ""
        return f"{_list(sure)} got worse: {_changes(sure)}.{rest}"
    if broken:
        return f"{_list(broken)} broke a gate, though no fall of Good since the baseline is shown."
    if fell:
        return f"{_list(fell)} may have got worse: {_changes(fell)}. Not sure: nights differ by chance."
    if not changed:
        return f"Nothing to compare with yet: {_levels(run)}."
    lowest = changed[0]
    assert lowest.change is not None
    whose = f"{lowest.name} has" if len(changed) == 1 else f"the lowest, {lowest.name}, has"
    since = _since(changed)
    return f"No model is shown to be worse than on {since}: {whose} {lowest.change.text} points of Good."


def change_figure(tonight: Sequence[ModelTonight]) -> Figure | None:
    """The changes of all models with tonight's intervals, in points; None where there is none."""
    drawn = [item for item in tonight if item.change is not None][:DRAWN]
    if not drawn:
        return None
    lines, ends = [], [0.0]
    for item in drawn:
        assert item.change is not None
        value, low, high = (100 * end for end in (item.change.value, item.change.low, item.change.high))
        is_found = item.outcome == "regression" or item.change.verdict == "fell"
        lines.append(
            Line(
                name=item.name,
                figure=item.change.text,
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


def say_unknown(tonight: Sequence[ModelTonight]) -> str:
    """Which models are not in the chart, and why."""
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
    nights = {item.change.since for item in items if item.change}
    return nights.pop() if len(nights) == 1 else "their baselines"


def _changes(items: Sequence[ModelTonight]) -> str:
    said = []
    for item in items[: NAMED - 1]:
        assert item.change is not None
        ends = interval(-item.change.high, -item.change.low, 1, scale=100)
        said.append(f"{number(-item.change.value, 1, scale=100)} {ends}")
    return f"{listed(said)} points of Good less than on {_since(items)}"


def _others(count: int, changed: Sequence[ModelTonight]) -> str:
    names = "The other model is" if count == 1 else f"The other {count} models are"
    falling = [item for item in changed if item.change and item.change.verdict == "fell"]
    return f"{_list(falling)} may have too." if falling else f"{names} not shown to have."


def _levels(run: Sequence[ModelTonight]) -> str:
    ranked = sorted(run, key=lambda item: -(share_of(item.model.points[-1], item.model.kind).share or 0.0))
    said = [
        f"{item.name} {percent(share.share)} %"
        for item in ranked[:NAMED]
        if (share := share_of(item.model.points[-1], item.model.kind)).share is not None
    ]
    return f"Good shares are {listed(said)}" if said else "no share is known"
