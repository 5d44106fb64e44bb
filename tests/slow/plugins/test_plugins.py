"""Every plug-in, in the process of its tool, gives the figures of `score`."""

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from own_project import make_project
from repository import ROOT, SAMPLES, TESTS

import empathy_judge as ej
from empathy_judge.data.records import Exchange
from empathy_judge.judge.llm.responder import write_messages

QUIET = {  # no reports of tools to their makers, and no requests to a hub
    "DEEPEVAL_TELEMETRY_OPT_OUT": "YES",
    "LITELLM_LOCAL_MODEL_COST_MAP": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "HF_HUB_OFFLINE": "1",
    "PROMPTFOO_DISABLE_TELEMETRY": "1",
    "PROMPTFOO_DISABLE_UPDATE": "1",
    "PROMPTFOO_DISABLE_REMOTE_GENERATION": "true",
}
FACTS = {  # of each tool
    "deepeval": {"good", "passed", "unscored"},
    "inspect": {"score", "good", "share", "own", "unscored"},
    "lm_eval": {"share", "own", "unscored", "prompts"},
    "mlflow": {"good", "share", "own", "unscored"},
    "promptfoo": {"good", "passed"},
}
RunTool = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    """Twelve replies with all context, and one that cannot be judged."""
    lines = (SAMPLES / "responses.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if row["model"] == "demo-warm"][:13]
    rows = [row | {"situation": "It happened this week.", "emotion": "sad"} for row in rows]
    rows[-1]["response"] = "0" * 40
    return rows


@pytest.fixture(scope="module")
def expected(rows: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The facts by `score`."""
    run = ej.score(rows, out=tmp_path_factory.mktemp("scored") / "run")
    (model,) = run.models
    judgments = run.judgments()
    assert model.good is not None
    good = {row["id"]: row["good"] for row in judgments}
    return {
        "good": good,
        "passed": {name: value is not None and value >= 0.5 for name, value in good.items()},
        "score": {row["id"]: row["score"] for row in judgments},
        "share": [model.good.value, model.good.low, model.good.high],
        "own": model.shares["Good"].value,
        "unscored": 1,
        "prompts": 160,
    }


@pytest.fixture
def run_tool(tmp_path: Path, rows: list[dict[str, Any]]) -> RunTool:
    """A function that runs a tool in a project that has its own `data`, off the network."""
    project = make_project(tmp_path / "project")
    (project / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    log = tmp_path / "network.log"
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "EMPATHY"))},
        **QUIET,
        "HOME": str(tmp_path),
        "NETWORK_LOG": str(log),
        "LAST_PACKAGES": sysconfig.get_path("purelib"),  # behind the tool's own
        "PYTHONPATH": os.pathsep.join(map(str, [TESTS / "support" / "no_network", project])),
        "PROMPTFOO": str(ROOT / ".venv" / "tool-promptfoo" / "node_modules" / ".bin" / "promptfoo"),
        "PROMPTFOO_CONFIG_DIR": str(tmp_path / "promptfoo"),
        "PROMPTFOO_PYTHON": sys.executable,
    }

    def run(*command: object, **variables: str) -> "subprocess.CompletedProcess[str]":
        words = list(map(str, command))
        done = subprocess.run(words, cwd=project, env=environment | variables, capture_output=True, text=True)
        assert not log.exists(), f"asked the network: {log.read_text(encoding='utf-8')}"
        return done

    return run


@pytest.mark.parametrize("tool", FACTS)
def test_a_tool_reports_the_figures_of_score(tool: str, expected: dict[str, Any], run_tool: RunTool) -> None:
    environment = ROOT / ".venv" / f"tool-{tool}"
    if not environment.exists():
        pytest.skip(f"no {tool} here: make plugins makes its environment")
    python = environment / "bin" / "python"  # promptfoo is written for Node
    script = Path(__file__).with_name("run_tool.py")
    done = run_tool(python if python.exists() else sys.executable, script, tool, "rows.jsonl")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert found.keys() == FACTS[tool]
    for name, value in found.items():
        assert value == pytest.approx(expected[name], abs=1e-6), name


def test_pytest_passes_fails_and_skips_by_the_interval(
    expected: dict[str, Any], run_tool: RunTool, tmp_path: Path
) -> None:
    # The unscored reply may have any label: the interval covers both.
    share, low, high = expected["share"]
    worst, best = low * 12 / 13, (high * 12 + 1) / 13
    limits = {"above": worst - 1e-6, "below": best + 1e-6, "within": worst + 1e-6}
    code = f"""
import json, data, pytest
assert data.OWN
rows = [json.loads(line) for line in open('rows.jsonl')]
@pytest.mark.parametrize("name", {limits})
def test_replies(assert_good_share, name):
    assert abs(assert_good_share(rows, at_least={limits}[name]).good.value - {share}) < 1e-6
def test_too_few(assert_good_share):
    assert_good_share(rows[:3], at_least=0.5)
"""
    (tmp_path / "project" / "test_replies.py").write_text(code, encoding="utf-8")
    done = run_tool(sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", "test_replies.py")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "PASSED test_replies.py::test_replies[above]" in done.stdout
    assert "FAILED test_replies.py::test_replies[below]" in done.stdout
    assert "1 failed, 1 passed, 2 skipped" in done.stdout


def test_the_task_of_lm_eval_asks_as_respond_does(rows: list[dict[str, Any]]) -> None:
    task = (ROOT / "empathy_judge" / "lm_eval_task" / "empathy_replies.yaml").read_text(encoding="utf-8")
    text = task.partition("doc_to_text: >-\n")[2].partition("doc_to_target")[0]
    asked = " ".join(text.split()).replace("{{prompt}}", rows[0]["prompt"])
    exchange = Exchange(id="1", prompt=rows[0]["prompt"], response="")
    assert asked == " ".join(write_messages(exchange)[0]["content"].split())
