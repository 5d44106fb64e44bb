"""Everything that decides how a classifier is trained; a TOML file can set any of it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from math import inf
from pathlib import Path
from typing import Any

from data.errors import UserError
from data.files import read_toml
from training.rated_sets import RATED_SETS

RECIPES = Path(__file__).parent / "recipes"
AT_LEAST_ONE = frozenset({"epochs", "batch_size"})
NETWORK_DATA = ("all", "sets", "ours", "labels")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Settings of one training; `training/recipes` has named ones, and a judge's card records its own."""

    base: str = "smollm2"
    layers: int = 0  # keep only the first layers of the base; 0 keeps all
    rank: int = 0  # train only LoRA adapters of this rank beside a frozen base; 0 trains all of it
    epochs: int = 2
    batch_size: int = 64
    learning_rate: float = 1e-4
    head_learning_rate: float = 1e-3
    weight_decay: float = 0.01
    warmup: float = 0.1  # fraction of the steps
    dropout: float = 0.1
    # The probability that the emotion, and likewise the situation, is left out of an example. With 1 no text
    # of a situation is read: turns of other sets that repeat it are left out too.
    drop_context: float = 0.3
    severity: float = 0.0  # prior standard deviation of a rater's severity; 0 leaves the effect out
    sets: Mapping[str, float] = field(default_factory=dict)  # other rated sets, and the weight of an item
    replies: int = 3  # of a rated conversation that are read in an epoch
    ours: float = 0.0  # the weight of a graded reply (`graded_replies.jsonl`) beside a label's 1
    grades: float = 0.0  # the weight of a language model's grade of a reply of a rated set
    sharpness: float = 1.0  # factor on the logits before the level is matched; 0 leaves both as trained
    teacher: str = ""  # the recipe, by name or path, of the judge that this one is distilled from
    teacher_weight: float = 0.8  # weight of the teacher's probabilities against a rating of the same reply
    length: float = 0.0  # shift of the teacher's logit of Good for every e-fold of words
    texts: int = 0  # unrated replies of rated conversations, and of --texts, that the teacher labels
    shuffled: int = 0  # replies under other prompts that the teacher labels
    pieces: int = 0  # replies with a sentence left out that the teacher labels
    mixtures: int = 0  # replies to one prompt joined into a long one that the teacher labels
    # Networks whose probabilities are averaged, each named by its data beside the crowd study's labels:
    # "sets" other rated sets, "ours" graded replies, "all" both, each with grades; "labels" nothing else.
    # With a teacher all learn the teacher's probabilities.
    networks: Sequence[str] = field(default_factory=lambda: ["all"])
    seed: int = 0


def lineage(recipe: Recipe) -> tuple[Recipe, ...]:
    """Return a recipe, its teacher's recipe, and so on."""
    recipes = [recipe]
    while recipes[-1].teacher:
        teacher = read_recipe(recipes[-1].teacher)
        if teacher in recipes:
            raise UserError(f"teacher: the recipe {recipes[-1].teacher!r} would be its own teacher")
        recipes.append(teacher)
    return tuple(recipes)


def read_recipe(name: str) -> Recipe:
    """Read a recipe by its name in `training/recipes` or by the path of a TOML file."""
    path = Path(name) if name.endswith(".toml") else RECIPES / f"{name}.toml"
    if not path.exists():
        known = ", ".join(sorted(item.stem for item in RECIPES.glob("*.toml")))
        raise UserError(f"unknown recipe {name!r}; known: {known}, or the path of a .toml file")
    return build_recipe(read_toml(path), place=str(path))


def build_recipe(table: Mapping[str, Any], *, place: str) -> Recipe:
    """Build a recipe from plain values; refuse unknown keys and values of another type than the default's."""
    defaults = asdict(Recipe())
    for key, value in table.items():
        if key not in defaults:
            known = ", ".join(item.name for item in fields(Recipe))
            raise UserError(f"{place}: unknown key {key!r}; known: {known}")
        expected = type(defaults[key])
        if expected is dict:
            _check_sets(value, place)
            continue
        if expected is list:
            _check_networks(value, place)
            continue
        # By type, not by isinstance: in Python true is an integer.
        if not (type(value) is expected or (expected is float and type(value) is int)):
            raise UserError(f"{place}: {key}: {expected.__name__} expected, not {value!r}")
        least = 1 if key in AT_LEAST_ONE else 0
        if expected in (int, float) and not least <= value < inf:
            raise UserError(f"{place}: {key}: {least} or more expected, not {value!r}")
    return Recipe(**table)


def _check_networks(names: Any, place: str) -> None:
    if not isinstance(names, list) or not names or not all(name in NETWORK_DATA for name in names):
        known = ", ".join(map(repr, NETWORK_DATA))
        raise UserError(f"{place}: networks: a list of one or more of {known} expected, not {names!r}")


def _check_sets(table: Any, place: str) -> None:
    if not isinstance(table, dict):
        raise UserError(f"{place}: sets: a table of names and weights expected, not {table!r}")
    for name, weight in table.items():
        if name not in RATED_SETS:
            raise UserError(f"{place}: sets: unknown set {name!r}; known: {', '.join(RATED_SETS)}")
        if type(weight) not in (int, float) or not 0 <= weight < inf:
            raise UserError(f"{place}: sets: {name}: a weight of 0 or more expected, not {weight!r}")
