"""Damaged files: cut short or with one bit changed, each is refused by name, or the result is the same."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from click.testing import Result
from command_line import run
from faults import seeds

from empathy_judge.data.rubric import read_rubric
from empathy_judge.data.tables import write_rows
from empathy_judge.judge.classifier.judge import ClassifierJudge
from empathy_judge.judge.llm.judge_prompt import make_form, write_prompt

JUDGE = "score replies.jsonl --judge judge.toml --out OUT"
AGAIN = "score replies.jsonl --judge length --calibration none --out run"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_responses: Callable[..., Path]) -> None:
    monkeypatch.chdir(tmp_path)
    write_responses(12).rename("replies.jsonl")


def run_line(words: str, out: str = "out") -> Result:
    return run(*words.replace("OUT", out).split())


def damage(whole: bytes, seed: int) -> bytes:
    """Cut the bytes short anywhere, or change one bit anywhere."""
    chance = Random(seed)
    at = chance.randrange(len(whole))
    if chance.random() < 0.4:
        return whole[:at]
    return whole[:at] + bytes([whole[at] ^ (1 << chance.randrange(8))]) + whole[at + 1 :]


def write_weights() -> None:
    shutil.copytree(ClassifierJudge.shipped, "weights")
    Path("judge.toml").write_text('kind = "classifier"\nweights = "weights"\n')


def write_calibration() -> None:
    rows = [json.loads(line) for line in Path("replies.jsonl").read_text().splitlines()]
    ratings = [{"id": row["id"], "rater": f"p{n}", "rating": 1 + n} for row in rows for n in range(3)]
    write_rows(Path("ratings.jsonl"), ratings)
    write_run()
    done = run_line("calibrate run ratings.jsonl --out fit")
    assert done.exit_code in (0, 3), done.output


def write_tuned() -> None:
    rubric = read_rubric("crowd")
    messages = make_form("analytic", rubric).template
    write_prompt(Path("tuned.json"), messages, mode="analytic", rubric=rubric, about={"calls": 3})
    Path("judge.toml").write_text(
        'kind = "prompted"\nmodel = "m"\nbase_url = "http://127.0.0.1:9/v1"\nprogram = "tuned.json"\n'
    )


def write_run() -> None:
    assert run_line(AGAIN).exit_code == 0


def write_tables() -> None:
    rows = [json.loads(line) for line in Path("replies.jsonl").read_text().splitlines()]
    for suffix in ("parquet", "csv"):
        write_rows(Path(f"rows.{suffix}"), rows)


# The file, who writes it, the command that reads it, the files that must be the same where it is taken, the
# tries, and what the message must name besides the file.
FITTED = "score replies.jsonl --judge length --calibration fit/calibration.json --out OUT"
TABLES = "score FILE --judge length --calibration none --out OUT"
CASES: dict[str, tuple[Callable[[], None], str, str, int, str]] = {
    "weights/model.onnx": (write_weights, JUDGE, "", 3, "again"),
    "weights/tokenizer.json": (write_weights, JUDGE, "", 3, "again"),
    "weights/card.json": (write_weights, JUDGE, "judgments.jsonl", 6, "again"),
    "fit/calibration.json": (write_calibration, FITTED, "judgments.jsonl", 20, "calibrat"),
    "tuned.json": (write_tuned, "doctor judge.toml --json", "", 20, ""),
    "run/plan.json": (write_run, AGAIN, "judgments.jsonl", 6, "delete"),
    "run/manifest.json": (write_run, AGAIN, "judgments.jsonl", 6, "delete"),
    "run/summary.json": (write_run, AGAIN, "judgments.jsonl", 6, "delete"),
    "rows.parquet": (write_tables, TABLES, "", 8, ""),
    "rows.csv": (write_tables, TABLES, "", 8, ""),
}


@pytest.mark.parametrize("name", CASES)
def test_a_damaged_file_is_refused_by_name_or_changes_nothing(name: str) -> None:
    write, command, same, tries, named = CASES[name]
    write()
    words = command.replace("FILE", name)
    assert run_line(words, "whole").exit_code in (0, 3, 5)
    path = Path(name)
    folder = path.parent if path.parts[0] == "run" else Path("whole")
    expected = (folder / same).read_bytes() if same else b""
    whole = path.read_bytes()
    for seed in seeds(tries):
        path.write_bytes(damage(whole, seed))
        result = run_line(words, f"run-{seed}")
        assert isinstance(result.exception, SystemExit | None), (seed, result.exception)
        if result.exit_code in (2, 4, 5):
            place = str(path.parent) if named else path.name
            assert place in result.output and named in result.output, (seed, result.output)
        elif same:
            out = folder if path.parts[0] == "run" else Path(f"run-{seed}")
            assert (out / same).read_bytes() == expected, seed
        path.write_bytes(whole)
    assert run_line(words, "whole").exit_code in (0, 3, 5), "the whole file is taken"
