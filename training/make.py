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

from empathy_judge.data.errors import OperationalError, UserError
from empathy_judge.data.files import disk_errors, read_toml, replacing
from empathy_judge.data.rated_range import rated_range_of
from empathy_judge.data.records import LABELS, Exchange, digest_json, reply_features, to_plain
from empathy_judge.data.storage import digest_file
from empathy_judge.judge.classifier.gpu_backend import CONFIG_KEYS
from empathy_judge.judge.classifier.judge import SAMPLE, SAMPLE_KEY, ClassifierJudge
from empathy_judge.judge.classifier.preprocessing import normalize
from empathy_judge.judge.onnx_model import CARD, MODEL, TOKENIZER
from empathy_judge.training.environment import find_base, make_deterministic, package_versions
from empathy_judge.training.export import export_onnx, quantize_onnx, shift_exported, write_decoder
from empathy_judge.training.fine_tune import (
    DistillationTexts,
    Progress,
    distillation_texts,
    match_shares,
    predict_targets,
    train_judge,
    trainable_networks,
)
from empathy_judge.training.graded_replies import read_graded_replies
from empathy_judge.training.model_card import DEFAULT_TEXT, state_caveat, write_judge_card
from empathy_judge.training.network import TrainedNetworks, load_network, save_network
from empathy_judge.training.recipe import RECIPES, Recipe
from empathy_judge.training.training_data import TrainingData
from empathy_judge.training.trials import check_plan, fit_length, plan_training, read_finished
from empathy_judge.training.vocabulary import prune_vocabulary

NETWORK = "network-{}.safetensors"  # trained parameters, from which an interrupted training resumes
TEACHER = "teacher-{}"  # the subfolder of one of a judge's teachers
TARGETS = "targets.npz"  # the teachers' probabilities, by the digests of the texts
# Mean change of P(Good) that another machine may cause; two trainings on two GPUs differed by 0.014.
MAX_REBUILT_CHANGE, REBUILT_REPLIES = 0.02, 200
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
    bases: Mapping[str, str] | None = None,
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
            replies = read.exchanges()[: len(read.ratings) or None]
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
                "targets": digest_file(folder / TARGETS) if len(recipes) > 1 else "",
                "bases": bases or {recipe.base: digest_base(recipe.base) for recipe in recipes},
                "device": device,
                "threads": threads,
                "packages": package_versions(),
            },
            "trained_on": data.describe(recipes),
            "rated": to_plain(rated_range_of(reply_features(exchange) for exchange in data.exchanges())),
            "length": fit_length(read.ratings),
            "evidence": dict(evidence),
        }
        write_judge_card(folder, card)
    return card


def digest_base(name: str) -> str:
    """Return one digest of a base's weights, configuration and tokenizer."""
    files = sorted(path for pattern in BASE_FILES for path in find_base(name).glob(pattern))
    return digest_json([digest_file(path) for path in files])


def _train_or_resume(
    data: TrainingData, recipes: Sequence[Recipe], folder: Path, *, device: str, progress: Progress | None
) -> TrainedNetworks:
    """Return a judge's networks; its teachers have subfolders, and their probabilities a file."""
    recipe, *teachers = recipes
    check_plan(folder, plan_training(data, recipes), kind="judge")
    paths = [
        folder / NETWORK.format(number)
        for number in range(len(trainable_networks(recipe, data.for_recipe(recipe))))
    ]
    if not all(path.exists() for path in paths):
        targets = None
        if teachers:
            # A judge that may not read situations may not learn them from its teachers either.
            read = data.for_recipe(recipe)
            texts = distillation_texts(read, recipe)
            if not (folder / TARGETS).exists():
                trained_teachers = [
                    _train_or_resume(
                        read, [teacher], folder / TEACHER.format(number), device=device, progress=progress
                    )
                    for number, teacher in enumerate(teachers)
                ]
                for network in (each for teacher in trained_teachers for each in teacher.networks):
                    network.to(device)
                write_targets(folder / TARGETS, texts, predict_targets(trained_teachers, texts))
            targets = read_targets(folder / TARGETS, texts)
        trained = train_judge(data, recipes, targets=targets, device=device, progress=progress)
        for network, path in zip(trained.networks, paths, strict=True):
            with replacing(path) as partial:
                save_network(network, partial)
    # As saved, in half precision, so that a resumed training makes the same judge.
    loaded = [load_network(recipe, path) for path in paths]
    return TrainedNetworks([network for network, _ in loaded], loaded[0][1])


def write_targets(path: Path, texts: DistillationTexts, targets: np.ndarray) -> None:
    """Write the teachers' probabilities by the digests of the texts: 14 bytes a text."""
    digests = np.array([int(exchange.content_digest, 16) for exchange in texts.all()], dtype=np.uint64)
    digests, first = np.unique(digests, return_index=True)
    with replacing(path) as partial, partial.open("wb") as file:
        np.savez(file, digests=digests, probabilities=targets[first].astype(np.float16))


def read_targets(path: Path, texts: DistillationTexts) -> np.ndarray:
    """Read the teachers' probabilities of these texts: [texts, 3]."""
    with np.load(path) as saved:
        digests, probabilities = saved["digests"], saved["probabilities"].astype(float)
    wanted = np.array([int(exchange.content_digest, 16) for exchange in texts.all()], dtype=np.uint64)
    places = np.searchsorted(digests, wanted).clip(max=len(digests) - 1)
    if missing := int((digests[places] != wanted).sum()):
        raise UserError(f"{path}: has no probabilities for {missing:,} of {len(wanted):,} texts")
    return np.asarray(probabilities[places] / probabilities[places].sum(axis=1, keepdims=True))


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
        raise UserError("networks: a decoder is exported as one network; set networks = 1")
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
    answer = _predict_exported(folder, names, card, [SAMPLE])[0].round(6).tolist()
    return {"files": hash_files(folder, names), **card, "int8": change, SAMPLE_KEY: answer}


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
    """Return the figures of trials by what was held out; refuse those of another recipe or other data."""
    evidence: dict[str, Any] = {}
    for folder in folders:
        tried, evaluation = read_finished(folder)
        evidence |= {name: figures for name, figures in evaluation.items() if name != "protocol"}
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
    original: Path,
    data: TrainingData,
    recipes: Sequence[Recipe],
    folder: Path,
    *,
    device: str,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Build a judge again from what its card records; fail if it predicts something else.

    Teachers are not trained again: their probabilities lie beside the card or in `training/recipes`.
    """
    recorded = card["provenance"]
    present = {**data.digests(recipes), f"base {recipes[0].base}": digest_base(recipes[0].base)}
    expected = {
        **recorded["digests"],
        f"base {recipes[0].base}": recorded["bases"][recipes[0].base],
    }
    for name in dict.fromkeys((*expected, *present)):
        if expected.get(name) != present.get(name):
            found, wanted = (each.get(name, "of nothing") for each in (present, expected))
            raise UserError(f"{name}: not the data on the card (digest {found}; on the card {wanted})")
    if targets := recorded["targets"]:
        places = [original / TARGETS, RECIPES / TARGETS]
        source = next((path for path in places if path.exists() and digest_file(path) == targets), None)
        if source is None:
            raise UserError(
                f"{TARGETS}: the teachers' probabilities on the card are neither {places[0]} nor {places[1]}"
            )
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / TARGETS) as partial:
            partial.write_bytes(source.read_bytes())
    rebuilt = make_judge(
        data,
        recipes,
        folder,
        text={key: card[key] for key in ("name", *DEFAULT_TEXT, "caveat")},
        evidence=card["evidence"],
        device=device,
        threads=recorded["threads"],
        bases=recorded["bases"],
        progress=progress,
    )
    if rebuilt["files"] == card["files"]:
        return {**rebuilt, "change": 0.0}
    judges = [ClassifierJudge(weights=str(each)) for each in (original, folder)]
    replies = data.exchanges()[:: max(1, len(data.exchanges()) // REBUILT_REPLIES)][:REBUILT_REPLIES]
    first, again = (np.array([judge.predict(reply)[-1] for reply in replies]) for judge in judges)
    change = float(np.abs(first - again).mean())
    if change > MAX_REBUILT_CHANGE:
        versions = ", ".join(
            f"{name} {found} (on the card {recorded['packages'].get(name)})"
            for name, found in package_versions().items()
            if recorded["packages"].get(name) != found
        )
        raise OperationalError(
            f"{folder}: P(Good) differs by {change:.3f} on average from the card's judge (at most "
            f"{MAX_REBUILT_CHANGE}): {versions or 'the packages are the same'}"
        )
    return {**rebuilt, "change": change}
