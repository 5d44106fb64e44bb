"""Files cut short or with a bit turned over, and runs of another version: refused in words, or taken up."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from random import Random
from typing import Any

import pytest
from batch_servers import BatchServer
from click.testing import CliRunner, Result
from faults import seeds, tally
from servers import ScriptedServer, answer

import cli
from calibration.artifact import Calibration, write_calibration
from data.errors import UserError
from data.records import Judgment
from data.rubric import read_rubric
from data.tables import read_judgments, write_rows
from judge.base import load_judge
from judge.classifier.judge import ClassifierJudge
from judge.llm.program import default_program, read_program, write_program

Write = Callable[..., Path]
ABOUT = {"name": "tiny", "summary": "", "licence": "", "data": "", "limits": [], "caveat": "not measured"}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def score(*arguments: object) -> Result:
    return CliRunner().invoke(cli.main, ["score", *map(str, arguments)], terminal_width=100)


def assert_said(done: Result, *words: object) -> None:
    """In words that name the place and the way out, and without a traceback."""
    assert isinstance(done.exception, SystemExit), done.output
    assert done.exit_code in (2, 4, 5), done.output
    for word in words:
        assert str(word) in done.stderr, done.stderr


def spoil(whole: bytes, seed: int) -> bytes:
    """Cut short at any byte, or with any one bit turned over."""
    chance = Random(seed)
    if chance.random() < 0.4:
        return whole[: chance.randrange(len(whole))]
    at = chance.randrange(len(whole))
    return whole[:at] + bytes([whole[at] ^ (1 << chance.randrange(8))]) + whole[at + 1 :]


# Weights, calibrations, programs


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json"])
def test_spoilt_weights_are_refused_by_name(name: str, tmp_path: Path, write_responses: Write) -> None:
    folder = tmp_path / "weights"
    folder.mkdir()
    for path in ClassifierJudge.shipped.iterdir():
        shutil.copy(path, folder)
    whole = (folder / name).read_bytes()
    Path("judge.toml").write_text(f'kind = "classifier"\nweights = "{folder}"\n')
    for seed in seeds(3):
        (folder / name).write_bytes(spoil(whole, seed))
        tally("weights", "damaged")
        done = score(write_responses(3), "--judge", "judge.toml", "--out", "run")
        assert_said(done, folder / name, "damaged or changed", "install again")


def test_a_spoilt_card_is_refused_or_changes_no_judgment(tmp_path: Path, write_responses: Write) -> None:
    folder = tmp_path / "weights"
    folder.mkdir()
    for path in ClassifierJudge.shipped.iterdir():
        shutil.copy(path, folder)
    whole = (folder / "card.json").read_bytes()
    Path("judge.toml").write_text(f'kind = "classifier"\nweights = "{folder}"\n')
    path = write_responses(2)
    assert score(path, "--judge", "judge.toml", "--out", "whole").exit_code == 0
    for seed in seeds(12):
        (folder / "card.json").write_bytes(spoil(whole, seed))
        tally("card", "damaged")
        done = score(path, "--judge", "judge.toml", "--out", f"run{seed}")
        if done.exit_code == 0:
            assert (
                Path(f"run{seed}/judgments.jsonl").read_bytes() == Path("whole/judgments.jsonl").read_bytes()
            )
        else:
            assert_said(done, folder, "again")


def test_a_spoilt_calibration_is_refused_or_the_same(write_responses: Write) -> None:
    judge = load_judge("length")
    made = Calibration(
        judge=judge.name,
        version=judge.version,
        rubric=judge.rubric.digest,
        ratings="r",
        created=date.today(),
        days=90,
        count=10,
    )
    path = Path("calibration.json")
    write_calibration(path, made)
    whole, responses = path.read_bytes(), write_responses(3)
    for seed in seeds(40):
        spoilt = spoil(whole, seed)
        path.write_bytes(spoilt)
        tally("calibration", "damaged")
        done = score(responses, "--judge", "length", "--calibration", path, "--out", f"run{seed}")
        assert_said(done, path, "calibrat")
        # White space is all that may change: JSON has it anywhere, and it means nothing.
        if "does not fit" in done.stderr:
            assert json.loads(spoilt) == json.loads(whole)


def test_a_spoilt_program_is_refused_or_the_same() -> None:
    rubric = read_rubric("crowd")
    program = replace(default_program(rubric, "direct"), demos=({"exchange": "a", "label": "Good"},))
    path = Path("tuned.json")
    write_program(path, program, rubric=rubric, about={"calls": 3})
    whole, first = path.read_bytes(), read_program(path, rubric, "direct")
    for seed in seeds(40):
        path.write_bytes(spoil(whole, seed))
        tally("program", "damaged")
        try:
            assert read_program(path, rubric, "direct") == first
        except UserError as error:
            assert str(path) in str(error)
            assert "tune it again" in str(error) or "optimize" in str(error)


def test_a_network_cut_short_is_not_taken_up(train: Callable[..., Result], tmp_path: Path) -> None:
    out = tmp_path / "judge"
    assert train("--out", out).exit_code == 0
    network = out / "network-0.safetensors"
    network.write_bytes(network.read_bytes()[:-20])
    assert_said(train("--out", out), network, "delete it and train again")
    network.unlink()
    assert_said(train("--out", out), network, "train again")


# Tables


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_a_table_cut_short_is_refused_or_read_as_far_as_it_goes(suffix: str, write_responses: Write) -> None:
    path = Path(f"rows{suffix}")
    rows = [json.loads(line) for line in write_responses(30).read_text().splitlines()]
    write_rows(path, [row | {"response": f'He said: "{row["response"]}",\nand left'} for row in rows])
    whole = path.read_bytes()
    for seed in seeds(8):
        path.write_bytes(whole[: Random(seed).randrange(1, len(whole))])
        tally(f"table {suffix}", "truncated")
        done = score(path, "--judge", "length", "--out", f"run{seed}")
        if done.exit_code == 0:
            assert suffix != ".parquet"
            assert len(list(read_judgments(Path(f"run{seed}/judgments.jsonl")))) <= 30
        else:
            assert_said(done, path.name)


# Batches


def test_requests_and_answers_of_a_batch_that_are_spoilt_on_disk(write_responses: Write) -> None:
    with BatchServer() as server:
        Path("judge.toml").write_text(f'kind = "decision"\nmodel = "x"\nbase_url = "{server.base_url}"\n')
        arguments = (write_responses(12), "--judge", "judge.toml", "--batch", "--out", "run")
        server.fail = {"upload": [400]}
        assert score(*arguments).exit_code == 5
        requests = Path("run/batch-1.jsonl")
        requests.write_bytes(requests.read_bytes()[:-30])
        tally("batch", "damaged")
        assert_said(score(*arguments), requests, "damaged", "run the command again")
        assert score(*arguments).exit_code == 3, "written anew and submitted"
        server.is_done = True
        assert score(*arguments).exit_code == 0
        assert not any(item.unscored for item in read_judgments(Path("run/judgments.jsonl")))
        Path("run/batch.json").write_text('{"format": 1, "par')
        Path("run/manifest.json").unlink()
        assert_said(score(*arguments), "run/batch.json: damaged", "another folder with --out")


# Runs of another version


def older(folder: Path, change: Callable[[dict[str, Any]], object], *names: str) -> None:
    for name in names:
        rows = [json.loads(line) for line in (folder / name).read_text().splitlines()]
        for row in rows:
            change(row)
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def change_object(path: Path, **changes: Any) -> None:
    row = json.loads(path.read_text())
    path.write_text(json.dumps({key: value for key, value in {**row, **changes}.items() if value != "-"}))


def test_runs_of_other_versions_are_refused_or_taken_up(write_responses: Write) -> None:
    with ScriptedServer(answer) as server:
        Path("judge.toml").write_text(f'kind = "decision"\nmodel = "x"\nbase_url = "{server.base_url}"\n')
        arguments = (write_responses(12), "--judge", "judge.toml", "--out", "run")
        assert score(*arguments).exit_code == 0
        whole, calls = Path("run/judgments.jsonl").read_bytes(), len(server.calls)
        run = Path("run")

        def again() -> int:
            """How many calls the same command takes, once it has ended well with the same judgments."""
            before = len(server.calls)
            tally("older run", "older version")
            done = score(*arguments)
            assert done.exit_code == 0, done.output
            assert Path("run/judgments.jsonl").read_bytes() == whole
            assert {item.name for item in run.iterdir()} == {
                *("judgments.jsonl", "summary.json", "manifest.json", "plan.json", "lock")
            }
            return len(server.calls) - before

        change_object(run / "plan.json", calibration="-")  # a key that came later, and is empty here
        change_object(run / "plan.json", flavour="vanilla")  # one that went
        assert again() == 0
        for lost in ("counts", "limit", "seed"):
            change_object(run / "manifest.json", **{lost: "-"})
            assert again() == 0, lost
        for name in ("manifest.json", "summary.json"):
            (run / name).unlink()
            assert again() == 0, name
        (run / "judgments.jsonl").rename(run / "journal.jsonl")  # under way, as a kill left it
        older(run, lambda row: row.update(colour="blue"), "journal.jsonl")
        (run / "manifest.json").unlink()
        assert score(*arguments).exit_code == 0
        assert len(server.calls) == calls, "unknown keys do no harm"
        older(run, lambda row: row.pop("prompt_digest"), "judgments.jsonl")
        (run / "manifest.json").unlink()
        assert again() == 12, "without what a judgment needs it is asked for again"


@pytest.mark.parametrize("name", ["plan.json", "manifest.json", "summary.json", "judgments.jsonl"])
def test_spoilt_files_of_a_run_are_named(name: str, write_responses: Write) -> None:
    arguments = (write_responses(12), "--judge", "length", "--out", "run")
    assert score(*arguments).exit_code == 0
    path = Path("run", name)
    whole = path.read_bytes()
    known = [item.id for item in read_judgments(Path("run/judgments.jsonl"))]
    for seed in seeds(6):
        path.write_bytes(whole[: Random(seed).randrange(len(whole) - 2)])
        tally("run", "truncated")
        done = score(*arguments, "--explain", "r1")
        if done.exit_code:
            assert_said(done, "run", "delete")
        else:
            found: list[Judgment] = list(read_judgments(Path("run/judgments.jsonl")))
            assert name == "judgments.jsonl" and [item.id for item in found] == known[: len(found)]
    path.write_bytes(whole)
    assert score(*arguments).exit_code == 0


def test_answers_of_another_version_are_taken_up(write_responses: Write) -> None:
    with ScriptedServer(answer) as server:
        words = [
            "respond",
            str(write_responses(6)),
            "--model",
            "m",
            "--base-url",
            server.base_url,
            "--out",
            "run",
        ]
        assert CliRunner().invoke(cli.main, words).exit_code == 0
        whole = Path("run/responses.jsonl").read_bytes()
        for lost in ("limit", "responses"):
            change_object(Path("run/manifest.json"), **{lost: "-"})
            tally("older answers", "older version")
            assert CliRunner().invoke(cli.main, words).exit_code == 0
        assert len(server.calls) == 6
        assert Path("run/responses.jsonl").read_bytes() == whole
