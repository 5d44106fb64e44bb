"""Making of a judge: train, export, and write a card from which the same judge can be built again."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np
import torch

from empathy_judge.data.errors import OperationalError, UserError
from empathy_judge.data.files import digest_json, disk_errors, read_toml, replacing
from empathy_judge.data.rated_range import rated_range_of
from empathy_judge.data.records import LABELS, Exchange, reply_features, to_plain
from empathy_judge.data.storage import digest_file
from empathy_judge.judge.classifier import large_judge
from empathy_judge.judge.classifier.gpu_backend import CONFIG_KEYS
from empathy_judge.judge.classifier.judge import SAMPLE, SAMPLE_KEY, ClassifierJudge
from empathy_judge.judge.classifier.large_judge import PUBLISHED_BASES, LargeJudge
from empathy_judge.judge.classifier.preprocessing import normalize
from empathy_judge.judge.onnx_model import CARD, MODEL, TOKENIZER
from empathy_judge.training import cross_validation, fine_tune
from empathy_judge.training import export as onnx_export
from empathy_judge.training.held_out_calibration import open_trained
from empathy_judge.training.model_card import DEFAULT_TEXT, describe_evidence, write_judge_card
from empathy_judge.training.network import TrainedNetworks, load_network, save_adapter, save_network
from empathy_judge.training.rated_sets import RECIPES, read_graded_replies
from empathy_judge.training.recipe import Recipe, find_base
from empathy_judge.training.training_data import TrainingData

NETWORK = "network-{}.safetensors"  # trained parameters, from which an interrupted training resumes
TEACHER = "teacher-{}"  # the subfolder of one of a judge's teachers
TARGETS = "targets.npz"  # the teachers' probabilities, by the digests of the texts
# Mean change of P(Good) that another machine may cause; two trainings on two GPUs differed by 0.014.
MAX_REBUILT_CHANGE, REBUILT_REPLIES = 0.02, 200
WEIGHT_FILES = ("*.gguf", "*.safetensors", "*.bin")  # of a base
COMPARED = 100  # replies on which int8 is compared with full precision
CALIBRATION_REPLIES = 60  # replies by which the weights of a decoder are quantized
MAX_INT8_CHANGE = 0.02  # of the mean score; beyond it int8 would cost more than it saves
# The packages that decide about the weights, bit by bit.
PINNED = ("numpy", "onnx", "onnxruntime", "onnxscript", "safetensors", "tokenizers", "torch", "transformers")
Rows = Sequence[Mapping[str, Any]]


def make_judge(
    data: TrainingData,
    recipes: Sequence[Recipe],
    folder: Path,
    *,
    text: Mapping[str, Any],
    rows: Rows = (),  # predictions of held-out data
    is_averaged: bool = False,  # with the default judge
    device: str = "cpu",
    threads: int = 0,
    bases: Mapping[str, str] | None = None,
    progress: fine_tune.Progress | None = None,
) -> dict[str, Any]:
    """Train on all data, export, and write the card last; networks that were trained before are reused.

    The card records all that decides about the weights, so `rebuild_judge` can make them again.
    """
    recipe = recipes[0]
    if len(fine_tune.trainable_networks(recipe, data.for_recipe(recipe))) > 1:
        raise UserError("networks: a judge is exported as one network; set one in networks")
    threads = make_deterministic(threads)
    with disk_errors(folder):
        trained = _train_or_resume(data, recipes, folder, device=device, progress=progress)
        read = data.for_recipe(recipe)
        # Written beside and then moved: an interrupted export leaves the files of the last one.
        with TemporaryDirectory() as scratch:
            if recipe.rank:
                exported = export_adapter(trained, recipe.base, Path(scratch))
                exported |= {"average_with": ClassifierJudge.name} if is_averaged else {}
            else:
                replies = read.exchanges()[: len(read.ratings) or None]
                graded = read_graded_replies() if any(each.synthetic for each in recipes) else ()
                texts = [*read.exchanges(), *read.texts, *(reply.exchange for reply in graded)]
                exported = export(trained, Path(scratch), replies, texts)
            for name in exported["files"]:
                with replacing(folder / name) as partial:
                    partial.write_bytes((Path(scratch) / name).read_bytes())
        plan = cross_validation.plan_training(data, recipes)
        card = {
            **exported,
            "name": LargeJudge.name if recipe.rank else ClassifierJudge.name,
            **text,
            **describe_evidence(rows),
            "recipe": plan.pop("recipe"),
            "provenance": {
                **plan,
                "targets": digest_file(folder / TARGETS) if len(recipes) > 1 else "",
                "bases": bases or {each.base: digest_base(each.base) for each in recipes},
                "device": device,
                "threads": threads,
                "packages": package_versions(),
            },
            "trained_on": data.describe(recipes),
            "rated": to_plain(rated_range_of(reply_features(exchange) for exchange in data.exchanges())),
            "length": cross_validation.fit_length(read.ratings),
        }
        write_judge_card(folder, card)
    return card


def base_files(name: str, *patterns: str) -> list[Path]:
    """Return the files of a base's weights, and those of further patterns."""
    return [path for pattern in (*WEIGHT_FILES, *patterns) for path in sorted(find_base(name).glob(pattern))]


def own_base(recipe: Recipe) -> str:
    """Return the folder of a base that a judge with adapters has to be told, else an empty text."""
    return str(find_base(recipe.base)) if recipe.rank and recipe.base not in PUBLISHED_BASES else ""


def digest_base(name: str) -> str:
    """Return one digest of a base's weights, configuration and tokenizer."""
    return digest_json([digest_file(path) for path in sorted(base_files(name, "config.json", TOKENIZER))])


def _train_or_resume(
    data: TrainingData,
    recipes: Sequence[Recipe],
    folder: Path,
    *,
    device: str,
    progress: fine_tune.Progress | None,
) -> TrainedNetworks:
    """Return a judge's networks; its teachers have subfolders, and their probabilities a file."""
    recipe, *teachers = recipes
    cross_validation.check_plan(folder, cross_validation.plan_training(data, recipes), kind="judge")
    count = len(fine_tune.trainable_networks(recipe, data.for_recipe(recipe)))
    paths = [folder / NETWORK.format(number) for number in range(count)]
    if not all(path.exists() for path in paths):
        targets = None
        if teachers:
            # A judge that may not read situations may not learn them from its teachers either.
            read = data.for_recipe(recipe)
            texts = fine_tune.distillation_texts(read, recipe)
            if not (folder / TARGETS).exists():
                parts = [folder / TEACHER.format(number) for number in range(len(teachers))]
                taught = [
                    _train_or_resume(read, [teacher], part, device=device, progress=progress)
                    for teacher, part in zip(teachers, parts, strict=True)
                ]
                for network in (network for trained in taught for network in trained.networks):
                    network.to(device)
                write_targets(folder / TARGETS, texts, fine_tune.predict_targets(taught, texts))
            targets = read_targets(folder / TARGETS, texts)
        trained = fine_tune.train_judge(data, recipes, targets=targets, device=device, progress=progress)
        for network, path in zip(trained.networks, paths, strict=True):
            with replacing(path) as partial:
                save_network(network, partial)
    # As saved, in half precision, so that a resumed training makes the same judge.
    loaded = [load_network(recipe, path) for path in paths]
    return TrainedNetworks([network for network, _ in loaded], loaded[0][1])


def write_targets(path: Path, texts: fine_tune.DistillationTexts, targets: np.ndarray) -> None:
    """Write the teachers' probabilities by the digests of the texts: 14 bytes a text."""
    digests, first = np.unique(_digests_of(texts), return_index=True)
    with replacing(path) as partial, partial.open("wb") as file:
        np.savez(file, digests=digests, probabilities=targets[first].astype(np.float16))


def read_targets(path: Path, texts: fine_tune.DistillationTexts) -> np.ndarray:
    """Read the teachers' probabilities of these texts: [texts, 3]."""
    with np.load(path) as saved:
        digests, probabilities = saved["digests"], saved["probabilities"].astype(float)
    wanted = _digests_of(texts)
    rows = np.searchsorted(digests, wanted).clip(max=len(digests) - 1)
    if missing := int((digests[rows] != wanted).sum()):
        raise UserError(f"{path}: has no probabilities for {missing:,} of {len(wanted):,} texts")
    return np.asarray(probabilities[rows] / probabilities[rows].sum(axis=1, keepdims=True))


def _digests_of(texts: fine_tune.DistillationTexts) -> np.ndarray:
    return np.array([int(exchange.content_digest, 16) for exchange in texts.all()], dtype=np.uint64)


def export_adapter(trained: TrainedNetworks, base: str, folder: Path) -> dict[str, Any]:
    """Write the LoRA adapter and the head of a network; return the card's entries about them and its base."""
    save_adapter(trained.networks[0], folder)
    weights = base_files(base)[0]
    own = large_judge.PublishedBase("", weights.name, digest_file(weights))
    return {
        "files": hash_files(folder, large_judge.FILES),
        "base": asdict(PUBLISHED_BASES.get(base, own)),
        "int8": {},
    }


def export(
    trained: TrainedNetworks, folder: Path, exchanges: Sequence[Exchange], texts: Sequence[Exchange] = ()
) -> dict[str, Any]:
    """Write a judge's files, its vocabulary pruned to these texts; return the card's entries about them."""
    step = max(1, len(exchanges) // COMPARED)
    # Normalized as in scoring, so that only quantization differs; weights are quantized by other replies.
    chosen, others = (
        [replace(exchange, response=normalize(exchange.response)) for exchange in exchanges[start::step]]
        for start in (0, step // 2)
    )
    network = trained.networks[0].cpu().float()
    exact = trained.predict(chosen, batch_size=1)
    card: dict[str, Any] = {}
    if trained.tokenizer.is_decoder:
        settings = cast(Any, network.base).config.to_dict()
        card["config"] = {name: settings[name] for name in CONFIG_KEYS}
        pruned = onnx_export.prune_vocabulary(trained, [*exchanges, *texts])
        run = partial(pruned.predict, others[:CALIBRATION_REPLIES], batch_size=1)
        names = onnx_export.write_decoder(pruned.networks[0], pruned.tokenizer, folder, run)
    else:
        names = onnx_export.write_encoder(network, trained.tokenizer, folder)
    quantized = _predict_exported(folder, names, card, chosen)
    # Quantization shifts the level, which a bias restores.
    bias = fine_tune.match_shares(np.log(quantized + 1e-6), exact.mean(axis=0))
    onnx_export.shift_exported(folder / MODEL, bias)
    change = describe_change(exact, _predict_exported(folder, names, card, chosen))
    if change["mean_score"] > MAX_INT8_CHANGE:
        raise UserError(
            f"int8 quantization shifts scores by {change['mean_score']:.3f} on average (limit "
            f"{MAX_INT8_CHANGE}), so this base cannot be quantized"
        )
    answer = _predict_exported(folder, names, card, [SAMPLE])[0].round(6).tolist()
    return {"files": hash_files(folder, names), **card, "int8": change, SAMPLE_KEY: answer}


def describe_change(exact: np.ndarray, quantized: np.ndarray) -> dict[str, float]:
    """Return how far int8 probabilities deviate from those in full precision."""
    ratings, change = np.arange(1, len(LABELS) + 1), quantized - exact
    figures = {
        "largest_probability": np.abs(change).max(),
        "mean_score": np.abs(change @ ratings).mean(),
        "score_correlation": np.corrcoef(quantized @ ratings, exact @ ratings)[0, 1],
        "good_share": change[:, -1].mean(),
    }
    return {"replies": len(exact), **{name: round(float(value), 4) for name, value in figures.items()}}


def _predict_exported(
    folder: Path, names: Sequence[str], card: Mapping[str, Any], exchanges: Sequence[Exchange]
) -> np.ndarray:
    """Predict with the judge itself, from a card with the least that it needs."""
    content = {"files": hash_files(folder, names), "caveat": "", **card}
    (folder / CARD).write_text(json.dumps(content), encoding="utf-8")
    judge = ClassifierJudge(weights=str(folder))
    return np.array([judge.predict(exchange) for exchange in exchanges])


def hash_files(folder: Path, names: Sequence[str] = (MODEL, TOKENIZER)) -> dict[str, str]:
    """Return the SHA-256 of each file, which a judge checks before its first judgment."""
    return {name: digest_file(folder / name) for name in names}


def read_cv_results(
    folder: Path | None, data: TrainingData, recipes: Sequence[Recipe], *, is_averaged: bool
) -> Rows:
    """Return the predictions of a cross-validation, averaged with those of the default judge if wanted."""
    if folder is None:
        return []
    rows = cross_validation.read_finished(folder, cross_validation.plan_training(data, recipes))
    if is_averaged:
        rows = cross_validation.average_rows(rows, list(cross_validation.read_rows(ClassifierJudge.shipped)))
    return rows


def card_text(path: Path | None) -> dict[str, Any]:
    """Return the texts of a new judge's card, from a TOML file if there is one."""
    text = DEFAULT_TEXT if path is None else read_toml(path)
    if set(text) != set(DEFAULT_TEXT):
        raise UserError(f"{path}: needs the keys {', '.join(DEFAULT_TEXT)}, and no others")
    return dict(text)


def check_recorded(card: Mapping[str, Any], data: TrainingData, recipes: Sequence[Recipe]) -> None:
    """Refuse data, or a base, that are not those whose digests a card records."""
    recorded, base = card["provenance"], recipes[0].base
    present = {**data.digests(recipes), f"base {base}": digest_base(base)}
    expected = {**recorded["digests"], f"base {base}": recorded["bases"][base]}
    for name in dict.fromkeys((*expected, *present)):
        if expected.get(name) != present.get(name):
            found, wanted = (each.get(name, "of nothing") for each in (present, expected))
            raise UserError(f"{name}: not the data on the card (digest {found}; on the card {wanted})")


def rebuild_judge(
    card: Mapping[str, Any],
    original: Path,
    data: TrainingData,
    recipes: Sequence[Recipe],
    folder: Path,
    *,
    rows: Rows,
    device: str,
    progress: fine_tune.Progress | None = None,
) -> dict[str, Any]:
    """Build a judge again from what its card records, its teachers apart; fail if it predicts otherwise."""
    check_recorded(card, data, recipes)
    recorded = card["provenance"]
    if recorded["targets"]:
        places = [original / TARGETS, RECIPES / TARGETS]
        found = [path for path in places if path.exists() and digest_file(path) == recorded["targets"]]
        if not found:
            raise UserError(
                f"{TARGETS}: the teachers' probabilities on the card are neither {places[0]} nor {places[1]}"
            )
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / TARGETS) as partial:
            partial.write_bytes(found[0].read_bytes())
    rebuilt = make_judge(
        data,
        recipes,
        folder,
        text={key: card[key] for key in ("name", *DEFAULT_TEXT)},
        rows=rows,
        is_averaged="average_with" in card,
        device=device,
        threads=recorded["threads"],
        bases=recorded["bases"],
        progress=progress,
    )
    if rebuilt["files"] == card["files"]:
        return {**rebuilt, "change": 0.0}
    base = own_base(recipes[0])
    replies = data.exchanges()[:: max(1, len(data.exchanges()) // REBUILT_REPLIES)][:REBUILT_REPLIES]
    first, again = (
        np.array([judge.predict(reply)[-1] for reply in replies])
        for judge in (open_trained(original, base), open_trained(folder, base))
    )
    change = float(np.abs(first - again).mean())
    if change > MAX_REBUILT_CHANGE:
        versions = ", ".join(
            f"{name} {version} (on the card {recorded['packages'].get(name)})"
            for name, version in package_versions().items()
            if recorded["packages"].get(name) != version
        )
        raise OperationalError(
            f"{folder}: P(Good) differs by {change:.3f} on average from the card's judge (at most "
            f"{MAX_REBUILT_CHANGE}): {versions or 'the packages are the same'}"
        )
    return {**rebuilt, "change": change}


def make_deterministic(threads: int = 0) -> int:
    """Make torch repeat a training bit by bit; return the number of CPU threads, on which results depend."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    if threads:
        torch.set_num_threads(threads)
    return torch.get_num_threads()


def package_versions() -> dict[str, str]:
    """Return the versions of the packages that decide about the weights."""
    return {name: version(name) for name in PINNED}
