"""The rubric a judge applies: a TOML file in `data/rubrics`, known by the hash of its content."""

import tomllib
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from data.errors import UserError
from data.records import LABELS

RUBRICS = Path(__file__).parent / "rubrics"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rubric:
    """What raters were asked: the components of empathy, the question and what each label means."""

    name: str
    title: str
    definition: str
    question: str
    components: dict[str, str]
    labels: dict[str, str]
    digest: str


def read_rubric(name: str = "crowd") -> Rubric:
    """A shipped rubric by name, or any rubric by the path of its TOML file."""
    path = Path(name) if name.endswith(".toml") else RUBRICS / f"{name}.toml"
    if not path.exists():
        known = ", ".join(sorted(item.stem for item in RUBRICS.glob("*.toml")))
        raise UserError(f"unknown rubric {name!r}; known: {known}, or the path of a .toml file")
    content = path.read_bytes()
    try:
        table = tomllib.loads(content.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not TOML: {error}") from error
    expected = {"title", "definition", "question", "components", "labels"}
    if set(table) != expected:
        odd = ", ".join(sorted(set(table) ^ expected))
        raise UserError(f"{path}: a rubric has {', '.join(sorted(expected))}; missing or unknown: {odd}")
    if tuple(table["labels"]) != LABELS:
        raise UserError(f"{path}: labels: must be {', '.join(LABELS)}, in this order")
    return Rubric(name=path.stem, digest=sha256(content).hexdigest()[:16], **table)
