"""What a history must do, whatever database it lies in; each test class says where by its fixture `url`."""

import csv
import signal
from collections import Counter
from dataclasses import replace
from math import nan

import pytest
from click.testing import Result
from command_line import run
from histories import make_night, name_of, start_worker
from sqlalchemy import create_engine, text

from empathy_judge.calibration.estimate import UNDEFINED
from empathy_judge.data.errors import UserError
from empathy_judge.nightly.history import KINDS, History, open_history
from empathy_judge.nightly.schema import AnchorResult, EmotionResult, JudgedResponse, ModelResult


def export(*arguments: object) -> Result:
    return run("history", "export", *arguments)


def nights_with_judgments(history: History, config: str | None = None) -> list[str]:
    return sorted({row["night"] for row in history.rows("judgments", config=config)})


class HistoryContract:
    """Adding nights and getting them back."""

    def test_a_night_is_added_once_whatever_it_says_the_second_time(self, url: str) -> None:
        record = make_night()
        with open_history(url) as history:
            assert history.add_night(record)
            assert history.night("c1", "2020-01-01") is None
            (night,) = history.nights()
            assert (night.status, night.judge_moved) == ("pass", "by a little")
        with open_history(url) as history:  # in another process's time
            assert not history.add_night(record)
            assert not history.add_night(replace(record, status="regression", models=()))
            assert history.night("c1", record.night) == record
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

    def test_a_night_that_cannot_be_added_leaves_nothing(self, url: str) -> None:
        record = make_night()
        twice = replace(record, gates=record.gates * 2)
        with open_history(url) as history:
            with pytest.raises(Exception, match=r"(?i)unique"):
                history.add_night(twice)
            assert history.nights() == []
            assert history.all_series() == {}
            assert history.add_night(record)

    def test_series_are_in_the_order_of_the_nights_not_of_adding(self, url: str) -> None:
        with open_history(url) as history:
            for number in (3, 1, 2):
                history.add_night(make_night(number))
            history.add_night(make_night(9, config="other", models=1))
            series = history.all_series()["model-1"]
            assert [point.night.night for point in series] == [name_of(n) for n in (1, 2, 3)]
            newest = history.all_series(config="c1", last=2)["model-0"]
            assert [point.night.night for point in newest] == [name_of(2), name_of(3)]
            counts = {model: len(points) for model, points in history.all_series().items()}
            assert counts == {"model-0": 4, "model-1": 3}
            assert series[0].result == make_night(1).models[1]
            told = [(night.night, gate.gate) for night, gate in history.gates_not_fine(config="c1", last=2)]
            assert told == [(name_of(2), "good_share_drop"), (name_of(3), "good_share_drop")]
            assert [len(items) for _, items in history.results(AnchorResult)] == [4, 4, 4, 4]
            emotions = [item for _, items in history.results(EmotionResult, config="c1") for item in items]
            assert sum(item.good for item in emotions) == 3 * 64 * 2.5

    def test_judgments_are_kept_of_the_newest_nights_and_the_pinned(self, url: str) -> None:
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

    def test_what_no_database_holds_is_kept_as_near_as_can_be(self, url: str) -> None:
        strange = JudgedResponse(
            model="m\x00", id="1", prompt="half \ud83d", response="'; DROP TABLE--", score=nan
        )
        record = replace(
            make_night(models=0, responses=0),
            emotions=(),
            judgments=(strange,),
            models=(ModelResult(model="模型 \U0001f600", n=0, raw={"Good": UNDEFINED}, cost=nan),),
            changes=(),
            failed={"half": "\ud83d"},
        )
        with open_history(url) as history:
            assert history.add_night(record)
            found = history.night("c1", record.night)
        assert found is not None
        (judged,) = found.judgments
        assert (judged.model, judged.prompt, judged.score) == ("m\ufffd", "half \ufffd", None)
        assert judged.response == "'; DROP TABLE--"
        (result,) = found.models
        assert (result.model, result.raw["Good"], result.cost) == ("模型 \U0001f600", UNDEFINED, None)
        assert found.failed == {"half": "\ufffd"}

    def test_a_history_of_another_version_is_not_touched(self, url: str) -> None:
        with open_history(url) as history:
            history.add_night(make_night())
        engine = create_engine(url)
        for version in (99, 2):
            with engine.begin() as connection:
                connection.execute(text(f"UPDATE empathy_schema SET version = {version}"))
            with pytest.raises(UserError, match=f"format {version}.*set another history"), open_history(url):
                pass
        engine.dispose()

    def test_rows_are_exported_flat(self, url: str) -> None:
        with open_history(url) as history:
            for number in range(2):
                history.add_night(make_night(number))
            rows = list(history.rows())
            found = [(row["night"], row["model"]) for row in rows[:3]]
            assert found == [(name_of(0), "model-0"), (name_of(0), "model-1"), (name_of(1), "model-0")]
            assert rows[0]["good_raw_value"] == 0.2
            assert rows[0]["good_corrected_low"] is None
            assert (rows[0]["unscored"], rows[0]["reasons"]) == (2, {"timed out": 2})
            counts = {kind: len(list(history.rows(kind))) for kind in KINDS}
        numbers = {"results": 4, "changes": 4, "emotions": 128, "anchors": 8, "gates": 4, "judgments": 12}
        assert counts == numbers
        exported = export("--history", url, "--format", "csv", "--last", 1).stdout
        (first, _) = csv.DictReader(exported.splitlines())
        assert (first["night"], first["good_raw_value"], first["judge"]) == (name_of(1), "0.2", "classifier")


class ProcessContract:
    """The same night twice and different nights at once: processes of their own, as in life."""

    def test_processes_that_add_at_once_add_each_night_once(self, url: str) -> None:
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

    def test_a_killed_process_leaves_whole_nights_only(self, url: str) -> None:
        with open_history(url):
            pass
        for round_ in range(3):
            worker = start_worker(url, 10_000 * round_, "for-ever")
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
