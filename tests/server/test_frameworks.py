"""The code on the page about other tools runs with those tools, and gives `score`'s figures."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from repository import ROOT
from served import NO_CLIENTS, ask, find_clients, get, serving
from servers import Answer, Call, ScriptedServer

from empathy_judge.judge.base import load_judge

PAGE = ROOT / "docs" / "how-to" / "integrations.md"
PROMPTFOO = ROOT / ".venv" / "tool-promptfoo" / "node_modules" / ".bin" / "promptfoo"
DEFAULT = "http://127.0.0.1:8321"
NUMBER = re.compile(r"\d\.\d+")
ROW = {"prompt": "My dog died this morning.", "response": "I am so sorry. How long was he with you?"}
clients = pytest.mark.skipif(find_clients() is None, reason=NO_CLIENTS)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serving(load_judge("classifier")) as url:
        yield url


@pytest.fixture(scope="module")
def judgment(server: str) -> dict[str, Any]:
    (judgment,) = ask(f"{server}/v1/score", json={"exchanges": [ROW]}).json()["judgments"]
    return dict(judgment)


def section(tool: str, language: str) -> str:
    """Return the code of a tool's section."""
    text = PAGE.read_text(encoding="utf-8").partition(f"\n## {tool}\n")[2].partition("\n## ")[0]
    code = text.partition(f"```{language}\n")[2].partition("```")[0]
    assert DEFAULT in code
    return code


def run_section(tool: str, python: str, server: str, folder: Path, **environment: str) -> list[str]:
    """Run the Python of a section with this server's address instead of the default; return its lines."""
    path = folder / "page.py"
    path.write_text(section(tool, "python").replace(DEFAULT, server), encoding="utf-8")
    done = run([python, "-I", str(path)], folder, **environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def run(command: list[str], folder: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run a tool that reaches nothing but this machine, with nothing of ours on its path."""
    away = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), "http://127.0.0.1:9")
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "TMPDIR")}
    return subprocess.run(
        command,
        env=kept | away | {"NO_PROXY": "127.0.0.1"} | environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.slow
@pytest.mark.parametrize("tool", [pytest.param("LangChain", marks=clients), "LiteLLM"])
def test_chat_clients(tool: str, server: str, judgment: dict[str, Any], tmp_path: Path) -> None:
    python = find_clients() if tool == "LangChain" else sys.executable
    if tool == "LiteLLM" and not find_spec("litellm"):
        pytest.skip("litellm is not installed: the extra `prompted`")
    local = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}  # else it asks the network for prices
    (decided,) = run_section(tool, str(python), server, tmp_path, **local)
    expected = [(judgment["score"] - 1) / 2, *judgment["probabilities"].values()]
    assert [float(number) for number in NUMBER.findall(decided)] == pytest.approx(expected, abs=1e-6)


@clients
@pytest.mark.slow
def test_langfuse(server: str, judgment: dict[str, Any], tmp_path: Path) -> None:
    """A server in Langfuse's place keeps what its own client sends."""
    kept: list[dict[str, Any]] = []

    def script(call: Call) -> Answer:
        if call.path.endswith("/scores"):
            kept.extend(call.body)
        return Answer(body={"successes": [], "errors": []})

    with ScriptedServer(script) as langfuse:
        where = langfuse.base_url.removesuffix("/v1")
        keys = {"LANGFUSE_PUBLIC_KEY": "pk", "LANGFUSE_SECRET_KEY": "sk", "LANGFUSE_BASE_URL": where}
        run_section("Langfuse", str(find_clients()), server, tmp_path, **keys)
    found = {score["name"]: score["value"] for score in kept}
    assert found["empathy"] == pytest.approx(judgment["score"], abs=1e-6)


@pytest.mark.slow
@pytest.mark.skipif(
    not (PROMPTFOO.exists() and shutil.which("node")), reason="no promptfoo: make .venv/.tool-promptfoo"
)
def test_promptfoo(server: str, judgment: dict[str, Any], tmp_path: Path) -> None:
    """The page's own configuration, with a model that always says the same."""
    config = section("promptfoo", "yaml")
    assert "openai:chat:gpt-4o-mini" in config
    config = config.replace(DEFAULT, server).replace("openai:chat:gpt-4o-mini", "file://mock.js")
    (tmp_path / "promptfooconfig.yaml").write_text(config, encoding="utf-8")
    said = json.dumps(ROW["response"])
    (tmp_path / "mock.js").write_text(
        "module.exports = class { id() { return 'mock'; } "
        f"async callApi() {{ return {{ output: {said} }}; }} }};",
        encoding="utf-8",
    )
    quiet = dict.fromkeys(("PROMPTFOO_DISABLE_TELEMETRY", "PROMPTFOO_DISABLE_UPDATE"), "1")
    words = ["eval", "-c", "promptfooconfig.yaml", "-o", "out.json", "--no-cache", "--no-table"]
    run([str(PROMPTFOO), *words], tmp_path, PROMPTFOO_CONFIG_DIR=str(tmp_path / "kept"), **quiet)
    (result,) = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["results"]["results"]
    (graded,) = result["gradingResult"]["componentResults"]
    assert graded["score"] == pytest.approx((judgment["score"] - 1) / 2, abs=1e-6)
    assert graded["pass"] is (judgment["label"] == "Good" and graded["score"] >= 0.5)


def test_the_page_lists_the_routes_that_there_are(server: str) -> None:
    page = (PAGE.parent / "serving.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(GET|POST) (/\S+)` \|", page, re.MULTILINE))
    paths = get(f"{server}/openapi.json").json()["paths"]
    assert listed == {(method.upper(), path) for path, methods in paths.items() for method in methods}
