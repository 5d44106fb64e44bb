"""Gates: what a night may not do to a model, and whether it did.

A configuration's `[gates]` table gives the limits:

    max_drop = 10                                  # points: at least as good as the pinned baseline
    good_share_drop = 5                            # points, with the whole interval
    bad_share_rise = { baseline = 3, last_night = 6 }
    max_cost = 0.5                                 # dollars a night, for each model
    max_unscored = 2                               # percent of the responses

A change has an interval, and a gate one limit. It passes if tonight's interval lies wholly within the limit;
it fails, a *regression*, if the interval that holds on all nights at once
(`calibration.monitoring.confidence_sequence`) lies wholly beyond; else it is *inconclusive*, and reports what
would decide it. `max_drop` passes where the probability of a smaller drop is at least 95%: the model is *at
least as good*. If many responses are unscored, either
must also hold with all of them counted as Bad. If the judge moved, only a regression that remains without
its part counts. Responses that do not respond to their prompts (`calibration.prompt_fit`) fail every gate on
shares.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from empathy_judge.calibration.comparison.verdicts import SURE_AT_LEAST, chance_above, is_much_unscored
from empathy_judge.calibration.estimate import UNDEFINED as NO_ESTIMATE
from empathy_judge.calibration.estimate import Estimate, estimate_of, finite_or_none
from empathy_judge.calibration.monitoring.drift import prompts_needed
from empathy_judge.data.errors import UserError
from empathy_judge.data.records import NOUNS, PROMPT_NOUNS, REPLY
from empathy_judge.data.text import UNDEFINED, number, points, probability
from empathy_judge.judge.llm.responder import say_counts
from empathy_judge.nightly.changes import GateFigure, ModelChange
from empathy_judge.nightly.schema import Against, GateResult, Kind, Label, ModelResult, Outcome

CHANGES: Final[tuple[Kind, ...]] = ("max_drop", "good_share_drop", "bad_share_rise")
AGAINST: Final[Mapping[str, Against]] = {"baseline": "baseline", "last_night": "last night"}
MOST: Final[Mapping[Kind, float]] = {"max_cost": math.inf, "max_unscored": 100}  # the largest limit
# From the least grave to the gravest.
EXIT_CODES: Final[Mapping[Outcome, int]] = {
    "pass": 0,
    "skipped": 0,
    "inconclusive": 3,
    "not calibrated": 4,
    "stale": 4,
    "failed": 5,
    "regression": 1,
}
NAMED_EMOTIONS: Final = 3
NOT_CALIBRATED: Final = "not calibrated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One limit, in points, percent or dollars; `subject` is what a change is compared with."""

    kind: Kind
    limit: float
    subject: Against | Literal[""] = ""

    @property
    def label(self) -> Label:
        """The label whose share it is about."""
        return "bad" if self.kind == "bad_share_rise" else "good"


def read_gates(table: Mapping[str, Any], *, place: str = "gates") -> tuple[Gate, ...]:
    """Read the gates of a TOML table; `place` is named in errors.

    >>> [(gate.kind, gate.subject) for gate in read_gates({"bad_share_rise": 3, "max_cost": 0.5})]
    [('bad_share_rise', 'baseline'), ('max_cost', '')]
    """
    known = (*CHANGES, *MOST)
    if unknown := sorted(set(table) - set(known)):
        raise UserError(f"{place}: unknown gate {unknown[0]!r}; known: {', '.join(known)}")
    gates: list[Gate] = []
    for kind in CHANGES:
        entry = table.get(kind, {})
        by = entry if isinstance(entry, Mapping) else {"baseline": entry}
        if strange := sorted(set(by) - set(AGAINST)):
            raise UserError(f"{place}.{kind}: {strange[0]!r} is not one of {', '.join(AGAINST)}")
        for name, limit in by.items():
            most = _limit(limit, f"{place}.{kind}", most=100)
            gates.append(Gate(kind=kind, limit=most, subject=AGAINST[name]))
    for kind, most in MOST.items():
        if kind in table:
            gates.append(Gate(kind=kind, limit=_limit(table[kind], f"{place}.{kind}", most=most)))
    return tuple(gates)


def _limit(value: Any, place: str, *, most: float) -> float:
    # A TOML true is no number, though Python's is.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        ends = f"from 0 to {most:g}" if math.isfinite(most) else "that is not negative"
        raise UserError(f"{place}: {value!r} is not a number {ends}")
    return float(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedModel:
    """The figures of one model's night; `stale` is why the calibration cannot be used, `failure` an error."""

    result: ModelResult
    unit: str = REPLY
    changes: Mapping[str, ModelChange] = field(default_factory=dict)  # by what they are measured against
    stale: str | None = None
    failure: str | None = None

    @property
    def moved(self) -> str | None:
        """How the judge moved since the baseline or last night, if it did."""
        return next((change.moved for change in self.changes.values() if change.moved), None)


def check_gates(gates: Sequence[Gate], models: Iterable[CheckedModel]) -> tuple[GateResult, ...]:
    """Check every gate for every model, in the order given."""
    return tuple(_check(gate, model) for model in models for gate in gates)


def gravest(outcomes: Iterable[Outcome]) -> Outcome | None:
    """Return the gravest outcome: a regression, then a failure, a stale calibration, an inconclusive gate."""
    return max(outcomes, key=severity, default=None)


def severity(outcome: Outcome) -> int:
    """Return the position of an outcome among all, from the least grave on."""
    return list(EXIT_CODES).index(outcome) if outcome in EXIT_CODES else 0


def _check(gate: Gate, model: CheckedModel) -> GateResult:
    result = _check_figures(gate, model)
    change = model.changes.get(gate.subject)
    if change is None or model.stale:
        return result
    if change.moved:
        if result.outcome == "regression":  # the anchors attribute this change to the model
            return result
        fix = "calibrate it again, and set a night of this judge as the baseline"
        return _result(gate, model, "stale", f"the calibration cannot be used: {model.moved}; {fix}")
    if change.suspected and result.outcome == "pass":
        sentence = result.sentence.removesuffix(".").replace(": pass:", ": inconclusive:", 1)
        return replace(result, outcome="inconclusive", sentence=f"{sentence}; but {change.suspected}.")
    return result


def _check_figures(gate: Gate, model: CheckedModel) -> GateResult:
    """Return the result by the figures alone, without drift of the judge."""
    result = model.result
    if model.failure:
        return _result(gate, model, "failed", f"the night failed: {model.failure}")
    if gate.kind == "max_cost":
        cost = result.cost
        if cost is None:
            return _result(gate, model, "skipped", "the cost is unknown, because the model has no price")
        text = f"cost {cost:.4g} dollars, limit {gate.limit:g}"
        return _result(gate, model, "regression" if cost > gate.limit else "pass", text, value=cost)
    if gate.kind == "max_unscored":
        if (share := result.unscored_share) is None:
            return _result(gate, model, "skipped", f"there were no {NOUNS[model.unit]}")
        part, total = 100 * share, result.n + result.missing
        counted = f"{result.missing:,} of {total:,} unscored ({part:.1f}%), limit {gate.limit:g}%"
        if part <= gate.limit:
            return _result(gate, model, "pass", counted, value=part)
        return _result(gate, model, "failed", f"{counted}: {say_counts(result.unscored)}", value=part)
    if result.is_unresponsive:
        return _result(gate, model, "regression", str(result.refused))
    if model.stale:
        outcome: Outcome = NOT_CALIBRATED if model.stale.startswith(NOT_CALIBRATED) else "stale"
        return _result(gate, model, outcome, model.stale.removeprefix(f"{NOT_CALIBRATED}: "))
    change = model.changes.get(gate.subject)
    if change is None or gate.label not in change.figures:
        return _result(gate, model, "skipped", f"there is no {gate.subject} to compare with yet")
    return _weigh(gate, model, change.figures[gate.label])


def _weigh(gate: Gate, model: CheckedModel, figure: GateFigure) -> GateResult:
    """Apply the rule, also to unscored responses counted as Bad where these are many."""
    sign = 1 if gate.label == "bad" else -1
    outcome = _outcome(gate, figure)
    unscored, shift = _unscored(gate, model, figure)
    at_worst = _outcome(gate, figure, shift)
    is_withheld = is_much_unscored(*unscored) and outcome not in ("inconclusive", at_worst)
    outcome = "inconclusive" if is_withheld else outcome
    shown, deciding = (_points(item, sign) for item in (figure.tonight, figure.sure))
    against = "the baseline" if gate.subject == "baseline" else gate.subject
    bound = f"limit {number(sign * gate.limit, 1, sign=True)}"
    if gate.kind == "max_drop":
        chance = probability(_chance(gate, figure)) or UNDEFINED
        bound = f"at least as good within {gate.limit:g} points: probability {chance}"
    change = points(figure.tonight, glue=" points ")
    text = f"{gate.label.capitalize()} share {change} against {against}, {bound}"
    if outcome != "pass" and figure.sustained is not None:
        mean = f"mean of {figure.nights:,} nights " if figure.nights > 1 else ""
        text += f"; allowing for many nights: {mean}{points(figure.sustained, glue=' points ')}"
        shown = deciding
    emotions: tuple[str, ...] = ()
    if is_withheld:
        text += f"; this does not hold with every unscored {model.unit} counted as Bad"
    elif outcome == "inconclusive":
        text += f"; {_what_decides(gate, model, figure)}"
    elif outcome == "regression":
        emotions, drivers = _drivers(gate, model)
        text += drivers
    if any(unscored):
        parts = zip(unscored, ("tonight", "before"), strict=True)
        text += f"; unscored: {', '.join(f'{100 * part:.1f}% {when}' for part, when in parts)}"
    ends = {"low": shown.interval.low, "high": shown.interval.high} if shown.interval else {}
    return _result(gate, model, outcome, text, value=shown.value, **ends, emotions=emotions)


def _outcome(gate: Gate, figure: GateFigure, shift: float = 0.0) -> Outcome:
    """Return the outcome for a figure that is moved by `shift`."""
    tonight, sure = (_harm(gate, item + shift).interval for item in (figure.tonight, figure.sure))
    is_good = gate.kind == "max_drop" and _chance(gate, figure, shift) >= SURE_AT_LEAST
    if is_good or (tonight is not None and tonight.high <= 0):
        return "pass"
    return "regression" if sure is not None and sure.low > 0 else "inconclusive"


def _chance(gate: Gate, figure: GateFigure, shift: float = 0.0) -> float:
    """Return the probability that the Good share fell by no more than the limit."""
    return chance_above(figure.tonight + shift, -gate.limit / 100, figure.prompts - 1.0)


def _harm(gate: Gate, figure: Estimate) -> Estimate:
    """Return how far a figure lies beyond the limit, in points."""
    return _points(figure, 1 if gate.label == "bad" else -1) + -gate.limit


def _unscored(gate: Gate, model: CheckedModel, figure: GateFigure) -> tuple[tuple[float, float], float]:
    """Return the unscored shares, tonight's first, and how far the figure moves if these count as Bad."""
    tonight = model.result.unscored_share or 0.0
    then = model.changes[gate.subject].unscored
    share = model.result.raw.get(gate.label.capitalize(), NO_ESTIMATE).value
    good = [part if gate.label == "good" else 1 - part for part in (share, share - figure.tonight.value)]
    fall = tonight * good[0] - then * good[1]
    return (tonight, then), -fall if gate.label == "good" else fall


def _what_decides(gate: Gate, model: CheckedModel, figure: GateFigure) -> str:
    """Return how many prompts would decide an inconclusive gate, if that is known."""
    beyond = _harm(gate, figure.sure).value
    tonight, sure = figure.tonight.interval, figure.sure.interval
    if tonight is None or sure is None or not figure.prompts or not math.isfinite(beyond):
        return "too few data to estimate what is needed"
    noun = PROMPT_NOUNS[model.unit]
    if prompts := prompts_needed(beyond / 100, tonight, sure, figure.prompts, lasting=figure.lasting):
        return f"about {prompts:,} {noun} a night would decide it (tonight {figure.prompts:,})"
    return f"the interval includes the limit, and more {noun} a night will not help"


def _drivers(gate: Gate, model: CheckedModel) -> tuple[tuple[str, ...], str]:
    """Return the emotions of a regression and a text: the significant ones, else the largest."""
    emotions = model.changes[gate.subject].emotions.get(gate.label, ())
    if shown := tuple(item.emotion for item in emotions if item.is_shown):
        return shown, f"; significant for {', '.join(shown)}"
    worse = [item for item in emotions if item.change and (item.change < 0) == (gate.label == "good")]
    largest = tuple(item.emotion for item in worse[:NAMED_EMOTIONS])
    text = f"; most in {', '.join(largest)}, none significant by itself" if largest else ""
    return largest, text


def _result(
    gate: Gate, model: CheckedModel, outcome: Outcome, text: str, *, value: float | None = None, **more: Any
) -> GateResult:
    """Return a gate's result; the sentence of one without a figure names the gate."""
    result = GateResult(
        gate=gate.kind,
        model=model.result.model,
        subject=gate.subject,
        outcome=outcome,
        value=None if value is None else finite_or_none(value),
        limit=gate.limit,
        **more,
    )
    which = f"{result.name}: " if value is None else ""
    return replace(result, sentence=f"{result.model}: {which}{outcome}: {text}.")


def _points(estimate: Estimate, sign: int) -> Estimate:
    """Return an estimate in points, negated where the sign is negative."""
    ends = (estimate.interval.low, estimate.interval.high) if estimate.interval else (math.nan, math.nan)
    return estimate_of(100 * sign * estimate.value, *sorted(100 * sign * end for end in ends))
