"""The history in a SQLite file; tests/slow/postgres has the same for PostgreSQL."""

from pathlib import Path

import pytest
from histories import make_night
from history_contract import HistoryContract, export
from postgres import PASSWORD
from sqlalchemy import create_engine, text

from empathy_judge.data.errors import OperationalError, UserError
from empathy_judge.nightly.history import KINDS, open_history


class TestSqlite(HistoryContract):
    """A file of its own for each test."""

    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path}/history.db"


def test_a_file_is_made_with_its_folder_and_keeps_a_log_ahead(tmp_path: Path) -> None:
    path = tmp_path / "new" / "history.db"
    with pytest.raises(UserError, match="no such history"), open_history(path, must_exist=True):
        pass
    assert not path.parent.exists()
    with open_history(path) as history:
        history.add_night(make_night())
        engine = create_engine(f"sqlite:///{path}")
        with engine.connect() as connection:
            assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
        engine.dispose()
    with open_history(str(path), must_exist=True) as history:
        assert len(history.nights()) == 1


def test_a_reader_does_not_wait_for_a_writer(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    with open_history(path) as history, open_history(path) as other:
        history.add_night(make_night())
        with history.transaction(writes=True) as connection:
            connection.execute(text("DELETE FROM empathy_nights"))
            assert len(other.nights()) == 1, "what is not yet said does not count"
        assert other.nights() == []


def test_a_file_of_other_things_is_said(tmp_path: Path) -> None:
    (tmp_path / "thesis.db").write_text("precious " * 1000)
    with pytest.raises(OperationalError, match="not a database"), open_history(tmp_path / "thesis.db"):
        pass
    assert (tmp_path / "thesis.db").read_text().startswith("precious")
    (tmp_path / "folder.db").mkdir()
    with pytest.raises(OperationalError, match="unable to open"), open_history(tmp_path / "folder.db"):
        pass


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://me:not-to-be-seen@127.0.0.1:1/none",
        "postgresql://me@127.0.0.1:1/none?password=not-to-be-seen",
        "postgresql+psycopg://me:not-to-be-seen@127.0.0.1:port/none",
        "postgresql+psycopg://me:not-to-be-seen@127.0.0.1:1/none?nonsense=1",
        "mysql://me:not-to-be-seen@127.0.0.1/none",
        "://not-to-be-seen",
    ],
)
def test_a_password_is_never_said(url: str) -> None:
    with pytest.raises(UserError) as refused, open_history(url):
        pass
    assert PASSWORD not in str(refused.value)
    assert refused.value.__cause__ is None, "nor does a traceback say it"


def test_the_command_knows_every_kind_and_refuses_what_is_not_there(tmp_path: Path) -> None:
    assert f"[{'|'.join(KINDS)}]" in export("--help").output
    done = export("--history", tmp_path / "none.db")
    assert done.exit_code == 2
    assert "no such history" in done.stderr
    done = export("--history", "postgresql+psycopg://me:not-to-be-seen@127.0.0.1:1/none")
    assert done.exit_code == 5
    assert PASSWORD not in done.output
