"""What can be asked of the history: nights, the series of all models, anchors, gates, and plain rows."""

import csv
import json
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, fields
from typing import Any, Final, TextIO, TypeVar

from sqlalchemy import ColumnElement, Connection, Select, Table, select

from data.errors import UserError
from data.history_schema import ANCHORS, EMOTIONS, GATES, JUDGMENTS, MODELS, NIGHTS, SHARES
from data.nights import (
    AnchorResult,
    EmotionResult,
    GateResult,
    JudgedResponse,
    ModelNight,
    ModelResult,
    Night,
    NightRecord,
    ShareResult,
)

Result = TypeVar("Result", EmotionResult, AnchorResult, GateResult)
EXPORTS: Final = {"emotions": EMOTIONS, "anchors": ANCHORS, "gates": GATES, "judgments": JUDGMENTS}
KINDS: Final = ("results", *EXPORTS)


class Reading(ABC):
    """The questions; `config` keeps to the nights of one config, `last` to the newest so many of them."""

    @abstractmethod
    def _transaction(self, *, writes: bool = False) -> AbstractContextManager[Connection]: ...

    def nights(self, *, config: str | None = None, last: int | None = None) -> list[Night]:
        """Nights without their results, oldest first."""
        with self._transaction() as connection:
            return list(_read_nights(connection, config, last).values())

    def night(self, config: str, night: str) -> NightRecord | None:
        """One night with all its results."""
        return self._read_record(_select_nights(config=config).where(NIGHTS.c.night == night))

    def latest(self, *, config: str | None = None) -> NightRecord | None:
        """The newest night with all its results."""
        return self._read_record(_select_nights(config=config, last=1))

    def all_series(
        self, *, config: str | None = None, last: int | None = None
    ) -> dict[str, list[ModelNight]]:
        """The nights of every model, in one go."""
        with self._transaction() as connection:
            return _read_results(connection, _read_nights(connection, config, last))

    def emotions(
        self, *, config: str | None = None, last: int | None = None
    ) -> list[tuple[Night, list[EmotionResult]]]:
        """Each night's results by model and emotion, oldest night first."""
        return self._read_children(EMOTIONS, EmotionResult, config, last)

    def anchors(
        self, *, config: str | None = None, last: int | None = None
    ) -> list[tuple[Night, list[AnchorResult]]]:
        """What each night's judge said of the anchor set, oldest night first."""
        return self._read_children(ANCHORS, AnchorResult, config, last)

    def gates(
        self, *, config: str | None = None, last: int | None = None
    ) -> list[tuple[Night, list[GateResult]]]:
        """What the gates said, oldest night first."""
        return self._read_children(GATES, GateResult, config, last)

    def rows(
        self, kind: str = "results", *, config: str | None = None, last: int | None = None
    ) -> Iterator[dict[str, Any]]:
        """Plain flat rows of one of `KINDS`, each with its night and config."""
        if kind not in KINDS:
            raise UserError(f"unknown kind of rows {kind!r}; known: {', '.join(KINDS)}")
        if kind == "results":
            series = self.all_series(config=config, last=last)
            points = [point for points in series.values() for point in points]
            yield from map(_flat, sorted(points, key=lambda item: (item.night.night, item.result.model)))
            return
        with self._transaction() as connection:
            nights = _read_nights(connection, config, last)
            for night_id, row in _read_rows(connection, EXPORTS[kind], nights):
                yield {"night": nights[night_id].night, "config": nights[night_id].config, **row}

    def export(
        self,
        out: TextIO,
        format: str = "jsonl",
        kind: str = "results",
        *,
        config: str | None = None,
        last: int | None = None,
    ) -> int:
        """Write rows as JSONL or CSV; returns how many. An empty CSV still has its header's first columns."""
        if format not in ("jsonl", "csv"):
            raise UserError(f"unknown format {format!r}; known: jsonl, csv")
        rows = self.rows(kind, config=config, last=last)
        return _write_csv(out, rows) if format == "csv" else _write_jsonl(out, rows)

    def _read_record(self, asked: Select[Any]) -> NightRecord | None:
        with self._transaction() as connection:
            row = connection.execute(asked).mappings().first()
            if row is None:
                return None
            night = _night(row)
            nights = {row["id"]: night}
            results = _read_results(connection, nights)
            return NightRecord(
                **{item.name: getattr(night, item.name) for item in fields(Night)},
                models=tuple(point.result for points in results.values() for point in points),
                emotions=tuple(EmotionResult(**row) for _, row in _read_rows(connection, EMOTIONS, nights)),
                anchors=tuple(AnchorResult(**row) for _, row in _read_rows(connection, ANCHORS, nights)),
                gates=tuple(GateResult(**row) for _, row in _read_rows(connection, GATES, nights)),
                judgments=tuple(
                    JudgedResponse(**row) for _, row in _read_rows(connection, JUDGMENTS, nights)
                ),
            )

    def _read_children(
        self, table: Table, kind: type[Result], config: str | None, last: int | None
    ) -> list[tuple[Night, list[Result]]]:
        with self._transaction() as connection:
            nights = _read_nights(connection, config, last)
            found: defaultdict[int, list[Result]] = defaultdict(list)
            for night_id, row in _read_rows(connection, table, nights):
                found[night_id].append(kind(**row))
        return [(night, found[night_id]) for night_id, night in nights.items() if night_id in found]


def _select_nights(*, config: str | None = None, last: int | None = None) -> Select[Any]:
    """Newest first."""
    asked = select(NIGHTS).order_by(NIGHTS.c.night.desc(), NIGHTS.c.id.desc()).limit(last)
    return asked if config is None else asked.where(NIGHTS.c.config == config)


def _read_nights(connection: Connection, config: str | None, last: int | None) -> dict[int, Night]:
    """Nights by their number, oldest first."""
    rows = connection.execute(_select_nights(config=config, last=last)).mappings().all()
    return {row["id"]: _night(row) for row in reversed(rows)}


def _night(row: Any) -> Night:
    named = {item.name: row[item.name] for item in fields(Night)}
    return Night(**named | {"details": row["details"] or {}})


def _among(table: Table, nights: Iterable[int]) -> ColumnElement[bool]:
    """Rows of these nights, wherever the numbers lie: a list of thousands would be too long a statement."""
    numbers = list(nights)
    low, high = min(numbers, default=0), max(numbers, default=-1)
    return table.c.night_id.between(low, high)


def _read_rows(
    connection: Connection, table: Table, nights: dict[int, Night]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Rows of these nights in the order of their keys, each with the number of its night."""
    asked = select(table).where(_among(table, nights)).order_by(*table.primary_key.columns)
    names = [column.name for column in table.columns]
    assert names.pop(0) == "night_id"
    for night_id, *values in connection.execute(asked):
        if night_id in nights:
            yield night_id, dict(zip(names, values, strict=True))


def _read_results(connection: Connection, nights: dict[int, Night]) -> dict[str, list[ModelNight]]:
    shares: defaultdict[tuple[int, str, str], dict[str, ShareResult]] = defaultdict(dict)
    for night_id, row in _read_rows(connection, SHARES, nights):
        model_name, kind, label = (row.pop(name) for name in ("model", "kind", "label"))
        shares[night_id, model_name, kind][label] = ShareResult(**row)
    results: dict[int, list[ModelResult]] = defaultdict(list)
    for night_id, row in _read_rows(connection, MODELS, nights):
        raw, corrected = (shares[night_id, row["model"], kind] for kind in ("raw", "corrected"))
        counted = {"unscored": row["unscored"] or {}, "details": row["details"] or {}}
        results[night_id].append(ModelResult(**row | counted, raw=raw, corrected=corrected))
    series: defaultdict[str, list[ModelNight]] = defaultdict(list)
    for night_id, night in nights.items():  # by the night's name, which need not be the order of adding
        for result in results.get(night_id, ()):
            series[result.model].append(ModelNight(night=night, result=result))
    return dict(sorted(series.items()))


def _flat(point: ModelNight) -> dict[str, Any]:
    """One model's night as one row: a column for each figure."""
    night, result = asdict(point.night), asdict(point.result)
    night.pop("details")
    row = {key: night.pop(key) for key in ("night", "config")}
    row |= {key: result[key] for key in ("model", "served", "responses", "n")}
    row |= {"unscored": sum(result["unscored"].values()), "reasons": result["unscored"]}
    for kind in ("raw", "corrected"):
        for label, share in result[kind].items():
            row |= {f"{label.lower()}_{kind}_{name}": value for name, value in share.items()}
    return row | {key: result[key] for key in ("cost", "seconds")} | night


def _write_jsonl(out: TextIO, rows: Iterable[dict[str, Any]]) -> int:
    count = 0
    for row in rows:
        out.write(json.dumps(row, ensure_ascii=False) + "\n")
        count += 1
    return count


def _write_csv(out: TextIO, rows: Iterable[dict[str, Any]]) -> int:
    held = list(rows)
    columns = list(dict.fromkeys(key for row in held for key in row)) or ["night", "config"]
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    for row in held:
        writer.writerow(
            {key: json.dumps(item) if isinstance(item, dict | list) else item for key, item in row.items()}
        )
    return len(held)
