"""The GitHub Action in somebody else's repository: its steps as the runner runs them, and what they leave."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from zipfile import ZipFile

import pytest
import yaml
from repository import FOLDERS, ROOT, SAMPLES

ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS = ACTION["runs"]["steps"]
# GitHub starts `shell: bash` so.
BASH = ("bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c")
CURT = "replies of today; $(touch run).jsonl"  # a name that a careless script would run


@dataclass(frozen=True)
class Runner:
    """A checked-out repository with files of replies, and the folders a job has."""

    repository: Path
    temporary: Path
    environment: Mapping[str, str]

    def run(self, step: Mapping[str, Any], **inputs: str) -> subprocess.CompletedProcess[str]:
        """One step, with the action's defaults for what is not given."""
        given = {name: about.get("default", "") for name, about in ACTION["inputs"].items()} | inputs
        variables = {
            name: re.sub(r"\$\{\{ inputs\.([a-z]+) \}\}", lambda found: given[found[1]], value)
            for name, value in step["env"].items()
        }
        environment = {**self.environment, **variables}
        return subprocess.run(
            [*BASH, step["run"]], cwd=self.repository, env=environment, capture_output=True, text=True
        )


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    folder = tmp_path_factory.mktemp("job")
    action, repository, temporary = folder / "action", folder / "repository", folder / "temp"
    for name in FOLDERS:
        shutil.copytree(ROOT / name, action / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("cli.py", "pyproject.toml", "README.md", "LICENSE", "NOTICE.md", "requirements-run.lock"):
        shutil.copy(ROOT / name, action)
    shutil.copytree(ROOT / "requirements", action / "requirements")
    repository.mkdir()
    temporary.mkdir()
    rows = (SAMPLES / "responses.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    for model, name, count in (("curt", CURT, None), ("warm", "warm.jsonl", None), ("plain", "few.jsonl", 6)):
        kept = [row for row in rows if json.loads(row)["model"] == f"demo-{model}"]
        (repository / name).write_text("".join(kept[:count]), encoding="utf-8")
    environment = {
        "GITHUB_ACTION_PATH": str(action),
        "GITHUB_OUTPUT": str(folder / "output"),
        "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
        "RUNNER_TEMP": str(temporary),
        "HOME": str(folder),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        # No network: the packages are those of these tests; pip compares their versions with the locks.
        "PIP_NO_INDEX": "1",
        "PYTHONPATH": sysconfig.get_path("purelib"),
    }
    runner = Runner(repository, temporary, environment)
    done = runner.run(STEPS[0], extras="parquet, prompted")
    assert done.returncode == 0, done.stdout + done.stderr
    return runner


def test_no_step_puts_an_input_into_its_script_or_uses_another_action() -> None:
    assert ACTION["runs"]["using"] == "composite"
    for step in STEPS:
        assert set(step) <= {"name", "id", "shell", "env", "run"} and step["shell"] == "bash"
        assert "${{" not in step["run"]
    for output in ACTION["outputs"].values():
        step, name = re.fullmatch(r"\$\{\{ steps\.(\w+)\.outputs\.(\w+) \}\}", output["value"]).groups()  # type: ignore
        (run,) = (item["run"] for item in STEPS if item.get("id") == step)
        assert f'echo "{name}=' in run


@pytest.mark.parametrize(
    ("files", "baseline", "strict", "code", "outcome"),
    [
        (CURT, "warm.jsonl", "false", 1, "regression"),
        ("warm.jsonl", CURT, "false", 0, "pass"),
        ("warm.jsonl\n\nfew.jsonl\n", "demo-warm", "false", 0, "inconclusive"),
        ("warm.jsonl\nfew.jsonl", "demo-warm", "true", 3, "inconclusive"),
    ],
)
def test_the_steps_say_in_the_summary_whether_replies_got_worse(
    runner: Runner, files: str, baseline: str, strict: str, code: int, outcome: str
) -> None:
    summary, output = (Path(runner.environment[name]) for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT"))
    for path in (summary, output):
        path.unlink(missing_ok=True)
    done = runner.run(STEPS[1], files=files, baseline=baseline, strict=strict)
    assert done.returncode == code, done.stdout + done.stderr
    told = dict(line.split("=", 1) for line in output.read_text(encoding="utf-8").splitlines())
    assert told["outcome"] == outcome
    suites = ElementTree.parse(told["junit"]).getroot()
    (case,) = suites.iter("testcase")
    assert "| demo-warm |" in summary.read_text(encoding="utf-8").replace("\\", "")
    tags = {"pass": "system-out", "regression": "failure", "inconclusive": "skipped"}
    assert [child.tag for child in case] == [tags[outcome]]
    assert ("::warning" in done.stdout) == (outcome == "inconclusive" and strict == "false")
    assert not (runner.repository / "run").exists()


def test_a_missing_file_and_an_extra_without_a_lock_fail_the_job(runner: Runner) -> None:
    done = runner.run(STEPS[1], files="lost.jsonl", baseline="study:human")
    assert done.returncode == 2 and "lost.jsonl" in done.stderr and "Traceback" not in done.stderr
    done = runner.run(STEPS[0], extras="train")
    assert done.returncode != 0 and "requirements/train.lock" in done.stderr


def test_a_package_that_differs_from_its_hash_is_not_installed(runner: Runner, tmp_path: Path) -> None:
    """The extra's lock names a wheel that is there, but with another hash."""
    wheel = tmp_path / "strange-1.0-py3-none-any.whl"
    about = {
        "METADATA": "Metadata-Version: 2.1\nName: strange\nVersion: 1.0\n",
        "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "",
    }
    with ZipFile(wheel, "w") as archive:
        for name, text in about.items():
            archive.writestr(f"strange-1.0.dist-info/{name}", text)
    action = Path(runner.environment["GITHUB_ACTION_PATH"])
    with_links = replace(runner, environment={**runner.environment, "PIP_FIND_LINKS": str(tmp_path)})
    for digest, is_installed in (("0" * 64, False), (sha256(wheel.read_bytes()).hexdigest(), True)):
        (action / "requirements" / "strange.lock").write_text(f"strange==1.0 --hash=sha256:{digest}\n")
        done = with_links.run(STEPS[0], extras="strange")
        assert (done.returncode == 0) == is_installed, done.stderr
