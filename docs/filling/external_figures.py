"""The shipped judge on rated sets that training refuses: its predictions, and the table of their figures."""

import json
from pathlib import Path
from typing import Any, Final

from data.records import LABELS, digest_json, to_plain
from data.text import show
from filling.figures import card
from filling.reference_tables import table
from judge.base import DEFAULT, load_judge
from training.rated_sets import EXTERNAL_SETS, RatedItem, read_rated_set
from training.set_transfer import measure_set, set_item

FILE: Final = Path(__file__).parents[1] / "figures" / "external_sets.json"
NOT_MEASURED: Final = "The shipped judge has not been measured on them yet."
PARTIES: Final = {
    "judge": f"**{DEFAULT}**",
    "length": "counting words",
    "one expert": "one psychologist, by the other",
}


def measure_external_sets(folder: Path) -> None:
    """Write the judge's predictions and their figures; predictions that the file has are not made again."""
    stored = read_stored()
    predictions = stored.get("predictions", {})
    sets = []
    for name in EXTERNAL_SETS:
        items = {item.exchanges[-1].id: item for item in read_rated_set(name, folder)}
        if name not in predictions:
            predictions[name] = predict(items)
        scored = [set_item(items[key], probabilities) for key, probabilities in predictions[name].items()]
        sets.append(to_plain(measure_set(scored)))
    content = {"judge": _judge_digest(), "sets": sets, "predictions": predictions}
    FILE.write_text(json.dumps(content, separators=(",", ":")) + "\n", encoding="utf-8")


def predict(items: dict[str, RatedItem]) -> dict[str, list[float]]:
    """Return the judge's probabilities of each item's reply; without replies that it does not score."""
    judge = load_judge(DEFAULT)
    judgments = judge.judge_many([item.exchanges[-1] for item in items.values()])
    return {
        identity: [round(judgment.probabilities[label], 4) for label in LABELS]
        for identity, judgment in zip(items, judgments, strict=True)
        if judgment.probabilities
    }


def read_stored() -> dict[str, Any]:
    """Return the stored predictions and figures; empty where there are none of the shipped judge."""
    content: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    return content if content.get("judge") == _judge_digest() else {}


def _judge_digest() -> str:
    return digest_json(card()["files"])[:16]


def external_sets() -> str:
    """Return the agreement of the judge, of the word count and of raters with each set's ratings."""
    rows = []
    for item in read_stored().get("sets", ()):
        for name, party in item["parties"].items():
            tau = show(party["tau"], digits=2) if party["tau"] else ""
            figures = [show(party[key], digits=2) for key in ("spearman", "worst")]
            rows.append([item["set"], f"{item['items']:,}", PARTIES.get(name, name), *figures, tau])
    heads = ["set", "replies", "scored by", "Spearman", "AUC of the lowest-rated fifth", "tau over systems"]
    return table(heads, rows) if rows else NOT_MEASURED
