"""The rubric a judge applies: a TOML file in `data/rubrics`, known by the hash of its content."""

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from data.errors import UserError
from data.files import read_toml
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
    table = read_toml(path)
    expected = {"title", "definition", "question", "components", "labels"}
    if set(table) != expected:
        odd = ", ".join(sorted(set(table) ^ expected))
        raise UserError(f"{path}: a rubric has {', '.join(sorted(expected))}; missing or unknown: {odd}")
    for key, value in table.items():
        wanted = key in ("components", "labels")
        texts = list(value.values()) if wanted and isinstance(value, dict) else [value]
        if isinstance(value, dict) != wanted or not all(isinstance(text, str) for text in texts):
            raise UserError(f"{path}: {key}: {'a table of texts' if wanted else 'a text'} was expected")
    if tuple(table["labels"]) != LABELS:
        raise UserError(f"{path}: labels: must be {', '.join(LABELS)}, in this order")
    return Rubric(name=path.stem, digest=sha256(path.read_bytes()).hexdigest()[:16], **table)
