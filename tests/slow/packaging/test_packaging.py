"""What we ship is whole: the wheel carries every file, and the lock pins every package we ask for."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from locks import read_lock
from own_project import make_project
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from repository import FOLDERS, PACKAGE, ROOT, SAMPLES

from empathy_judge.commands import main as cli

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# What other builds of torch bring; the lock leaves them to the build.
ACCELERATOR = re.compile(r"(nvidia|cuda|triton)\b")
# Hidden files, the data that judges were trained on, and the script that makes their weights.
SKIPPED = re.compile(r"__pycache__|/\.|^training/(rebuild|recipes/(grade|constant|scenes|chats|targets))")


def named_in_pyproject() -> list[Requirement]:
    """What the project asks for, with and without extras."""
    extras = PROJECT["optional-dependencies"].values()
    asked = [Requirement(text) for group in (PROJECT["dependencies"], *extras) for text in group]
    return [item for item in asked if item.name != PROJECT["name"]]


def needed(requirements: Iterable[Requirement]) -> set[str]:
    """Names of the packages these requirements lead to, as far as they are installed here."""
    found: set[tuple[str, str]] = set()  # a package, and the extra of it that is asked for
    waiting = [(requirement, "") for requirement in requirements]
    while waiting:
        requirement, asker = waiting.pop()
        name = canonicalize_name(requirement.name)
        applies = requirement.marker is None or requirement.marker.evaluate({"extra": asker})
        if not applies or ACCELERATOR.match(name) or not is_installed(name):
            continue
        for extra in {"", *requirement.extras}:
            if (name, extra) not in found:
                found.add((name, extra))
                waiting += [(Requirement(text), extra) for text in distribution(name).requires or ()]
    return {name for name, _ in found}


def is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def test_the_locks_pin_one_version_of_all_that_is_needed() -> None:
    locks = ("requirements.lock", "requirements-run.lock", "requirements-weights.lock", "constraints.txt")
    pinned, run, weights, everything = map(read_lock, locks)
    for requirement in [*pinned.values(), *run.values(), *weights.values(), *everything.values()]:
        assert re.fullmatch(r"==[0-9][0-9a-z.]*", str(requirement.specifier)), requirement
    assert not re.search(r"^-|://|/[a-z]", (ROOT / locks[0]).read_text(encoding="utf-8"), re.MULTILINE)
    assert not [name for name in pinned if ACCELERATOR.match(name)]
    assert set(everything) - set(pinned) == {"torch"} and set(run) <= set(pinned)
    for asked in named_in_pyproject():
        version = str(everything[canonicalize_name(asked.name)].specifier).removeprefix("==")
        assert asked.specifier.contains(version), asked
    assert needed(named_in_pyproject()) - set(everything) == set()


def test_scoring_needs_little() -> None:
    core = needed(Requirement(text) for text in PROJECT["dependencies"])
    assert "onnxruntime" in core
    assert not core & {"torch", "transformers", "scikit-learn", "pyarrow", "openpyxl"}
    assert set(read_lock("requirements-run.lock")) >= core


@pytest.mark.parametrize("lock", sorted((ROOT / "requirements").glob("*.lock")), ids=lambda path: path.stem)
def test_the_lock_of_an_extra_has_all_that_it_needs(lock: Path) -> None:
    extra = needed(Requirement(text) for text in PROJECT["optional-dependencies"][lock.stem])
    locked = read_lock(f"requirements/{lock.name}")
    assert extra <= set(locked) | set(read_lock("requirements-run.lock"))


def test_a_plain_install_is_small() -> None:
    names = {*needed(Requirement(text) for text in PROJECT["dependencies"]), "empathy-judge"} - {"setuptools"}
    size = sum(
        path.stat().st_size
        for name in names
        for file in distribution(name).files or ()
        if (path := Path(str(file.locate()))).is_file() and path.suffix != ".pyc"
        if "weights" not in file.parts  # said apart
    )
    # 285 MB on x86-64, of which scipy takes 100; pyarrow alone (150) would be too much.
    assert size < 300e6, f"{size / 1e6:.0f} MB"


def test_workflows_run_targets_that_exist_on_pythons_we_support() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / ".github" / "workflows").iterdir())
    targets, pythons = re.findall(r"run: make (\w+)", text), re.findall(r'"(3\.\d+)"', text)
    assert targets and all(re.search(rf"^{name}\b.*:", makefile, re.MULTILINE) for name in targets)
    assert pythons and all(version in SpecifierSet(PROJECT["requires-python"]) for version in pythons)


def test_the_repository_pins_the_torch_it_installs() -> None:
    (pinned,) = re.findall(r"^TORCH = (.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert pinned == str(read_lock("constraints.txt")["torch"])


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a copy of the tree, as building leaves folders beside what it builds."""
    folder = tmp_path_factory.mktemp("wheel")
    tree = folder / "tree"
    skipped = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, tree / name, ignore=skipped)
    for name in ("cli.py", "pyproject.toml", "README.md", *PROJECT["license-files"]):
        shutil.copy(ROOT / name, tree)
    run_pip("wheel", "--no-build-isolation", "--no-deps", "--no-index", f"--wheel-dir={folder}", tree)
    return next(folder.glob("empathy_judge-*.whl"))


def run_pip(*arguments: object) -> None:
    """Run pip of this environment; its words are shown when it fails."""
    line = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_wheel_has_one_package_with_every_file(wheel: Path) -> None:
    ours = set()
    for name in FOLDERS:
        files = (path.relative_to(ROOT).as_posix() for path in (ROOT / name).rglob("*") if path.is_file())
        prefix = "" if name == PACKAGE else f"{PACKAGE}/"
        ours |= {prefix + file for file in files if not SKIPPED.search(file)}
    with zipfile.ZipFile(wheel) as archive:
        carried = {name for name in archive.namelist() if ".dist-info/" not in name}
        kept = {name.rpartition("licenses/")[2] for name in archive.namelist() if "licenses/" in name}
    assert carried == ours
    assert kept == set(PROJECT["license-files"])


@pytest.fixture
def installed(wheel: Path, tmp_path: Path) -> Path:
    """A fresh environment with the wheel in it; the packages it needs are those of these tests."""
    folder = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    site = next(folder.glob("lib/python*/site-packages"))
    options = ("--ignore-installed", "--no-deps", "--no-index")
    run_pip("--python", folder / "bin" / "python", "install", *options, wheel)
    (site / "needed.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    assert (site / PACKAGE / "judge" / "weights").exists()
    return folder / "bin"


def test_what_is_installed_works_in_a_project_with_its_own_data_package(
    installed: Path, tmp_path: Path
) -> None:
    project = make_project(tmp_path / "project")
    environment = {**os.environ, "PYTHONPATH": str(project)}  # as many projects are run

    def run(*arguments: str | Path) -> str:
        line = list(map(str, arguments))
        done = subprocess.run(line, cwd=project, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    command = installed / "empathy-judge"
    assert "Usage: empathy-judge" in run(command, "--help")
    assert cli.__version__ in run(command, "--version")
    assert "Exit codes" in run(command, "skill")
    assert "Usage: empathy-judge train" in run(command, "train", "--help")
    rows = (SAMPLES / "responses.jsonl").read_text(encoding="utf-8").splitlines()[:36]
    warm = [row for row in rows if json.loads(row)["model"] == "demo-warm"]
    (project / "warm.jsonl").write_text("\n".join(warm) + "\n", encoding="utf-8")
    summary = json.loads(run(command, "score", "warm.jsonl", "--json"))  # by the weights of the wheel
    code = (
        "import json, data, empathy_judge as ej\nassert data.OWN\n"
        "good = ej.score('warm.jsonl').models[0].good\nprint(json.dumps([good.value, good.low, good.high]))"
    )
    found = json.loads(run(installed / "python", "-c", code))
    good = summary["models"][0]["corrected"]["Good"]
    assert found == pytest.approx([good["value"], good["low"], good["high"]], abs=1e-6)
