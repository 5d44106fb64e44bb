"""How the judge does over the nights: its shift on anchors, what it left unscored, what it cost."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from calibration.drift import paired_change
from calibration.intervals import Estimate
from data.history import History
from data.nights import AnchorResult, Night
from nightly.chronicle import Chronicle


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """How far the judge's Good probability on the anchors is from the first night they were judged on."""

    anchors: str
    since: str
    count: int
    change: Estimate

    @property
    def is_shown(self) -> bool:
        """Whether the whole interval lies on one side of nothing."""
        return self.change.interval is not None and not (
            self.change.interval.low <= 0 <= self.change.interval.high
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """One place for each night; None where nothing is known. `reasons` counts all that was left unscored."""

    shifts: tuple[Shift | None, ...]
    unscored: tuple[float | None, ...]
    reasons: tuple[Mapping[str, int], ...]
    cost: tuple[float | None, ...]
    per_thousand: tuple[float | None, ...]
    spans: tuple[dict[str, Any], ...]


def read_health(history: History, chronicle: Chronicle, *, last: int | None = None) -> Health:
    """The judge over the nights of a chronicle."""
    nights = chronicle.nights
    anchors = {(night.config, night.night): rows for night, rows in history.anchors(last=last)}
    shifts = judge_shifts([anchors.get((night.config, night.night), []) for night in nights], nights)
    columns = [[model.points[at] for model in chronicle.models] for at in range(len(nights))]
    unscored: list[float | None] = []
    reasons, cost, per_thousand = [], [], []
    for column in columns:
        present = [result for result in column if result is not None]
        counted: Counter[str] = Counter()
        for result in present:
            counted.update(result.unscored)
        judged = sum(result.n for result in present)
        asked = judged + counted.total()
        unscored.append(counted.total() / asked if asked else None)
        reasons.append(dict(counted.most_common()))
        known = [result.cost for result in present if result.cost is not None]
        cost.append(sum(known) if known else None)
        # Only where every model's cost is known: a part of the money over all responses would be too little.
        is_whole = known and len(known) == len(present) and judged
        per_thousand.append(1000 * sum(known) / judged if is_whole else None)
    return Health(
        shifts=shifts,
        unscored=tuple(unscored),
        reasons=tuple(reasons),
        cost=tuple(cost),
        per_thousand=tuple(per_thousand),
        spans=tuple(_spans(nights)),
    )


def judge_shifts(
    anchors: Sequence[Sequence[AnchorResult]], nights: Sequence[Night]
) -> tuple[Shift | None, ...]:
    """Each night's anchors against the first night of the same set; all nights' intervals hold at once."""
    first: dict[str, tuple[str, dict[str, float]]] = {}
    shifts: list[Shift | None] = []
    looks = max(1, sum(1 for rows in anchors if rows))
    for rows, night in zip(anchors, nights, strict=True):
        good = {row.item: row.good for row in rows if row.good is not None}
        if not good:
            shifts.append(None)
            continue
        digest = rows[0].anchors
        since, before = first.setdefault(digest, (night.night, good))
        differences = [good[item] - before[item] for item in sorted(good.keys() & before.keys())]
        shifts.append(
            Shift(
                anchors=digest,
                since=since,
                count=len(differences),
                change=paired_change(differences, looks=looks),
            )
        )
    return tuple(shifts)


def _spans(nights: Sequence[Night]) -> list[dict[str, Any]]:
    """Stretches of nights judged by one judge under one calibration, newest first."""
    found = []
    for (judge, version, calibration), group in groupby(
        nights, key=lambda night: (night.judge, night.judge_version, night.calibration)
    ):
        held = list(group)
        found.append(
            {
                "judge": judge,
                "version": version,
                "calibration": calibration,
                "first": held[0].night,
                "last": held[-1].night,
                "nights": len(held),
            }
        )
    return found[::-1]
