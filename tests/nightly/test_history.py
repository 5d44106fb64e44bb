"""The history: the same tests on a SQLite file and on a PostgreSQL server."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import date, timedelta
from itertools import count
from math import nan
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
from click.testing import CliRunner, Result
from postgres import PASSWORD, find_driver, find_postgres, start_postgres
from repository import ROOT
from sqlalchemy import create_engine, inspect, text

import cli
from data.errors import OperationalError, UserError
from data.records import EMOTIONS, LABELS
from nightly import schema as history_schema
from nightly.history import KINDS, History, open_history
from nightly.schema import (
    METADATA,
    VERSION,
    AnchorResult,
    EmotionResult,
    GateResult,
    JudgedResponse,
    ModelResult,
    NightRecord,
    ShareResult,
    migrate,
    read_version,
)

DATABASES = count()


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    if find_postgres() is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    if not find_driver():
        pytest.skip("psycopg is not installed: pip install 'empathy-judge[postgres]'")
    with start_postgres() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of either kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/history.db"
    server = request.getfixturevalue("server")
    name = f"nights_{next(DATABASES)}"
    admin = create_engine(f"{server}postgres", isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    admin.dispose()
    return f"{server}{name}"


def name_of(number: int) -> str:
    return (date(2024, 1, 1) + timedelta(days=number)).isoformat()


def make_night(number: int = 0, *, config: str = "c1", models: int = 2, responses: int = 3) -> NightRecord:
    """A night of which every figure is known."""
    names = [f"model-{n}" for n in range(models)]
    shares = {label: ShareResult(share=0.1 * n, low=0.0, high=0.5) for n, label in enumerate(LABELS)}
    corrected = {"Good": ShareResult(share=0.25, low=None, high=None, how="refused")}
    return NightRecord(
        config=config,
        night=name_of(number),
        started="2026-01-01T02:00:00+00:00",
        finished="2026-01-01T02:10:00+00:00",
        judge="classifier",
        judge_version="v1",
        calibration="abc",
        status="pass",
        details={"judge_moved": 0.01},
        models=tuple(
            ModelResult(
                model=name,
                served=f"{name}-0613",
                responses="digest",
                n=160,
                unscored={"timed out": 2},
                raw=shares,
                corrected=corrected,
                cost=0.01,
                seconds=3.5,
                details={"words": 28.4},
            )
            for name in names
        ),
        emotions=tuple(
            EmotionResult(model=name, emotion=emotion, n=5, bad=1.0, okay=1.5, good=2.5)
            for name in names
            for emotion in EMOTIONS
        ),
        anchors=tuple(
            AnchorResult(anchors="set", item=f"i{n}", score=2.5, bad=0.1, okay=0.3, good=0.6)
            for n in range(4)
        ),
        gates=(
            GateResult(gate="cost", outcome="pass", value=0.02, limit=1.0, sentence="It cost 0.02 USD."),
            GateResult(gate="good_share_drop", model="model-0", outcome="inconclusive"),
        ),
        judgments=tuple(
            JudgedResponse(
                model=name,
                id=f"r{n}",
                prompt="I won!",
                response="<script>alert(1)</script>",
                label="Good",
                score=2.6,
                highlights=[["Well done.", 0.2]],
            )
            for name in names
            for n in range(responses)
        ),
    )


def test_a_night_comes_back_as_it_was_added(url: str) -> None:
    record = make_night()
    with open_history(url) as history:
        assert history.add_night(record)
        assert history.night("c1", record.night) == record
        assert history.latest() == record
        assert history.night("c1", "2020-01-01") is None
    with open_history(url) as history:
        assert history.night("c1", record.night) == record, "and in another process's time"
        (night,) = history.nights()
        assert (night.status, night.details) == ("pass", {"judge_moved": 0.01})


def test_a_night_is_added_once_whatever_it_says_the_second_time(url: str) -> None:
    record = make_night()
    with open_history(url) as history:
        assert history.add_night(record)
        assert not history.add_night(record)
        assert not history.add_night(replace(record, status="regression", models=()))
        assert history.latest() == record
        assert history.add_night(replace(record, config="c2")), "another config has its own nights"
        assert len(history.nights()) == 2
        other = replace(record, status="regression", judgments=())
        assert history.add_night(other, instead=True)
        assert history.night("c1", record.night) == other
        assert len(history.nights()) == 2
    engine = create_engine(url)
    with engine.connect() as connection:
        orphans = text("SELECT count(*) FROM empathy_judgments WHERE night_id = 1")
        assert connection.scalar(orphans) == 0, "with the night go its results"
        assert connection.scalar(text("SELECT count(*) FROM empathy_judgments")) == len(record.judgments)
    engine.dispose()


def test_a_night_that_cannot_be_added_leaves_nothing(url: str) -> None:
    record = make_night()
    twice = replace(record, gates=record.gates * 2)
    with open_history(url) as history:
        with pytest.raises(Exception, match=r"(?i)unique"):
            history.add_night(twice)
        assert history.nights() == []
        assert history.all_series() == {}
        assert history.add_night(record)


def test_series_are_in_the_order_of_the_nights_not_of_adding(url: str) -> None:
    with open_history(url) as history:
        for number in (3, 1, 2):
            history.add_night(make_night(number))
        history.add_night(make_night(9, config="other", models=1))
        series = history.all_series()["model-1"]
        assert [point.night.night for point in series] == [name_of(n) for n in (1, 2, 3)]
        assert [point.night.night for point in history.all_series(config="c1", last=2)["model-0"]] == [
            name_of(n) for n in (2, 3)
        ]
        assert {model: len(points) for model, points in history.all_series().items()} == {
            "model-0": 4,
            "model-1": 3,
        }
        assert series[0].result == make_night(1).models[1]
        latest = history.latest(config="c1")
        assert latest is not None
        assert latest.night == name_of(3)
        assert [night.night for night, _ in history.gates(last=2)] == [name_of(3), name_of(9)]
        assert [len(items) for _, items in history.anchors(config="c1")] == [4, 4, 4]
        assert sum(item.good for _, items in history.emotions(config="c1") for item in items) == 3 * 64 * 2.5


def nights_with_judgments(history: History, config: str | None = None) -> list[str]:
    return sorted({row["night"] for row in history.rows("judgments", config=config)})


def test_judgments_are_kept_of_the_newest_nights_and_the_pinned(url: str) -> None:
    with open_history(url) as history:
        for number in range(5):
            history.add_night(make_night(number), keep_judgments=2, pinned=[name_of(1)])
        assert nights_with_judgments(history) == [name_of(n) for n in (1, 3, 4)]
        history.add_night(make_night(0, config="other"), keep_judgments=2)
        kept = nights_with_judgments(history, config="c1")
        assert len(kept) == 3, "a config prunes its own nights only"
        history.add_night(make_night(5), keep_judgments=0)
        assert nights_with_judgments(history, config="c1") == []
        assert len(history.nights(config="c1")) == 6


def test_what_no_database_holds_is_kept_as_near_as_can_be(url: str) -> None:
    strange = JudgedResponse(
        model="m\x00", id="1", prompt="half \ud83d", response="'; DROP TABLE--", score=nan
    )
    record = replace(
        make_night(models=0, responses=0),
        emotions=(),
        judgments=(strange,),
        models=(ModelResult(model="模型 \U0001f600", n=0, raw={"Good": ShareResult(share=nan)}, cost=nan),),
        details={"gap": nan, "half": "\ud83d"},
    )
    with open_history(url) as history:
        assert history.add_night(record)
        found = history.latest()
    assert found is not None
    (judged,) = found.judgments
    assert (judged.model, judged.prompt, judged.score) == ("m\ufffd", "half \ufffd", None)
    assert judged.response == "'; DROP TABLE--"
    (result,) = found.models
    assert (result.model, result.raw["Good"].share, result.cost) == ("模型 \U0001f600", None, None)
    assert found.details == {"gap": None, "half": "\ufffd"}


# The same night twice and different nights at once: processes of their own, as in life.

ADD_NIGHTS = """
import sys
sys.path[:0] = [{tests!r}, {root!r}]
from test_data_history import make_night
from nightly.history import History, open_history
url, worker = sys.argv[1], int(sys.argv[2])
sys.stdin.read(1)
added = []
for number in [*range(100 * worker, 100 * worker + 3), 999]:
    with open_history(url) as history:
        added.append(history.add_night(make_night(number), keep_judgments=1000))
print(sum(added[:3]), int(added[3]))
"""


def start_worker(url: str, worker: int, code: str = ADD_NIGHTS) -> "subprocess.Popen[str]":
    script = code.format(tests=str(ROOT / "tests"), root=str(ROOT))
    return subprocess.Popen(
        [sys.executable, "-c", script, url, str(worker)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )


def test_processes_that_add_at_once_add_each_night_once(url: str) -> None:
    workers = [start_worker(url, number) for number in range(4)]
    for worker in workers:  # none begins before the others are there: they even make the tables together
        assert worker.stdin is not None
        worker.stdin.write("x")
        worker.stdin.flush()
    said = [worker.communicate(timeout=60)[0].split() for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * 4
    assert [own for own, _ in said] == ["3"] * 4
    assert sorted(shared for _, shared in said) == ["0", "0", "0", "1"]
    with open_history(url) as history:
        assert len(history.nights()) == 13
        assert set(Counter(row["night"] for row in history.rows("judgments")).values()) == {6}


ADD_FOR_EVER = """
import sys
sys.path[:0] = [{tests!r}, {root!r}]
from itertools import count
from test_data_history import make_night
from nightly.history import History, open_history
with open_history(sys.argv[1]) as history:
    for number in count(int(sys.argv[2])):
        history.add_night(make_night(number), keep_judgments=10**6)
        print(number, flush=True)
"""


def test_a_killed_process_leaves_whole_nights_only(url: str) -> None:
    with open_history(url):
        pass
    for round_ in range(3):
        worker = start_worker(url, 10_000 * round_, ADD_FOR_EVER)
        assert worker.stdout is not None
        for _ in range(2):
            worker.stdout.readline()
        worker.kill()
        said = worker.communicate(timeout=60)[0]
        assert worker.returncode == -signal.SIGKILL, said
    with open_history(url) as history:
        nights = history.nights()
        assert len(nights) >= 6
        for night in nights:
            record = history.night("c1", night.night)
            assert record is not None
            assert (len(record.models), len(record.emotions), len(record.judgments)) == (2, 64, 6)
        assert history.add_night(make_night(99_999))


# Older histories.


NUMBERS = ("REAL", "DOUBLE", "DOUBLE PRECISION", "DOUBLE_PRECISION")  # names of one type


def describe(columns: Iterable[Any]) -> dict[str, tuple[str, bool]]:
    """Each column's type and whether it may be empty; the number of a night, a row's own, never is."""
    found = {}
    for column in columns:
        kind = str(column["type"]).partition(" COLLATE")[0]
        nullable = bool(column["nullable"]) and column["name"] != "id"
        found[column["name"]] = ("number" if kind in NUMBERS else kind, nullable)
    return found


def test_the_steps_make_the_tables_that_the_program_speaks_of(url: str) -> None:
    with open_history(url):
        pass
    engine = create_engine(url)
    seen = inspect(engine)
    for table in METADATA.sorted_tables:
        stated = [{"name": item.name, "type": item.type, "nullable": item.nullable} for item in table.columns]
        assert describe(seen.get_columns(table.name)) == describe(stated)
        keys = seen.get_pk_constraint(table.name)["constrained_columns"]
        assert keys == [column.name for column in table.primary_key.columns]
        owners = [key["referred_table"] for key in seen.get_foreign_keys(table.name)]
        assert owners == ["empathy_nights"] * len(table.foreign_keys)
        indexes = {item["name"] for item in seen.get_indexes(table.name) if not item["unique"]}
        assert indexes == {index.name for index in table.indexes}
    engine.dispose()


@pytest.mark.parametrize("version", range(1, VERSION))
def test_an_older_history_is_brought_up_to_date_and_loses_nothing(url: str, version: int) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        migrate(connection, to=version)
        assert read_version(connection) == version
        # Written by hand, as a program of that version wrote it.
        connection.execute(
            text(
                "INSERT INTO empathy_nights (config, night, started, finished, judge, judge_version, status)"
                " VALUES ('c1', '2023-12-31', 's', 'f', 'length', 'v0', 'pass')"
            )
        )
        connection.execute(
            text("INSERT INTO empathy_models (night_id, model, n, unscored) VALUES (1, 'model-0', 5, '{}')")
        )
        connection.execute(
            text("INSERT INTO empathy_shares VALUES (1, 'model-0', 'raw', 'Good', 0.5, 0.4, 0.6, 'judge')")
        )
    engine.dispose()
    with open_history(url) as history:
        history.add_night(make_night())
        first, second = history.all_series()["model-0"]
        assert (first.night.judge, first.night.details, first.result.n) == ("length", {}, 5)
        assert first.result.raw["Good"] == ShareResult(share=0.5, low=0.4, high=0.6, how="judge")
        assert second.result == make_night().models[0]
    engine = create_engine(url)
    with engine.connect() as connection:
        assert read_version(connection) == VERSION
    engine.dispose()


def test_a_step_that_fails_leaves_the_old_history_whole(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_history(url) as history:
        history.add_night(make_night())
    broken = (*history_schema.STEPS, ("ALTER TABLE empathy_nights ADD COLUMN x TEXT", "CREATE TABEL y"))
    with monkeypatch.context() as patched:
        patched.setattr(history_schema, "STEPS", broken)
        patched.setattr(history_schema.migrate, "__kwdefaults__", {"to": VERSION + 1})
        patched.setattr("nightly.history.VERSION", VERSION + 1)
        with pytest.raises(OperationalError, match=r"(?i)syntax"), open_history(url):
            pass
    with open_history(url) as history:
        assert history.latest() == make_night()


def test_a_newer_history_is_not_touched(url: str) -> None:
    with open_history(url) as history:
        history.add_night(make_night())
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE empathy_schema SET version = 99"))
    engine.dispose()
    with pytest.raises(UserError, match=r"written by a newer version .* version 99"), open_history(url):
        pass


# Where it lies, and what is said of it.


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
        with history._transaction(writes=True) as connection:
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
    if url.startswith("postgresql") and not find_driver():
        pytest.skip("psycopg is not installed")
    with pytest.raises(UserError) as refused, open_history(url):
        pass
    assert PASSWORD not in str(refused.value)
    assert refused.value.__cause__ is None, "nor does a traceback say it"


def test_a_wrong_password_is_not_said_either(server: str) -> None:
    wrong = server.replace(PASSWORD, "mistyped-secret")
    with (
        pytest.raises(OperationalError, match="authentication failed") as refused,
        open_history(f"{wrong}postgres"),
    ):
        pass
    assert "mistyped-secret" not in str(refused.value)
    with open_history(f"{server}postgres") as history:
        assert PASSWORD not in history.place


# Out again.


def test_rows_are_exported_flat(url: str) -> None:
    with open_history(url) as history:
        for number in range(2):
            history.add_night(make_night(number))
        out = io.StringIO()
        assert history.export(out, "jsonl") == 4
        rows = [json.loads(line) for line in out.getvalue().splitlines()]
        assert [(row["night"], row["model"]) for row in rows[:3]] == [
            (name_of(0), "model-0"),
            (name_of(0), "model-1"),
            (name_of(1), "model-0"),
        ]
        assert rows[0]["good_raw_share"] == 0.2
        assert rows[0]["good_corrected_how"] == "refused"
        assert rows[0]["good_corrected_low"] is None
        assert (rows[0]["unscored"], rows[0]["reasons"]) == (2, {"timed out": 2})
        table = io.StringIO()
        assert history.export(table, "csv", last=1) == 2
        first = next(csv.DictReader(io.StringIO(table.getvalue())))
        assert (first["night"], first["good_raw_share"], first["judge"]) == (name_of(1), "0.2", "classifier")
        counts = {
            kind: history.export(io.StringIO(), kind=kind)
            for kind in ("emotions", "anchors", "gates", "judgments")
        }
        assert counts == {"emotions": 128, "anchors": 8, "gates": 4, "judgments": 12}
        with pytest.raises(UserError, match="known: results, emotions, anchors, gates, judgments"):
            history.export(io.StringIO(), kind="nonsense")


# Size: 1,000 nights of 20 models.

SEED = """
INSERT INTO empathy_models (night_id, model, n, cost, seconds)
  SELECT n.id, 'model-' || k.number, 160, 0.01, 2.0
  FROM empathy_nights n CROSS JOIN seed_numbers k WHERE k.number < 20;
INSERT INTO empathy_shares
  SELECT m.night_id, m.model, k.kind, k.label, 0.3, 0.2, 0.4, 'judge'
  FROM empathy_models m CROSS JOIN seed_labels k;
INSERT INTO empathy_emotions
  SELECT m.night_id, m.model, 'emotion-' || k.number, 5, 1.0, 1.5, 2.5
  FROM empathy_models m CROSS JOIN seed_numbers k WHERE k.number < 32;
INSERT INTO empathy_anchors
  SELECT n.id, 'set', 'i' || k.number, 2.5, 0.1, 0.3, 0.6 FROM empathy_nights n CROSS JOIN seed_numbers k;
"""


def seed(url: str, nights: int) -> None:
    """Fill a history inside the database, which takes seconds instead of minutes."""
    engine = create_engine(url)
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("SET LOCAL session_replication_role = replica"))  # checks no foreign key
        connection.execute(text("CREATE TABLE seed_numbers (number INTEGER)"))
        connection.execute(text("INSERT INTO seed_numbers VALUES (:n)"), [{"n": n} for n in range(40)])
        connection.execute(text("CREATE TABLE seed_labels (kind TEXT, label TEXT)"))
        kinds = [{"k": kind, "l": label} for kind in ("raw", "corrected") for label in LABELS]
        connection.execute(text("INSERT INTO seed_labels VALUES (:k, :l)"), kinds)
        rows = [{"night": name_of(n)} for n in range(nights)]
        columns = "config, night, started, finished, judge, judge_version, status"
        values = "'c1', :night, 's', 'f', 'classifier', 'v1', 'pass'"
        connection.execute(text(f"INSERT INTO empathy_nights ({columns}) VALUES ({values})"), rows)
        for statement in SEED.strip().split(";\n"):
            connection.execute(text(statement.rstrip(";")))
    engine.dispose()


def test_a_night_is_added_in_less_than_a_second_to_a_thousand(url: str) -> None:
    with open_history(url):
        pass
    seed(url, 1000)
    took = []
    for number in range(1000, 1003):
        record = make_night(number, models=20, responses=160)
        started = perf_counter()
        with open_history(url) as history:
            assert history.add_night(record)
        took.append(perf_counter() - started)
    assert min(took) < 1.0, took
    with open_history(url) as history:
        series = history.all_series()
    assert len(series) == 20
    assert all(len(points) == 1003 for points in series.values())


def test_a_writer_waits_for_another(tmp_path: Path) -> None:
    """With SQLite one writes at a time; the second is not sent away."""
    path = tmp_path / "history.db"
    with open_history(path) as history:
        history.add_night(make_night())
        with history._transaction(writes=True):
            worker = start_worker(f"sqlite:///{path}", 1)
            assert worker.stdin is not None
            worker.stdin.write("x")
            worker.stdin.flush()
            with pytest.raises(subprocess.TimeoutExpired):
                worker.wait(timeout=1.5)
        assert worker.communicate(timeout=60)[0].split() == ["3", "1"]


# The command.


def export(*arguments: object) -> Result:
    return CliRunner().invoke(cli.main, ["history", "export", *map(str, arguments)])


def test_the_command_writes_to_a_file_or_to_its_output(url: str, tmp_path: Path) -> None:
    with open_history(url) as history:
        history.add_night(make_night())
    done = export("--history", url)
    assert done.exit_code == 0, done.output
    assert [json.loads(line)["model"] for line in done.stdout.splitlines()] == ["model-0", "model-1"]
    table = export("--history", url, "--format", "csv", "--kind", "gates", "--last", 1)
    assert table.stdout.splitlines()[0] == "night,config,gate,model,subject,outcome,value,limit,sentence"
    out = tmp_path / "new" / "nights.csv"
    done = export("--history", url, "--out", out)
    assert (done.exit_code, done.stdout) == (0, f"2 rows  {out}\n")
    assert out.read_text().startswith("night,config,model,")


def test_the_command_knows_every_kind_and_refuses_what_is_not_there(tmp_path: Path) -> None:
    assert f"[{'|'.join(KINDS)}]" in export("--help").output
    done = export("--history", tmp_path / "none.db")
    assert done.exit_code == 2
    assert "no such history" in done.stderr
    done = export("--history", "postgresql+psycopg://me:not-to-be-seen@127.0.0.1:1/none")
    assert done.exit_code == 5
    assert PASSWORD not in done.output
