"""Several processes give what one gives, byte for byte, whoever of them is killed and whenever."""

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic

import psutil
import pytest
from command_line import run, run_checked
from rows import make_rows, write_many, write_shards

from empathy_judge.data.errors import OperationalError
from empathy_judge.data.runs import OnProgress
from empathy_judge.judge.base import load_judge
from empathy_judge.judge.ray_engine import score_ray, start_ray
from empathy_judge.judge.scoring import ScoringRequest, SummarizedRun, score_file

FILES = ("judgments.jsonl", "summary.json", "plan.json")
pytestmark = pytest.mark.filterwarnings(r"ignore::DeprecationWarning:ray\..*")  # its own, of itself
Start = Callable[..., psutil.Popen]


@pytest.fixture(scope="module")
def ray() -> Iterator[None]:
    """One Ray for all these tests: starting it takes longer than they do."""
    with start_ray(2):
        yield


def score(
    path: Path,
    out: Path,
    judge: str = "length",
    *,
    workers: int = 0,
    on_progress: OnProgress = lambda done, total: None,
) -> SummarizedRun:
    """Score as the command does, in this process, or by `workers`."""
    by_ray = {"engine": partial(score_ray, workers=workers)} if workers else {}
    request = ScoringRequest(source=path, judge=load_judge(judge), out=out, calibration="none", **by_ray)
    return score_file(request, on_progress=on_progress)


def assert_same(one: Path, other: Path, *more: str) -> None:
    for name in (*FILES, *more):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    manifests = [json.loads((run / "manifest.json").read_text()) for run in (one, other)]
    timed = {"wall_seconds": 0, "digest": ""}  # the digest covers the time
    assert manifests[0] | timed == manifests[1] | timed


@pytest.mark.usefixtures("ray")
def test_shards_of_every_kind_with_rows_that_cannot_be_read(tmp_path: Path) -> None:
    folder = write_shards(tmp_path / "night", {"a.jsonl": 150, "b.csv": 80, "c.parquet": 90}, with_ids=False)
    with (folder / "a.jsonl").open("a") as out:
        out.write('{"prompt": "alone"}\nno row\n')
        for row in make_rows(2, start=900):
            out.write(json.dumps({**row, "id": "b.csv:5"}) + "\n")  # twice, and once more in the next shard
    words = ["score", folder, "--judge", "length", "--skip-invalid", "--limit", "290", "-v", "--out"]
    for out, by in (("one", []), ("many", ["--engine", "ray", "--workers", "2"])):
        assert "290 judged in" in run_checked(*words, tmp_path / out, *by).stdout
    assert_same(tmp_path / "one", tmp_path / "many", "set_aside.jsonl")
    # The id of two models stays with the first, and the second's name makes it another one.
    assert (tmp_path / "one/set_aside.jsonl").read_text().count("\n") == 3


@pytest.mark.usefixtures("ray")
def test_a_worker_killed_midway_changes_nothing(tmp_path: Path) -> None:
    path, killed = write_many(tmp_path / "rows.jsonl", 6000), []
    score(path, tmp_path / "one")

    def kill(done: int, total: int) -> None:
        if done >= 500 and not killed:
            children = psutil.Process().children(recursive=True)
            killed.append(next(item for item in children if item.name().startswith("ray::Worker")))
            killed[0].kill()

    assert score(path, tmp_path / "many", workers=2, on_progress=kill).asked == 6000
    assert killed
    assert_same(tmp_path / "one", tmp_path / "many")


@pytest.mark.usefixtures("ray")
def test_what_was_judged_before_an_interrupt_is_not_judged_again(tmp_path: Path) -> None:
    path = write_many(tmp_path / "rows.jsonl", 2000)
    score(path, tmp_path / "one")

    def interrupt(done: int, total: int) -> None:
        if done == 700:  # in the middle of a slice
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        score(path, tmp_path / "many", workers=2, on_progress=interrupt)
    kept = (tmp_path / "many/journal.jsonl").read_bytes().count(b"\n")
    assert 700 < kept < 2000, "the whole of the slice that had come"
    assert score(path, tmp_path / "many").asked == 2000 - kept, "by one process now"
    assert_same(tmp_path / "one", tmp_path / "many")


@pytest.mark.usefixtures("ray")
def test_what_is_wrong_in_a_worker_is_said_as_it_would_be_here(tmp_path: Path) -> None:
    """The first call fails in the worker, and in no other place."""
    judge = tmp_path / "judge.toml"
    judge.write_text('kind = "decision"\nmodel = "m"\nbase_url = "http://127.0.0.1:9/v1"\nretries = 0\n')
    path = write_many(tmp_path / "rows.jsonl", 20)
    with pytest.raises(OperationalError):
        score(path, tmp_path / "run", str(judge), workers=1)


@pytest.mark.usefixtures("ray")
def test_ray_listens_on_the_loopback_alone() -> None:
    listening = []
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):  # an idle worker may have left meanwhile
            found = process.net_connections(kind="inet")
            listening += [item.laddr.ip for item in found if item.status == psutil.CONN_LISTEN]
    assert listening
    assert {ip.removeprefix("::ffff:") for ip in listening} == {"127.0.0.1"}


@pytest.mark.parametrize("options", ["--batch", "--max-cost 1"])
def test_options_that_do_not_go_together_are_refused(tmp_path: Path, options: str) -> None:
    (tmp_path / "judge.toml").write_text('kind = "decision"\nmodel = "m"\n')
    words = ("score", write_many(tmp_path / "rows.jsonl", 2), "--judge", tmp_path / "judge.toml")
    run(*words, "--engine", "ray", *options.split(), code=2)


@pytest.mark.campaign
def test_a_driver_killed_midway_goes_on_and_leaves_no_process(tmp_path: Path, start: Start) -> None:
    words = ("score", write_many(tmp_path / "rows.jsonl", 40_000), "--judge", "length", "--out")
    assert start(*words, "one").wait(timeout=300) == 0
    arguments = (*words, "many", "--engine", "ray", "--workers", 2, "-v")
    process, journal = start(*arguments), tmp_path / "many/journal.jsonl"
    deadline = monotonic() + 300
    while not journal.exists() or journal.stat().st_size < 2_000_000:
        assert monotonic() < deadline and process.poll() is None, "the run does not get on"
    left = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    assert process.wait(timeout=60) == -signal.SIGKILL
    kept = journal.read_bytes().count(b"\n")
    assert 0 < kept < 40_000
    again = start(*arguments)
    output, _ = again.communicate(timeout=300)
    assert again.returncode == 0
    assert f"{40_000 - kept:,} judged in" in output
    assert_same(tmp_path / "one", tmp_path / "many")
    gone, alive = psutil.wait_procs(left, timeout=120)  # its agents look for their parent now and then
    assert gone and not alive, "Ray's processes end with the driver"
