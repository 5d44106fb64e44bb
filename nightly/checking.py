"""Where every model stands tonight, and what the gates make of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from data.nights import AnchorResult, NightRecord
from nightly.gate import Night, Reading, Result, check_gates
from nightly.limits import CHANGES, Against
from nightly.measuring import Bench, Measured
from nightly.past import Past
from nightly.since import Change, change_since, is_rough, judge_shift, pair, sums_of, watched


@dataclass(frozen=True, slots=True, kw_only=True)
class Stand:
    """Where a model stands tonight: its changes since earlier nights, and all that gates look at."""

    measured: Measured
    changes: tuple[Change, ...]
    night: Night
    details: Mapping[str, Any]

    @property
    def moved(self) -> str | None:
        """How the judge moved, if it did since the baseline or else since last night."""
        return next((change.shift.moved for change in self.changes if change.shift.moved), None)

    def change_of(self, result: Result) -> Change | None:
        """The change a gate looked at; of a floor, which looks at none, the longest there is."""
        own = [item for item in self.changes if result.gate.against in (None, item.against)]
        return own[0] if own else None


def stand(
    measured: Measured,
    past: Past,
    bench: Bench,
    anchors: Sequence[AnchorResult],
    floors: Mapping[str, Reading],
) -> Stand:
    """A model tonight against its last night and its baseline."""
    changes = _changes(measured, past, bench, anchors)
    unscored = sum(measured.unscored.values())
    night = Night(
        model=measured.model,
        good={name: item.readings["good"] for name, item in changes.items()},
        bad={name: item.readings["bad"] for name, item in changes.items()},
        good_emotions={name: item.emotions["good"] for name, item in changes.items()},
        bad_emotions={name: item.emotions["bad"] for name, item in changes.items()},
        shares=floors,
        cost=measured.cost,
        responses=measured.summary["judged"] + unscored,
        unscored=unscored,
        stale=bench.stale,
    )
    details: dict[str, Any] = {"changes": {name: item.as_dict() for name, item in changes.items()}}
    if change := changes.get("baseline"):
        details["watch"] = watched(change, past.watches, models=len(bench.config.models))
        details["since_baseline"] = {
            "night": change.night,
            "judge_moved": change.shift.moved is not None,
            "sums": sums_of(change.paired),
        }
    return Stand(measured=measured, changes=tuple(changes.values()), night=night, details=details)


def check(bench: Bench, stands: Sequence[Stand], failed: Mapping[str, str]) -> list[Result]:
    """Every gate. Where the judge moved, only a regression that is left without its part is believed."""
    results: list[Result] = []
    by_model = {item.measured.model: item for item in stands}
    for entry in bench.config.models:
        if entry.name in failed:
            results += check_gates(bench.config.gates, [Night(model=entry.name, failure=failed[entry.name])])
            continue
        own = by_model[entry.name]
        found = tuple(
            _doubt(item, own.change_of(item)) for item in check_gates(bench.config.gates, [own.night])
        )
        if own.moved and not bench.stale:
            stale = check_gates(bench.config.gates, [replace(own.night, stale=_way_out(own.moved))])
            found = tuple(
                plain if _is_believed(plain, own.change_of(plain)) else other
                for plain, other in zip(found, stale, strict=True)
            )
        results += found
    return results


def _changes(
    measured: Measured, past: Past, bench: Bench, anchors: Sequence[AnchorResult]
) -> dict[Against, Change]:
    """Since the baseline and since last night, as far as there are such nights."""
    pasts: tuple[tuple[Against, NightRecord | None], ...] = (
        ("baseline", past.baseline),
        ("last night", past.last),
    )
    found: dict[Against, Change] = {}
    for against, then in pasts:
        if then is None:
            continue
        now = (bench.judge.name, bench.judge.version)
        change = change_since(
            against,
            pair(measured.judged, [item for item in then.judgments if item.model == measured.model]),
            judge_shift(anchors, then.anchors, now=now, before=then, matters=bench.config.matters),
            watches=past.watches,
            models=len(bench.config.models),
            level=measured.summary["shares"]["Good"]["share"],
        )
        if change is not None:
            found[against] = change
    return found


def _is_believed(result: Result, change: Change | None) -> bool:
    """Since a night when the judge was the same, all; else a change that is the model's by the anchors."""
    if change is None or not change.shift.moved:
        return True
    return result.outcome == "regression" and result.gate.kind in CHANGES and not is_rough(change)


def _doubt(result: Result, change: Change | None) -> Result:
    """A pass that a judge's move may have made is none."""
    suspected = change.shift.suspected if change else None
    if suspected is None or result.outcome != "pass" or result.gate.kind not in (*CHANGES, "floor"):
        return result
    said = f"{result.sentence.removesuffix('.').replace(': pass:', ': inconclusive:', 1)}; but {suspected}."
    return replace(result, outcome="inconclusive", sentence=said)


def _way_out(moved: str) -> str:
    return f"{moved}; calibrate it anew, and pin a night it judged as the baseline"
