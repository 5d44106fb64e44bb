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
LEARNT_FROM = ("all", "sets", "ours", "labels")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Ready ones are in `training/recipes`; the recipe of a shipped judge stands on its card.

    Older cards have `seeds` and `alone` for what is now `networks`.
    """

    base: str = "smollm2"
    layers: int = 0  # keep only the first so many layers of the base; 0 keeps all
    rank: int = 0  # train only low-rank changes of this rank beside a frozen base; 0 trains all of it
    epochs: int = 2
    batch_size: int = 64
    learning_rate: float = 1e-4
    head_learning_rate: float = 1e-3
    weight_decay: float = 0.01
    warmup: float = 0.1  # part of the steps
    dropout: float = 0.1
    # The chance that emotion, and likewise situation, is left out of an example. With 1 no word of a
    # situation is read: turns of other sets that repeat it are left out too.
    drop_context: float = 0.3
    severity: float = 0.0  # prior standard deviation of a rater's own harshness; 0 leaves it out
    sets: Mapping[str, float] = field(default_factory=dict)  # other rated sets, and the weight of an item
    replies: int = 3  # of a rated conversation that are read in an epoch
    ours: float = 0.0  # the weight of one of our own graded replies beside a label's 1
    grades: float = 0.0  # the weight of a language model's grade of a reply that is in some rated set
    sharpness: float = 1.0  # logits are multiplied by it and the level set; 0 leaves both as trained
    teacher: str = ""  # the recipe, by name or path, of the judge that teaches this one
    teacher_weight: float = 0.8  # how far a rating gives way to what the teacher says of the same reply
    length: float = 0.0  # what the teacher's word on a reply gains towards Good with every e-fold of words
    texts: int = 0  # other replies of the rated conversations, and given texts, that the teacher labels
    shuffled: int = 0  # replies under other prompts that the teacher labels
    pieces: int = 0  # replies with a part left out that the teacher labels
    mixtures: int = 0  # two replies to like prompts made one long one that the teacher labels
    # Networks whose probabilities are averaged, each by what it learns from beside the crowd study's labels:
    # "sets" other rated sets, "ours" our own replies, "all" both, each with grades; "labels" nothing else.
    # With a teacher all learn what it says.
    networks: Sequence[str] = field(default_factory=lambda: ["all"])
    seed: int = 0


def lineage(recipe: Recipe) -> list[Recipe]:
    """A recipe, its teacher's, and so on."""
    found = [recipe]
    while found[-1].teacher:
        teacher = read_recipe(found[-1].teacher)
        if teacher in found:
            raise UserError(f"teacher: the recipe {found[-1].teacher!r} would be its own teacher")
        found.append(teacher)
    return found


def read_recipe(name: str) -> Recipe:
    """A recipe by its name in `training/recipes`, or by the path of a TOML file; unknown keys are refused."""
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
        if wanted is dict:
            _check_sets(value, place)
            continue
        if wanted is list:
            _check_networks(value, place)
            continue
        # By type, not by isinstance: to Python true is a whole number.
        if not (type(value) is wanted or (wanted is float and type(value) is int)):
            raise UserError(f"{place}: {key}: {wanted.__name__} expected, not {value!r}")
        least = 1 if key in AT_LEAST_ONE else 0
        if wanted in (int, float) and not least <= value < inf:
            raise UserError(f"{place}: {key}: {least} or more expected, not {value!r}")
    return Recipe(**table)


def _check_networks(names: Any, place: str) -> None:
    if not isinstance(names, list) or not names or not all(name in LEARNT_FROM for name in names):
        known = ", ".join(map(repr, LEARNT_FROM))
        raise UserError(f"{place}: networks: a list of one or more of {known} expected, not {names!r}")


def _check_sets(table: Any, place: str) -> None:
    if not isinstance(table, dict):
        raise UserError(f"{place}: sets: a table of names and weights expected, not {table!r}")
    for name, weight in table.items():
        if name not in RATED_SETS:
            raise UserError(f"{place}: sets: unknown set {name!r}; known: {', '.join(RATED_SETS)}")
        if type(weight) not in (int, float) or not 0 <= weight < inf:
            raise UserError(f"{place}: sets: {name}: a weight of 0 or more expected, not {weight!r}")
