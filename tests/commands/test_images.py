"""What the Dockerfile and the GitHub Action install, what is sent to Docker, and the systems we refuse."""

import re
import sys
import tomllib

import pytest
import yaml
from dockerfile import sent, stages
from locks import read_lock, unhashed
from packaging.requirements import Requirement
from repository import ROOT

from empathy_judge.commands import main as cli

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_docker_is_sent_what_the_package_is_built_from_and_no_more() -> None:
    tools, project = PYPROJECT["tool"]["setuptools"], PYPROJECT["project"]
    needed = {*tools["package-dir"].values(), *project["license-files"], project["readme"]}
    assert sent() == needed | {"pyproject.toml", "requirements-run.lock", "requirements"}


ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
SCRIPTS = {
    "action.yml": "\n".join(step["run"] for step in ACTION["runs"]["steps"]),
    "Dockerfile": "\n".join(rest for steps in stages().values() for name, rest in steps if name == "RUN"),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_packages_are_installed_from_hashed_locks_and_ours_from_this_tree(name: str) -> None:
    script = SCRIPTS[name].replace("\\\n", " ")
    commands = re.findall(r"\bpip(?:\s+-\S+)*\s+(?:install|wheel|download)\s+([^\n;&]*[^\n;&\s])", script)
    assert commands
    for command in commands:
        assert "--no-deps" in command
        if "--require-hashes" not in command:  # only what the build made out of this tree
            assert command.split()[-1] in ('"$GITHUB_ACTION_PATH"', "/source", "/wheels/*.whl")
            assert "--no-build-isolation" in command or command.endswith(".whl")
    assert any("--require-hashes" in command for command in commands)
    locks = [lock for lock in re.findall(r"[\w./$-]+\.lock", script) if "$extra" not in lock]
    assert any(lock.endswith("requirements-run.lock") for lock in locks)
    for lock in locks:
        assert unhashed(re.sub(r"^.*?(?=requirements)", "", lock)) == []


EXTRAS = sorted(path.stem for path in (ROOT / "requirements").glob("*.lock"))


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_and_its_lock_name_the_same_packages(extra: str) -> None:
    locked, whole = read_lock(f"requirements/{extra}.lock"), read_lock("requirements.lock")
    assert unhashed(f"requirements/{extra}.lock") == []
    assert {name: item.specifier for name, item in locked.items()} == {
        name: whole[name].specifier for name in locked
    }
    asked = {Requirement(text).name for text in PYPROJECT["project"]["optional-dependencies"][extra]}
    assert asked <= set(locked) | set(read_lock("requirements-run.lock"))


def test_the_action_and_the_images_find_the_locks_they_name() -> None:
    named = set(re.findall(r"requirements/(\w+)\.lock", SCRIPTS["Dockerfile"]))
    assert named == {"nightly", "serve"} and named <= set(EXTRAS)
    assert set(re.findall(r"\b[a-z]+\b", ACTION["inputs"]["extras"]["description"])) >= set(EXTRAS)


def test_the_build_is_pinned_to_what_the_lock_installs() -> None:
    locked = read_lock("requirements-run.lock")
    for text in PYPROJECT["build-system"]["requires"]:
        asked = Requirement(text)
        assert str(asked) == f"{asked.name}=={str(locked[asked.name].specifier)[2:]}"


def test_windows_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(SystemExit, match="does not run on Windows; use WSL"):
        cli.main.main(["--help"])
