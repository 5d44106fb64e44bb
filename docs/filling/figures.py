"""Figures of the pages, from the shipped judge's card and calibration."""

import json
import math
from functools import cache
from pathlib import Path
from typing import Any, Final

from scipy.special import stdtrit

from empathy_judge.calibration.artifact import read_calibration
from empathy_judge.calibration.comparison.differences import VARIANT_CORRELATION
from empathy_judge.calibration.comparison.judged_models import ComparisonSettings
from empathy_judge.calibration.comparison.verdicts import LIKELY, SURE, SURE_AT_LEAST
from empathy_judge.calibration.comparison.wide_prior import HEAVIER
from empathy_judge.calibration.shares.transport import LEAST_MODELS, fit_line, recorded_deviation
from empathy_judge.data.records import GOOD_ABOVE
from empathy_judge.data.text import show
from empathy_judge.judge import repeats
from empathy_judge.judge.llm import endpoint, rated_examples
from empathy_judge.nightly.measure import LLM_ANCHORS

JUDGE: Final = Path(__file__).parents[2] / "judge" / "weights" / "classifier"
ANSWERS: Final = Path(__file__).parents[1] / "figures" / "answers.json"
RECORDED_JUDGES: Final = ANSWERS.with_name("recorded_judges.json")
GRADE_AGREEMENT: Final = ANSWERS.with_name("grade_agreement.json")


@cache
def card(judge: Path = JUDGE) -> dict[str, Any]:
    """Return the card in a judge's folder."""
    contents: dict[str, Any] = json.loads((judge / "card.json").read_text(encoding="utf-8"))
    return contents


def evaluation(protocol: str, *, who: str = "judge", judge: Path = JUDGE) -> dict[str, Any]:
    """Return the figures under a protocol of a judge, or of a baseline beside it."""
    measured: dict[str, Any] = card(judge)["evidence"][protocol]["evaluations"][who]
    return measured


@cache
def recorded_judges() -> dict[str, Any]:
    """Return the figures of LLM judges from recorded answers."""
    contents: dict[str, Any] = json.loads(RECORDED_JUDGES.read_text(encoding="utf-8"))
    return contents


@cache
def answers() -> dict[str, dict[str, dict[str, Any]]]:
    """Return the figures of answers on unrated models, by world and check."""
    worlds: dict[str, dict[str, dict[str, Any]]] = {}
    for row in json.loads(ANSWERS.read_text(encoding="utf-8")):
        worlds.setdefault(row["world"], {})[row["check"]] = row
    return worlds


def figures() -> dict[str, str]:
    """Return every figure by the name that the pages use."""
    known, unknown = (evaluation(name)["chosen_models"] for name in ("raters-apart", "model-apart"))
    tfidf = evaluation("model-apart", who="TF-IDF")["chosen_models"]
    calibration = read_calibration(JUDGE / "calibration.json")
    rated = calibration.calibrated_models["Good"]
    line, (low, high) = fit_line(rated), rated.range
    real, own = answers()["classifier"], answers()["own calibration"]
    misjudged = answers()["rated models misjudged by 15 points"]
    variants = answers()["variants without a correlation"]
    deviation, freedom = recorded_deviation()
    return {
        "error_printed": f"{100 * real['level error, study, printed']['measured']:.1f}",
        "answers_order": _count(real["order right, language models"]),
        "answers_stated": _share(real["stated, language models"]),
        "answers_as_good": _count(real["at least as good"]),
        "answers_as_good_models": _count(real["at least as good, language models"]),
        "answers_misjudged_50": _share(misjudged["50 ratings"]),
        "answers_misjudged_100": _share(misjudged["100 ratings"]),
        "answers_variants_25": _share(variants["0.25 assumed"]),
        "answers_variants_50": _share(variants["0.5 assumed"]),
        "answers_own_covered": _share(own["new model covered"]),
        "answers_own_width": f"{own['width']['measured']:.2f}",
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
        "sure": f"{SURE:.1%}",
        "likely": f"{LIKELY:.0%}",
        "sure_at_least": f"{SURE_AT_LEAST:.0%}",
        "margin": f"{100 * ComparisonSettings().margin:g}",
        "max_drop": f"{100 * ComparisonSettings().max_drop:g}",
        "variant_correlation": f"{VARIANT_CORRELATION:g}",
        "timeout": f"{endpoint.TIMEOUT:g}",
        "local_timeout": f"{endpoint.LOCAL_TIMEOUT:g}",
        "first_calls": str(endpoint.FIRST_CALLS),
        "first_local_calls": str(endpoint.FIRST_LOCAL_CALLS),
        "most_calls": str(endpoint.MOST_CALLS),
        "fewest_examples": str(rated_examples.FEWEST),
        "most_examples": str(rated_examples.MOST),
        "repeated_replies": str(repeats.REPLIES),
        "llm_anchors": str(LLM_ANCHORS),
        "rated_for_levels": str(LEAST_MODELS),
        "rated_for_replies": str(LEAST_MODELS + 1),
        "rated_for_pairs": str(LEAST_MODELS + 2),
        "recorded_deviation": f"{deviation:g}",
        "recorded_freedom": f"{freedom:g}",
        "recorded_clear": f"{HEAVIER * math.sqrt(2) * deviation * stdtrit(freedom, SURE):.1f}",
    }


def _plain(estimate: dict[str, float]) -> str:
    return show(estimate)


def _points(estimate: dict[str, float]) -> str:
    return show(estimate, digits=1, scale=100)


def _share(row: dict[str, Any]) -> str:
    return f"{100 * row['measured']:.0f}%"


def _count(row: dict[str, Any]) -> str:
    return f"{row['measured']} of {row['of']}"
