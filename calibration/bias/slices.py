"""The same judgments from other sides: by baseline, by label policy, by emotion, and one by one."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from calibration.agreement.judge_vs_people import MIN_CLUSTERS, agreement
from calibration.agreement.metrics import log_losses
from calibration.cluster import one_way_variance
from calibration.estimate import Floats, Integers
from calibration.pairing import Cluster, Paired
from data.judgments import first_number
from data.records import LABELS, Exchange, Judgment

EXAMPLES: Final = 8  # of the worst disagreements, on either side
POLICIES: Final = {"strict": "Okay counts with Bad", "lenient": "Okay counts with Good"}


def clusters_of(paired: Paired) -> Integers:
    """What is kept whole, numbered from 0: batches or raters, or prompts where these are too few to vary."""
    return paired.clusters(cluster_kind(paired))


def cluster_kind(paired: Paired) -> Cluster:
    """As `calibration.concordance.agreement` chooses."""
    return "batch" if len(np.unique(paired.batch)) >= MIN_CLUSTERS else "prompt"


def _says(paired: Paired, probabilities: Floats) -> Paired:
    places = np.arange(1.0, paired.levels + 1)
    return replace(
        paired,
        probabilities=probabilities,
        score=np.clip(probabilities @ places, 1, paired.levels),
        label=1 + probabilities.argmax(axis=1),
    )


def label_policies(paired: Paired, *, seed: int, draws: int) -> dict[str, Any] | None:
    """Shares, order of models and agreement if Okay is counted with Bad or with Good."""
    if paired.scale != LABELS:
        return None
    said = said_by(paired)
    found = {}
    for name, first in (("strict", 3), ("lenient", 2)):
        hit, sure = paired.rating >= first, said[:, first - 1 :].sum(axis=1)
        two = replace(
            paired,
            rating=1 + hit.astype(np.int64),
            label=1 + (sure > 0.5).astype(np.int64),
            score=np.clip(1 + sure, 1, 2),
            probabilities=np.column_stack([1 - sure, sure]),
            scale=("not", POLICIES[name]),
        )
        metrics = agreement(two, rng=np.random.default_rng(seed), draws=draws).metrics
        rows = [
            {"model": model, "crowd": float(hit[own].mean()), "judge": float(sure[own].mean())}
            for model in paired.models
            for own in [paired.model == model]
        ]
        kept = ("exact", "balanced_accuracy", "kappa", "spearman")
        found[name] = {
            "says": POLICIES[name],
            "models": rows,
            "order_people": _order(rows, "crowd"),
            "order_judge": _order(rows, "judge"),
            "agreement": {metric: metrics[metric].as_dict() for metric in kept},
        }
    orders = [found[name]["order_judge"] for name in POLICIES]
    return {**found, "same_order": orders[0] == orders[1]}


def _order(rows: Sequence[Mapping[str, Any]], key: str) -> list[str]:
    return [row["model"] for row in sorted(rows, key=lambda row: (-row[key], row["model"]))]


def said_by(paired: Paired) -> Floats:
    """The judge's probabilities, or a 1 under its label."""
    if paired.probabilities is not None:
        return paired.probabilities
    levels = np.arange(1, paired.levels + 1)
    certain: Floats = (paired.label[:, None] == levels).astype(float)
    return certain


def levels_of(paired: Paired) -> tuple[Floats, Floats]:
    """Of each rating what people and the judge add to a model's level: its Good share, else its mean."""
    if paired.scale == LABELS:
        return (paired.rating == len(LABELS)).astype(float), said_by(paired)[:, -1]
    offset = first_number(paired.scale) - 1
    return paired.rating.astype(np.float64) + offset, paired.score + offset


def by_emotion(paired: Paired, exchanges: Mapping[str, Exchange]) -> dict[str, Any] | None:
    """The judge's level less the crowd's, by emotion and by emotion and model; None without emotions."""
    known = [exchanges.get(str(name)) for name in paired.id]
    emotion = np.array([(item.emotion or "") if item else "" for item in known])
    names = sorted(set(emotion) - {""})
    if not names:
        return None
    people, judge = levels_of(paired)
    clusters = clusters_of(paired)

    def cell(rows: np.ndarray[Any, Any]) -> dict[str, Any]:
        if not rows.any():
            return {"n": 0, "crowd": None, "judge": None, "difference": None, "standard_error": None}
        apart = judge[rows] - people[rows]
        variance = one_way_variance(apart, np.unique(clusters[rows], return_inverse=True)[1])
        return {
            "n": int(rows.sum()),
            "crowd": float(people[rows].mean()),
            "judge": float(judge[rows].mean()),
            "difference": float(apart.mean()),
            "standard_error": float(np.sqrt(variance)) if np.isfinite(variance) else None,
        }

    return {
        "level": "share of Good" if paired.scale == LABELS else "mean",
        "models": list(paired.models),
        "emotions": [
            {
                "emotion": name,
                **cell(emotion == name),
                "models": [cell((emotion == name) & (paired.model == model)) for model in paired.models],
            }
            for name in names
        ],
    }


def worst_disagreements(
    paired: Paired, judgments: Mapping[str, Judgment], exchanges: Mapping[str, Exchange]
) -> dict[str, list[dict[str, Any]]]:
    """Where the judge was surest of something else than people said, too kind and too harsh, worst first."""
    apart = paired.score - paired.rating
    surprise = log_losses(paired.rating, said_by(paired)) if paired.probabilities is not None else abs(apart)
    found: dict[str, list[dict[str, Any]]] = {}
    for side, sign in (("too_kind", 1), ("too_harsh", -1)):
        rows = np.flatnonzero(sign * apart > 0.5)
        order = rows[np.lexsort((paired.id[rows], -np.round(surprise[rows], 9)))]
        first = list(dict.fromkeys(str(paired.id[row]) for row in order))[:EXAMPLES]
        found[side] = [_example(paired, identity, judgments, exchanges) for identity in first]
    return found


def _example(
    paired: Paired, identity: str, judgments: Mapping[str, Judgment], exchanges: Mapping[str, Exchange]
) -> dict[str, Any]:
    rows = np.flatnonzero(paired.id == identity)
    judgment, exchange = judgments[identity], exchanges.get(identity)
    return {
        "id": identity,
        "model": str(paired.model[rows[0]]),
        "ratings": [paired.scale[paired.rating[row] - 1] for row in rows],
        "label": paired.scale[paired.label[rows[0]] - 1],
        "score": float(paired.score[rows[0]]) + first_number(paired.scale) - 1,
        "probabilities": dict(judgment.probabilities) if judgment.probabilities else None,
        "rationale": judgment.rationale,
        "emotion": exchange.emotion if exchange else None,
        "prompt": exchange.prompt if exchange else None,
        "response": exchange.response if exchange else None,
    }
