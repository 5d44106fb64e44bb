"""Gates: what a night may not do to a model, and whether it did.

A change has an interval, and a gate one limit. It fails, a *regression*, only where the interval lies wholly
beyond the limit; it passes where the interval lies wholly within; else it is *inconclusive*, and says what it
would take to tell. Failing needs the interval that holds on all nights at once (`calibration.sequences`), so
that a year of looks does not fail by chance; passing needs tonight's alone.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from calibration.estimate import Interval, finite_or_none
from calibration.monitoring.drift import EmotionChange
from calibration.shares.planning import detectable_difference, plan_ratings
from data.errors import UserError

# The limits a night is held to, as a configuration's `[gates]` table gives them.
#
# [gates]
# good_share_drop = 5                            # points, against the pinned baseline
# bad_share_rise = { baseline = 3, last_night = 6 }
# max_cost = 0.5                                 # dollars a night, for each model
# max_unscored = 2                               # percent of the responses
# [gates.floors]                                 # points of Good
# sad = 40
# every = 30                                     # each emotion without a floor of its own

Kind = Literal["good_share_drop", "bad_share_rise", "floor", "max_cost", "max_unscored"]
Against = Literal["baseline", "last night"]
CHANGES: Final[tuple[Kind, ...]] = ("good_share_drop", "bad_share_rise")
AGAINST: Final[Mapping[str, Against]] = {"baseline": "baseline", "last_night": "last night"}
EVERY: Final = "every"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One limit: in points of a hundred for shares, in dollars a night for cost."""

    kind: Kind
    limit: float
    against: Against | None = None
    emotion: str | None = None

    @property
    def name(self) -> str:
        """As in the configuration, with what it is about.

        >>> Gate(kind="good_share_drop", limit=5, against="last night").name
        'good_share_drop against last night'
        """
        about = f" against {self.against}" if self.against else f" {self.emotion}" if self.emotion else ""
        return self.kind + about


def read_gates(table: Mapping[str, Any], *, place: str = "gates") -> tuple[Gate, ...]:
    """The gates of a TOML table; `place` is named in errors.

    >>> [gate.name for gate in read_gates({"bad_share_rise": 3, "floors": {"sad": 40}, "max_cost": 0.5})]
    ['bad_share_rise against baseline', 'floor sad', 'max_cost']
    """
    known = (*CHANGES, "floors", "max_cost", "max_unscored")
    if unknown := sorted(set(table) - set(known)):
        raise UserError(f"{place}: unknown gate {unknown[0]!r}; known: {', '.join(known)}")
    gates: list[Gate] = []
    for kind in CHANGES:
        entry = table.get(kind, {})
        by = entry if isinstance(entry, Mapping) else {"baseline": entry}
        if strange := sorted(set(by) - set(AGAINST)):
            raise UserError(f"{place}.{kind}: {strange[0]!r} is none of {', '.join(AGAINST)}")
        for name, limit in by.items():
            points = _limit(limit, f"{place}.{kind}", most=100)
            gates.append(Gate(kind=kind, limit=points, against=AGAINST[name]))
    floors = table.get("floors", {})
    if not isinstance(floors, Mapping):
        raise UserError(f"{place}.floors: a table of emotions and points, such as {{sad = 40, {EVERY} = 30}}")
    for emotion, limit in floors.items():
        gates.append(Gate(kind="floor", limit=_floor(limit, f"{place}.floors.{emotion}"), emotion=emotion))
    if "max_cost" in table:
        gates.append(Gate(kind="max_cost", limit=_limit(table["max_cost"], f"{place}.max_cost")))
    if "max_unscored" in table:
        most = _limit(table["max_unscored"], f"{place}.max_unscored", most=100)
        gates.append(Gate(kind="max_unscored", limit=most))
    return tuple(gates)


def _limit(value: Any, place: str, *, most: float = math.inf) -> float:
    # A TOML true is no number, though Python's is.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        ends = f"from 0 to {most:g}" if math.isfinite(most) else "that is not negative"
        raise UserError(f"{place}: {value!r} is not a number {ends}")
    return float(value)


def _floor(value: Any, place: str) -> float:
    points = _limit(value, place, most=100)
    if 0 < points < 1:
        raise UserError(f"{place}: floors are in points of a hundred; write {100 * points:g} for {points:g}")
    return points


__all__ = [
    "Gate",
    "Night",
    "Outcome",
    "Reading",
    "Result",
    "check_gates",
    "overall",
    "read_gates",
]

Outcome = Literal["pass", "skipped", "inconclusive", "stale", "failed", "regression"]
# 0 fine, 1 regression, 3 inconclusive, 4 calibration stale or missing, 5 operational failure.
# From the least grave to the gravest: a regression that was found is found, whatever else went wrong.
EXIT_CODES: Final[Mapping[Outcome, int]] = {
    "pass": 0,
    "skipped": 0,
    "inconclusive": 3,
    "stale": 4,
    "failed": 5,
    "regression": 1,
}
GATE_CHANGES: Final = {"good_share_drop": "drop of the Good share", "bad_share_rise": "rise of the Bad share"}
NAMED_EMOTIONS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A share, or the change of one (tonight - then), as a part of 1.

    `interval` holds for tonight, `uniform` on all nights at once; without it `interval` stands for both.
    `spread` is the variance of a single label, for planning how many would tell.
    """

    value: float
    interval: Interval | None
    uniform: Interval | None = None
    spread: float = 0.25
    design_effect: float = 1.0
    correlation: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """One model's night. `stale` says why the calibration cannot be used, `failure` why there is no night.

    `good` and `bad` are changes by what they are against, and `good_emotions` and `bad_emotions` where these
    changes come from; `shares` is the Good share by emotion. What is not there is skipped.
    """

    model: str
    good: Mapping[Against, Reading] = field(default_factory=dict)
    bad: Mapping[Against, Reading] = field(default_factory=dict)
    good_emotions: Mapping[Against, Sequence[EmotionChange]] = field(default_factory=dict)
    bad_emotions: Mapping[Against, Sequence[EmotionChange]] = field(default_factory=dict)
    shares: Mapping[str, Reading] = field(default_factory=dict)
    cost: float | None = None
    responses: int = 0
    unscored: int = 0
    stale: str | None = None
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How one gate stands for one model. `value` and its interval are in the gate's unit, larger is worse
    except for a floor. `labels` of each side, or `nights` like this one, would tell with a power of 80 %."""

    model: str
    gate: Gate
    outcome: Outcome
    sentence: str
    value: float = math.nan
    interval: Interval | None = None
    labels: int | None = None
    nights: int | None = None
    emotions: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON; null is undefined."""
        return {
            "model": self.model,
            "gate": self.gate.name,
            "limit": self.gate.limit,
            "outcome": self.outcome,
            "sentence": self.sentence,
            "value": finite_or_none(self.value),
            "low": self.interval.low if self.interval else None,
            "high": self.interval.high if self.interval else None,
            "labels": self.labels,
            "nights": self.nights,
            "emotions": list(self.emotions),
        }


def check_gates(gates: Iterable[Gate], nights: Iterable[Night]) -> tuple[Result, ...]:
    """Every gate for every model, in the order given."""
    gates = tuple(gates)
    return tuple(result for night in nights for result in _check_model(gates, night))


def overall(results: Iterable[Result]) -> Outcome:
    """The gravest outcome: a regression, then a failure, a stale calibration, an inconclusive gate."""
    return max((result.outcome for result in results), key=list(EXIT_CODES).index, default="pass")


def _check_model(gates: Sequence[Gate], night: Night) -> Iterable[Result]:
    named = {gate.emotion for gate in gates if gate.kind == "floor"}
    for gate in gates:
        if gate.kind != "floor" or gate.emotion != EVERY:
            yield _check(gate, night)
            continue
        for emotion in sorted(set(night.shares) - named):
            yield _check(Gate(kind="floor", limit=gate.limit, emotion=emotion), night)


def _check(gate: Gate, night: Night) -> Result:
    if night.failure:
        return _bare(gate, night, "failed", f"the night failed: {night.failure}")
    if gate.kind == "max_cost":
        if night.cost is None:
            return _bare(gate, night, "skipped", "the cost is not known")
        return _exact(gate, night, night.cost, f"cost {night.cost:.4g} dollars, limit {gate.limit:g}")
    if gate.kind == "max_unscored":
        if not night.responses:
            return _bare(gate, night, "skipped", "there were no responses")
        part = 100 * night.unscored / night.responses
        counted = f"{night.unscored:,} of {night.responses:,} unscored ({part:.1f} %), limit {gate.limit:g} %"
        return _exact(gate, night, part, counted)
    if night.stale:
        return _bare(gate, night, "stale", f"the calibration cannot be used: {night.stale}")
    if gate.kind == "floor":
        reading, what = night.shares.get(gate.emotion or ""), f"Good share for {gate.emotion}"
        missing = f"no response for {gate.emotion!r}"
    else:
        against = "the baseline" if gate.against == "baseline" else gate.against
        by = night.good if gate.kind == "good_share_drop" else night.bad
        reading, what = by.get(gate.against or "baseline"), f"{GATE_CHANGES[gate.kind]} against {against}"
        missing = f"there is no {gate.against} to compare with yet"
    return _weigh(gate, night, reading, what) if reading else _bare(gate, night, "skipped", missing)


def _weigh(gate: Gate, night: Night, reading: Reading, what: str) -> Result:
    """The rule itself. `sign` turns a reading into harm, of which there may be at most `limit`."""
    sign = 1 if gate.kind == "bad_share_rise" else -1
    limit = -gate.limit if gate.kind == "floor" else gate.limit
    harm, sure = _points(reading.interval, sign), _points(reading.uniform or reading.interval, sign)
    outcome: Outcome = "inconclusive"
    if sure is not None and sure.low > limit:
        outcome = "regression"
    elif harm is not None and harm.high <= limit:
        outcome = "pass"
    shown = 1 if gate.kind == "floor" else sign
    told = reading.interval if outcome == "pass" else reading.uniform or reading.interval
    value, interval = 100 * shown * reading.value, _points(told, shown)
    said = f"{what} {_show(value, interval)}, {'floor' if gate.kind == 'floor' else 'limit'} {gate.limit:g}"
    labels = nights = None
    emotions: tuple[str, ...] = ()
    if outcome == "inconclusive":
        labels, nights = _needed(gate, reading, abs(100 * sign * reading.value - limit) / 100)
        said += _say_needed(labels, nights)
    elif outcome == "regression":
        emotions, words = _drivers(gate, night)
        said += words
    if night.unscored and night.responses:
        at_worst = 100 * night.unscored / night.responses
        said += f"; {night.unscored:,} unscored could move it by {at_worst:.1f} points at worst"
    return Result(
        model=night.model,
        gate=gate,
        outcome=outcome,
        sentence=f"{night.model}: {outcome}: {said}.",
        value=value,
        interval=interval,
        labels=labels,
        nights=nights,
        emotions=emotions,
    )


def _needed(gate: Gate, reading: Reading, gap: float) -> tuple[int | None, int | None]:
    """Labels of each side, and nights like this one, that would tell `gap` from nothing; None for never."""
    if not math.isfinite(gap) or gap < 1e-9:
        return None, None
    plan = plan_ratings(
        gap,
        spread=reading.spread,
        design_effect=reading.design_effect,
        correlation=reading.correlation,
    )
    # A floor is known exactly, so it takes half of what two measured sides would.
    labels = _whole(plan.with_judge / (2 if gate.kind == "floor" else 1))
    if reading.interval is None:
        return labels, None
    error = (reading.interval.high - reading.interval.low) / 2 / detectable_difference(1, 0, power=0.5)
    return labels, _whole((detectable_difference(error**2, 0) / gap) ** 2)


def _whole(count: float) -> int | None:
    return math.ceil(count) if math.isfinite(count) else None


def _say_needed(labels: int | None, nights: int | None) -> str:
    told = [f"{labels:,} labels on each side"] if labels else []
    told += [f"{nights:,} such night{'s' if nights > 1 else ''}"] if nights else []
    return f"; {', or '.join(told)}, would tell" if told else "; what would tell is not known"


def _drivers(gate: Gate, night: Night) -> tuple[tuple[str, ...], str]:
    """The emotions a regression comes from, in words too; those shown by themselves, else the largest."""
    if gate.kind == "floor" or gate.against is None:
        return ((gate.emotion,) if gate.emotion else ()), ""
    by = night.good_emotions if gate.kind == "good_share_drop" else night.bad_emotions
    found = by.get(gate.against, ())
    if shown := tuple(item.emotion for item in found if item.is_shown):
        return shown, f"; shown for {', '.join(shown)}"
    worse = [item for item in found if (item.change < 0) == (gate.kind == "good_share_drop") and item.change]
    largest = tuple(item.emotion for item in worse[:NAMED_EMOTIONS])
    words = f"; most in {', '.join(largest)}, none of which is shown by itself" if largest else ""
    return largest, words


def _exact(gate: Gate, night: Night, value: float, said: str) -> Result:
    """A count or a sum has no interval: it is over the limit or not."""
    outcome: Outcome = "regression" if value > gate.limit else "pass"
    return Result(
        model=night.model,
        gate=gate,
        outcome=outcome,
        sentence=f"{night.model}: {outcome}: {said}.",
        value=value,
    )


def _bare(gate: Gate, night: Night, outcome: Outcome, said: str) -> Result:
    return Result(
        model=night.model,
        gate=gate,
        outcome=outcome,
        sentence=f"{night.model}: {gate.name}: {outcome}: {said}.",
    )


def _points(interval: Interval | None, sign: int) -> Interval | None:
    """In points, turned round where the sign is negative; None where an end is undefined."""
    if interval is None or not math.isfinite(interval.low + interval.high):
        return None
    low, high = sorted((100 * sign * interval.low, 100 * sign * interval.high))
    return Interval(low, high)


def _show(value: float, interval: Interval | None) -> str:
    if not math.isfinite(value):
        return "undefined"
    # z: a change of nothing is 0.0, not -0.0.
    return f"{value:z.1f} points" + (f" [{interval.low:z.1f}, {interval.high:z.1f}]" if interval else "")
