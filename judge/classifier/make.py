"""Make a judge to ship: read rated exchanges, train, export to ONNX, and write a card of what is known."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from data.errors import UserError
from data.files import disk_errors, read_toml, replacing
from data.records import LABELS, Exchange
from data.tables import read_exchanges, read_ratings
from data.text import percent, show
from judge.classifier.examples import Example, join_ratings
from judge.classifier.judge import CARD, MODEL, TOKENIZER, ClassifierJudge
from judge.classifier.recipe import Recipe, read_recipe
from judge.classifier.training import Progress, Trained
from judge.classifier.trials import (
    METRICS,
    OnSplit,
    digest_examples,
    fit_length,
    measure_trial,
    plan_training,
    run_trial,
)

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
    from judge.classifier.training import train_judge

    plan = plan_training(examples, recipe, texts)
    trained = _take_up(folder, plan, recipe)
    if trained is None:
        trained = train_judge(examples, recipe, texts=texts, device=device, progress=progress)
        _keep(folder, plan, trained)
    if recipe.rank:  # the changes to the base are the judge: `judge.large` merges them when it is first used
        change, names = {}, tuple(NETWORK.format(number) for number in range(recipe.seeds))
    else:
        names = (MODEL, TOKENIZER)
        # Made beside, then moved: a broken export leaves the files of the last one.
        with TemporaryDirectory() as scratch:
            change = export(trained, Path(scratch), [example.exchange for example in examples])
            for name in names:
                with replacing(folder / name) as partial:
                    partial.write_bytes((Path(scratch) / name).read_bytes())
    card = {
        "files": hash_files(folder, names),
        "is_decoder": trained.tokeniser.is_decoder,
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
    from judge.classifier.export import export_onnx, quantize_onnx, shift_exported
    from judge.classifier.training import match_shares

    chosen = exchanges[:: max(1, len(exchanges) // COMPARED)]
    exact = trained.predict(chosen, batch_size=1)
    full_precision = export_onnx(trained.networks, trained.tokeniser, folder).read_bytes()
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
    card = {"files": hash_files(folder), "caveat": "", "is_decoder": trained.tokeniser.is_decoder}
    (folder / CARD).write_text(json.dumps(card), encoding="utf-8")
    judge = ClassifierJudge(weights=str(folder))
    return np.array([judge.predict(exchange) for exchange in exchanges])


def hash_files(folder: Path, names: Sequence[str] = (MODEL, TOKENIZER)) -> dict[str, str]:
    """What a card states and a judge checks before its first judgment."""
    return {name: sha256((folder / name).read_bytes()).hexdigest() for name in names}


def _keep(folder: Path, plan: dict[str, Any], trained: Trained) -> None:
    from judge.classifier.network import save_network

    folder.mkdir(parents=True, exist_ok=True)
    for number, network in enumerate(trained.networks):
        with replacing(folder / NETWORK.format(number)) as partial:
            save_network(network, partial)
    with replacing(folder / PLAN) as partial:
        partial.write_text(json.dumps(plan, indent=2) + "\n", encoding="utf-8")


def _take_up(folder: Path, plan: dict[str, Any], recipe: Recipe) -> Trained | None:
    """Networks of the same recipe and data, if a training of them ended here."""
    from judge.classifier.network import load_network

    path = folder / PLAN
    if not path.exists():
        return None
    try:
        there = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return None  # damaged: trained again
    if there != plan:
        raise UserError(f"{folder}: holds a judge of another recipe or other ratings; give another --out")
    loaded = [load_network(recipe, folder / NETWORK.format(number)) for number in range(recipe.seeds)]
    return Trained([network for network, _ in loaded], loaded[0][1])


def state_caveat(evidence: Mapping[str, Any]) -> str:
    """The line printed under every table of this judge's shares."""
    apart = evidence.get("model-apart")
    if apart is None:
        return "How far this judge is off on a model it has not met was not measured."
    judge = apart["evaluations"]["judge"]
    levels = judge["chosen_models"] or judge["all_models"]
    mean, worst, guess = (
        100 * levels[name]["value"] for name in ("mean_share_error", "worst_share_error", "guess_error")
    )
    return (
        f"On a model it has not met, this judge's Good share was off by {mean:.1f} points on average and "
        f"{worst:.1f} at worst ({len(levels['models'])} models left out; guessing: {guess:.1f} on average)."
    )


def write_card(card: Mapping[str, Any]) -> str:
    """The card as Markdown."""
    trained = card["trained_on"]
    shares = ", ".join(f"{100 * share:.1f} % {label}" for label, share in trained["shares"].items())
    lines = [
        f"# {card['name']}",
        "",
        card["summary"],
        "",
        f"**Licence.** {card['licence']}",
        "",
        f"**Trained on** {trained['ratings']:,} ratings by {trained['raters']:,} people of replies by "
        f"{', '.join(trained['models'])}; {shares}. {card['data']}",
        "",
        f"**Unseen models.** {card['caveat']}",
        "",
    ]
    for protocol, evaluation in card["evidence"].items():
        lines += [f"## {protocol}", "", "| | " + " | ".join(METRICS.values()) + " |"]
        lines.append("|---" * (len(METRICS) + 1) + "|")
        for name, figures in evaluation["evaluations"].items():
            cells = " | ".join(show(figures["per_response"][metric]) for metric in METRICS)
            lines.append(f"| {name} | {cells} |")
        lines += ["", *_level_table(evaluation, is_apart=protocol == "model-apart"), ""]
    if card["int8"]:
        change = card["int8"]
        lines += [
            f"**int8** changes the score by {change['mean_score']:.4f} on average over {change['replies']} "
            f"replies, a probability by at most {change['largest_probability']:.4f}, and the Good share by "
            f"{100 * change['good_share']:+.2f} points; its scores correlate "
            f"{change['score_correlation']:.4f} with full precision.",
            "",
        ]
    return "\n".join([*lines, "## Limits", "", *(f"- {limit}" for limit in card["limits"]), ""])


def _level_table(evaluation: Mapping[str, Any], *, is_apart: bool) -> list[str]:
    judge = evaluation["evaluations"]["judge"]
    lines = ["| model | crowd's Good | judge's Good | error in points |", "|---|---|---|---|"]
    for row in judge["models"]:
        error = percent(row["share_error"])
        lines.append(
            f"| {row['model']} | {row['crowd']['Good']:.3f} | {row['judge']['Good']:.3f} | {error} |"
        )
    levels = judge["chosen_models"] or judge["all_models"]
    words = evaluation["evaluations"]["TF-IDF"]
    rival = (words["chosen_models"] or words["all_models"])["mean_share_error"]["value"]
    mean, guess, among = (levels[key] for key in ("mean_share_error", "guess_error", "guess_error_among"))
    lines += [
        "",
        f"Off by {percent(mean)} points on average over {', '.join(levels['models'])}; TF-IDF by "
        f"{100 * rival:.1f}, guessing the mean of all others by {percent(guess)}, of the others among these "
        f"by {percent(among)}. Their order: Kendall's tau {show(levels['tau'], digits=2)}.",
    ]
    spread, worth = levels["between_sd"], levels["worth_in_ratings"]
    if is_apart and spread is not None and worth is not None:
        lines += [
            "",
            f"Spread of the error between models: {100 * spread:.1f} points, worth {worth:.0f} ratings.",
        ]
    return lines


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

    from judge.classifier.network import find_base

    find_base(recipe.base)
    if recipe.teacher:
        find_base(read_recipe(recipe.teacher).base)
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    if device.partition(":")[0] not in devices:
        raise UserError(f"--device: no {device!r} here; use {' or '.join(devices)}")
    return device


def try_out(
    materials: Materials,
    protocol: str,
    folder: Path,
    *,
    on_split: OnSplit = lambda name, number, total: None,
    on_step: Progress | None = None,
) -> dict[str, Any]:
    """Train once for each held-out part; then measure every metric, with intervals and rivals."""
    with disk_errors(folder):
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
    return measure_trial(rows, folder, protocol=protocol)


def make(
    materials: Materials,
    folder: Path,
    *,
    evidence: Sequence[Path],
    about: Path | None,
    on_step: Progress | None = None,
) -> dict[str, Any]:
    """Make a judge's folder: `score --judge` takes it through a TOML file with `kind` and `weights`."""
    plan = plan_training(materials.examples, materials.recipe, materials.texts)
    figures = dict(_read_evidence(folder, plan) for folder in evidence)
    name = "classifier-large" if materials.recipe.rank else "classifier"
    words = ABOUT if about is None else read_toml(about)
    if set(words) != set(ABOUT):
        raise UserError(f"{about}: has to say {', '.join(ABOUT)}, and nothing else")
    with disk_errors(folder):
        card = make_judge(
            materials.examples,
            materials.recipe,
            folder,
            texts=materials.texts,
            about={"name": name, **words, "caveat": state_caveat(figures)},
            evidence=figures,
            device=materials.device,
            progress=on_step,
        )
        with replacing(folder / "README.md") as partial:
            partial.write_text(write_card(card), encoding="utf-8")
    return card


def _read_evidence(folder: Path, plan: dict[str, Any]) -> tuple[str, Any]:
    """A trial's figures, if it tried what is being made."""
    try:
        tried = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
        figures = json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))
        protocol = tried["protocol"]
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{folder}: no finished trial here; make one with train --protocol") from error
    if differing := [key for key, value in plan.items() if tried.get(key) != value]:
        raise UserError(
            f"{folder}: tried another {', '.join(differing)}, so its figures are not this judge's"
        )
    return protocol, figures
