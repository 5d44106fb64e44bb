"""SQLite and PostgreSQL behind one engine: how each is opened, and what may be said of it."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from json import JSONDecodeError
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, IntegrityError, NoSuchModuleError
from sqlalchemy.pool import NullPool

from data.errors import OperationalError, UserError

BUSY_SECONDS: Final = 30.0  # how long another process may write before we give up
FREE: Final = "free some space where it lies, then give the same command again: nothing in it was lost"
WAYS_OUT: Final = {  # by what SQLite says
    "disk I/O error": FREE,
    "disk is full": FREE,
    "readonly database": "change its permissions, or name another history",
    "unable to open": "change the permissions of its folder, or name another history",
    "not a database": "name another history, or a copy of this one from before it was damaged",
    "malformed": "name another history, or a copy of this one from before it was damaged",
    "locked": "wait until the other process is done, then give the same command again",
}
SECRETS: Final = frozenset({"password", "sslpassword", "passfile"})


def show_url(url: URL) -> str:
    """A URL to be printed: without its password, wherever in it that stands.

    >>> show_url(make_url("postgresql+psycopg://me:secret@db/nights?password=secret"))
    'postgresql+psycopg://me:***@db/nights?password=***'
    """
    hidden = {key: "***" for key in url.query if key in SECRETS}
    return url.update_query_dict(hidden).render_as_string(hide_password=True).replace("%2A", "*")


@contextmanager
def database_errors(url: URL) -> Iterator[None]:
    """What a database refuses, as an error that names the place and holds no secret and no row."""
    try:
        yield
    except (IntegrityError, DataError):
        raise  # a bug of ours
    except DBAPIError as error:
        said = " ".join(str(error.orig).split()) or type(error.orig).__name__
        secrets = [url.password, *(url.query.get(key) for key in SECRETS)]
        for secret in (item for item in secrets if isinstance(item, str) and item):
            said = said.replace(secret, "***")
        way_out = next((f"; {way}" for sign, way in WAYS_OUT.items() if sign in said), "")
        raise OperationalError(f"{show_url(url)}: {said[:300]}{way_out}") from None
    except (JSONDecodeError, UnicodeDecodeError) as error:
        raise OperationalError(
            f"{show_url(url)}: damaged ({error}); bring back a copy of it, or name another history"
        ) from None


def read_url(url: str | Path) -> URL:
    given = str(url)
    if isinstance(url, Path) or "://" not in given:
        return URL.create("sqlite", database=given)
    try:
        found = make_url(given)
        backend = found.get_backend_name()
    except (ArgumentError, ValueError):
        raise UserError(
            "history: not a URL that can be read (it is not shown here, since it may hold a key)"
        ) from None
    if backend not in ("sqlite", "postgresql"):
        raise UserError(
            f"{show_url(found)}: SQLite and PostgreSQL are known; use postgresql+psycopg://... or a file"
        )
    return found.set(drivername="postgresql+psycopg") if backend == "postgresql" else found


def make_engine(url: URL) -> Engine:
    try:
        if url.get_backend_name() == "postgresql":
            return create_engine(url, hide_parameters=True, connect_args={"connect_timeout": 10})
        in_memory = url.database in (None, "", ":memory:")
        pool: dict[str, Any] = {} if in_memory else {"poolclass": NullPool}
        options = {"timeout": BUSY_SECONDS}
        engine = create_engine(url, hide_parameters=True, connect_args=options, **pool)
    except (ImportError, NoSuchModuleError):
        raise UserError(
            f"{show_url(url)}: the package psycopg is missing; pip install 'empathy-judge[postgres]'"
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
    # Who is going to write says so first: two that read and then both want to write would fail.
    writes = connection.get_execution_options().get("writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
