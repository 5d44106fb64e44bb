"""Figures of the explanation pages, from the shipped judges' cards and calibrations and from data/studies."""

import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from calibration.agreement.model_levels import say_worth, worth_in_ratings
from calibration.artifact import Calibration, read_calibration
from calibration.shares.transport import CalibratedModels, Target, refusal, transport
from data.records import LABELS
from data.studies.label_counts import read_study
from data.text import show

WEIGHTS: Final = Path(__file__).parents[2] / "judge" / "weights"
GOOD: Final = LABELS[-1]
Z: Final = 1.96
SHARE: Final = 0.6  # of Good, in examples
SEED, DRAWS = 0, 20_000


@cache
def card(judge: str = "classifier") -> dict[str, Any]:
    """A shipped judge's card."""
    contents: dict[str, Any] = json.loads((WEIGHTS / judge / "card.json").read_text(encoding="utf-8"))
    return contents


def evaluation(protocol: str, *, who: str = "judge", judge: str = "classifier") -> dict[str, Any]:
    """A judge's figures under a protocol, or those of a baseline beside it."""
    figures_of: dict[str, Any] = card(judge)["evidence"][protocol]["evaluations"][who]
    return figures_of


@cache
def calibration(judge: str = "classifier") -> Calibration:
    """A shipped judge's calibration."""
    return read_calibration(WEIGHTS / judge / "calibration.json")


def line_of_good(judge: str = "classifier") -> CalibratedModels:
    """The calibrated models, by their share of Good."""
    return calibration(judge).betweens()[-1]


@cache
def study_shares() -> dict[str, float]:
    """Every model's published share of Good, the largest first."""
    counts: dict[str, list[int]] = {}
    for cell in read_study():
        row = counts.setdefault(cell.model, [0, 0])
        row[0] += cell.good
        row[1] += cell.bad + cell.okay + cell.good
    shares = {model: good / all_ for model, (good, all_) in counts.items()}
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def chance_of_perfect_order(shares: Sequence[float], spread: float) -> float:
    """How often a judge whose level errs by `spread` from model to model puts these shares into order.

    >>> chance_of_perfect_order([0.6, 0.4], 0.0)
    1.0
    """
    true = np.sort(np.array(shares))
    judged = true + np.random.default_rng(SEED).normal(0, spread, (DRAWS, len(true)))
    return float((np.diff(judged, axis=1) > 0).all(axis=1).mean())


def half_width(ratings: float, *, design_effect: float, spread: float | None = None) -> float:
    """Half the 95 % interval of a share by so many ratings, and by a judge whose spread is known, if any."""
    precision = ratings / (SHARE * (1 - SHARE) * design_effect) + (spread**-2 if spread else 0.0)
    return Z / math.sqrt(precision)


def calibrated_half_width(ratings: float, judge: str = "classifier") -> float:
    """Half that interval as the shipped calibration gives it: few models tell the spread."""
    between, effect = line_of_good(judge), calibration(judge).design_effect or 1.0
    middle = float(np.mean(between.judge))
    rated = {"crowd": SHARE, "noise": SHARE * (1 - SHARE) * effect / ratings} if ratings else {}
    interval = transport(between, Target(judge=middle, **rated)).interval
    assert interval is not None
    return (interval.high - interval.low) / 2


def interval_at(mean: float, judge: str = "classifier") -> tuple[float, float, float] | None:
    """The corrected share and its ends for a new model of which the judge says this mean; None if refused."""
    between, target = line_of_good(judge), Target(judge=mean)
    level = transport(between, target)
    if refusal(between, target) or level.interval is None:
        return None
    return level.value, level.interval.low, level.interval.high


def _range(measured: Mapping[str, Any]) -> str:
    """The part of a judge's worth in brackets."""
    return say_worth(measured).partition(" ratings ")[2]


def figures() -> dict[str, str]:
    """Every figure by the name that the pages call it."""
    known, unknown = (evaluation(name)["chosen_models"] for name in ("raters-apart", "model-apart"))
    large = evaluation("model-apart", judge="classifier-large")["chosen_models"]
    tfidf = evaluation("model-apart", who="TF-IDF")["chosen_models"]
    everyone = evaluation("raters-apart")["all_models"]
    machines = [share for model, share in study_shares().items() if model != "human"]
    line = calibration().lines[GOOD]
    low, high = calibration().ranges[GOOD]
    return {
        "tau_known_all": _plain(everyone["tau"]),
        "tau_known": _plain(known["tau"]),
        "tau_unknown": _plain(unknown["tau"]),
        "tau_unknown_large": _plain(large["tau"]),
        "error_known": _points(known["mean_share_error"]),
        "error_unknown": _points(unknown["mean_share_error"]),
        "error_unknown_large": _points(large["mean_share_error"]),
        "worst_unknown": f"{100 * unknown['worst_share_error']['value']:.1f}",
        "error_guess": _points(unknown["guess_error"]),
        "error_guess_among": _points(unknown["guess_error_among"]),
        "error_tfidf": _points(tfidf["mean_share_error"]),
        "machines": str(len(machines)),
        "orders": f"{np.prod(np.arange(1, len(machines) + 1)):,}",
        "perfect_at_1": _per_cent(chance_of_perfect_order(machines, 0.01)),
        "perfect_at_2": _per_cent(chance_of_perfect_order(machines, 0.02)),
        "perfect_at_5": _per_cent(chance_of_perfect_order(machines, 0.05)),
        "spread": f"{100 * unknown['between_sd']:.1f}",
        "spread_large": f"{100 * large['between_sd']:.1f}",
        "design_effect": f"{unknown['design_effect']:.1f}",
        "worth": f"{unknown['worth_in_ratings']:,.0f}",
        "worth_large": f"{large['worth_in_ratings']:,.0f}",
        "worth_range": _range(evaluation("model-apart")),
        "worth_range_large": say_worth(evaluation("model-apart", judge="classifier-large")).partition(
            " ratings "
        )[2],
        "worth_at_5": f"{worth_in_ratings(SHARE, unknown['design_effect'], 0.05):,.0f}",
        "worth_at_2": f"{worth_in_ratings(SHARE, unknown['design_effect'], 0.02):,.0f}",
        "width_0": f"{100 * calibrated_half_width(0):.0f}",
        "width_50": f"{100 * calibrated_half_width(50):.0f}",
        "width_200": f"{100 * calibrated_half_width(200):.0f}",
        "width_known": f"{100 * Z * unknown['between_sd']:.0f}",
        "alone_50": f"{100 * half_width(50, design_effect=calibration().design_effect or 1.0):.0f}",
        "alone_200": f"{100 * half_width(200, design_effect=calibration().design_effect or 1.0):.0f}",
        "calibrated_models": str(len(line_of_good().models)),
        "calibrated_ratings": f"{calibration().count:,}",
        "line": f"{100 * line['intercept']:.1f} + {line['slope']:.2f} \N{MULTIPLICATION SIGN} judge",
        "line_spread": f"{100 * line['between_sd']:.1f}",
        "range_low": f"{100 * low:.0f}",
        "range_high": f"{100 * high:.0f}",
    }


def _plain(estimate: dict[str, float]) -> str:
    return show(estimate, digits=2)


def _points(estimate: dict[str, float]) -> str:
    return show(estimate, digits=1, scale=100)


def _per_cent(part: float) -> str:
    return f"{100 * part:.0f} %"
