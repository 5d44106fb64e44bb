"""The Dockerfile and what is sent to Docker, read as Docker reads them; and the systems we refuse."""

import json
import re
import sys
import tomllib
from urllib.parse import urlsplit

import pytest
from dockerfile import sent, stages
from repository import ROOT

import cli
from server.middleware import OPEN

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("stage", ["score", "serve", "nightly"])
def test_an_image_runs_our_command_as_nobody_special(stage: str) -> None:
    steps = stages()[stage]
    given = dict(steps)
    assert given["FROM"].startswith("base AS") and given["USER"] == "1000"
    names = [name for name, _ in steps]
    assert set(names) <= {"FROM", "RUN", "USER", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
    program, command = json.loads(given["ENTRYPOINT"])
    assert (program, command) == ("empathy-judge", stage)
    found = cli.main.get_command(None, command)  # type: ignore[arg-type]
    assert found is not None
    if given["CMD"] != '["--help"]':
        found.make_context(command, json.loads(given["CMD"]))
    (install,) = (rest for name, rest in steps if name == "RUN")
    extras = re.findall(r"\.whl\)?\[([a-z]+)\]", install)
    assert set(extras) <= set(PYPROJECT["project"]["optional-dependencies"])
    assert "-c /wheels/constraints.txt" in install


def test_the_server_is_asked_for_its_health_where_it_listens() -> None:
    given = dict(stages()["serve"])
    (url,) = re.findall(r"urlopen\('([^']+)'", given["HEALTHCHECK"])
    options = {option.name: option for option in cli.main.get_command(None, "serve").params}  # type: ignore
    assert urlsplit(url).port == options["port"].default == int(given["EXPOSE"])
    assert urlsplit(url).path in OPEN  # without a key


def test_docker_is_sent_what_the_package_is_built_from_and_no_more() -> None:
    tools, project = PYPROJECT["tool"]["setuptools"], PYPROJECT["project"]
    needed = {name.partition(".")[0] for name in tools["packages"]} | set(project["license-files"])
    assert sent() == needed | {"cli.py", "pyproject.toml", "constraints.txt", project["readme"]}


def test_windows_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(SystemExit, match="does not run on Windows; use WSL"):
        cli.main.main(["--help"])
