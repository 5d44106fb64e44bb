"""The lock files, read."""

import re

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from repository import ROOT


def read_lock(name: str) -> dict[str, Requirement]:
    """Each line of a lock, without its comment, its hash and its continuation, by the package's name."""
    text = (ROOT / name).read_text(encoding="utf-8").replace("\\\n", " ")
    lines = (re.split(r"\s+(?:#|--hash)", line)[0] for line in text.splitlines() if not line.startswith("#"))
    requirements = [Requirement(line) for line in lines if line.strip()]
    return {canonicalize_name(requirement.name): requirement for requirement in requirements}


def unhashed(name: str) -> list[str]:
    """Return the requirements of a lock that have no hash."""
    text = (ROOT / name).read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return [line.split()[0] for line in lines if not re.search(r"--hash=sha256:[0-9a-f]{64}\b", line)]
