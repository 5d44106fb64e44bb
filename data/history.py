"""The history of all nights: one SQLite file, or a PostgreSQL database by its URL, with the same code.

A night is added in one transaction and once only, whoever else adds what at the same time. Text that one of
the two databases could not hold (a NUL, a lone surrogate) is kept with the replacement character in its
place, and a number that is none (nan) as nothing, so that both give back the same.
"""

import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Engine, Table, delete, select, text
from sqlalchemy.dialects import postgresql, sqlite

from data.databases import database_errors, make_engine, read_url, show_url
from data.errors import UserError
from data.files import disk_errors, replacing
from data.history_reading import Reading
from data.history_schema import (
    ANCHORS,
    EMOTIONS,
    GATES,
    JUDGMENTS,
    MODELS,
    NIGHTS,
    SHARES,
    VERSION,
    migrate,
    read_version,
)
from data.nights import ModelResult, Night, NightRecord

KEPT_NIGHTS: Final = 30  # nights of a config whose judgments are kept for looking into
LOCK_KEY: Final = 0x656D7061  # PostgreSQL's advisory lock while the tables are made


class History(Reading):
    """An open history; `open_history` gives one. What can be asked of it is in `Reading`."""

    def __init__(self, engine: Engine, place: str) -> None:
        self.engine, self.place = engine, place

    def add_night(
        self,
        record: NightRecord,
        *,
        keep_judgments: int = KEPT_NIGHTS,
        pinned: Collection[str] = (),
        instead: bool = False,
    ) -> bool:
        """Add a night with all its results, or nothing; False when it is there already and was left as it is.

        A night is known by its config and name. `instead` puts the record in the place of one that is there.
        Judgments are kept of the newest `keep_judgments` nights of the config and of those `pinned`.
        """
        if not (record.config and record.night):
            raise UserError("a night of the history needs a config and a name")
        with self._transaction(writes=True) as connection:
            if instead:
                same = (NIGHTS.c.config == record.config) & (NIGHTS.c.night == record.night)
                connection.execute(delete(NIGHTS).where(same))
            night_id = _insert_night(connection, record)
            if night_id is None:
                return False
            for table, rows in _children(record):
                _insert(connection, table, night_id, rows)
            _forget_judgments(connection, record.config, keep_judgments, pinned)
        return True

    @contextmanager
    def _transaction(self, *, writes: bool = False) -> Iterator[Connection]:
        with (
            database_errors(self.engine.url),
            self.engine.connect().execution_options(writes=writes) as connection,
            connection.begin(),
        ):
            yield connection


@contextmanager
def open_history(url: str | Path, *, must_exist: bool = False) -> Iterator[History]:
    """The history at a URL or in a file, made or brought up to date where needed.

    A password belongs in PGPASSWORD or in ~/.pgpass; one in the URL works and is never shown.
    """
    found = read_url(url)
    if found.get_backend_name() == "sqlite" and found.database not in (None, "", ":memory:"):
        path = Path(str(found.database))
        if must_exist and not path.exists():
            raise UserError(f"{path}: no such history; name one with --history, or run a night first")
        with disk_errors(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
    engine = make_engine(found)
    try:
        history = History(engine, show_url(found))
        with database_errors(found):
            _bring_up_to_date(history)
        yield history
    finally:
        engine.dispose()


def export_history(
    url: str | Path,
    out: Path | None,
    *,
    kind: str = "results",
    format: str | None = None,
    config: str | None = None,
    last: int | None = None,
) -> int:
    """Write a history's rows to a file, whole or not at all, or to the output; returns how many.

    The format is that of the file's name where none is given.
    """
    written = format or ("csv" if out is not None and out.suffix.lower() == ".csv" else "jsonl")
    with open_history(url, must_exist=True) as history:
        if out is None:
            return history.export(sys.stdout, written, kind, config=config, last=last)
        with disk_errors(out):
            out.parent.mkdir(parents=True, exist_ok=True)
            with replacing(out) as partial, partial.open("w", encoding="utf-8", newline="") as stream:
                return history.export(stream, written, kind, config=config, last=last)


def _bring_up_to_date(history: History) -> None:
    with history._transaction() as connection:
        version = read_version(connection)
    if version > VERSION:
        raise UserError(
            f"{history.place}: written by a newer version of this program (its tables are version {version}, "
            f"and {VERSION} is known here); update the program, or name another history"
        )
    if version == VERSION:
        return
    with history._transaction(writes=True) as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK_KEY})
        migrate(connection)


def _insert_night(connection: Connection, record: NightRecord) -> int | None:
    """The new night's number; None where it is there already, be it from this very moment."""
    row = {item.name: storable(getattr(record, item.name)) for item in fields(Night)}
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    statement = dialect.insert(NIGHTS).values(row).on_conflict_do_nothing(index_elements=["config", "night"])
    night_id: int | None = connection.scalar(statement.returning(NIGHTS.c.id))
    return night_id


def _children(record: NightRecord) -> Iterator[tuple[Table, list[dict[str, Any]]]]:
    yield MODELS, [_model_row(item) for item in record.models]
    yield SHARES, [row for item in record.models for row in _share_rows(item)]
    yield EMOTIONS, list(map(_row, record.emotions))
    yield ANCHORS, list(map(_row, record.anchors))
    yield GATES, list(map(_row, record.gates))
    yield JUDGMENTS, list(map(_row, record.judgments))


def _row(item: Any) -> dict[str, Any]:
    # By hand, since `asdict` copies every value and would take longer than all the rest.
    return {name: getattr(item, name) for name in item.__slots__}


def _model_row(item: ModelResult) -> dict[str, Any]:
    row = {name: getattr(item, name) for name in ("model", "served", "responses", "n", "cost", "seconds")}
    return row | {"unscored": dict(item.unscored), "details": dict(item.details)}


def _share_rows(item: ModelResult) -> Iterator[dict[str, Any]]:
    for kind, shares in (("raw", item.raw), ("corrected", item.corrected)):
        for label, share in shares.items():
            yield {"model": item.model, "kind": kind, "label": label, **_row(share)}


def _insert(connection: Connection, table: Table, night_id: int, rows: Iterable[dict[str, Any]]) -> None:
    ready = [{"night_id": night_id} | {key: storable(value) for key, value in row.items()} for row in rows]
    if ready:
        connection.execute(table.insert(), ready)


def _forget_judgments(connection: Connection, config: str, keep: int, pinned: Collection[str]) -> None:
    older = select(NIGHTS.c.id).where(NIGHTS.c.config == config)
    newest = older.order_by(NIGHTS.c.night.desc()).limit(max(keep, 0))
    kept = newest.subquery()
    forgotten = older.where(NIGHTS.c.id.not_in(select(kept.c.id)), NIGHTS.c.night.not_in(list(pinned)))
    connection.execute(delete(JUDGMENTS).where(JUDGMENTS.c.night_id.in_(forgotten)))


def storable(value: Any) -> Any:
    """A value as both databases hold it.

    >>> storable({"a": float("nan"), "b": ["x\\x00", "\\ud800"]})
    {'a': None, 'b': ['x\\ufffd', '\\ufffd']}
    """
    if isinstance(value, str):
        if value.isascii() and "\x00" not in value:
            return value
        clean = value.replace("\x00", "\ufffd")
        return clean.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, float):  # numpy's are floats as well, and no database knows them
        number = float(value)
        return number if number - number == 0 else None
    if isinstance(value, dict):
        return {str(storable(key)): storable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable(item) for item in value]
    return value
