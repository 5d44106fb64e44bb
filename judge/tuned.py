"""The file of a tuned program: readable, and known by the hash of its content."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from data.errors import UserError
from data.files import disk_errors, replacing
from data.rubric import Rubric
from judge.program import Demo, Mode, Program

FORMAT: Final = 1
NOTE: Final = (
    "The demos are exchanges from the ratings this program was tuned on, with what people called them: "
    "whoever gets this file gets those texts. Change nothing by hand: a changed file is refused."
)


def write_program(path: Path, program: Program, *, rubric: Rubric, about: Mapping[str, Any]) -> str:
    """Keep a tuned program with all that is known `about` it; returns the file's own hash.

    The demos are texts from the ratings it was tuned on: such a file may not go further than they may.
    """
    content = {
        "format": FORMAT,
        "note": NOTE,
        "mode": program.mode,
        "rubric": rubric.digest,
        "instructions": program.instructions,
        "demos": [dict(demo) for demo in program.demos],
        "about": dict(about),
    }
    digest = _digest(content)
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as partial:
            text = json.dumps({**content, "sha256": digest}, indent=2, ensure_ascii=False)
            partial.write_text(text + "\n", encoding="utf-8")
    return digest


def read_program(path: Path, rubric: Rubric, mode: Mode) -> Program:
    """A tuned program, if it is whole and was made for this rubric and mode."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        json.dumps(content, ensure_ascii=False).encode()  # half a character is none, and no model takes it
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file; make one with optimize") from error
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: not a tuned program, or damaged: {error}; tune it again") from error
    needed = {"sha256", "format", "mode", "rubric", "instructions", "demos"}
    if not isinstance(content, dict) or not needed <= set(content):
        raise UserError(f"{path}: not a tuned program; make one with optimize")
    stated = content.pop("sha256")
    if _digest(content) != stated:
        raise UserError(f"{path}: changed since it was made (its hash does not fit); tune it again")
    if content["format"] != FORMAT:
        raise UserError(f"{path}: format {content['format']!r} is not known here; tune it again")
    if content["rubric"] != rubric.digest:
        raise UserError(f"{path}: tuned for another rubric than {rubric.name!r}; tune it again for this one")
    if content["mode"] != mode:
        raise UserError(f'{path}: tuned for mode = "{content["mode"]}", not "{mode}"')
    if not isinstance(content["instructions"], str) or not _are_demos(content["demos"]):
        raise UserError(f"{path}: instructions and demos are not as we write them; tune it again")
    demos: tuple[Demo, ...] = tuple(content["demos"])
    return Program(mode=mode, instructions=content["instructions"], demos=demos, digest=stated)


def _are_demos(found: Any) -> bool:
    rows = found if isinstance(found, list) else [None]
    return all(isinstance(row, dict) and all(isinstance(text, str) for text in row.values()) for row in rows)


def candidate_digest(program: Program) -> str:
    """What tells two candidates apart."""
    return _digest(asdict(program))[:12]


def _digest(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True)  # in ASCII: any text can be hashed
    return sha256(text.encode()).hexdigest()
