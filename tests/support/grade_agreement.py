"""How a language model's grades of replies in their context agree with people, and with each other.

    PYTHONPATH=. python tests/support/grade_agreement.py DATA

DATA has a folder for each source of rated replies. The model saw a block at once, and no ratings or sources:
the study's replies to one prompt, iEval's four talks about one situation, elsewhere a whole talk.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
from repository import ROOT

from empathy_judge.calibration.agreement.metrics import spearman_of
from empathy_judge.calibration.bootstrap import sample
from empathy_judge.data.files import replacing
from empathy_judge.data.importers import import_source
from empathy_judge.data.records import Exchange, Turn, to_plain
from empathy_judge.training.held_out import draw_batches
from empathy_judge.training.rated_sets import GRADES, RECIPES, read_rated_set

IN_CONTEXT: Final = RECIPES / "grades_in_context.json"
FIGURES: Final = ROOT / "docs" / "figures" / "grade_agreement.json"
SETS: Final = ("ieval", "dstc9", "esconv", "empathetic-exchanges")
Unit = tuple[str, float, tuple[Exchange, ...]]  # the cluster, people's rating, the replies


def study(folder: Path) -> list[Unit]:
    """Return the study's ratings, each of one reply."""
    units: list[Unit] = []
    for name in ("empathy-study", "empathy-study-sixth"):
        imported = import_source("empathy-study", folder / name)
        replies = {each.id: each for each in imported.exchanges}
        units += [
            (str(replies[each.id].extra["batch"]), each.rating, (replies[each.id],))
            for each in imported.ratings
        ]
    return units


def key(exchange: Exchange) -> str:
    """Return the digest of what the model read; iEval's talks start from their situation."""
    if exchange.id.startswith("worker-") and exchange.situation:
        opening = Turn(speaker="speaker", text=exchange.situation)
        exchange = replace(exchange, dialogue=(opening, *exchange.dialogue))
    return exchange.read_digest


def compare(units: Sequence[Unit], grades: Mapping[str, Mapping[str, int]]) -> dict[str, object]:
    """Return correlations with people, each on all that it covers, and of two kinds on the same units."""
    means = {
        kind: np.array(
            [
                np.mean([by[one] for one in map(digest, replies) if one in by] or np.nan)
                for _, _, replies in units
            ]
        )
        for kind, by in grades.items()
        for digest in [Exchange.content_digest.fget if kind == "earlier" else key]
    }
    rating = np.array([rating for _, rating, _ in units])
    found: dict[str, object] = {}
    for kind in grades:
        for other in ("people", *grades):
            if kind == other or (other != "people" and list(grades).index(other) > list(grades).index(kind)):
                continue
            versus = rating if other == "people" else means[other]
            rows = np.flatnonzero(np.isfinite(means[kind]) & np.isfinite(versus))
            if len(rows) < 100:
                continue
            clusters, drawn = draw_batches([units[row][0] for row in rows])
            statistic = {"spearman": spearman_of(versus[rows], means[kind][rows])}
            estimate = sample(statistic, clusters, drawn)["spearman"].estimate()
            found[f"{kind} and {other}"] = {"n": len(rows), **to_plain(estimate)}
    return found


def main(folder: Path) -> None:
    """Write the figures."""
    context = json.loads(IN_CONTEXT.read_text(encoding="utf-8"))
    grades = {name: context[name] for name in ("first", "second")}
    grades["earlier"] = json.loads(GRADES.read_text(encoding="utf-8"))
    units = {"study": study(folder)}
    for name in SETS:
        units[name] = [(item.cluster, item.rating, item.exchanges) for item in read_rated_set(name, folder)]
    figures = {name: compare(rows, grades) for name, rows in units.items()}
    with replacing(FIGURES) as partial:
        partial.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
