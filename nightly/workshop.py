"""The two things one does with rated exchanges: put a recipe to the test, and make a judge of it."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from data.errors import UserError
from data.files import disk_errors, replacing
from data.records import Exchange
from data.tables import read_exchanges, read_ratings
from judge.examples import Example, join_ratings
from judge.recipe import Recipe, read_recipe
from nightly.cards import state_caveat, write_card
from nightly.printing import steps
from nightly.trials import measure_trial, print_trial

NEEDED = ("torch", "transformers", "sklearn", "safetensors", "onnx", "onnxscript")
# What a card says beside its figures, unless a file given with --about says it better.
ABOUT = {
    "summary": "Says how probably one of its raters would rate a reply Bad, Okay or Good.",
    "licence": "Not stated; the ratings' own licence decides.",
    "data": "",
    "limits": [
        "Intervals cover the choice of prompts, not the error on a model the judge has not met.",
        "Replies unlike those it was trained on are outside what it has met.",
    ],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Materials:
    """What a training needs."""

    examples: list[Example]
    recipe: Recipe
    texts: list[Exchange]
    device: str

    @classmethod
    def read(
        cls,
        exchanges: Path,
        ratings: Path,
        *,
        recipe: str,
        instead: Mapping[str, Any],
        texts: Sequence[Path],
        device: str,
    ) -> "Materials":
        """From files; a recipe with a teacher may also use texts that nobody rated."""
        given = {key: value for key, value in instead.items() if value is not None}
        chosen = replace(read_recipe(recipe), **given)
        if texts and not chosen.teacher:
            raise UserError(f"--texts: the recipe {recipe!r} has no teacher to label them")
        device = _check_machine(device, chosen)
        examples = join_ratings(read_exchanges(exchanges), read_ratings(ratings))
        return cls(
            examples=examples,
            recipe=chosen,
            texts=[exchange for path in texts for exchange in read_exchanges(path)],
            device=device,
        )


def _check_machine(device: str, recipe: Recipe) -> str:
    """The device to train on; what is missing is said now, not after the teacher's hours of training."""
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise UserError(f"training needs {', '.join(missing)}: install the extra packages named `train`")
    import torch

    from judge.network import find_base

    find_base(recipe.base)
    if recipe.teacher:
        find_base(read_recipe(recipe.teacher).base)
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    known = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    if device.partition(":")[0] not in known:
        raise UserError(f"--device: no {device!r} here; use {' or '.join(known)}")
    return device


def try_out(materials: Materials, protocol: str, folder: Path, *, as_json: bool) -> dict[str, Any]:
    """One training for each held-out part; then every metric, with intervals and rivals."""
    from judge.trial import run_trial

    with disk_errors(folder), steps() as (on_split, on_step):
        rows = list(
            run_trial(
                materials.examples,
                materials.recipe,
                protocol,
                folder,
                texts=materials.texts,
                device=materials.device,
                on_split=on_split,
                on_step=on_step,
            )
        )
    evaluation = measure_trial(rows, folder, protocol=protocol)
    if as_json:
        print(json.dumps(evaluation, indent=2))
    else:
        print_trial(evaluation)
    return evaluation


def make(
    materials: Materials, folder: Path, *, evidence: Sequence[Path], about: Path | None, as_json: bool
) -> dict[str, Any]:
    """A judge's folder: `score --judge` takes it through a TOML file with `kind` and `weights`."""
    from judge.making import make_judge
    from judge.trial import plan_training

    plan = plan_training(materials.examples, materials.recipe, materials.texts)
    figures = dict(_read_evidence(folder, plan) for folder in evidence)
    said = ABOUT if about is None else _read_about(about)
    name = "classifier-large" if materials.recipe.rank else "classifier"
    said = {"name": name, **said, "caveat": state_caveat(figures)}
    with disk_errors(folder), steps() as (_, on_step):
        card = make_judge(
            materials.examples,
            materials.recipe,
            folder,
            texts=materials.texts,
            about=said,
            evidence=figures,
            device=materials.device,
            progress=on_step,
        )
    with disk_errors(folder), replacing(folder / "README.md") as partial:
        partial.write_text(write_card(card), encoding="utf-8")
    print(json.dumps(card, indent=2) if as_json else write_card(card))
    return card


def _read_about(path: Path) -> dict[str, Any]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from error
    if set(table) != set(ABOUT):
        raise UserError(f"{path}: has to say {', '.join(ABOUT)}, and nothing else")
    return table


def _read_evidence(folder: Path, plan: dict[str, Any]) -> tuple[str, Any]:
    """A trial's figures, if it tried what is being made."""
    try:
        tried = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
        protocol, found = (
            tried["protocol"],
            json.loads((folder / "evaluation.json").read_text(encoding="utf-8")),
        )
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{folder}: no finished trial here; make one with train --protocol") from error
    if differing := [key for key, value in plan.items() if tried.get(key) != value]:
        raise UserError(
            f"{folder}: tried another {', '.join(differing)}, so its figures are not this judge's"
        )
    return protocol, found
