"""The limits a night is held to, as a configuration's `[gates]` table gives them.

[gates]
good_share_drop = 5                            # points, against the pinned baseline
bad_share_rise = { baseline = 3, last_night = 6 }
max_cost = 0.5                                 # dollars a night, for each model
max_unscored = 2                               # percent of the responses
[gates.floors]                                 # points of Good
sad = 40
every = 30                                     # each emotion without a floor of its own
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from data.errors import UserError

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
