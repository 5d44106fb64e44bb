"""Targets for the files we write ourselves, which a power cut or a person may have changed since."""

import json
import shutil
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from door import EXCHANGE, scratch, written

from data.errors import UserError
from data.records import LABELS


def sealed(data: bytes, name: str, seal: str, **canonical: Any) -> Path:
    """The bytes as a file whose digest fits, if they can bear one: so readers look further than that."""
    with suppress(ValueError, RecursionError):
        row = json.loads(data)
        if isinstance(row, dict):
            version = row.pop("format", None) if seal == "digest" else None
            row.pop(seal, None)
            row[seal] = sha256(json.dumps(row, sort_keys=True, **canonical).encode()).hexdigest()
            data = json.dumps(row if version is None else row | {"format": version}).encode()
    return written(data, name)


def read_calibration(data: bytes) -> None:
    from calibration.artifact import read_calibration

    written(data, "plain-calibration.json")
    for path in (
        scratch() / "plain-calibration.json",
        sealed(data, "calibration.json", "digest", ensure_ascii=False, separators=(",", ":")),
    ):
        with suppress(UserError):
            read_calibration(path)


def read_program(data: bytes) -> None:
    from data.rubric import read_rubric
    from judge.llm.program import make_form, read_program

    rubric = read_rubric("crowd")
    program = read_program(sealed(data, "program.json", "sha256"), rubric, "direct")
    make_form(program, rubric)


def read_card(data: bytes) -> None:
    from judge.classifier.judge import check_files, read_card

    path = written(data, "judge/card.json")
    check_files(path.parent, read_card(path.parent)["files"])


def read_run(data: bytes) -> None:
    """A whole run's folder in which one file was spoilt, each in turn."""
    from data.judgments import read_judged

    whole = {"manifest.json": b"{}", "summary.json": b"{}", "judgments.jsonl": b""}
    for spoilt in whole:
        for name, content in (whole | {spoilt: data}).items():
            written(content, f"run/{name}")
        with suppress(UserError):
            read_judged(scratch() / "run", scale=LABELS)


def take_up_run(data: bytes) -> None:
    from data.runs import ScorePlan, open_run, read_manifest

    folder = scratch() / "broken-run"
    shutil.rmtree(folder, ignore_errors=True)
    plan = ScorePlan(judge="j", version="1", rubric="r", input="i")
    with open_run(folder, plan):
        pass
    written(data, "broken-run/journal.jsonl")
    with open_run(folder, plan) as run:
        run.is_judged(0, EXCHANGE)
        run.write_judgments()
    written(data, "broken-run/manifest.json")
    with suppress(UserError):
        read_manifest(folder, plan)
    written(data, "broken-run/plan.json")
    with open_run(folder, plan):
        pass


def read_batch(data: bytes) -> None:
    from judge.llm.batch import read_state

    path = written(data, "batch/batch.json")
    state = read_state(path.parent)
    assert state is not None
    assert all(part.requests >= 0 for part in state.parts)


def read_history(data: bytes) -> None:
    from nightly.history import KINDS, open_history

    for old in scratch().glob("nights.sqlite*"):
        old.unlink()
    with open_history(written(data, "nights.sqlite"), must_exist=True) as history:
        for kind in KINDS:
            list(history.rows(kind))
        for night in history.nights(last=1):
            history.night(night.config, night.night)
