"""The rubric that a judge applies: a TOML file in `data/rubrics`, identified by its digest."""

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import ClassVar, Literal

from empathy_judge.data.errors import UserError
from empathy_judge.data.files import read_toml
from empathy_judge.data.records import EMPATHY, LABELS
from empathy_judge.data.tables import validate

RUBRICS = Path(__file__).parent / "rubrics"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rubric:
    """What raters were asked."""

    __pydantic_config__: ClassVar = {"extra": "forbid", "str_min_length": 1}

    name: str
    """the file's name"""
    title: str
    """a title for reports"""
    definition: str
    """what is rated"""
    question: str
    """the question to raters"""
    components: dict[str, str]
    """the components of empathy, each with its definition"""
    labels: dict[str, str]
    """the meaning of each label"""
    digest: str
    """the digest of the file"""
    unit: Literal["reply", "conversation"] = "reply"
    """what was rated as one: a reply, or a whole conversation"""
    dimension: str = EMPATHY
    """what was rated: empathy as a whole, or a part of it"""

    @property
    def is_part(self) -> bool:
        """Whether it asks for something else than empathy as a whole."""
        return self.dimension != EMPATHY

    @property
    def note(self) -> str:
        """What every figure by a rubric for a part needs beside it; empty for empathy as a whole."""
        if not self.is_part:
            return ""
        good = self.labels[LABELS[-1]]
        about = f"These figures measure {in_words(self.dimension)}, not empathy as a whole"
        return f"{about}. Good means: {good[0].lower()}{good[1:]}"

    def name_judge(self, kind: str) -> str:
        """Return the name of a judge of this kind that applies the rubric."""
        return f"{kind}:{self.dimension}" if self.is_part else kind


def in_words(dimension: str) -> str:
    """Return a dimension as sentences name it."""
    return dimension.replace("_", " ")


def read_rubric(name: str = "crowd") -> Rubric:
    """Return a shipped rubric by its name, or any rubric by the path of its TOML file."""
    path = Path(name) if name.endswith(".toml") else RUBRICS / f"{name}.toml"
    if not path.exists():
        known = ", ".join(sorted(item.stem for item in RUBRICS.glob("*.toml")))
        raise UserError(f"unknown rubric {name!r}; known: {known}, or the path of a .toml file")
    digest = sha256(path.read_bytes()).hexdigest()[:16]
    rubric = validate(Rubric, read_toml(path), str(path), name=path.stem, digest=digest)
    if tuple(rubric.labels) != LABELS:
        raise UserError(f"{path}: labels: must be {', '.join(LABELS)}, in this order")
    return rubric
