"""The history of all nights: one SQLite file, or a PostgreSQL database by its URL, with the same code.

A night is added in one transaction and once only, also with concurrent writers. Text that one of the two
databases cannot hold (a NUL, a lone surrogate) is stored with the replacement character in its place, and a
number that is undefined (nan) as null, so that both return the same.
"""

import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from itertools import chain
from json import JSONDecodeError
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final, TypeVar, get_origin

import sqlalchemy as sql
from sqlalchemy import exc
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.pool import NullPool

from empathy_judge.calibration.estimate import UNDEFINED, Estimate
from empathy_judge.calibration.prompt_fit import PromptFit
from empathy_judge.data.errors import OperationalError, UserError, install_hint
from empathy_judge.data.files import disk_errors
from empathy_judge.nightly import schema

BUSY_SECONDS: Final = 30.0  # how long to wait for another process that writes
KEPT_NIGHTS: Final = 30  # nights of a config whose judgments are stored
LOCK_KEY: Final = 0x656D7061  # PostgreSQL's advisory lock while the tables are made
KINDS: Final = ("results", *(name for name in schema.TABLES if name != "models"))
FIXES: Final = {  # by a part of SQLite's message
    "disk": "free some space on its disk, then run the command again; no data was lost",
    "readonly database": "change its permissions, or set another history",
    "unable to open": "change the permissions of its folder, or set another history",
    "not a database": "restore a backup, or set another history",
    "malformed": "restore a backup, or set another history",
    "locked": "wait until the other process is done, then run the command again",
}
# By the time they were measured: names need not have an order.
NEWEST: Final = tuple(schema.NIGHTS.c[name].desc() for name in ("started", "night", "id"))
SECRETS: Final = frozenset({"password", "sslpassword", "passfile"})
Row = TypeVar("Row")


class DamagedRecord(Exception):
    """A row of a history that cannot be read as its record."""


def show_url(url: URL) -> str:
    """Return a URL without its password, wherever that is.

    >>> show_url(make_url("postgresql+psycopg://me:secret@db/nights?password=secret"))
    'postgresql+psycopg://me:***@db/nights?password=***'
    """
    hidden = {key: "***" for key in url.query if key in SECRETS}
    return url.update_query_dict(hidden).render_as_string(hide_password=True).replace("%2A", "*")


def show_place(place: str) -> str:
    """Return a history as it can be printed: a file, or a URL without its password."""
    return show_url(read_url(place)) if "://" in place else place


def read_url(url: str | Path) -> URL:
    """Return the address of a history in a file or at a URL; an invalid one is refused without showing it."""
    given = str(url)
    if isinstance(url, Path) or "://" not in given:
        return URL.create("sqlite", database=given)
    try:
        address = make_url(given)
        backend = address.get_backend_name()
    except (exc.ArgumentError, ValueError):
        raise UserError("history: not a valid URL (not shown, because it may contain a key)") from None
    is_file = backend == "sqlite" and address.database not in (None, "", ":memory:")
    if not is_file and backend != "postgresql":
        raise UserError(
            f"{show_url(address)}: not supported; use SQLite (a file) or postgresql+psycopg://..."
        )
    return address.set(drivername="postgresql+psycopg") if backend == "postgresql" else address


@contextmanager
def database_errors(url: URL) -> Iterator[None]:
    """Turn an error of a database into one that names the place and has no secret and no row."""
    try:
        yield
    except (exc.IntegrityError, exc.DataError):
        raise  # a bug in this program
    except exc.DBAPIError as error:
        reason = " ".join(str(error.orig).split()) or type(error.orig).__name__
        for secret in (url.password, *(url.query.get(key) for key in SECRETS)):
            reason = reason.replace(secret, "***") if isinstance(secret, str) and secret else reason
        fix = next((f"; {fix}" for sign, fix in FIXES.items() if sign in reason), "")
        raise OperationalError(f"{show_url(url)}: {reason[:300]}{fix}") from None
    except (JSONDecodeError, UnicodeDecodeError, DamagedRecord) as error:
        raise OperationalError(
            f"{show_url(url)}: damaged ({error}); restore a backup, or set another history"
        ) from None


def make_engine(url: URL) -> sql.Engine:
    """Connect to either database, so that errors and logs have no row."""
    try:
        if url.get_backend_name() == "postgresql":
            return sql.create_engine(url, hide_parameters=True, connect_args={"connect_timeout": 10})
        waits = {"timeout": BUSY_SECONDS}
        engine = sql.create_engine(url, hide_parameters=True, connect_args=waits, poolclass=NullPool)
    except (ImportError, exc.NoSuchModuleError):
        raise UserError(
            f"{show_url(url)}: the package psycopg is missing; {install_hint('nightly')}"
        ) from None
    sql.event.listen(engine, "connect", _prepare_sqlite)
    sql.event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _: object) -> None:
    connection.isolation_level = None  # Python's driver would begin transactions by itself
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = FULL")
    deadline = monotonic() + BUSY_SECONDS
    while connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:  # here SQLite does not wait for a process that makes the same file
            if monotonic() > deadline:
                raise
            sleep(0.02)


def _begin_sqlite(connection: sql.Connection) -> None:
    # Writers lock first: two that read and then write would fail.
    writes = connection.get_execution_options().get("writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


class History:
    """An open history; `config` limits a query to the nights of one config, `last` to the newest nights."""

    def __init__(self, engine: sql.Engine, place: str) -> None:
        self.engine, self.place = engine, place

    def add_night(
        self,
        record: schema.NightRecord,
        *,
        keep_judgments: int = KEPT_NIGHTS,
        pinned: Collection[str] = (),
        instead: bool = False,
    ) -> bool:
        """Add a night with all its results, or nothing; return False if it is in the history already.

        A night is known by its config and name. `instead` replaces a night that is there. Judgments are
        stored of the newest `keep_judgments` nights of the config and of those `pinned`.
        """
        nights, judgments = schema.NIGHTS.c, schema.TABLES["judgments"][0]
        of_config = sql.select(nights.id).where(nights.config == record.config)
        with self.transaction(writes=True) as connection:
            if instead:
                same = (nights.config == record.config) & (nights.night == record.night)
                connection.execute(sql.delete(schema.NIGHTS).where(same))
            dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
            added = dialect.insert(schema.NIGHTS).values(_row(record, schema.Night))
            added = added.on_conflict_do_nothing(index_elements=["config", "night"])
            night_id = connection.scalar(added.returning(nights.id))
            if night_id is None:
                return False
            for name, (table, _) in schema.TABLES.items():
                if rows := [{"night_id": night_id, **_row(item)} for item in getattr(record, name)]:
                    connection.execute(table.insert(), rows)
            newest = of_config.order_by(*NEWEST).limit(max(keep_judgments, 0)).subquery()
            old = of_config.where(nights.id.not_in(sql.select(newest)), nights.night.not_in(list(pinned)))
            connection.execute(sql.delete(judgments).where(judgments.c.night_id.in_(old)))
        return True

    def nights(self, *, config: str | None = None, last: int | None = None) -> list[schema.Night]:
        """Return nights without their results, oldest first."""
        with self.transaction() as connection:
            return list(_read_nights(connection, config, last=last).values())

    def night(self, config: str, night: str) -> schema.NightRecord | None:
        """Return one night with all its results."""
        with self.transaction() as connection:
            found = _read_nights(connection, config, night=night)
            if not found:
                return None
            results: dict[str, Any] = {
                name: tuple(chain.from_iterable(_read_records(connection, kind, found).values()))
                for name, (_, kind) in schema.TABLES.items()
            }
        about = next(iter(found.values()))
        return schema.NightRecord(**{name: getattr(about, name) for name in about.__slots__}, **results)

    def results(
        self,
        record: type[Row],
        *where: sql.ColumnElement[bool],
        config: str | None = None,
        last: int | None = None,
    ) -> list[tuple[schema.Night, list[Row]]]:
        """Return each night's records of one kind, such as `EmotionResult`, oldest night first."""
        with self.transaction() as connection:
            nights = _read_nights(connection, config, last=last)
            records = _read_records(connection, record, nights, *where)
        return [(night, records[night_id]) for night_id, night in nights.items() if night_id in records]

    def all_series(
        self, *, config: str | None = None, last: int | None = None
    ) -> dict[str, list[schema.ModelNight]]:
        """Return the nights of every model."""
        is_wanted = schema.TABLES["changes"][0].c.against == "baseline"
        changes = {
            (night.key, change.model): change
            for night, found in self.results(schema.ChangeResult, is_wanted, config=config, last=last)
            for change in found
        }
        series: defaultdict[str, list[schema.ModelNight]] = defaultdict(list)
        for night, results in self.results(schema.ModelResult, config=config, last=last):
            for result in results:
                change = changes.get((night.key, result.model))
                series[result.model].append(schema.ModelNight(night=night, result=result, change=change))
        return dict(sorted(series.items()))

    def gates_not_fine(self, *, config: str, last: int) -> list[tuple[schema.Night, schema.GateResult]]:
        """Return all regressions, and of the newest nights all other outcomes that are not fine."""
        outcome = schema.TABLES["gates"][0].c.outcome
        found = self.results(schema.GateResult, outcome.not_in(schema.FINE), config=config, last=last)
        newest = {night.night for night, _ in found}
        old = self.results(schema.GateResult, outcome == "regression", config=config)
        found = [*((night, gates) for night, gates in old if night.night not in newest), *found]
        return [(night, gate) for night, gates in found for gate in gates]

    def rows(
        self, kind: str = "results", *, config: str | None = None, last: int | None = None
    ) -> Iterator[dict[str, Any]]:
        """Yield flat rows of one of `KINDS`, each with its night and config."""
        record: type[Any] = schema.ModelResult if kind == "results" else schema.TABLES[kind][1]
        for night, items in self.results(record, config=config, last=last):
            for item in items:
                row = _flat(night, item) if isinstance(item, schema.ModelResult) else _row(item)
                yield {"night": night.night, "config": night.config, **row}

    @contextmanager
    def transaction(self, *, writes: bool = False) -> Iterator[sql.Connection]:
        """Open a connection whose changes are stored together, or not at all."""
        with (
            database_errors(self.engine.url),
            self.engine.connect().execution_options(writes=writes) as connection,
            connection.begin(),
        ):
            yield connection


@contextmanager
def open_history(url: str | Path, *, must_exist: bool = False) -> Iterator[History]:
    """Open the history at a URL or in a file, which is made if it is missing.

    A password belongs in PGPASSWORD or in ~/.pgpass; one in the URL works and is never shown.
    """
    address = read_url(url)
    if address.get_backend_name() == "sqlite":
        path = Path(str(address.database))
        if must_exist and not path.exists():
            raise UserError(f"{path}: no such history; set another, or run a night first")
        with disk_errors(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
    engine = make_engine(address)
    try:
        history = History(engine, show_url(address))
        _make_tables(history)
        yield history
    finally:
        engine.dispose()


def _make_tables(history: History) -> None:
    with history.transaction() as connection:
        version = _read_version(connection)
    if version not in (0, schema.VERSION):
        raise UserError(
            f"{history.place}: a history of format {version}, and this version reads format "
            f"{schema.VERSION}: set another history, and run the nights again with `nightly --night NAME`"
        )
    if version == 0:
        with history.transaction(writes=True) as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(sql.text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK_KEY})
            if _read_version(connection) == 0:  # else another process just made them
                schema.METADATA.create_all(connection)
                connection.execute(schema.SCHEMA.insert().values(version=schema.VERSION))


def _read_version(connection: sql.Connection) -> int:
    """Return the version of the tables; 0 if there are none yet."""
    if not sql.inspect(connection).has_table(schema.SCHEMA.name):
        return 0
    return connection.scalar(sql.select(schema.SCHEMA.c.version)) or 0


def _row(item: Any, record: type | None = None) -> dict[str, Any]:
    """Return the values of an item for its table, or of the `record` that it extends."""
    # Not `asdict`, which copies every value and takes longer than all the rest.
    names = (record or type(item)).__slots__  # type: ignore[attr-defined]
    return {name: storable(getattr(item, name)) for name in names}


def storable(value: Any) -> Any:
    """Return a value as both databases hold it."""
    if isinstance(value, str):
        if value.isascii() and "\x00" not in value:
            return value
        clean = value.replace("\x00", "\ufffd")
        return clean.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, float):  # also numpy's, which no database knows
        number = float(value)
        return number if number - number == 0 else None
    if isinstance(value, Estimate | PromptFit):
        return storable(value.as_dict())
    if isinstance(value, Mapping):
        return {str(storable(key)): storable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable(item) for item in value]
    return value


def _read_nights(
    connection: sql.Connection, config: str | None, *, last: int | None = None, night: str | None = None
) -> dict[int, schema.Night]:
    """Return nights by their number, oldest first."""
    columns, wanted = schema.NIGHTS.c, {"config": config, "night": night}
    where = [columns[name] == value for name, value in wanted.items() if value is not None]
    rows = connection.execute(sql.select(schema.NIGHTS).where(*where).order_by(*NEWEST).limit(last))
    return {row["id"]: _make(schema.Night, dict(row)) for row in reversed(rows.mappings().all())}


def _read_records(
    connection: sql.Connection,
    record: type[Row],
    nights: dict[int, schema.Night],
    *where: sql.ColumnElement[bool],
) -> defaultdict[int, list[Row]]:
    """Return the records of one kind by the number of their night, in the order of their keys."""
    table = next(table for table, kind in schema.TABLES.values() if kind is record)
    # From the first number to the last: a list of thousands would be too long a statement.
    among = table.c.night_id.between(min(nights, default=0), max(nights, default=-1))
    records: defaultdict[int, list[Row]] = defaultdict(list)
    asked = sql.select(table).where(among, *where).order_by(*table.primary_key.columns)
    for row in connection.execute(asked).mappings():
        if row["night_id"] in nights:
            records[row["night_id"]].append(_make(record, dict(row)))
    return records


def _make(record: type[Row], row: dict[str, Any]) -> Row:
    """Make a record of a row; JSON has lists for tuples and objects for estimates."""
    try:
        values = {item.name: _decode(item.type, row[item.name]) for item in fields(record)}  # type: ignore[arg-type]
    except (LookupError, TypeError, AttributeError) as error:
        raise DamagedRecord(f"a {record.__name__.lower()} cannot be read") from error
    return record(**values)


def _decode(kind: Any, value: Any) -> Any:
    if kind is Estimate:
        return UNDEFINED if value is None else Estimate.from_dict(value)
    if kind == schema.Shares:
        return {label: Estimate.from_dict(share) for label, share in (value or {}).items()}
    if kind == PromptFit | None:
        return value and PromptFit.from_dict(value)
    if get_origin(kind) is tuple:
        return tuple(value or ())
    return (value or {}) if get_origin(kind) is Mapping else value


def _flat(night: schema.Night, result: schema.ModelResult) -> dict[str, Any]:
    """Return one model's night as one row: a column for each figure."""
    row = {name: getattr(result, name) for name in ("model", "served", "responses", "n")}
    row |= {"unscored": result.missing, "reasons": dict(result.unscored)}
    for kind, shares in (("raw", result.raw), ("corrected", result.corrected)):
        for label, share in shares.items():
            row |= {f"{label.lower()}_{kind}_{name}": value for name, value in share.as_dict().items()}
    row |= {"fit": result.fit and result.fit.estimate.value}
    row |= {name: getattr(result, name) for name in ("cost", "seconds", "refused")}
    names = ("started", "finished", "judge", "judge_version", "calibration", "status")
    return row | {name: getattr(night, name) for name in names}
