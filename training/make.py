"""Make a judge to ship: read rated exchanges, train, export to ONNX, and write a card of what is known."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from functools import partial
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from calibration.agreement.model_levels import say_worth
from data.errors import UserError
from data.files import disk_errors, read_toml, replacing
from data.rated_exchanges import join_ratings
from data.rated_range import rated_range_of
from data.records import LABELS, Exchange, shape_of, to_plain
from data.storage import digest_file
from data.tables import read_exchanges, read_ratings
from data.text import percent, show
from judge.classifier.base_weights import find_base, find_base_file
from judge.classifier.judge import CARD, MEANS, MODEL, NETWORK, TOKENIZER, ClassifierJudge
from judge.classifier.preprocessing import normalise
from training.examples import TrainingData, forget_situations
from training.fine_tune import Progress, TrainedNetworks
from training.rated_sets import RATED_SETS, read_rated_set
from training.recipe import Recipe, lineage, read_recipe
from training.trials import (
    METRICS,
    SETS_APART,
    TEACHER,
    OnSplit,
    digest_examples,
    draw_few,
    fit_length,
    measure_trial,
    plan_training,
    read_rows,
    run_trial,
    trial_folder,
)

PLAN = "plan.json"
COMPARED = 100  # replies on which 8 bits are held against full precision
ROUNDED_BY = 60  # replies by which it is known how a decoder's states go together
LARGEST_CHANGE = 0.02  # of the mean score; beyond it 8 bits would cost more than they save


def make_judge(
    corpus: TrainingData,
    recipe: Recipe,
    folder: Path,
    *,
    about: Mapping[str, Any],
    evidence: Mapping[str, Any],
    device: str = "cpu",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Train on everything, export, and write the card last; networks already trained are taken up again."""
    trained = _train_or_take_up(corpus, recipe, folder, device=device, progress=progress)
    examples = corpus.examples
    # Made beside, then moved: a broken export leaves the files of the last one.
    with TemporaryDirectory() as scratch:
        read = _without_situations(corpus, recipe)
        exported = export(trained, recipe, Path(scratch), read.exchanges()[: len(examples) or None])
        for name in exported["files"]:
            with replacing(folder / name) as partial:
                partial.write_bytes((Path(scratch) / name).read_bytes())
    card = {
        **exported,
        **about,
        "trained_on": describe(corpus),
        "rated": to_plain(rated_range_of(shape_of(exchange) for exchange in corpus.exchanges())),
        "length": fit_length(examples),
        "evidence": dict(evidence),
    }
    with replacing(folder / CARD) as partial:
        partial.write_text(json.dumps(card, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return card


def describe(corpus: TrainingData) -> dict[str, Any]:
    """The training data in numbers."""
    examples = corpus.examples
    counts = Counter(item.set for item in corpus.items)
    shares = np.mean([example.target for example in examples], axis=0) if examples else ()
    return {
        "ratings": len(examples),
        "raters": len({example.rater for example in examples}),
        "models": sorted({example.exchange.model for example in examples}),
        "shares": {label: round(float(share), 4) for label, share in zip(LABELS, shares, strict=False)},
        "digest": digest_examples(examples),
        "sets": {
            name: {"items": count, "licence": RATED_SETS[name].licence, "raters": RATED_SETS[name].raters}
            for name, count in counts.items()
        },
    }


def export(
    trained: TrainedNetworks, recipe: Recipe, folder: Path, exchanges: Sequence[Exchange]
) -> dict[str, Any]:
    """Write a judge's files; returns what its card says of them, and of what 8 bits changed.

    Where that is too much an encoder stays in full precision, and nothing is said.
    """
    from training.export import (
        export_onnx,
        quantize_onnx,
        shift_exported,
        write_decoder,
        write_means,
    )
    from training.fine_tune import match_shares
    from training.network import save_network

    step = max(1, len(exchanges) // COMPARED)
    # As they are read when scoring, so that rounding is all that differs; weights are rounded by others.
    chosen, others = (
        [replace(exchange, response=normalise(exchange.response)) for exchange in exchanges[start::step]]
        for start in (0, step // 2)
    )
    for network in trained.networks:
        network.cpu().float()
    exact = trained.predict(chosen, batch_size=1)
    card: dict[str, Any] = {"recipe": asdict(recipe)}
    names = [MODEL, TOKENIZER]
    if recipe.rank:
        card["base"] = {recipe.base: digest_file(find_base_file(recipe.base))}
        names = write_decoder(trained.networks[0], trained.tokeniser, folder)
        for number, network in enumerate(trained.networks):
            names.append(NETWORK.format(number))
            save_network(network, folder / names[-1])
        copies = replace(trained, networks=deepcopy(trained.networks))
        read_some = partial(copies.predict, others[:ROUNDED_BY], batch_size=1)
        write_means(copies.networks, read_some, folder / MEANS)
        names.append(MEANS)
    elif not trained.tokeniser.is_decoder:
        full_precision = export_onnx(trained.networks, trained.tokeniser, folder).read_bytes()
        quantize_onnx(folder / MODEL)
    elif len(trained.networks) == 1:
        read_some = partial(trained.predict, others[:ROUNDED_BY], batch_size=1)
        names = write_decoder(trained.networks[0], trained.tokeniser, folder, read_some)
    else:
        raise UserError("networks: a decoder trained as a whole is kept as one network; name one")
    rounded = _predict_exported(folder, names, card, chosen)
    if not recipe.rank:  # rounding takes some of the level with it, which can be given back
        shift_exported(folder / MODEL, match_shares(np.log(rounded + 1e-6), exact.mean(axis=0)))
        rounded = _predict_exported(folder, names, card, chosen)
    change = rounded - exact
    ratings = np.arange(1, len(LABELS) + 1)
    mean = float(np.abs(change @ ratings).mean())
    said: dict[str, float] = {}
    if mean <= LARGEST_CHANGE:
        said = {
            "replies": len(chosen),
            "largest_probability": round(float(np.abs(change).max()), 4),
            "mean_score": round(mean, 4),
            "score_correlation": round(
                float(np.corrcoef((change + exact) @ ratings, exact @ ratings)[0, 1]), 4
            ),
            "good_share": round(float(change[:, -1].mean()), 4),
        }
    elif trained.tokeniser.is_decoder:
        raise UserError(f"8 bits change the scores by {mean:.3f} on average: this base does not bear them")
    else:
        (folder / MODEL).write_bytes(full_precision)
    return {"files": hash_files(folder, names), **card, "int8": said}


def _predict_exported(
    folder: Path, names: Sequence[str], card: Mapping[str, Any], exchanges: Sequence[Exchange]
) -> np.ndarray:
    """Through the judge itself, on a card that says no more than it must."""
    stated = {"files": hash_files(folder, names), "caveat": "", **card}
    (folder / CARD).write_text(json.dumps(stated), encoding="utf-8")
    judge = ClassifierJudge(weights=str(folder))
    return np.array([judge.predict(exchange) for exchange in exchanges])


def hash_files(folder: Path, names: Sequence[str] = (MODEL, TOKENIZER)) -> dict[str, str]:
    """What a card states and a judge checks before its first judgment."""
    return {name: sha256((folder / name).read_bytes()).hexdigest() for name in names}


def _train_or_take_up(
    corpus: TrainingData, recipe: Recipe, folder: Path, *, device: str, progress: Progress | None
) -> TrainedNetworks:
    """A judge's networks, after its teacher's: that is a judge of its own, kept in a folder within."""
    from training.fine_tune import train_judge, trainable_networks

    plan = plan_training(corpus, recipe)
    count = len(trainable_networks(recipe, corpus))
    trained = _take_up(folder, plan, recipe, count)
    if trained is None:
        teacher = None
        if recipe.teacher:
            above, place = read_recipe(recipe.teacher), folder / TEACHER
            read = _without_situations(corpus, recipe)  # what a judge may not read its teacher may not either
            teacher = _train_or_take_up(read, above, place, device=device, progress=progress)
            for network in teacher.networks:
                network.to(device)
        first, *_ = train_judge(corpus, recipe, teacher=teacher, device=device, progress=progress)
        _keep(folder, plan, first)
        # As they were kept, in half precision: a training that is taken up again makes the same judge.
        trained = _take_up(folder, plan, recipe, count)
        assert trained is not None
    return trained


def _without_situations(corpus: TrainingData, recipe: Recipe) -> TrainingData:
    if recipe.drop_context < 1:
        return corpus
    return replace(corpus, items=forget_situations(corpus.items))


def _keep(folder: Path, plan: dict[str, Any], trained: TrainedNetworks) -> None:
    from training.network import save_network

    folder.mkdir(parents=True, exist_ok=True)
    for number, network in enumerate(trained.networks):
        with replacing(folder / NETWORK.format(number)) as partial:
            save_network(network, partial)
    with replacing(folder / PLAN) as partial:
        partial.write_text(json.dumps(plan, indent=2) + "\n", encoding="utf-8")


def _take_up(folder: Path, plan: dict[str, Any], recipe: Recipe, count: int) -> TrainedNetworks | None:
    """So many networks of the same recipe and data, if a training of them ended here."""
    from training.network import load_network

    path = folder / PLAN
    if not path.exists():
        return None
    try:
        there = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return None  # damaged: trained again
    if there != plan:
        raise UserError(f"{folder}: holds a judge of another recipe or other ratings; give another --out")
    paths = [folder / NETWORK.format(number) for number in range(count)]
    loaded = [load_network(recipe, path) for path in paths]
    return TrainedNetworks([network for network, _ in loaded], loaded[0][1])


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
    of_labels = (
        f"{trained['ratings']:,} ratings by {trained['raters']:,} people of replies by "
        f"{', '.join(trained['models'])}; {shares}. "
        if trained["ratings"]
        else "no label of people, so that its levels mean nothing until they are calibrated. "
    )
    lines = [
        f"# {card['name']}",
        "",
        card["summary"],
        "",
        f"**Licence.** {card['licence']}",
        "",
        f"**TrainedNetworks on** {of_labels}{card['data']}".rstrip(),
        "",
        f"**Unseen models.** {card['caveat']}",
        "",
    ]
    if sets := trained.get("sets"):
        named = ", ".join(f"{name} ({about['licence']})" for name, about in sets.items())
        lines += [f"**Also trained on** {named}.", ""]
    evidence = dict(card["evidence"])
    if SETS_APART in evidence:  # the first thing said of a judge
        lines += [f"## {SETS_APART}", "", *set_lines(evidence.pop(SETS_APART)["sets"]), ""]
    for protocol, evaluation in evidence.items():
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


def set_lines(sets: Sequence[Mapping[str, Any]]) -> list[str]:
    """Every set that was left out once as a row of a Markdown table."""
    lines = [
        "Spearman's correlation with people's ratings of a set from whose ratings the judge learnt nothing; "
        "AUC of its lowest rated fifth; Kendall's tau over systems.",
        "",
        "| set | rated | judge | AUC of the worst | systems | length | recorded judges | one expert |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for item in sets:
        parties = item["parties"]
        judge = parties["judge"]
        recorded = [
            f"{name} {show(figures['spearman'])}"
            for name, figures in parties.items()
            if name not in ("judge", "length", "one expert")
        ]
        expert = parties.get("one expert")
        cells = (
            item["set"],
            f"{item['items']:,}",
            show(judge["spearman"]),
            show(judge["worst"]),
            show(judge["tau"], digits=2) if judge["tau"] else "",
            show(parties["length"]["spearman"]),
            "; ".join(recorded) or "",
            show(expert["spearman"]) if expert else "",
        )
        lines.append("| " + " | ".join(cells) + " |")
    return lines


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
            f"Spread of the error between models: {100 * spread:.1f} points, worth {say_worth(judge)}.",
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

    corpus: TrainingData
    recipe: Recipe
    device: str

    @classmethod
    def read(
        cls,
        exchanges: Path | None,
        ratings: Path | None,
        *,
        recipe: str,
        instead: Mapping[str, Any],
        sets: Path | None,
        texts: Sequence[Path],
        device: str,
    ) -> "Materials":
        """From files; `sets` is a folder with one folder for each public set, as published.

        Of sets with the weight 0 those that are there are asked about, a few items of each.
        """
        given = {key: value for key, value in instead.items() if value is not None}
        chosen = replace(read_recipe(recipe), **given)
        if texts and not chosen.teacher:
            raise UserError(f"--texts: the recipe {recipe!r} has no teacher to label them")
        device = _check_machine(device, chosen)
        wanted = {name: None for each in lineage(chosen) for name in each.sets}
        if wanted and sets is None:
            raise UserError(
                f"--sets: the recipe {recipe!r} learns from {', '.join(wanted)}; name the folder that holds "
                "them, or use a recipe without [sets]"
            )
        if sets and not wanted:
            raise UserError(f"--sets: the recipe {recipe!r} names no other rated set")
        learnt = {name for each in lineage(chosen) for name, weight in each.sets.items() if weight}
        if not learnt and (exchanges is None or ratings is None):
            raise UserError("EXCHANGES and RATINGS are missing: replies, and what people said of them")
        there = [
            name for name in wanted if sets and (name in learnt or (sets / RATED_SETS[name].source).exists())
        ]
        rated = {name: read_rated_set(name, sets) for name in there if sets}
        corpus = TrainingData(
            examples=join_ratings(read_exchanges(exchanges), read_ratings(ratings))
            if exchanges is not None and ratings is not None
            else [],
            items=[item for name in there if name in learnt for item in rated[name]],
            asked=draw_few(item for name in there if name not in learnt for item in rated[name]),
            texts=[exchange for path in texts for exchange in read_exchanges(path)],
        )
        return cls(corpus=corpus, recipe=chosen, device=device)


def _check_machine(device: str, recipe: Recipe) -> str:
    """The device to train on; what is missing is said now, not after the teacher's hours of training."""
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise UserError(f"training needs {', '.join(missing)}: install the extra packages named `train`")
    import torch

    for each in lineage(recipe):
        find_base(each.base)
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    if device.partition(":")[0] not in devices:
        raise UserError(f"--device: no {device!r} here; use {' or '.join(devices)}")
    return device


def try_out(
    materials: Materials,
    protocols: Sequence[str],
    folder: Path,
    *,
    on_split: OnSplit = lambda name, number, total: None,
    on_step: Progress | None = None,
) -> list[dict[str, Any]]:
    """Train once for each held-out part; then measure every metric, with intervals and rivals.

    One result for each protocol, in its own folder where there are several.
    """
    chosen = list(dict.fromkeys(protocols))
    with disk_errors(folder):
        run_trial(
            materials.corpus,
            materials.recipe,
            chosen,
            folder,
            device=materials.device,
            on_split=on_split,
            on_step=on_step,
        )
    results = []
    for protocol in chosen:
        place = trial_folder(folder, protocol, chosen)
        for _ in lineage(materials.recipe)[1:]:
            place /= TEACHER
            measure_trial(read_rows(place), place, protocol=protocol)
        place = trial_folder(folder, protocol, chosen)
        results.append(measure_trial(read_rows(place), place, protocol=protocol))
    return results


def make(
    materials: Materials,
    folder: Path,
    *,
    evidence: Sequence[Path],
    about: Path | None,
    on_step: Progress | None = None,
) -> dict[str, Any]:
    """Make a judge's folder: `score --judge` takes it through a TOML file with `kind` and `weights`."""
    plan = plan_training(materials.corpus, materials.recipe)
    figures = dict(_read_evidence(folder, plan) for folder in evidence)
    name = "classifier-large" if materials.recipe.rank else "classifier"
    words = ABOUT if about is None else read_toml(about)
    if set(words) != set(ABOUT):
        raise UserError(f"{about}: has to say {', '.join(ABOUT)}, and nothing else")
    with disk_errors(folder):
        card = make_judge(
            materials.corpus,
            materials.recipe,
            folder,
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
