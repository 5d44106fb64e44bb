"""Making of the judge `classifier-large`: the default's large teacher as a peft adapter and a head.

`python -m empathy_judge.training.export_adapter TEACHER TRIAL FOLDER` takes the folder `teacher-0` of the
default's training and the folder of a held-out trial of the recipe `teacher-large`. It averages the trial's
predictions with those beside the default's card, and writes the adapter, a card with the figures of the
average, and a calibration.
"""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np

from empathy_judge.data.errors import UserError
from empathy_judge.data.storage import digest_file
from empathy_judge.judge.base import WEIGHTS
from empathy_judge.judge.classifier.judge import ClassifierJudge
from empathy_judge.judge.classifier.large_judge import ADAPTER, HEAD, SETTINGS, LargeJudge
from empathy_judge.judge.classifier.pretrained import PUBLISHED_BASES
from empathy_judge.judge.onnx_model import read_card
from empathy_judge.training.calibration_from_trials import calibrate_again
from empathy_judge.training.make import NETWORK
from empathy_judge.training.model_card import state_caveat, write_card, write_judge_card
from empathy_judge.training.recipe import read_recipe
from empathy_judge.training.trials import JUDGE, measure_trial, read_rows, write_predictions

RECIPE: Final = "teacher-large"
SUMMARY: Final = (
    "Estimates the probability that a rater of the study rates a reply Bad, Okay or Good: the mean of a "
    "large network's and the default judge's log-probabilities."
)

_LORA = re.compile(r"base\.(layers\.(\d+)\..*\.(\w+))\.(down|up)")


def write_adapter(network: Path, folder: Path) -> dict[str, str]:
    """Convert a network that `save_network` wrote; return the SHA-256 of each written file.

    The scale of `LoraLinear` is 2, so `lora_alpha` is twice the rank. Weights stay in half precision. The
    recipe must keep all layers of its base.
    """
    from safetensors.torch import load_file, save_file

    adapter, head, layers, modules, ranks = {}, {}, set(), set(), set()
    for name, tensor in load_file(network).items():
        if found := _LORA.fullmatch(name):
            path, layer, module, side = found.groups()
            letter, rank = ("A", len(tensor)) if side == "down" else ("B", tensor.shape[1])
            adapter[f"base_model.model.{path}.lora_{letter}.weight"] = tensor
            layers.add(int(layer))
            modules.add(module)
            ranks.add(rank)
        elif name.startswith("head."):
            head[name.removeprefix("head.")] = tensor
        else:
            raise UserError(f"{network}: {name} is neither of a LoRA adapter nor of the head")
    if len(ranks) != 1 or set(head) != {"weight", "bias"}:
        raise UserError(f"{network}: adapters of one rank and a head are needed; train with rank above 0")
    (rank,) = ranks
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": 2 * rank,
        "target_modules": sorted(modules),
        "layers_to_transform": sorted(layers),
        "layers_pattern": "layers",
        "inference_mode": True,
    }
    (folder / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    save_file(adapter, folder / ADAPTER)
    save_file(head, folder / HEAD)
    return {name: digest_file(folder / name) for name in (ADAPTER, SETTINGS, HEAD)}


def make_large(teacher: Path, trial: Path, folder: Path) -> dict[str, Any]:
    """Write the judge's files, its held-out predictions, its card and its calibration."""
    default = read_card(WEIGHTS / ClassifierJudge.name)
    recipe = read_recipe(RECIPE)
    files = write_adapter(teacher / NETWORK.format(0), folder)
    rows = average_rows(list(read_rows(trial)), list(read_rows(WEIGHTS / ClassifierJudge.name)))
    write_predictions(folder, rows)
    evidence = {name: figures for name, figures in measure_trial(rows).items() if name != "protocol"}
    card = {
        "files": files,
        "base": asdict(PUBLISHED_BASES[recipe.base]),
        "average_with": ClassifierJudge.name,
        "int8": {},
        **{key: default[key] for key in ("licence", "limits", "trained_on", "rated", "length")},
        "data": f"The large network is a teacher of the default judge. Data of that: {default['data']}",
        "name": LargeJudge.name,
        "summary": SUMMARY,
        "caveat": state_caveat(evidence),
        "recipe": asdict(recipe),
        "provenance": {**default["provenance"], "teachers": [], "targets": ""},
        "evidence": evidence,
    }
    write_judge_card(folder, card)
    calibrate_again(folder, LargeJudge)
    return card


def average_rows(
    first: Sequence[Mapping[str, Any]], second: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return rows of the same replies with the mean of both judges' log-probabilities."""
    if [_key(row) for row in first] != [_key(row) for row in second]:
        raise UserError("the two trials predict different replies: they need the same data and splits")
    return [_average_row(one, other) for one, other in zip(first, second, strict=True)]


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in ("protocol", "split", "set", "id", "batch"))


def _average_row(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    if "predictions" in one:
        mean = _average(one["predictions"][JUDGE], other["predictions"][JUDGE])
        return {**one, "predictions": {**one["predictions"], JUDGE: mean}}
    tables = [name for name in ("probabilities", "own", "other", "constant") if name in one]
    return {**one, **{name: _average(one[name], other[name]) for name in tables}}


def _average(one: Sequence[float], other: Sequence[float]) -> list[float]:
    product = np.sqrt(np.array(one) * np.array(other))
    return [round(float(part), 5) for part in product / product.sum()]


if __name__ == "__main__":
    print(write_card(make_large(*map(Path, sys.argv[1:]))))
