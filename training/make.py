"""Making of a judge: train, export to ONNX, and write a card from which the same judge can be built again."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np

from data.errors import OperationalError, UserError
from data.files import disk_errors, read_toml, replacing
from data.rated_range import rated_range_of
from data.records import LABELS, Exchange, digest_json, shape_of, to_plain
from data.storage import digest_file
from judge.classifier.gpu_backend import CONFIG_KEYS
from judge.classifier.judge import ClassifierJudge
from judge.classifier.preprocessing import normalize
from judge.onnx_model import CARD, MODEL, TOKENIZER
from training.environment import find_base, make_deterministic, package_versions
from training.export import export_onnx, quantize_onnx, shift_exported, write_decoder
from training.fine_tune import Progress, match_shares, train_judge, trainable_networks
from training.graded_replies import read_graded_replies
from training.model_card import DEFAULT_TEXT, state_caveat, write_card
from training.network import TrainedNetworks, load_network, save_network
from training.recipe import Recipe
from training.training_data import TrainingData
from training.trials import check_plan, fit_length, plan_training, read_finished
from training.vocabulary import prune_vocabulary

NETWORK = "network-{}.safetensors"  # trained parameters, from which an interrupted training resumes
TEACHER = "teacher"  # the subfolder of a judge's teacher
BASE_FILES = ("*.gguf", "*.safetensors", "*.bin", "config.json", "tokenizer.json")
COMPARED = 100  # replies on which int8 is compared with full precision
CALIBRATION_REPLIES = 60  # replies by which the weights of a decoder are quantized
MAX_INT8_CHANGE = 0.02  # of the mean score; beyond it int8 would cost more than it saves


def make_judge(
    data: TrainingData,
    recipes: Sequence[Recipe],
    folder: Path,
    *,
    text: Mapping[str, Any],
    evidence: Mapping[str, Any],
    device: str = "cpu",
    threads: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Train on all data, export, and write the card last; networks that were trained before are reused.

    The card records all that decides about the weights, so `rebuild_judge` can make them again.
    """
    if recipes[0].rank:
        raise UserError("rank: networks with LoRA adapters are teachers only; set rank = 0 to make a judge")
    threads = make_deterministic(threads)
    with disk_errors(folder):
        trained = _train_or_resume(data, recipes, folder, device=device, progress=progress)
        # Written beside and then moved: an interrupted export leaves the files of the last one.
        with TemporaryDirectory() as scratch:
            read = data.for_recipe(recipes[0])
            replies = read.exchanges()[: len(data.ratings) or None]
            graded = read_graded_replies() if any(recipe.ours for recipe in recipes) else ()
            texts = [*read.exchanges(), *read.texts, *(reply.exchange for reply in graded)]
            exported = export(trained, Path(scratch), replies, texts)
            for name in exported["files"]:
                with replacing(folder / name) as partial:
                    partial.write_bytes((Path(scratch) / name).read_bytes())
        plan = plan_training(data, recipes)
        card = {
            **exported,
            **text,
            "recipe": plan.pop("recipe"),
            "provenance": {
                **plan,
                "bases": {recipe.base: digest_base(recipe.base) for recipe in recipes},
                "device": device,
                "threads": threads,
                "packages": package_versions(),
            },
            "trained_on": data.describe(),
            "rated": to_plain(rated_range_of(shape_of(exchange) for exchange in data.exchanges())),
            "length": fit_length(data.ratings),
            "evidence": dict(evidence),
        }
        with replacing(folder / CARD) as partial:
            partial.write_text(json.dumps(card, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        with replacing(folder / "README.md") as partial:
            partial.write_text(write_card(card), encoding="utf-8")
    return card


def digest_base(name: str) -> str:
    """Return one digest of a base's weights, configuration and tokenizer."""
    files = sorted(path for pattern in BASE_FILES for path in find_base(name).glob(pattern))
    return digest_json([digest_file(path) for path in files])


def _train_or_resume(
    data: TrainingData, recipes: Sequence[Recipe], folder: Path, *, device: str, progress: Progress | None
) -> TrainedNetworks:
    """Return a judge's networks; those of its teacher are a judge of their own in a subfolder."""
    recipe, *teachers = recipes
    check_plan(folder, plan_training(data, recipes), kind="judge")
    paths = [folder / NETWORK.format(number) for number in range(len(trainable_networks(recipe, data)))]
    if not all(path.exists() for path in paths):
        teacher = None
        if teachers:
            # A judge that may not read situations may not learn them from its teacher either.
            read = data.for_recipe(recipe)
            teacher = _train_or_resume(read, teachers, folder / TEACHER, device=device, progress=progress)
            for network in teacher.networks:
                network.to(device)
        trained = train_judge(data, recipes, teacher=teacher, device=device, progress=progress)
        for network, path in zip(trained.networks, paths, strict=True):
            with replacing(path) as partial:
                save_network(network, partial)
    # As saved, in half precision, so that a resumed training makes the same judge.
    loaded = [load_network(recipe, path) for path in paths]
    return TrainedNetworks([network for network, _ in loaded], loaded[0][1])


def export(
    trained: TrainedNetworks, folder: Path, exchanges: Sequence[Exchange], texts: Sequence[Exchange] = ()
) -> dict[str, Any]:
    """Write a judge's files; return the card's entries about them and about the effect of int8.

    The vocabulary of a decoder is pruned to the tokens of these exchanges and of `texts`.
    Where int8 changes the scores too much an encoder stays in full precision, and `int8` is empty.
    """
    step = max(1, len(exchanges) // COMPARED)
    # Normalized as in scoring, so that only quantization differs; weights are quantized by other replies.
    chosen, others = (
        [replace(exchange, response=normalize(exchange.response)) for exchange in exchanges[start::step]]
        for start in (0, step // 2)
    )
    for network in trained.networks:
        network.cpu().float()
    exact = trained.predict(chosen, batch_size=1)
    card: dict[str, Any] = {}
    if trained.tokenizer.is_decoder:
        settings = cast(Any, trained.networks[0].base).config.to_dict()
        card["config"] = {name: settings[name] for name in CONFIG_KEYS}
    names = [MODEL, TOKENIZER]
    if not trained.tokenizer.is_decoder:
        full_precision = export_onnx(trained.networks, trained.tokenizer, folder).read_bytes()
        quantize_onnx(folder / MODEL)
    elif len(trained.networks) == 1:
        pruned = prune_vocabulary(trained, [*exchanges, *texts])
        run = partial(pruned.predict, others[:CALIBRATION_REPLIES], batch_size=1)
        names = write_decoder(pruned.networks[0], pruned.tokenizer, folder, run)
    else:
        raise UserError("networks: a decoder is exported as one network; name one")
    quantized = _predict_exported(folder, names, card, chosen)
    # Quantization shifts the level, which a bias restores.
    shift_exported(folder / MODEL, match_shares(np.log(quantized + 1e-6), exact.mean(axis=0)))
    quantized = _predict_exported(folder, names, card, chosen)
    change = describe_change(exact, quantized)
    if change["mean_score"] > MAX_INT8_CHANGE:
        if trained.tokenizer.is_decoder:
            raise UserError(
                f"int8 quantization shifts scores by {change['mean_score']:.3f} on average (limit "
                f"{MAX_INT8_CHANGE}), so this base cannot be quantized"
            )
        (folder / MODEL).write_bytes(full_precision)
        change = {}
    return {"files": hash_files(folder, names), **card, "int8": change}


def describe_change(exact: np.ndarray, quantized: np.ndarray) -> dict[str, float]:
    """Return how far int8 probabilities deviate from those in full precision."""
    ratings = np.arange(1, len(LABELS) + 1)
    change = quantized - exact
    return {
        "replies": len(exact),
        "largest_probability": round(float(np.abs(change).max()), 4),
        "mean_score": round(float(np.abs(change @ ratings).mean()), 4),
        "score_correlation": round(float(np.corrcoef(quantized @ ratings, exact @ ratings)[0, 1]), 4),
        "good_share": round(float(change[:, -1].mean()), 4),
    }


def _predict_exported(
    folder: Path, names: Sequence[str], card: Mapping[str, Any], exchanges: Sequence[Exchange]
) -> np.ndarray:
    """Predict with the judge itself, from a card with the least that it needs."""
    (folder / CARD).write_text(
        json.dumps({"files": hash_files(folder, names), "caveat": "", **card}), encoding="utf-8"
    )
    judge = ClassifierJudge(weights=str(folder))
    return np.array([judge.predict(exchange) for exchange in exchanges])


def hash_files(folder: Path, names: Sequence[str] = (MODEL, TOKENIZER)) -> dict[str, str]:
    """Return the SHA-256 of each file, which a judge checks before its first judgment."""
    return {name: sha256((folder / name).read_bytes()).hexdigest() for name in names}


def read_evidence(folders: Sequence[Path], plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of trials by protocol; refuse those of another recipe or other data."""
    evidence = {}
    for folder in folders:
        tried, evaluation = read_finished(folder)
        evidence[tried["protocol"]] = evaluation
        if differing := [key for key, value in plan.items() if tried.get(key) != value]:
            raise UserError(
                f"{folder}: a trial with another {', '.join(differing)}, so its figures are not this judge's"
            )
    return evidence


def card_text(about: Path | None, evidence: Mapping[str, Any]) -> dict[str, Any]:
    """Return the name, the texts and the caveat of a new judge's card."""
    text = DEFAULT_TEXT if about is None else read_toml(about)
    if set(text) != set(DEFAULT_TEXT):
        raise UserError(f"{about}: needs the keys {', '.join(DEFAULT_TEXT)}, and no others")
    return {"name": "classifier", **text, "caveat": state_caveat(evidence)}


def rebuild_judge(
    card: Mapping[str, Any],
    data: TrainingData,
    recipes: Sequence[Recipe],
    folder: Path,
    *,
    device: str,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Build a judge again from what its card records; fail if the files are not the same."""
    recorded = card["provenance"]
    present = {
        **data.digests(recipes),
        **{f"base {recipe.base}": digest_base(recipe.base) for recipe in recipes},
    }
    expected = {
        **recorded["digests"],
        **{f"base {name}": digest for name, digest in recorded["bases"].items()},
    }
    for name in dict.fromkeys((*expected, *present)):
        if expected.get(name) != present.get(name):
            found, wanted = (each.get(name, "of nothing") for each in (present, expected))
            raise UserError(f"{name}: not the data on the card (digest {found}; on the card {wanted})")
    rebuilt = make_judge(
        data,
        recipes,
        folder,
        text={key: card[key] for key in ("name", *DEFAULT_TEXT, "caveat")},
        evidence=card["evidence"],
        device=device,
        threads=recorded["threads"],
        progress=progress,
    )
    if differing := [name for name in card["files"] if rebuilt["files"].get(name) != card["files"][name]]:
        versions = ", ".join(
            f"{name} {found} (on the card {recorded['packages'].get(name)})"
            for name, found in package_versions().items()
            if recorded["packages"].get(name) != found
        )
        reason = versions or "the packages are the same"
        raise OperationalError(f"{folder}: {', '.join(differing)} differ from the card's: {reason}")
    return rebuilt
