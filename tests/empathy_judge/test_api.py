"""The Python interface gives the figures of the commands, for paths, frames and rows."""

import ast
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from own_project import make_project
from repository import ROOT, SAMPLES

import empathy_judge as ej
from empathy_judge.commands import main as cli

RESPONSES, RATINGS = Path("responses.jsonl"), SAMPLES / "ratings.jsonl"
LINES = (SAMPLES / RESPONSES).read_text(encoding="utf-8").splitlines()[:36]  # 12 prompts, three models
ROWS = [json.loads(line) for line in LINES]
RATED = 24  # of them
RATED_MODELS = [{"rater": f"r{i % 3}", "rating": 1 + i % 3, "model": f"m{i % 2}"} for i in range(12)]
LONG, SHORT = "word " * 60, "word " * 3  # the judge `length` prefers the longer


@pytest.fixture(autouse=True)
def in_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    RESPONSES.write_text("\n".join(LINES), encoding="utf-8")


def made_rows(text: str, count: int = 12) -> list[dict[str, Any]]:
    return [{"prompt": f"Prompt {number}", "response": f"{text} {number}"} for number in range(count)]


def test_a_path_and_rows_give_the_same_models() -> None:
    run = ej.score(RESPONSES, judge="length")
    summary = json.loads((run.folder / "summary.json").read_text(encoding="utf-8"))
    assert [model.model for model in run.models] == [row["model"] for row in summary["models"]]
    assert [row["good"] for row in run.rows] == [row["shares"]["Good"]["value"] for row in summary["models"]]
    again = ej.score(iter(ROWS), judge="length")
    assert again.models == run.models and again.judgments() == run.judgments()
    assert [row["id"] for row in run.judgments()] == [row["id"] for row in ROWS]
    sums = [row["bad"] + row["okay"] + row["good"] for row in run.judgments()]
    assert sums == pytest.approx([1] * len(ROWS), abs=1e-5)
    assert run.models[0].model in repr(run)
    shown = ej.score([{**row, "model": "<b>"} for row in ROWS], judge="length")._repr_html_()
    assert "&lt;b&gt;" in shown and "<b>" not in shown


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_are_read_and_given_back(library: str) -> None:
    frames = pytest.importorskip(library)
    rows = [{**row, "emotion": None} if place % 2 else row for place, row in enumerate(ROWS)]
    frame = frames.DataFrame(rows)
    if library == "pandas":
        frame.index += 100
    run = ej.score(frame, judge="length")
    assert run.models == ej.score(ROWS, judge="length").models
    assert type(run.frame) is type(frame) and [*run.frame["id"]] == [*frame["id"]]
    assert [*run.frame["good"]] == pytest.approx([row["good"] for row in run.judgments()])
    if library == "pandas":
        assert run.frame.index.equals(frame.index)
        with pytest.raises(TypeError, match="not Series"):
            ej.score(frame["response"])


def test_compare_takes_runs_files_and_rows() -> None:
    Path("short.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made_rows(SHORT)))
    found = ej.compare(made_rows(LONG), "short.jsonl", judge="length")
    assert {(row["model"], row["other"]) for row in found.rows} == {("replies-1", "short")}
    assert found.rows[0]["difference"] > 0
    judged = ej.compare(ej.score(RESPONSES, judge="length"), ratings=RATINGS, baseline="demo-plain")
    others = {("demo-warm", "demo-plain"), ("demo-curt", "demo-plain")}
    assert {(row["model"], row["other"]) for row in judged.rows} == others
    assert sum(model["ratings"] for model in judged.data["models"]) == RATED


def test_calibrate_compares_judges_and_saves_the_report() -> None:
    ratings = [json.loads(line) for line in RATINGS.read_text(encoding="utf-8").splitlines()]
    found = ej.calibrate(ROWS, ratings, judges=["length", "majority"])
    judges = {row["judge"]: row for row in found.rows if row["kind"] == "judge"}
    assert judges.keys() == {"length", "majority"}
    assert judges["majority"]["agreement"] == pytest.approx(0)
    assert found.data["data"]["ratings"] == RATED
    assert found.folder is not None and (found.folder / "report.html").exists()
    corrected = ej.score(ROWS, judge="length", calibration=found.folder / "calibration.json")
    assert corrected.data["calibration"]


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda: ej.score("missing.jsonl"), "missing.jsonl: no such file"),
        (lambda: ej.score(RESPONSES, judge="lenght"), "did you mean 'length'"),
        (lambda: ej.score(RESPONSES, limit=0), "limit: expected 1 or more"),
        (lambda: ej.score([{"prompt": "I won!"}]), "response"),
        (lambda: ej.JudgeClient("lenght"), "did you mean 'length'"),
        (lambda: ej.JudgeClient("length").judge(" ", "Lovely!"), "prompt: missing or empty"),
        (lambda: ej.compare("missing.jsonl"), "missing.jsonl: no such file"),
        (lambda: ej.compare(RATED_MODELS, baseline="m0"), "table of ratings"),
        (lambda: ej.compare(RESPONSES, judge="length", baseline="nobody"), "nobody"),
        (lambda: ej.calibrate(RESPONSES, "missing.jsonl"), "missing.jsonl: no such file"),
    ],
)
def test_an_error_names_the_problem(call: Any, problem: str) -> None:
    with pytest.raises(ej.UserError, match=problem):
        call()


@pytest.mark.parametrize("data", [{"prompt": ["p"], "response": ["r"]}, [1, 2], 7])
def test_other_types_are_refused(data: Any) -> None:
    with pytest.raises(TypeError, match="expected a path, a DataFrame"):
        ej.score(data)


def test_a_notebook_without_widgets_gets_no_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert ej.score(ROWS, judge="length").models


def test_threads_that_score_the_same_replies_get_equal_results() -> None:
    with ThreadPoolExecutor(4) as pool:
        runs = [*pool.map(lambda _: ej.score(ROWS, judge="length"), range(4))]
    assert all(run.judgments() == runs[0].judgments() for run in runs)


def test_an_interrupted_call_resumes(monkeypatch: pytest.MonkeyPatch) -> None:
    def on_progress(done: int, total: int) -> None:
        if done == 7:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("empathy_judge.api.progress", lambda *_, **__: nullcontext(on_progress))
        ej.score(ROWS, judge="length", out="run")
    saved = Path("run/journal.jsonl").read_text(encoding="utf-8").splitlines()
    assert 7 <= len(saved) < len(ROWS)
    shown: list[int] = []
    with monkeypatch.context() as patched:
        count = nullcontext(lambda done, total: shown.append(done))
        patched.setattr("empathy_judge.api.progress", lambda *_, **__: count)
        run = ej.score(ROWS, judge="length", out="run")
    assert shown == [*range(len(saved) + 1, len(ROWS) + 1)], "old judgments do not count as speed"
    assert len(run.judgments()) == len(ROWS)
    assert set(saved) <= set(Path("run/judgments.jsonl").read_text(encoding="utf-8").splitlines())


def test_names_complete_and_the_version_is_that_of_the_command() -> None:
    assert set(ej.__all__) == set(dir(ej)) and all(hasattr(ej, name) for name in dir(ej))
    assert ej.__version__ == cli.__version__
    with pytest.raises(AttributeError):
        ej.scoer  # noqa: B018


SCRIPT = """
import json, logging, os, random, signal, sys, warnings
import data, judge, server, training
assert data.OWN and judge.OWN and server.OWN and training.OWN
import empathy_judge as ej

import numpy, pydantic, rich.console, scipy.stats  # whose import changes some of it

def state():
    root = logging.getLogger()
    return {
        "signals": [signal.getsignal(number) for number in sorted(signal.valid_signals())],
        "logs": [root.level, root.handlers[:], root.filters[:]],
        "warnings": warnings.filters[:],
        "environment": dict(os.environ),
        "seeds": [random.getstate(), numpy.random.get_state()[1].tolist()],
        "paths": sys.path[:],
    }

before = state()
run = ej.score(ROWS, judge=JUDGE)
after = state()
assert not (changed := {name for name in before if after[name] != before[name]}), changed
print(json.dumps(run.judgments()))
"""


def run_in(project: Path, code: str) -> Any:
    """Run a program of a project, whose packages come first, and return the JSON that it prints."""
    (project / "script.py").write_text(code, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(project), str(ROOT)])}
    command = [sys.executable, "script.py"]
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("judge", ["length", pytest.param("classifier", marks=pytest.mark.slow)])
def test_a_script_in_a_project_with_its_own_data_package_is_left_as_it_was(
    tmp_path: Path, judge: str
) -> None:
    """The script has no `__main__` guard, and changes nothing of the process."""
    rows = made_rows(LONG)
    code = SCRIPT.replace("ROWS", repr(rows)).replace("JUDGE", repr(judge))
    found = run_in(make_project(tmp_path / "project"), code)
    assert found == ej.score(rows, judge=judge).judgments()


def test_worker_processes_do_not_run_the_script_again(tmp_path: Path) -> None:
    code = (
        "import json\nfrom concurrent.futures import ProcessPoolExecutor\n"
        "from empathy_judge.judge.classifier.gpu_backend import WorkerContext\n"
        "with ProcessPoolExecutor(2, WorkerContext()) as pool:\n"
        "    print(json.dumps([*pool.map(abs, [-1, -2])]))"
    )
    assert run_in(make_project(tmp_path / "project"), code) == [1, 2]


@pytest.mark.slow
def test_a_wrong_argument_is_a_type_error_for_mypy(tmp_path: Path) -> None:
    subprocess.run(["make", "-s", "build/types"], cwd=ROOT, check=True)
    (tmp_path / "use.py").write_text(
        "import empathy_judge as ej\nimport pandas\n"
        "ej.score('a.jsonl', limit=3).models[0].model.upper()\nej.score(pandas.DataFrame())\n"
        "ej.score(3)\nej.score('a.jsonl', limti=3)\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "mypy", "--config-file", ROOT / "pyproject.toml", tmp_path / "use.py"]
    done = subprocess.run(command, cwd=ROOT / "build" / "types", capture_output=True, text=True, check=False)
    wrong = [line.split(":")[1] for line in done.stdout.splitlines() if "use.py" in line and "error:" in line]
    assert wrong == ["5", "6"], done.stdout + done.stderr


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Run the code of a cell; return the value of its last expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names) if last else None


@pytest.mark.parametrize("notebook", sorted((ROOT / "examples").glob("*.ipynb")), ids=lambda path: path.stem)
def test_the_notebooks_run(notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "examples").mkdir()
    samples = tmp_path / "data" / "samples"
    samples.mkdir(parents=True)
    shutil.copy(RATINGS, samples)
    RESPONSES.rename(samples / RESPONSES.name)
    monkeypatch.chdir(tmp_path / "examples")
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    names: dict[str, Any] = {}
    shown = [run_cell(source, names) for source in sources]
    assert sum(isinstance(value, ej.ResultTable) for value in shown) >= 4
    assert not any(cell.get("outputs") for cell in cells), "saved without outputs"
