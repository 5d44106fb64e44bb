"""Every plug-in with the tool it is for, in an environment of its own, gives the figures of `score`."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from own_project import make_judge_environment, make_project
from repository import ROOT, SAMPLES, TESTS
from served import serving

from empathy_judge.data.records import Exchange
from empathy_judge.judge.base import load_judge
from empathy_judge.judge.llm.answer_prompts import write_messages

HERE = Path(__file__).parent
QUIET = {  # what tools would else tell their makers, or ask a hub
    "DEEPEVAL_TELEMETRY_OPT_OUT": "YES",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_GENAI_EVAL_MAX_WORKERS": "1",
    "HF_HUB_OFFLINE": "1",
    "PROMPTFOO_DISABLE_TELEMETRY": "1",
    "PROMPTFOO_DISABLE_UPDATE": "1",
    "PROMPTFOO_DISABLE_REMOTE_GENERATION": "true",
}
ScoredRows = dict[str, Any]
RunTool = Callable[..., "subprocess.CompletedProcess[str]"]


def python_of(tool: str) -> Path:
    """The Python of a tool's environment, or the reason why it is not tried."""
    path = ROOT / ".venv" / f"tool-{tool}" / "bin" / "python"
    if not path.exists():
        pytest.skip(f"no {tool} here: make plugins makes its environment")
    return path


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> ScoredRows:
    """Twelve replies and one that cannot be judged, and what `score` says of them."""
    folder = tmp_path_factory.mktemp("scored")
    lines = (SAMPLES / "responses.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if row["model"] == "demo-warm"][:13]
    rows[-1]["response"] = "0" * 40
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    command = [sys.executable, "cli.py", "score", str(path), "--out", str(folder / "run"), "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    (model,) = json.loads(done.stdout)["models"]
    judged = (folder / "run" / "judgments.jsonl").read_text(encoding="utf-8").splitlines()
    corrected = model["corrected"]["Good"]
    return {
        "path": path,
        "rows": rows,
        "judgments": list(map(json.loads, judged)),
        "good": [corrected["value"], corrected["low"], corrected["high"]],
        "own": model["shares"]["Good"]["value"],
    }


@pytest.fixture(scope="module")
def judge_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_judge_environment(tmp_path_factory.mktemp("judge") / "venv")


@pytest.fixture
def run_tool(tmp_path: Path, judge_python: Path) -> RunTool:
    """Runs a tool in a project that has its own `data`, off the network."""
    project = make_project(tmp_path / "project")
    log = tmp_path / "network.log"
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "EMPATHY"))},
        **QUIET,
        "HOME": str(tmp_path),
        "NETWORK_LOG": str(log),
        "PYTHONPATH": os.pathsep.join([str(TESTS / "support" / "no_network"), str(project)]),
        "EMPATHY_JUDGE_PYTHON": str(judge_python),
        "PROMPTFOO_CONFIG_DIR": str(tmp_path / "promptfoo"),
    }

    def run(*command: object, **variables: str) -> "subprocess.CompletedProcess[str]":
        words = list(map(str, command))
        done = subprocess.run(
            words, cwd=project, env=environment | variables, capture_output=True, text=True, check=False
        )
        assert not log.exists(), f"asked the network: {log.read_text(encoding='utf-8')}"
        return done

    return run


def last_line(done: "subprocess.CompletedProcess[str]") -> Any:
    """What a script of ours printed last."""
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def good_of(scored: ScoredRows, key: str) -> dict[str, float | None]:
    """The probability of Good of every reply, by a field of its row; None where it is unscored."""
    return {
        row[key]: (judgment["probabilities"] or {}).get("Good")
        for row, judgment in zip(scored["rows"], scored["judgments"], strict=True)
    }


def test_inspect_scores_samples_and_counts_the_corrected_share(scored: ScoredRows, run_tool: RunTool) -> None:
    both = last_line(run_tool(python_of("inspect"), HERE / "run_inspect.py", scored["path"]))
    for found in (both["eval"], both["score"]):  # by import, and by the entry point's name
        judged = {row["id"]: row["score"] for row in scored["judgments"]}
        assert found["values"] == pytest.approx(judged, abs=1e-6)
        for row, judgment in zip(found["rows"], scored["judgments"], strict=True):
            assert {**row, "model": judgment["model"]} == judgment
        assert found["good"] == pytest.approx(scored["good"], abs=1e-6)
        assert found["own"] == pytest.approx(scored["own"], abs=1e-6)
        assert (found["scored"], found["unscored"]) == (12, 1)
        assert list(found["reasons"]) == [scored["rows"][-1]["id"]]


def test_pytest_passes_fails_and_skips_by_the_interval(scored: ScoredRows, run_tool: RunTool) -> None:
    # An unscored reply may be anything: the interval holds both ends of that.
    share, low, high = scored["good"]
    worst, best = low * 12 / 13, (high * 12 + 1) / 13
    code = f"""
import json, data
rows = [json.loads(line) for line in open({str(scored["path"])!r}, encoding="utf-8")]
assert data.OWN

def test_above(assert_good_share):
    good = assert_good_share(rows, at_least={worst - 1e-6}).good
    assert abs(good.value - {share}) < 1e-6

def test_below(assert_good_share):
    assert_good_share(rows, at_least={best + 1e-6})

def test_just_within(assert_good_share):
    assert_good_share(rows, at_least={worst + 1e-6})

def test_too_few(assert_good_share):
    assert_good_share(rows[:3], at_least=0.5)
"""
    folder = Path(run_tool(sys.executable, "-c", "import os; print(os.getcwd())").stdout.strip())
    (folder / "test_replies.py").write_text(code, encoding="utf-8")
    done = run_tool(python_of("pytest"), "-m", "pytest", "-rA", "-p", "no:cacheprovider", "test_replies.py")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "PASSED test_replies.py::test_above" in done.stdout
    assert "13 replies are Good (1 unscored: no words), and at least" in done.stdout
    assert "inconclusive: " in done.stdout
    assert "1 failed, 1 passed, 2 skipped" in done.stdout


def test_deepeval_measures_the_probability_of_good(scored: ScoredRows, run_tool: RunTool) -> None:
    found = last_line(run_tool(python_of("deepeval"), HERE / "run_deepeval.py", scored["path"]))
    expected = good_of(scored, "id")
    assert {name: item["good"] for name, item in found.items()} == pytest.approx(expected, abs=1e-6)
    for name, good in expected.items():
        assert found[name]["success"] is (good is not None and good >= 0.5)
        assert bool(found[name]["error"]) is (good is None)


def test_mlflow_logs_feedback_and_the_corrected_share(scored: ScoredRows, run_tool: RunTool) -> None:
    found = last_line(run_tool(python_of("mlflow"), HERE / "run_mlflow.py", scored["path"]))
    feedback, metrics = found["feedback"], found["metrics"]
    expected = good_of(scored, "prompt")
    assert {name: item["good"] for name, item in feedback.items()} == pytest.approx(expected, abs=1e-6)
    assert [item["error"] for item in feedback.values() if item["good"] is None] == ["unscored: no words"]
    ends = [metrics[f"empathy/{name}"] for name in ("good", "good_low", "good_high")]
    assert ends == pytest.approx(scored["good"], abs=1e-6)
    assert metrics["empathy/mean"] == pytest.approx(scored["own"], abs=1e-6)
    assert (metrics["empathy/judged"], metrics["empathy/unscored"]) == (12, 1)


def test_lm_eval_has_our_prompts_and_the_corrected_share(scored: ScoredRows, run_tool: RunTool) -> None:
    found = last_line(run_tool(python_of("lm_eval"), HERE / "run_lm_eval.py", scored["path"]))
    assert found["prompts"] == 160
    first = scored["rows"][0]
    asked = Exchange(id="1", prompt=first["prompt"], response="", situation=first["situation"])
    assert found["asked"] == write_messages(asked)[0]["content"]  # as `respond` asks
    results = found["results"]
    ends = [results[f"{name},none"] for name in ("good", "good_low", "good_high")]
    assert ends == pytest.approx(scored["good"], abs=1e-6)
    assert results["good_by_judge,none"] == pytest.approx(scored["own"], abs=1e-6)
    assert results["unscored,none"] == 1
    judged = {row["prompt_digest"]: row["probabilities"] for row in scored["judgments"]}
    assert {row["prompt_digest"]: row["probabilities"] for row in found["rows"]} == judged


def test_promptfoo_grades_outputs(scored: ScoredRows, run_tool: RunTool, tmp_path: Path) -> None:
    command = ROOT / ".venv" / "tool-promptfoo" / "node_modules" / ".bin" / "promptfoo"
    if not command.exists() or shutil.which("node") is None:
        pytest.skip("no promptfoo here: make plugins installs it where npm is")
    project = tmp_path / "project"
    rows = scored["rows"]
    names = ("prompt", "situation", "emotion", "response")
    tests = [{"description": row["id"], "vars": {name: row[name] for name in names}} for row in rows]
    config = {
        "prompts": ["{{prompt}}"],
        "providers": ["file://mock.js"],
        "defaultTest": {"assert": [{"type": "python", "value": "file://empathy.py"}]},
        "tests": tests,
    }
    (project / "promptfooconfig.json").write_text(json.dumps(config), encoding="utf-8")
    (project / "mock.js").write_text(
        "module.exports = class { id() { return 'mock'; } async callApi(prompt, context) {"
        " return { output: context.vars.response }; } };\n",
        encoding="utf-8",
    )
    (project / "empathy.py").write_text(
        "from empathy_judge.promptfoo_assert import get_assert\n", encoding="utf-8"
    )
    words = [command, "eval", "-c", "promptfooconfig.json", "-o", "out.json", "--no-cache", "--no-table"]
    python = {"PROMPTFOO_PYTHON": str(python_of("pytest"))}  # any with the client in it
    with serving(load_judge("classifier")) as url:
        done = run_tool(*words, **python, EMPATHY_JUDGE_URL=url)
    assert (project / "out.json").exists(), done.stdout[-2000:] + done.stderr[-2000:]
    results = json.loads((project / "out.json").read_text(encoding="utf-8"))["results"]["results"]
    graded = {item["testCase"]["description"]: item for item in results}
    expected = good_of(scored, "id")
    assert set(graded) == set(expected)
    for name, good in expected.items():
        item = graded[name]
        assert item["success"] is (good is not None and good >= 0.5), item["gradingResult"]
        if good is None:
            assert "unscored: no words" in item["gradingResult"]["reason"]
        else:
            assert item["namedScores"]["empathy_good"] == pytest.approx(good, abs=1e-6)
