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
from importlib.metadata import distribution, distributions
from pathlib import Path
from typing import Any

import pytest
from locks import read_lock
from own_project import make_project
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from repository import FOLDERS, PACKAGE, ROOT, SAMPLES

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# What other builds of torch bring; the lock leaves them to the build.
ACCELERATOR = re.compile(r"(nvidia|cuda|triton)\b")
# Hidden files, the data that judges were trained on, and the script that makes their weights.
SKIPPED = re.compile(
    r"__pycache__|/\.|^training/(rebuild|recipes/(grade|constant|scene|chat|target|recorded|shell|written))"
)


INSTALLED = {canonicalize_name(each.name) for each in distributions()}
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
CORE = [Requirement(text) for text in PROJECT["dependencies"]]
EXTRAS = {
    extra: [Requirement(text) for text in texts] for extra, texts in PROJECT["optional-dependencies"].items()
}
ASKED = [item for group in (CORE, *EXTRAS.values()) for item in group if item.name != PROJECT["name"]]


def needed(requirements: Iterable[Requirement]) -> set[str]:
    """Return the packages these requirements lead to, as far as they are installed here."""
    found: set[tuple[str, str]] = set()  # a package, and the extra of it that is asked for
    waiting = [(requirement, "") for requirement in requirements]
    while waiting:
        requirement, asker = waiting.pop()
        name = canonicalize_name(requirement.name)
        applies = requirement.marker is None or requirement.marker.evaluate({"extra": asker})
        if not applies or ACCELERATOR.match(name) or name not in INSTALLED:
            continue
        for extra in {"", *requirement.extras} - {of for package, of in found if package == name}:
            found.add((name, extra))
            waiting += [(Requirement(text), extra) for text in distribution(name).requires or ()]
    return {name for name, _ in found}


def test_the_locks_pin_one_version_of_all_that_is_needed() -> None:
    locks = ("requirements.lock", "requirements-run.lock", "requirements-weights.lock", "constraints.txt")
    pinned, run, weights, everything = map(read_lock, locks)
    for requirement in [*pinned.values(), *run.values(), *weights.values(), *everything.values()]:
        assert re.fullmatch(r"==[0-9][0-9a-z.]*", str(requirement.specifier)), requirement
    assert not re.search(r"^-|://|/[a-z]", (ROOT / locks[0]).read_text(encoding="utf-8"), re.MULTILINE)
    assert not [name for name in pinned if ACCELERATOR.match(name)]
    assert set(everything) - set(pinned) == {"torch"} and set(run) <= set(pinned)
    for asked in ASKED:
        version = str(everything[canonicalize_name(asked.name)].specifier).removeprefix("==")
        assert asked.specifier.contains(version), asked
    assert needed(ASKED) <= set(everything) and needed(CORE) <= set(run)
    for lock in (ROOT / "requirements").glob("*.lock"):
        assert needed(EXTRAS[lock.stem]) <= {*read_lock(f"requirements/{lock.name}"), *run}, lock


def test_a_plain_install_is_small() -> None:
    names = needed(CORE)
    assert "onnxruntime" in names
    assert not names & {"torch", "transformers", "scikit-learn", "pyarrow", "openpyxl"}
    size = sum(
        path.stat().st_size
        for name in (names | {"empathy-judge"}) - {"setuptools"}
        for file in distribution(name).files or ()
        if (path := Path(str(file.locate()))).is_file() and path.suffix != ".pyc"
        if "weights" not in file.parts
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


def run(*words: object, **options: Any) -> str:
    """Run a program and return what it prints; it is shown when it fails."""
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a copy of the tree, as building leaves folders beside what it builds."""
    folder = tmp_path_factory.mktemp("wheel")
    tree = folder / "tree"
    for name in FOLDERS:
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("cli.py", "pyproject.toml", "README.md", *PROJECT["license-files"]):
        shutil.copy(ROOT / name, tree)
    run(*PIP, "wheel", "--no-build-isolation", "--no-deps", "--no-index", f"--wheel-dir={folder}", tree)
    return next(folder.glob("empathy_judge-*.whl"))


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


def test_the_wheel_works_in_a_project_with_its_own_data_package(wheel: Path, tmp_path: Path) -> None:
    """In a fresh environment; the packages it needs are those of these tests."""
    programs = tmp_path / "venv" / "bin"
    run(sys.executable, "-m", "venv", "--without-pip", programs.parent)
    options = ("--ignore-installed", "--no-deps", "--no-index")
    run(*PIP, "--python", programs / "python", "install", *options, wheel)
    site = next(programs.parent.glob("lib/python*/site-packages"))
    (site / "needed.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    assert (site / PACKAGE / "judge" / "weights").exists()
    project = make_project(tmp_path / "project")
    in_project: Any = {"cwd": project, "env": os.environ | {"PYTHONPATH": str(project)}}
    command = programs / "empathy-judge"
    for word in ("--help", "--version", "skill"):
        assert run(command, word, **in_project)
    rows = (SAMPLES / "responses.jsonl").read_text(encoding="utf-8").splitlines()[:36]
    warm = [row for row in rows if json.loads(row)["model"] == "demo-warm"]
    (project / "warm.jsonl").write_text("\n".join(warm) + "\n", encoding="utf-8")
    summary = json.loads(run(command, "score", "warm.jsonl", "--json", **in_project))
    code = (
        "import json, data, empathy_judge as ej\nassert data.OWN\n"
        "good = ej.score('warm.jsonl').models[0].good\nprint(json.dumps([good.value, good.low, good.high]))"
    )
    found = json.loads(run(programs / "python", "-c", code, **in_project))
    good = summary["models"][0]["corrected"]["Good"]
    assert found == pytest.approx([good["value"], good["low"], good["high"]], abs=1e-6)
