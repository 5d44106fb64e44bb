"""A cheap judge first, and a dear one only where the first leaves more than one label open."""

import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from math import exp, log
from pathlib import Path
from typing import Any, Final

from data.errors import UserError
from data.files import disk_errors
from data.records import LABELS, Exchange, Judgment
from judge.baselines import softmax
from judge.panel import add_usage, close_all, load_members, split_rationale, stop_all

# Which labels a calibration leaves open: the rule `calibration` fits, applied by a judge to one exchange.
#
# Judges do not import `calibration`: they read the plain numbers of `calibration.json`. A test holds the rule
# here and the one there together.

FORMAT: Final = 1
LEAST_PROBABILITY: Final = 1e-6
MAKE_ANEW: Final = "make it anew with `calibrate`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sets:
    """The map and the thresholds of one calibration, and for which judge they hold."""

    judge: str
    version: str
    rubric: str
    coverage: float
    thresholds: tuple[float, ...]
    kind: str = "identity"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    digest: str = ""

    def labels(self, probabilities: Mapping[str, float]) -> tuple[str, ...]:
        """The labels that are left open, in order and without gaps, never none.

        >>> sets = Sets(judge="", version="", rubric="", coverage=0.9, thresholds=(0.85, 0.7, 0.6))
        >>> sets.labels({"Bad": 0.05, "Okay": 0.15, "Good": 0.8})
        ('Good',)
        """
        mapped = MAPS[self.kind]([probabilities[label] for label in LABELS], self.parameters)
        # Rounded as where the thresholds were fitted, so that a probability written and read ranks the same.
        inside = [
            place for place, value in enumerate(mapped) if round(1 - value, 12) <= self.thresholds[place]
        ]
        inside = inside or [mapped.index(max(mapped))]
        return LABELS[inside[0] : inside[-1] + 1]


def read_sets(path: Path) -> Sets:
    """Thresholds from a `calibration.json`; refused when damaged, changed, or without any."""
    with disk_errors(path):
        if not path.is_file():
            raise UserError(f"{path}: no calibration here; make one with `calibrate`")
        text = path.read_text(encoding="utf-8", errors="replace")
    try:
        row = json.loads(text)
        version, digest = row.pop("format"), row.pop("digest")
        canonical = json.dumps(row, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{path}: not a calibration ({error!r}); name a calibration.json") from error
    if version != FORMAT or sha256(canonical).hexdigest() != digest:
        raise UserError(f"{path}: damaged, changed since it was written, or of another format; {MAKE_ANEW}")
    try:
        found = row["conformal"]
        thresholds = tuple(float(value) for value in found["thresholds"])
        mapping = row["mapping"].get("map", row["mapping"]) or {"kind": "identity", "parameters": {}}
        sets = Sets(
            judge=row["judge"],
            version=row["version"],
            rubric=row["rubric"],
            coverage=float(found["coverage"]),
            thresholds=thresholds,
            kind=mapping["kind"],
            parameters=mapping["parameters"],
            digest=digest,
        )
        has_our_labels = tuple(found["labels"]) == LABELS and len(thresholds) == len(LABELS)
        if has_our_labels and sets.kind in MAPS:
            sets.labels(dict.fromkeys(LABELS, 1 / len(LABELS)))  # a map without its numbers is found now
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise UserError(
            f"{path}: holds no thresholds for prediction sets ({error!r}); {MAKE_ANEW}"
        ) from error
    if not has_our_labels or sets.kind not in MAPS:
        raise UserError(
            f"{path}: not for probabilities of {', '.join(LABELS)}; {MAKE_ANEW} on such a judge's"
        )
    return sets


def _temperature(values: Sequence[float], parameters: Mapping[str, Any]) -> list[float]:
    return softmax([_log(value) / parameters["temperature"] for value in values])


def _vector(values: Sequence[float], parameters: Mapping[str, Any]) -> list[float]:
    rows = zip(values, parameters["weights"], parameters["biases"], strict=True)
    return softmax([_log(value) * weight + bias for value, weight, bias in rows])


def _ordinal(values: Sequence[float], parameters: Mapping[str, Any]) -> list[float]:
    """Proportional odds on the mean logit of P(label or better)."""
    within = [min(max(value, LEAST_PROBABILITY), 1 - LEAST_PROBABILITY) for value in _above(values)]
    place = sum(log(value / (1 - value)) for value in within) / len(within)
    score = parameters["slope"] * (place - parameters["middle"])
    return _between([1 / (1 + exp(min(cut - score, 700.0))) for cut in parameters["cuts"]])


def _isotonic(values: Sequence[float], parameters: Mapping[str, Any]) -> list[float]:
    """A curve through knots for each P(label or better), drawn a little towards equal chances."""
    knots = zip(_above(values), parameters["places"], parameters["heights"], strict=True)
    above = [_interpolate(value, places, heights) for value, places, heights in knots]
    above = [min(above[: place + 1]) for place in range(len(above))]
    rows = parameters["ratings"]
    return [(rows * value + 1) / (rows + len(values)) for value in _between(above)]


def _above(values: Sequence[float]) -> list[float]:
    return [round(sum(reversed(values[place:])), 12) for place in range(1, len(values))]


def _between(above: Sequence[float]) -> list[float]:
    ends = [1.0, *above, 0.0]
    return [ends[place] - ends[place + 1] for place in range(len(above) + 1)]


def _interpolate(value: float, places: Sequence[float], heights: Sequence[float]) -> float:
    if value <= places[0] or len(places) == 1:
        return heights[0]
    if value >= places[-1]:
        return heights[-1]
    after = bisect_right(places, value)
    low, high = places[after - 1], places[after]
    return heights[after - 1] + (heights[after] - heights[after - 1]) * (value - low) / (high - low)


def _log(value: float) -> float:
    return log(max(value, LEAST_PROBABILITY))


MAPS: Final[dict[str, Callable[[Sequence[float], Mapping[str, Any]], list[float]]]] = {
    "identity": lambda values, parameters: list(values),
    "temperature": _temperature,
    "vector": _vector,
    "ordinal": _ordinal,
    "isotonic": _isotonic,
}


class CascadeJudge:
    """Asks `first`, the local classifier unless named; `second` only where the first is not sure enough.

    Sure is a prediction set of one label, made with the thresholds of `calibration` (a `calibration.json`
    fitted for the first judge); without one, a likeliest label with a probability of `ask_below` or more.
    What the first leaves unscored goes to the second, too; what the second leaves unscored stays so: the
    first was asked for its word and had none that could be relied on.
    """

    name = "cascade"
    files = ("first", "second", "calibration")

    def __init__(
        self,
        *,
        first: str = "classifier",
        second: str = "",
        calibration: str = "",
        ask_below: float = 0.6,
    ) -> None:
        if not second:
            raise UserError('second: missing; name the judge to ask when in doubt: second = "prompted.toml"')
        if not 0 <= ask_below <= 1:
            raise UserError(f"ask_below: {ask_below} is no probability")
        self.members = load_members([first, second])
        self.first, self.second = self.members
        self.ask_below = ask_below
        self.rubric = self.first.judge.rubric
        self.concurrency = max(member.judge.concurrency for member in self.members)
        self.sets = self._check(Path(calibration)) if calibration else None
        rule = self.sets.digest if self.sets else ask_below
        versions = [[member.judge.name, member.judge.version] for member in self.members]
        self.version = sha256(json.dumps([self.name, versions, rule]).encode()).hexdigest()[:12]

    @property
    def caveat(self) -> str:
        """What the members warn of."""
        said = [getattr(member.judge, "caveat", "") for member in self.members]
        return " ".join(dict.fromkeys(filter(None, said)))

    def judge(self, exchange: Exchange) -> Judgment:
        quick = self.first.ask(exchange)
        left = self._left_open(quick)
        if len(left) == 1:
            told = _tell(quick, f"decided by {self.first.name}")
            return replace(quick, set=left if self.sets else None, rationale=told, decided_by=self.first.name)
        judgment = self.second.ask(exchange)
        said = ", ".join(f"{label} {value:.3f}" for label, value in (quick.probabilities or {}).items())
        why = f"left open by {self.first.name}: {', '.join(left)} ({said})" if said else quick.unscored
        return replace(
            judgment,
            # The set still holds the crowd's rating as often as it says, whoever decides among its labels.
            set=left if self.sets and said else None,
            rationale=_tell(judgment, f"decided by {self.second.name}; {why}"),
            usage=add_usage([quick.usage, judgment.usage]),
            decided_by=self.second.name,
        )

    def stop(self) -> None:
        """End all waiting of both judges."""
        stop_all(self.members)

    def close(self) -> None:
        """Let go of all connections."""
        close_all(self.members)

    def report(self, judgments: Iterable[Judgment]) -> list[str]:
        """How often the second judge was asked in a run, and what not asking it saved."""
        asked = total = 0
        paid = 0.0
        for judgment in judgments:
            total += 1
            if judgment.decided_by == self.second.name:
                asked += 1
                paid += (judgment.usage or {}).get("cost", 0.0)
        if not total:
            return []
        saved = total - asked
        line = (
            f"asked {self.second.name} for {asked:,} of {total:,}: saved {100 * saved / total:.0f} % of calls"
        )
        return [f"{line}, about USD {saved * paid / asked:.4f}" if paid else line]

    def _left_open(self, quick: Judgment) -> tuple[str, ...]:
        if quick.probabilities is None:
            return LABELS
        if self.sets is not None:
            return self.sets.labels(quick.probabilities)
        likeliest = max(LABELS, key=quick.probabilities.__getitem__)
        return (likeliest,) if quick.probabilities[likeliest] >= self.ask_below else LABELS

    def _check(self, path: Path) -> Sets:
        sets, judge = read_sets(path), self.first.judge
        if (sets.judge, sets.version) != (judge.name, judge.version):
            raise UserError(
                f"{path}: for {sets.judge} {sets.version}, and the first judge is {judge.name} "
                f"{judge.version}; calibrate that one"
            )
        if sets.rubric != judge.rubric.digest:
            raise UserError(f"{path}: for another rubric than the first judge's; calibrate it with this one")
        return sets


def _tell(judgment: Judgment, who: str) -> str:
    """Suspected injections, then who decided and why, then what that judge said."""
    suspicions, rest = split_rationale(judgment.rationale)
    return "\n".join([*suspicions, who, *([rest] if rest else [])])
