"""The rubric a judge applies: a TOML file in `data/rubrics`, known by the hash of its content."""

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from data.errors import UserError
from data.files import read_toml
from data.records import EMPATHY, LABELS, REPLY, UNITS

RUBRICS = Path(__file__).parent / "rubrics"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rubric:
    """What raters were asked: the components of empathy, the question and what each label means.

    `unit` is what they rated as one: a reply, or a whole conversation. `dimension` is what they rated in it:
    empathy as a whole, or a part of it.
    """

    name: str
    title: str
    definition: str
    question: str
    components: dict[str, str]
    labels: dict[str, str]
    digest: str
    unit: str = REPLY
    dimension: str = EMPATHY

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
        about = f"These figures are of {in_words(self.dimension)}, not of empathy as a whole"
        return f"{about}. Good means: {good[0].lower()}{good[1:]}"

    def name_judge(self, kind: str) -> str:
        """The name of a judge of this kind that applies it.

        >>> read_rubric().name_judge("prompted"), read_rubric("politeness").name_judge("prompted")
        ('prompted', 'prompted:politeness')
        """
        return f"{kind}:{self.dimension}" if self.is_part else kind


def in_words(dimension: str) -> str:
    """A dimension as sentences name it.

    >>> in_words("emotional_reactions")
    'emotional reactions'
    """
    return dimension.replace("_", " ")


def read_rubric(name: str = "crowd") -> Rubric:
    """A shipped rubric by name, or any rubric by the path of its TOML file."""
    path = Path(name) if name.endswith(".toml") else RUBRICS / f"{name}.toml"
    if not path.exists():
        known = ", ".join(sorted(item.stem for item in RUBRICS.glob("*.toml")))
        raise UserError(f"unknown rubric {name!r}; known: {known}, or the path of a .toml file")
    table = read_toml(path)
    unit, dimension = table.pop("unit", REPLY), table.pop("dimension", EMPATHY)
    if not isinstance(dimension, str) or not dimension:
        raise UserError(f"{path}: dimension: a name was expected, such as {EMPATHY!r}")
    if unit not in UNITS:
        raise UserError(f"{path}: unit: {' or '.join(UNITS)}, not {unit!r}")
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
    digest = sha256(path.read_bytes()).hexdigest()[:16]
    return Rubric(name=path.stem, digest=digest, unit=unit, dimension=dimension, **table)
