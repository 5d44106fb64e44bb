"""Numbers for the dashboard's charts: a place for each night, null where nothing is known."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from data.nights import ModelResult
from data.records import LABELS
from nightly.chronicle import Chronicle, Kind, Model, changes, share
from nightly.health import Health, Shift
from nightly.page import UNDEFINED

KINDS: Final[tuple[Kind, ...]] = ("corrected", "raw")


def trend_data(chronicle: Chronicle) -> dict[str, Any]:
    """The Good share of every model, night by night."""
    return {
        "nights": [night.night for night in chronicle.nights],
        "changes": changes(chronicle.nights),
        "models": [
            {
                "name": model.name,
                "page": f"model-{model.slug}.html",
                "kind": model.kind,
                **line(model.points, model.kind, "Good"),
                "found": regressions(model),
            }
            for model in chronicle.models
        ],
    }


def model_data(chronicle: Chronicle, model: Model) -> dict[str, Any]:
    """All shares of a model, corrected and as judged."""
    return {
        "nights": [night.night for night in chronicle.nights],
        "changes": changes(chronicle.nights),
        "kind": model.kind,
        "labels": {
            label: {kind: line(model.points, kind, label) for kind in KINDS} for label in reversed(LABELS)
        },
        "found": regressions(model),
    }


def health_data(chronicle: Chronicle, health: Health) -> dict[str, Any]:
    """The judge's shift in points, what was unscored in per cent, dollars for a thousand responses."""
    shifts = [shift.change.as_dict() if shift else None for shift in health.shifts]
    moved = [at for at, shift in enumerate(health.shifts) if shift and shift.is_shown]
    shift = next((item for item in reversed(health.shifts) if item), None)
    return {
        "nights": [night.night for night in chronicle.nights],
        "changes": changes(chronicle.nights),
        "shift": {
            key: [hundredths(item[key]) if item else None for item in shifts]
            for key in ("value", "low", "high")
        },
        "moved": moved,
        "unscored": [hundredths(value) for value in health.unscored],
        "reasons": [_reasons(counted) for counted in health.reasons],
        "cost": [_rounded(value) for value in health.cost],
        "per_thousand": [_rounded(value) for value in health.per_thousand],
        "told": _tell_shift(shift, len(moved), len(chronicle.nights)),
    }


def line(points: Iterable[ModelResult | None], kind: Kind, label: str) -> dict[str, list[float | None]]:
    """One label's shares and interval ends in per cent, a place for each night."""
    found = [share(point, kind, label) for point in points]
    return {
        "value": [hundredths(item.share) if item else None for item in found],
        "low": [hundredths(item.low) if item else None for item in found],
        "high": [hundredths(item.high) if item else None for item in found],
    }


def regressions(model: Model) -> list[dict[str, Any]]:
    """Where on the line a regression is marked, and what the gates said."""
    return [
        {
            "at": at,
            "text": " ".join(
                item.sentence or item.gate for item in model.findings[at] if item.outcome == "regression"
            ),
        }
        for at in model.regressions
    ]


def points(part: float | None) -> str:
    """A change in points, with its sign.

    >>> points(0.0371), points(-0.0001), points(None)
    ('+3.7', '0.0', 'undefined')
    """
    if part is None or not math.isfinite(part):
        return UNDEFINED
    rounded = round(100 * part, 1)
    return f"{rounded:+.1f}".replace("-", "\N{MINUS SIGN}") if rounded else "0.0"


def hundredths(part: float | None) -> float | None:
    """In per cent, as exactly as a chart can show."""
    return None if part is None else round(100 * part, 2)


def _tell_shift(shift: Shift | None, moved: int, nights: int) -> str:
    if shift is None:
        return "No anchors have been judged: the judge's changes cannot be told from the models'."
    found = shift.change.as_dict()
    ends = "" if found["low"] is None else f" [{points(found['low'])}, {points(found['high'])}]"
    said = "is shown to have moved" if shift.is_shown else "is not shown to have moved"
    return (
        f"The judge {said}: on {shift.count:,} anchors its Good probability is "
        f"{points(shift.change.value)}{ends} points from that of {shift.since}. "
        f"It is shown to have moved on {moved:,} of {nights:,} nights."
    )


def _reasons(counted: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} {count:,}" for reason, count in list(counted.items())[:4])


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
