"""Model cards: the recipes that a card records, its figures and caveat, and all of these as Markdown."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from empathy_judge.data.errors import UserError
from empathy_judge.data.files import replacing
from empathy_judge.data.text import percent, show
from empathy_judge.judge.onnx_model import CARD, read_card
from empathy_judge.training import cross_validation as cv
from empathy_judge.training.cross_validation import JUDGE, MODEL_APART, TFIDF
from empathy_judge.training.recipe import Recipe, build_recipe

METRICS = {
    "qwk": "QWK",
    "label_qwk": "QWK of labels",
    "spearman": "Spearman",
    "balanced_accuracy": "bal. acc.",
    "auc_good": "AUC Good",
    "auc_bad": "AUC Bad",
    "log_loss": "log-loss",
}
# What a card says beside its figures, unless a file given with --card-text replaces it.
DEFAULT_TEXT: Mapping[str, Any] = {
    "summary": "Estimates the probability that one of its raters would rate a reply Bad, Okay or Good.",
    "licence": "Not stated; the license of the ratings decides.",
    "data": "",
    "limits": [
        "Intervals cover the choice of prompts, not the error on a model that is not in the training data.",
        "Replies that differ from the training data are outside the evaluated range.",
    ],
}
Row = Mapping[str, Any]


def describe_evidence(rows: Sequence[Row]) -> dict[str, Any]:
    """Return a card's figures of predictions of held-out data, and its caveat."""
    evidence = {name: each for name, each in cv.measure_rows(rows).items() if name != "protocol"}
    return {"caveat": state_caveat(evidence), "evidence": evidence}


def state_caveat(evidence: Row) -> str:
    """Return the sentence under every table of this judge's shares: its error on a model left out."""
    if MODEL_APART not in evidence:
        return "The error of this judge on a model that is not in its training data was not measured."
    levels = _levels(evidence[MODEL_APART]["evaluations"][JUDGE])
    mean, worst, guess = (
        100 * levels[name]["value"] for name in ("mean_share_error", "worst_share_error", "guess_error")
    )
    return (
        f"On unseen models, the error of this judge's Good share was {mean:.1f} points on average and "
        f"{worst:.1f} at worst ({len(levels['models'])} models left out; guessing: {guess:.1f} on average)."
    )


def read_recorded(path: Path) -> tuple[dict[str, Any], tuple[Recipe, ...]]:
    """Return a card, by its path or its folder's, and the recipes that it records."""
    path = path / CARD if path.is_dir() else path
    card = read_card(path.parent)
    if "provenance" not in card:
        raise UserError(
            f"{path}: records no digests of its training data, so this judge cannot be rebuilt; train it "
            "again with --recipe"
        )
    tables = [card.get("recipe", {}), *card["provenance"]["teachers"]]
    return card, tuple(build_recipe(table, f"{path}: recipe") for table in tables)


def write_judge_card(folder: Path, card: Row) -> None:
    """Write a judge's card, and its README last."""
    with replacing(folder / CARD) as partial:
        partial.write_text(json.dumps(card, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    with replacing(folder / "README.md") as partial:
        partial.write_text(write_card(card), encoding="utf-8")


def write_card(card: Row) -> str:
    """Return a model card as Markdown."""
    trained = card["trained_on"]
    shares = ", ".join(f"{100 * share:.1f}% {label}" for label, share in trained["shares"].items())
    ratings = (
        f"{trained['ratings']:,} ratings by {trained['raters']:,} people of replies by "
        f"{', '.join(trained['models'])}; {shares}. "
        if trained["ratings"]
        else "no human labels, so its levels mean nothing until they are calibrated. "
    )
    lines = [
        *(f"# {card['name']}", "", card["summary"], "", f"**License.** {card['licence']}", ""),
        *(f"**Trained on** {ratings}{card['data']}".rstrip(), ""),
        *(f"**Unseen models.** {card['caveat']}", ""),
    ]
    if sets := trained.get("sets"):
        named = ", ".join(f"{name} ({facts['items']:,}, {facts['licence']})" for name, facts in sets.items())
        lines += [f"**Also trained on** {named}.", ""]
    for protocol in sorted(card["evidence"], key=lambda name: name != cv.SETS_APART):
        lines += [f"## {protocol}", "", *evaluation_lines(card["evidence"][protocol]), ""]
    if change := card["int8"]:
        lines += [
            f"**int8** changes the score by {change['mean_score']:.4f} on average over {change['replies']} "
            f"replies, a probability by at most {change['largest_probability']:.4f}, and the Good share by "
            f"{100 * change['good_share']:+.2f} points; its scores correlate "
            f"{change['score_correlation']:.4f} with full precision.",
            "",
        ]
    return "\n".join([*lines, "## Limits", "", *(f"- {limit}" for limit in card["limits"]), ""])


def evaluation_lines(evaluation: Row) -> list[str]:
    """Return the figures of an evaluation as Markdown tables."""
    if evaluation.get("protocol") == cv.HELD_OUT:
        parts = [name for name in evaluation if name != "protocol"]
        return [
            line for each in parts for line in (f"## {each}", "", *evaluation_lines(evaluation[each]), "")
        ]
    if "own_higher" in evaluation:
        own, other, constant, higher = (
            percent(evaluation[name]) for name in ("own", "other", "constant", "own_higher")
        )
        return [
            f"Labelled Good: {own}% of replies under their own prompts, {other}% under other prompts, and "
            f"{constant}% of constant replies. A reply scores higher under its own prompt in {higher}%."
        ]
    if "sets" in evaluation:
        return _set_lines(evaluation["sets"])
    evaluations = evaluation["evaluations"]
    judge, figures = evaluations[JUDGE], {name: each["per_response"] for name, each in evaluations.items()}
    metrics = {key: name for key, name in METRICS.items() if key in figures[JUDGE]}
    rows = [(name, *(show(each[metric], digits=3) for metric in metrics)) for name, each in figures.items()]
    lines = _table(("", *metrics.values()), rows)
    if any(each["balanced_accuracy"]["value"] is None for each in figures.values()):
        lines += ["", "Balanced accuracy (bal. acc.) is undefined where all replies get one label."]
    models = [
        (row["model"], f"{row['people']:.3f}", f"{row['judge']:.3f}", show(row["error"], digits=1, scale=100))
        for row in judge["models"]
    ]
    lines += ["", *_table(("model", "human Good share", "judge's Good share", "error, points"), models)]
    levels, tfidf = _levels(judge), ""
    mean, guess, among = (
        percent(levels[key]) for key in ("mean_share_error", "guess_error", "guess_error_among")
    )
    if TFIDF in evaluations:
        tfidf = f"of TF-IDF {100 * _levels(evaluations[TFIDF])['mean_share_error']['value']:.1f}, "
    lines += [
        "",
        f"Mean error over {', '.join(levels['models'])}: {mean} points; {tfidf}of guessing the mean of all "
        f"others {guess}, of the others among these {among}. Order of these models: Kendall's tau "
        f"{show(levels['tau'], digits=2)}.",
    ]
    return lines


def _set_lines(sets: Sequence[Row]) -> list[str]:
    """Return a table with one row for every set that was left out."""
    head = ("set", "rated", "judge", "AUC of the worst", "systems", "length", "recorded judges", "one expert")
    rows = []
    for item in sets:
        judge = item["parties"][JUDGE]
        ranks = {name: show(each["spearman"], digits=3) for name, each in item["parties"].items()}
        cells = [item["set"], f"{item['items']:,}", ranks.pop(JUDGE), show(judge["worst"], digits=3)]
        cells += [show(judge["tau"]) if judge["tau"] else "", ranks.pop("length")]
        expert = ranks.pop("one expert", "")
        rows.append([*cells, "; ".join(f"{name} {shown}" for name, shown in ranks.items()), expert])
    return [
        "Spearman correlation with the human ratings of a set that the judge was not trained on; AUC of the "
        "lowest-rated fifth; Kendall's tau over systems.",
        "",
        *_table(head, rows),
    ]


def _levels(evaluation: Row) -> Row:
    levels: Row = evaluation["chosen_models"] or evaluation["all_models"]
    return levels


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a Markdown table."""
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    return lines + [f"| {' | '.join(row)} |" for row in rows]
