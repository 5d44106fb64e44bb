"""Makes a judge to ship: trained networks, their ONNX form, and a card that says what is known of it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from data.errors import UserError
from data.files import replacing
from data.records import LABELS, Exchange
from judge.classifier import CARD, MODEL, TOKENIZER, ClassifierJudge
from judge.examples import Example
from judge.recipe import Recipe
from judge.rivals import fit_length
from judge.training import Progress, Trained
from judge.trial import digest_examples, plan_training

NETWORK = "network-{}.safetensors"
PLAN = "plan.json"
COMPARED = 500  # replies on which int8 is held against full precision
LARGEST_CHANGE = 0.02  # of the mean score; beyond it int8 would cost more than it saves


def make_judge(
    examples: Sequence[Example],
    recipe: Recipe,
    folder: Path,
    *,
    texts: Sequence[Exchange] = (),
    about: Mapping[str, Any],
    evidence: Mapping[str, Any],
    device: str = "cpu",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Train on everything, export, and write the card last; networks already trained are taken up again."""
    from judge.teaching import train_judge

    plan = plan_training(examples, recipe, texts)
    trained = _take_up(folder, plan, recipe)
    if trained is None:
        trained = train_judge(examples, recipe, texts=texts, device=device, progress=progress)
        _keep(folder, plan, trained)
    if recipe.rank:  # the changes to the base are the judge: `judge.large` merges them when it is first used
        change, names = {}, tuple(NETWORK.format(number) for number in range(recipe.seeds))
    else:
        exchanges = [example.exchange for example in examples]
        change, names = _export_into(folder, trained, exchanges), (MODEL, TOKENIZER)
    card = {
        "files": hash_files(folder, names),
        "is_decoder": trained.wording.is_decoder,
        **about,
        "recipe": asdict(recipe),
        "trained_on": describe(examples),
        "int8": change,
        "length": fit_length(examples),
        "evidence": dict(evidence),
    }
    with replacing(folder / CARD) as partial:
        partial.write_text(json.dumps(card, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return card


def _export_into(folder: Path, trained: Trained, exchanges: Sequence[Exchange]) -> dict[str, float]:
    """Made beside, then moved: a broken export leaves the files of the last one."""
    with TemporaryDirectory() as scratch:
        change = export(trained, Path(scratch), exchanges)
        for name in (MODEL, TOKENIZER):
            with replacing(folder / name) as partial:
                partial.write_bytes((Path(scratch) / name).read_bytes())
    return change


def describe(examples: Sequence[Example]) -> dict[str, Any]:
    """The training data in numbers."""
    shares = np.mean([example.target for example in examples], axis=0)
    return {
        "ratings": len(examples),
        "raters": len({example.rater for example in examples}),
        "models": sorted({example.exchange.model for example in examples}),
        "shares": {label: round(float(share), 4) for label, share in zip(LABELS, shares, strict=True)},
        "digest": digest_examples(examples),
    }


def export(trained: Trained, folder: Path, exchanges: Sequence[Exchange]) -> dict[str, float]:
    """Export in int8 and say what that changed; in full precision, and nothing said, where it is too much."""
    from judge.export import export_onnx, quantize_onnx, shift_exported
    from judge.teaching import match_shares

    chosen = exchanges[:: max(1, len(exchanges) // COMPARED)]
    exact = trained.predict(chosen, batch_size=1)
    full_precision = export_onnx(trained.networks, trained.wording, folder, int8=False).read_bytes()
    quantize_onnx(folder / MODEL)
    rounded = _predict_exported(trained, folder, chosen)
    # Rounding takes some of the level with it, which can be given back.
    shift_exported(folder / MODEL, match_shares(np.log(rounded + 1e-6), exact.mean(axis=0)))
    change = _predict_exported(trained, folder, chosen) - exact
    ratings = np.arange(1, len(LABELS) + 1)
    if float(np.abs(change @ ratings).mean()) > LARGEST_CHANGE:
        (folder / MODEL).write_bytes(full_precision)
        return {}
    return {
        "replies": len(chosen),
        "largest_probability": round(float(np.abs(change).max()), 4),
        "mean_score": round(float(np.abs(change @ ratings).mean()), 4),
        "score_correlation": round(float(np.corrcoef((change + exact) @ ratings, exact @ ratings)[0, 1]), 4),
        "good_share": round(float(change[:, -1].mean()), 4),
    }


def _predict_exported(trained: Trained, folder: Path, exchanges: Sequence[Exchange]) -> np.ndarray:
    """Through the judge itself, on a card that says no more than it must."""
    card = {"files": hash_files(folder), "caveat": "", "is_decoder": trained.wording.is_decoder}
    (folder / CARD).write_text(json.dumps(card), encoding="utf-8")
    judge = ClassifierJudge(weights=str(folder))
    return np.array([judge.predict(exchange) for exchange in exchanges])


def hash_files(folder: Path, names: Sequence[str] = (MODEL, TOKENIZER)) -> dict[str, str]:
    """What a card states and a judge checks before its first judgment."""
    return {name: sha256((folder / name).read_bytes()).hexdigest() for name in names}


def _keep(folder: Path, plan: dict[str, Any], trained: Trained) -> None:
    from judge.network import save_network

    folder.mkdir(parents=True, exist_ok=True)
    for number, network in enumerate(trained.networks):
        with replacing(folder / NETWORK.format(number)) as partial:
            save_network(network, partial)
    with replacing(folder / PLAN) as partial:
        partial.write_text(json.dumps(plan, indent=2) + "\n", encoding="utf-8")


def _take_up(folder: Path, plan: dict[str, Any], recipe: Recipe) -> Trained | None:
    """Networks of the same recipe and data, if a training of them ended here."""
    from judge.network import load_network

    path = folder / PLAN
    if not path.exists():
        return None
    try:
        there = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return None  # damaged: trained again
    if there != plan:
        raise UserError(f"{folder}: holds a judge of another recipe or other ratings; give another --out")
    found = [load_network(recipe, folder / NETWORK.format(number)) for number in range(recipe.seeds)]
    return Trained([network for network, _ in found], found[0][1])
