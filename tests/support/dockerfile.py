"""The Dockerfile as Docker reads it."""

import re

from repository import ROOT


def stages() -> dict[str, list[tuple[str, str]]]:
    """The instructions of each stage."""
    text = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    found: dict[str, list[tuple[str, str]]] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, rest = line.split(None, 1)
            if name == "FROM":
                steps = found.setdefault(rest.rpartition(" AS ")[2], [])
            steps.append((name, rest))
    return found


def sent() -> set[str]:
    """What .dockerignore lets through, at the top."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert "*" in lines
    return {line[1:] for line in lines if line.startswith("!")}
