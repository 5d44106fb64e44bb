"""The history of all nights: one SQLite file, or a PostgreSQL database by its URL, with the same code.

A night is added in one transaction and once only, also with concurrent writers. Text that one of
the two databases could not hold (a NUL, a lone surrogate) is stored with the replacement character in its
place, and a number that is none (nan) as nothing, so that both give back the same.
"""

import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from json import JSONDecodeError
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final, TypeVar, get_origin

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Table,
    create_engine,
    delete,
    event,
    inspect,
    select,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, IntegrityError, NoSuchModuleError
from sqlalchemy.pool import NullPool

from empathy_judge.calibration.estimate import UNDEFINED, Estimate
from empathy_judge.calibration.prompt_fit import PromptFit
from empathy_judge.data.errors import OperationalError, UserError, install_hint
from empathy_judge.data.files import disk_errors
from empathy_judge.nightly.schema import (
    FINE,
    METADATA,
    NIGHTS,
    SCHEMA,
    TABLES,
    VERSION,
    ChangeResult,
    GateResult,
    ModelNight,
    ModelResult,
    Night,
    NightRecord,
    Shares,
)

BUSY_SECONDS: Final = 30.0  # how long another process may write before we give up
FREE: Final = "free some space on its disk, then run the command again; no data was lost"
FIXES: Final = {  # by a part of SQLite's message
    "disk I/O error": FREE,
    "disk is full": FREE,
    "readonly database": "change its permissions, or set another history",
    "unable to open": "change the permissions of its folder, or set another history",
    "not a database": "restore a backup, or set another history",
    "malformed": "restore a backup, or set another history",
    "locked": "wait until the other process is done, then run the command again",
}
SECRETS: Final = frozenset({"password", "sslpassword", "passfile"})


def show_url(url: URL) -> str:
    """A URL to be printed: without its password, wherever that is.

    >>> show_url(make_url("postgresql+psycopg://me:secret@db/nights?password=secret"))
    'postgresql+psycopg://me:***@db/nights?password=***'
    """
    hidden = {key: "***" for key in url.query if key in SECRETS}
    return url.update_query_dict(hidden).render_as_string(hide_password=True).replace("%2A", "*")


def show_place(place: str) -> str:
    """Return a history as it can be printed: a file, or a URL without its password."""
    return show_url(read_url(place)) if "://" in place else place


class DamagedRecord(Exception):
    """A row of a history that holds JSON, but not that of its record."""


@contextmanager
def database_errors(url: URL) -> Iterator[None]:
    """Turn what a database refuses into an error that names the place and holds no secret and no row."""
    try:
        yield
    except (IntegrityError, DataError):
        raise  # a bug in this program
    except DBAPIError as error:
        reason = " ".join(str(error.orig).split()) or type(error.orig).__name__
        secrets = [url.password, *(url.query.get(key) for key in SECRETS)]
        for secret in (item for item in secrets if isinstance(item, str) and item):
            reason = reason.replace(secret, "***")
        fix = next((f"; {way}" for sign, way in FIXES.items() if sign in reason), "")
        raise OperationalError(f"{show_url(url)}: {reason[:300]}{fix}") from None
    except (JSONDecodeError, UnicodeDecodeError, DamagedRecord) as error:
        raise OperationalError(
            f"{show_url(url)}: damaged ({error}); restore a backup, or set another history"
        ) from None


def read_url(url: str | Path) -> URL:
    """The address of a history, of a path or a URL; what is no such address is refused without showing it."""
    given = str(url)
    if isinstance(url, Path) or "://" not in given:
        return URL.create("sqlite", database=given)
    try:
        address = make_url(given)
        backend = address.get_backend_name()
    except (ArgumentError, ValueError):
        raise UserError("history: not a valid URL (not shown, because it may contain a key)") from None
    if backend not in ("sqlite", "postgresql"):
        raise UserError(
            f"{show_url(address)}: not supported; use SQLite (a file) or postgresql+psycopg://..."
        )
    return address.set(drivername="postgresql+psycopg") if backend == "postgresql" else address


def make_engine(url: URL) -> Engine:
    """Connect to either database, so that errors and logs hold no row."""
    try:
        if url.get_backend_name() == "postgresql":
            return create_engine(url, hide_parameters=True, connect_args={"connect_timeout": 10})
        in_memory = url.database in (None, "", ":memory:")
        pool: dict[str, Any] = {} if in_memory else {"poolclass": NullPool}
        options = {"timeout": BUSY_SECONDS}
        engine = create_engine(url, hide_parameters=True, connect_args=options, **pool)
    except (ImportError, NoSuchModuleError):
        raise UserError(
            f"{show_url(url)}: the package psycopg is missing; {install_hint('nightly')}"
        ) from None
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _: object) -> None:
    """Each connection on its own: SQLite remembers only the journal's mode."""
    connection.isolation_level = None  # Python's driver would begin transactions as it sees fit
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = FULL")
    deadline = monotonic() + BUSY_SECONDS
    while connection.execute("PRAGMA journal_mode").fetchone()[0] not in ("wal", "memory"):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError:
            # SQLite does not wait here, where it waits everywhere else, while another makes the same file.
            if monotonic() > deadline:
                raise
            sleep(0.02)


def _begin_sqlite(connection: Connection) -> None:
    # Writers lock first: two that read and then write would fail.
    writes = connection.get_execution_options().get("writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


KEPT_NIGHTS: Final = 30  # nights of a config whose judgments are stored for looking into
LOCK_KEY: Final = 0x656D7061  # PostgreSQL's advisory lock while the tables are made
KINDS: Final = ("results", *(name for name in TABLES if name != "models"))
Row = TypeVar("Row")


class History:
    """An open history; `open_history` gives one.

    `config` limits a query to the nights of one config, `last` to the newest so many of them.
    """

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
        Judgments are stored of the newest `keep_judgments` nights of the config and of those `pinned`.
        """
        with self.transaction(writes=True) as connection:
            if instead:
                same = (NIGHTS.c.config == record.config) & (NIGHTS.c.night == record.night)
                connection.execute(delete(NIGHTS).where(same))
            dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
            added = dialect.insert(NIGHTS).values(_row(record, Night))
            added = added.on_conflict_do_nothing(index_elements=["config", "night"])
            # None where the night is there already, be it from this very moment.
            night_id = connection.scalar(added.returning(NIGHTS.c.id))
            if night_id is None:
                return False
            for name, (table, _) in TABLES.items():
                if rows := [{"night_id": night_id, **_row(item)} for item in getattr(record, name)]:
                    connection.execute(table.insert(), rows)
            _forget_judgments(connection, record.config, keep_judgments, pinned)
        return True

    def nights(self, *, config: str | None = None, last: int | None = None) -> list[Night]:
        """Nights without their results, oldest first."""
        with self.transaction() as connection:
            return list(_read_nights(connection, config, last).values())

    def night(self, config: str, night: str) -> NightRecord | None:
        """One night with all its results."""
        with self.transaction() as connection:
            asked = select(NIGHTS).where(NIGHTS.c.config == config, NIGHTS.c.night == night)
            row = connection.execute(asked).mappings().first()
            if row is None:
                return None
            about = _make(Night, dict(row))
            results: dict[str, Any] = {
                name: tuple(_read_records(connection, kind, {row["id"]: about})[row["id"]])
                for name, (_, kind) in TABLES.items()
            }
        return NightRecord(**{item.name: getattr(about, item.name) for item in fields(Night)}, **results)

    def all_series(
        self, *, config: str | None = None, last: int | None = None
    ) -> dict[str, list[ModelNight]]:
        """Return the nights of every model."""
        with self.transaction() as connection:
            nights = _read_nights(connection, config, last)
            is_wanted = TABLES["changes"][0].c.against == "baseline"
            changes = _read_records(connection, ChangeResult, nights, is_wanted)
            results = _read_records(connection, ModelResult, nights)
        series: defaultdict[str, list[ModelNight]] = defaultdict(list)
        for night_id, night in nights.items():  # by the night's name, which need not be the order of adding
            by_model = {change.model: change for change in changes[night_id]}
            for result in results[night_id]:
                point = ModelNight(night=night, result=result, change=by_model.get(result.model))
                series[result.model].append(point)
        return dict(sorted(series.items()))

    def results(
        self, record: type[Row], *, config: str | None = None, last: int | None = None
    ) -> list[tuple[Night, list[Row]]]:
        """Each night's records of one kind, such as `EmotionResult`, oldest night first."""
        with self.transaction() as connection:
            nights = _read_nights(connection, config, last)
            records = _read_records(connection, record, nights)
        return [(night, records[night_id]) for night_id, night in nights.items() if night_id in records]

    def gates_not_fine(self, *, last: int) -> list[tuple[Night, GateResult]]:
        """All regressions, and of the newest nights whatever else was not fine."""
        gates = TABLES["gates"][0].c
        with self.transaction() as connection:
            nights = _read_nights(connection, None, None)
            newest = gates.night_id.in_(list(nights)[-last:])
            # The database picks them: three years of nights have very many results.
            is_wanted = (gates.outcome == "regression") | (gates.outcome.not_in(FINE) & newest)
            records = _read_records(connection, GateResult, nights, is_wanted)
        return [(nights[night_id], gate) for night_id, found in records.items() for gate in found]

    def rows(
        self, kind: str = "results", *, config: str | None = None, last: int | None = None
    ) -> Iterator[dict[str, Any]]:
        """Plain flat rows of one of `KINDS`, each with its night and config."""
        if kind == "results":
            series = self.all_series(config=config, last=last)
            points = [point for points in series.values() for point in points]
            yield from map(_flat, sorted(points, key=lambda item: (item.night.night, item.result.model)))
            return
        with self.transaction() as connection:
            nights = _read_nights(connection, config, last)
            for night_id, row in _read_rows(connection, TABLES[kind][0], nights):
                yield {"night": nights[night_id].night, "config": nights[night_id].config, **row}

    @contextmanager
    def transaction(self, *, writes: bool = False) -> Iterator[Connection]:
        """A connection whose changes are stored together, or not at all."""
        with (
            database_errors(self.engine.url),
            self.engine.connect().execution_options(writes=writes) as connection,
            connection.begin(),
        ):
            yield connection


@contextmanager
def open_history(url: str | Path, *, must_exist: bool = False) -> Iterator[History]:
    """Open the history at a URL or in a file, which is made where there is none.

    A password belongs in PGPASSWORD or in ~/.pgpass; one in the URL works and is never shown.
    """
    address = read_url(url)
    if address.get_backend_name() == "sqlite" and address.database not in (None, "", ":memory:"):
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
    if version not in (0, VERSION):
        raise UserError(
            f"{history.place}: a history of format {version}, and this version reads format {VERSION}: set "
            "another history, and run the nights again with `nightly --night NAME`"
        )
    if version == 0:
        with history.transaction(writes=True) as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK_KEY})
            if _read_version(connection) == 0:  # else another process just made them
                METADATA.create_all(connection)
                connection.execute(SCHEMA.insert().values(version=VERSION))


def _read_version(connection: Connection) -> int:
    """The version of the tables; 0 where there are none yet."""
    if not inspect(connection).has_table(SCHEMA.name):
        return 0
    return connection.scalar(select(SCHEMA.c.version)) or 0


def _row(item: Any, record: type | None = None) -> dict[str, Any]:
    """Return the values of an item as its table has them, or of the `record` that it extends."""
    # By hand, since `asdict` copies every value and would take longer than all the rest.
    names = (record or type(item)).__slots__  # type: ignore[attr-defined]
    return {name: storable(getattr(item, name)) for name in names}


def _forget_judgments(connection: Connection, config: str, keep: int, pinned: Collection[str]) -> None:
    older = select(NIGHTS.c.id).where(NIGHTS.c.config == config)
    newest = older.order_by(NIGHTS.c.night.desc()).limit(max(keep, 0))
    kept = newest.subquery()
    forgotten = older.where(NIGHTS.c.id.not_in(select(kept.c.id)), NIGHTS.c.night.not_in(list(pinned)))
    judgments = TABLES["judgments"][0]
    connection.execute(delete(judgments).where(judgments.c.night_id.in_(forgotten)))


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
    if isinstance(value, Estimate | PromptFit):
        return storable(value.as_dict())
    if isinstance(value, Mapping):
        return {str(storable(key)): storable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable(item) for item in value]
    return value


def _read_nights(connection: Connection, config: str | None, last: int | None) -> dict[int, Night]:
    """Nights by their number, oldest first."""
    asked = select(NIGHTS).order_by(NIGHTS.c.night.desc(), NIGHTS.c.id.desc()).limit(last)
    rows = connection.execute(asked if config is None else asked.where(NIGHTS.c.config == config))
    return {row["id"]: _make(Night, dict(row)) for row in reversed(rows.mappings().all())}


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
    if kind == Shares:
        return {label: Estimate.from_dict(share) for label, share in (value or {}).items()}
    if kind == PromptFit | None:
        return value and PromptFit.from_dict(value)
    if get_origin(kind) is tuple:
        return tuple(value or ())
    return (value or {}) if get_origin(kind) is Mapping else value


def _read_rows(
    connection: Connection, table: Table, nights: dict[int, Night], *where: ColumnElement[bool]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Rows of these nights in the order of their keys, each with the number of its night."""
    # From the first number to the last: a list of thousands would be too long a statement.
    among = table.c.night_id.between(min(nights, default=0), max(nights, default=-1))
    asked = select(table).where(among, *where).order_by(*table.primary_key.columns)
    names = table.columns.keys()[1:]
    for night_id, *values in connection.execute(asked):
        if night_id in nights:
            yield night_id, dict(zip(names, values, strict=True))


def _read_records(
    connection: Connection, record: type[Row], nights: dict[int, Night], *where: ColumnElement[bool]
) -> defaultdict[int, list[Row]]:
    """Return the records of one kind by the number of their night."""
    table = next(table for table, kind in TABLES.values() if kind is record)
    records: defaultdict[int, list[Row]] = defaultdict(list)
    for night_id, row in _read_rows(connection, table, nights, *where):
        records[night_id].append(_make(record, row))
    return records


def _flat(point: ModelNight) -> dict[str, Any]:
    """Return one model's night as one row: a column for each figure."""
    night, result = point.night, point.result
    row: dict[str, Any] = {"night": night.night, "config": night.config}
    row |= {name: getattr(result, name) for name in ("model", "served", "responses", "n")}
    row |= {"unscored": result.missing, "reasons": dict(result.unscored)}
    for kind, shares in (("raw", result.raw), ("corrected", result.corrected)):
        for label, share in shares.items():
            row |= {f"{label.lower()}_{kind}_{name}": value for name, value in share.as_dict().items()}
    row |= {"fit": result.fit and result.fit.estimate.value}
    row |= {name: getattr(result, name) for name in ("cost", "seconds", "refused")}
    names = ("started", "finished", "judge", "judge_version", "calibration", "status")
    return row | {name: getattr(night, name) for name in names}
