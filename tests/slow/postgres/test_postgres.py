"""The history in a PostgreSQL server, and processes that share one history of either kind."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from histories import make_night, start_worker
from history_contract import HistoryContract, ProcessContract
from postgres import PASSWORD, find_postgres, start_postgres
from sqlalchemy import create_engine, text

from empathy_judge.data.errors import OperationalError
from empathy_judge.nightly.history import open_history


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    if find_postgres() is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    with start_postgres() as url:
        yield url


class TestPostgres(HistoryContract, ProcessContract):
    """Adding nights and getting them back, by several processes on one server."""

    @pytest.fixture
    def url(self, server: str) -> str:
        """A database of its own for each test."""
        name = f"nights_{uuid4().hex}"
        admin = create_engine(f"{server}postgres", isolation_level="AUTOCOMMIT")
        with admin.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name}"))
        admin.dispose()
        return f"{server}{name}"


class TestSqliteProcesses(ProcessContract):
    """Several processes, one file."""

    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path}/history.db"


def test_a_wrong_password_is_not_said_either(server: str) -> None:
    wrong = server.replace(PASSWORD, "mistyped-secret")
    with pytest.raises(OperationalError) as refused, open_history(f"{wrong}postgres"):
        pass
    assert "mistyped-secret" not in str(refused.value)
    with open_history(f"{server}postgres") as history:
        assert PASSWORD not in history.place


def test_a_writer_waits_for_another(tmp_path: Path) -> None:
    """With SQLite one writes at a time; the second is not sent away."""
    path = tmp_path / "history.db"
    with open_history(path) as history:
        history.add_night(make_night())
        with history.transaction(writes=True):
            worker = start_worker(f"sqlite:///{path}", 1)
            assert worker.stdin is not None
            worker.stdin.write("x")
            worker.stdin.flush()
            with pytest.raises(subprocess.TimeoutExpired):
                worker.wait(timeout=1.5)
        assert worker.communicate(timeout=60)[0].split() == ["3", "1"]
