"""Figures of the pages, from the shipped judge's card and calibration."""

import json
from functools import cache
from pathlib import Path
from typing import Any, Final

from empathy_judge.calibration.artifact import read_calibration
from empathy_judge.calibration.shares.transport import fit_line
from empathy_judge.data.records import GOOD_ABOVE
from empathy_judge.data.text import show

JUDGE: Final = Path(__file__).parents[2] / "judge" / "weights" / "classifier"


@cache
def card(judge: Path = JUDGE) -> dict[str, Any]:
    """Return the card in a judge's folder."""
    contents: dict[str, Any] = json.loads((judge / "card.json").read_text(encoding="utf-8"))
    return contents


def evaluation(protocol: str, *, who: str = "judge", judge: Path = JUDGE) -> dict[str, Any]:
    """Return the figures under a protocol of a judge, or of a baseline beside it."""
    measured: dict[str, Any] = card(judge)["evidence"][protocol]["evaluations"][who]
    return measured


def figures() -> dict[str, str]:
    """Return every figure by the name that the pages use."""
    known, unknown = (evaluation(name)["chosen_models"] for name in ("raters-apart", "model-apart"))
    tfidf = evaluation("model-apart", who="TF-IDF")["chosen_models"]
    calibration = read_calibration(JUDGE / "calibration.json")
    rated = calibration.calibrated_models["Good"]
    line, (low, high) = fit_line(rated), rated.range
    return {
        "tau_known_all": _plain(evaluation("raters-apart")["all_models"]["tau"]),
        "tau_unknown": _plain(unknown["tau"]),
        "error_known": _points(known["mean_share_error"]),
        "error_unknown": _points(unknown["mean_share_error"]),
        "worst_unknown": f"{100 * unknown['worst_share_error']['value']:.1f}",
        "error_guess": _points(unknown["guess_error"]),
        "error_guess_among": _points(unknown["guess_error_among"]),
        "error_tfidf": _points(tfidf["mean_share_error"]),
        "calibrated_models": str(len(rated.models)),
        "calibrated_ratings": f"{calibration.count:,}",
        "line_slope": f"{line.slope:.2f}",
        "line_spread": f"{100 * line.model_sd:.1f}",
        "range_low": f"{100 * low:.0f}",
        "range_high": f"{100 * high:.0f}",
        "good_above": f"{GOOD_ABOVE:.0%}",
    }


def _plain(estimate: dict[str, float]) -> str:
    return show(estimate)


def _points(estimate: dict[str, float]) -> str:
    return show(estimate, digits=1, scale=100)
