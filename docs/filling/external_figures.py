"""Shipped judges on texts that no training reads: rated sets that it refuses, and replies written afterwards.

Each judge predicts them once. Its predictions are kept, without texts. Figures on outside authors' texts,
which are not at hand, are carried over in a file that names their source.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from empathy_judge.calibration.cluster import NORMAL, wilson_interval
from empathy_judge.data.errors import UserError
from empathy_judge.data.files import digest_json
from empathy_judge.data.records import LABELS, Exchange, to_plain
from empathy_judge.data.text import show
from empathy_judge.judge.base import DEFAULT, load_judge
from empathy_judge.training.held_out import measure_set, set_item
from empathy_judge.training.rated_sets import EXTERNAL_SETS, RatedItem, read_rated_set
from filling.figures import JUDGE, card
from filling.reference_tables import LARGE, OPEN, table

FILE: Final = Path(__file__).parents[1] / "figures" / "external_sets.json"
OUTSIDE_TEXTS: Final = FILE.with_name("outside_texts.json")
JUDGES: Final = (DEFAULT, LARGE)
OPEN_NAME: Final = "classifier-open"  # whose weights are not included
NOT_MEASURED: Final = "The shipped judges have not been measured on them yet."
PARTIES: Final = {"length": "counting words", "one expert": "one psychologist, by the other"}
QUESTION: Final = " How are you feeling about it now?"


def measure_external_sets(folder: Path, own: Sequence[str] = ()) -> None:
    """Write the judges' predictions and their figures; predictions that the file has are not made again.

    `own` are TOML files of further judges, each under its file's name.
    """
    measured = read_stored()
    for name in (*JUDGES, *own):
        judge = Path(name).stem
        predictions, sets = measured.get(judge, {}).get("predictions", {}), []
        for each in EXTERNAL_SETS:
            items = {item.exchanges[-1].id: item for item in read_rated_set(each, folder)}
            try:
                predictions[each] = predictions.get(each) or _predict_items(name, items)
            except UserError as error:  # the base of a judge is not at hand
                print(f"{name} is left out: {error}")
                break
            scored = [set_item(items[key], probabilities) for key, probabilities in predictions[each].items()]
            sets.append(to_plain(measure_set(scored)))
        else:
            measured[judge] = {"weights": _weights_digest(judge), "sets": sets, "predictions": predictions}
    FILE.write_text(json.dumps(measured, separators=(",", ":")) + "\n", encoding="utf-8")


def _predict_items(name: str, items: Mapping[str, RatedItem]) -> dict[str, list[float]]:
    return predict(name, {identity: item.exchanges[-1] for identity, item in items.items()})


def predict(name: str, exchanges: Mapping[str, Exchange]) -> dict[str, list[float]]:
    """Return a judge's probabilities by id; without replies that it does not score."""
    judgments = load_judge(name).judge_many(list(exchanges.values()))
    return {
        identity: [round(judgment.probabilities[label], 4) for label in LABELS]
        for identity, judgment in zip(exchanges, judgments, strict=True)
        if judgment.probabilities
    }


def read_stored() -> dict[str, Any]:
    """Return the stored predictions and figures by judge, those of the shipped weights."""
    content: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    return {name: each for name, each in content.items() if each.get("weights") == _weights_digest(name)}


def _weights_digest(name: str) -> str:
    return digest_json(card(OPEN if name == OPEN_NAME else JUDGE.parent / name)["files"])[:16]


def external_sets() -> str:
    """Return the agreement of the judges, of the word count and of raters with each set's ratings."""
    stored = read_stored()
    rows = []
    for place in range(len(EXTERNAL_SETS)) if stored else ():
        items = {judge: measured["sets"][place] for judge, measured in stored.items()}
        parties = {f"**{judge}**": item["parties"].pop("judge") for judge, item in items.items()}
        item = next(iter(items.values()))  # the others' figures are the same beside every judge
        parties |= {PARTIES.get(name, name): figures for name, figures in item["parties"].items()}
        for name, figures in parties.items():
            cells = [show(figures[key]) for key in ("spearman", "worst")]
            tau = show(figures["tau"]) if figures["tau"] else ""
            rows.append([item["set"], f"{item['items']:,}", name, *cells, tau])
    heads = ["set", "replies", "scored by", "Spearman", "AUC of the lowest-rated fifth", "tau over systems"]
    return table(heads, rows) if rows else NOT_MEASURED


def outside_texts() -> str:
    """Return the carried figures of replies by outside authors."""
    rows = []
    for row in json.loads(OUTSIDE_TEXTS.read_text(encoding="utf-8"))["rows"]:
        if "of" in row:
            share, count = row["count"] / row["of"], np.array(row["of"])
            low, high = wilson_interval(np.array(share), count, NORMAL)
            cell = f"{100 * share:.0f}% [{100 * low:.0f}, {100 * high:.0f}] ({row['count']} of {count})"
        else:
            cell = show(row["measured"]) if "measured" in row else row["text"]
        rows.append([row["what"], cell])
    return table(["replies by outside authors", "measured"], rows)


def measure_fresh_texts(path: Path, names: Sequence[str], out: Path) -> None:
    """Score replies that were written after the judges were finished, and write the predictions.

    A line of the file has `id`, `kind` (harmful or excellent), `manner`, `prompt` and `response`. Harmful
    replies are also scored with a question added, and in capitals.
    """
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    texts: dict[str, dict[str, Exchange]] = {
        "harmful": {},
        "excellent": {},
        "harmful, question added": {},
        "harmful, in capitals": {},
    }
    for line in lines:
        reply = Exchange(id=line["id"], prompt=line["prompt"], response=line["response"], model="")
        texts[line["kind"]][reply.id] = reply
        if line["kind"] == "harmful":
            asked = replace(reply, response=reply.response.rstrip() + QUESTION)
            texts["harmful, question added"][reply.id] = asked
            texts["harmful, in capitals"][reply.id] = replace(reply, response=reply.response.upper())
    content = {
        "manners": {line["id"]: line["manner"] for line in lines},
        "judges": {
            Path(name).stem: {kind: predict(name, each) for kind, each in texts.items()} for name in names
        },
    }
    out.write_text(json.dumps(content, separators=(",", ":")) + "\n", encoding="utf-8")
