"""Everything that decides how a classifier is trained; a TOML file can set any of it."""

from dataclasses import asdict, dataclass, fields
from math import inf
from pathlib import Path
from typing import Any

from data.errors import UserError
from data.files import read_toml

RECIPES = Path(__file__).parents[1] / "recipes"
AT_LEAST_ONE = frozenset({"epochs", "batch_size", "seeds"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The recipes of the shipped judges are in `judge/recipes`."""

    base: str = "minilm"
    rank: int = 0  # train only low-rank changes of this rank beside a frozen base; 0 trains all of it
    epochs: int = 3
    batch_size: int = 32
    learning_rate: float = 5e-5
    head_learning_rate: float = 1e-3
    weight_decay: float = 0.01
    warmup: float = 0.1  # part of the steps
    dropout: float = 0.1
    drop_context: float = 0.3  # chance that emotion, and likewise situation, is left out of an example
    style: bool = True  # let the head see the counts of `judge.style`
    ordinal: bool = False  # one direction for all three labels instead of a softmax over them
    severity: float = 0.0  # prior standard deviation of a rater's own harshness; 0 leaves it out
    mismatched: float = 0.0  # made examples, as a part of the rated ones
    dismissals: float = 0.0
    disguised: float = 0.0  # unkind replies behind kind words, or behind orders to the judge
    sharpness: float = 1.0  # logits are multiplied by it and the level set; 0 leaves both as trained
    teacher: str = ""  # the recipe, by name or path, of the judge that teaches this one
    teacher_weight: float = 0.7  # how far a rating gives way to what the teacher says of the same reply
    texts: float = 1.0  # part of the unrated texts that the teacher labels
    shuffled: int = 0  # replies under other prompts that the teacher labels
    pieces: int = 0  # replies with a part left out that the teacher labels
    seeds: int = 1  # networks trained alike, whose probabilities are averaged
    seed: int = 0


def read_recipe(name: str) -> Recipe:
    """A recipe by its name in `judge/recipes`, or by the path of a TOML file; unknown keys are refused."""
    path = Path(name) if name.endswith(".toml") else RECIPES / f"{name}.toml"
    if not path.exists():
        known = ", ".join(sorted(item.stem for item in RECIPES.glob("*.toml")))
        raise UserError(f"unknown recipe {name!r}; known: {known}, or the path of a .toml file")
    return build_recipe(read_toml(path), place=str(path))


def build_recipe(table: dict[str, Any], *, place: str) -> Recipe:
    """A recipe from plain values, each checked against the type of its default."""
    defaults = asdict(Recipe())
    for key, value in table.items():
        if key not in defaults:
            known = ", ".join(item.name for item in fields(Recipe))
            raise UserError(f"{place}: unknown key {key!r}; known: {known}")
        wanted = type(defaults[key])
        # By type, not by isinstance: to Python true is a whole number.
        if not (type(value) is wanted or (wanted is float and type(value) is int)):
            raise UserError(f"{place}: {key}: {wanted.__name__} expected, not {value!r}")
        least = 1 if key in AT_LEAST_ONE else 0
        if wanted in (int, float) and not least <= value < inf:
            raise UserError(f"{place}: {key}: {least} or more expected, not {value!r}")
    return Recipe(**table)
