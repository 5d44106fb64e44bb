"""The run folder: after any interruption, resuming it gives the same as an unbroken run."""

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from empathy_judge.data.errors import OperationalError, UserError
from empathy_judge.data.files import write_sealed, write_texts
from empathy_judge.data.readers.file_formats import BadRow
from empathy_judge.data.records import Exchange, judgment_of, unscored
from empathy_judge.data.runs import Run, RunPlan, find_manifest, open_run, read_manifest, read_object

PLAN = RunPlan(judge="test", version="1", rubric="r", input="i")
EXCHANGES = [
    Exchange(id=f"e{n}", prompt=f"p{n // 2}", response="hm " * (n + 1), model="m") for n in range(12)
]


class Crash(BaseException):
    """Stands for a kill: nothing in the product catches it."""


def judge(run: Run, exchanges: Iterable[Exchange]) -> list[str]:
    """Judge what the run does not hold, backwards in pairs as two threads might; returns whom it asked."""
    left = [(n, item) for n, item in enumerate(exchanges) if not run.is_judged(n, item)]
    for position, exchange in sorted(left, key=lambda pair: (pair[0] // 2, -pair[0])):
        run.keep(position, judgment_of(exchange, {"Bad": 0.1, "Okay": 0.2, "Good": 0.7}))
    return [exchange.id for _, exchange in left]


def complete(folder: Path, exchanges: Iterable[Exchange] = EXCHANGES) -> list[str]:
    with open_run(folder, PLAN) as run:
        asked = judge(run, exchanges)
        run.write_judgments()
        run.finish(summary={"n": len(run.judgments.read_bytes())}, manifest={"seed": 0})
    return asked


def contents(folder: Path) -> dict[str, bytes]:
    return {item.name: item.read_bytes() for item in folder.iterdir() if item.name != "lock"}


def test_a_run_is_whole_once_its_manifest_is_there(tmp_path: Path) -> None:
    assert complete(tmp_path / "run") == [item.id for item in EXCHANGES]
    files = {"plan.json", "judgments.jsonl", "summary.json", "manifest.json"}
    assert set(contents(tmp_path / "run")) == files
    lines = (tmp_path / "run/judgments.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines] == [item.id for item in EXCHANGES]
    assert find_manifest(tmp_path / "run", PLAN) == read_manifest(tmp_path / "run") == {"seed": 0}
    assert read_object(tmp_path / "run/summary.json")["n"] > 0


def test_a_journal_cut_anywhere_is_taken_up(tmp_path: Path) -> None:
    complete(tmp_path / "whole")
    with pytest.raises(Crash), open_run(tmp_path / "cut", PLAN) as run:
        judge(run, EXCHANGES)
        raise Crash
    journal = tmp_path / "cut/journal.jsonl"
    full = journal.read_bytes()
    for length in range(0, len(full), 61):
        journal.write_bytes(full[:length])
        (tmp_path / "cut/manifest.json").unlink(missing_ok=True)
        asked = complete(tmp_path / "cut")
        assert len(asked) == len(EXCHANGES) - full[:length].count(b"\n"), "nothing is asked twice"
        assert contents(tmp_path / "cut") == contents(tmp_path / "whole")


def test_a_spoilt_line_is_asked_again(tmp_path: Path) -> None:
    complete(tmp_path / "whole")
    complete(tmp_path / "run")
    (tmp_path / "run/manifest.json").unlink()
    lines = (tmp_path / "run/judgments.jsonl").read_bytes().splitlines(keepends=True)
    lines[3] = b"\0" * (len(lines[3]) - 1) + b"\n"
    (tmp_path / "run/judgments.jsonl").write_bytes(b"".join(lines))
    assert complete(tmp_path / "run") == ["e3"]
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def test_another_content_under_the_same_id_is_asked(tmp_path: Path) -> None:
    complete(tmp_path)
    changed = [replace(EXCHANGES[0], response="other"), *EXCHANGES[1:]]
    assert complete(tmp_path, changed) == ["e0"]


def test_a_run_of_another_format_is_refused_with_the_command(tmp_path: Path) -> None:
    complete(tmp_path)
    content = json.loads((tmp_path / "manifest.json").read_text())
    del content["digest"]
    write_sealed(tmp_path / "manifest.json", content | {"format": 1})
    with pytest.raises(UserError, match=r"format 1; this version reads 2; .*run the command that made it"):
        read_manifest(tmp_path)


def test_unscored_is_saved_and_not_asked_again(tmp_path: Path) -> None:
    with open_run(tmp_path, PLAN) as run:
        run.keep(0, unscored(EXCHANGES[0], "refused: no"))
    with open_run(tmp_path, PLAN) as run:
        assert run.is_judged(0, EXCHANGES[0])
        run.write_judgments()
        assert json.loads(run.judgments.read_text())["unscored"] == "refused: no"


@pytest.mark.parametrize("key", ["judge", "version", "rubric", "input", "calibration"])
def test_another_plan_is_refused_by_name(tmp_path: Path, key: str) -> None:
    complete(tmp_path)
    before = contents(tmp_path)
    for look in (lambda *words: open_run(*words).__enter__(), find_manifest):
        with pytest.raises(UserError, match=rf"\({key} .* instead of other\); .*--out") as refused:
            look(tmp_path, RunPlan(PLAN, **{key: "other"}))
        assert refused.value.exit_code == 2
    assert contents(tmp_path) == before


def test_a_second_process_is_told_to_wait(tmp_path: Path) -> None:
    with open_run(tmp_path, PLAN), pytest.raises(OperationalError, match=f"process {os.getpid()} is using"):
        open_run(tmp_path, PLAN).__enter__()
    complete(tmp_path)


def test_a_folder_of_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(UserError, match="not a run folder"):
        complete(tmp_path)
    for folder in (tmp_path / "thesis.txt", tmp_path / "thesis.txt" / "below"):
        with pytest.raises(UserError, match="is a file"):
            complete(folder)


def test_a_row_set_aside_is_saved_whole_and_counted_once(tmp_path: Path) -> None:
    raw = {"prompt": "\ud800", "when": b"x"}
    for _ in range(2):  # a resumed run reads the input from its start
        with open_run(tmp_path, PLAN) as run:
            run.set_aside(BadRow(Path("r.jsonl"), 3, "response: missing", raw))
            assert run.set_aside_count == 1
    saved = json.loads((tmp_path / "set_aside.jsonl").read_text())
    assert saved == {"line": 3, "problem": "response: missing", "raw": raw | {"when": "b'x'"}}


@pytest.mark.parametrize(
    "name", ["lock", "journal.jsonl", "set_aside.jsonl", "judgments.jsonl", ".judgments.jsonl.partial"]
)
def test_a_link_put_into_a_run_folder_is_not_written_through(tmp_path: Path, name: str) -> None:
    folder, other = tmp_path / "run", tmp_path / "other.txt"
    with open_run(folder, PLAN):
        pass  # a run that was begun
    other.write_text("of somebody else")
    (folder / name).unlink(missing_ok=True)
    if name == "judgments.jsonl":
        (folder / "journal.jsonl").unlink()  # it would become the journal
    is_met_later = name.startswith((".", "set"))
    if not is_met_later:
        (folder / name).symlink_to(other)
    with pytest.raises(OperationalError, match="is a symbolic link"), open_run(folder, PLAN) as run:
        if is_met_later:
            (folder / name).symlink_to(other)
        run.set_aside(BadRow(Path("r.jsonl"), 3, "response: missing", {}))
        judge(run, EXCHANGES)
        run.write_judgments()
    assert other.read_text() == "of somebody else"


@pytest.mark.parametrize("name", ["index.html", ".index.html.partial"])
def test_a_link_put_into_a_site_is_not_written_through(tmp_path: Path, name: str) -> None:
    folder, other = tmp_path / "site", tmp_path / "other.txt"
    folder.mkdir()
    other.write_text("of somebody else")
    (folder / name).symlink_to(other)
    with suppress(OperationalError):
        write_texts({"index.html": "<p>ours"}, folder)
        assert not (folder / "index.html").is_symlink(), "the link itself is replaced"
    assert other.read_text() == "of somebody else"
