"""The Dockerfile and what is sent to Docker, read as Docker reads them; and the systems we refuse."""

import sys
import tomllib

import pytest
from dockerfile import sent
from repository import ROOT

import cli

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_docker_is_sent_what_the_package_is_built_from_and_no_more() -> None:
    tools, project = PYPROJECT["tool"]["setuptools"], PYPROJECT["project"]
    needed = {name.partition(".")[0] for name in tools["packages"]} | set(project["license-files"])
    assert sent() == needed | {"cli.py", "pyproject.toml", "constraints.txt", project["readme"]}


def test_windows_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(SystemExit, match="does not run on Windows; use WSL"):
        cli.main.main(["--help"])
