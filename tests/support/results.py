"""A calibration's result with every part it can have; the figures are invented."""

from random import Random
from typing import Any

from data.records import EMOTIONS, LABELS

METRICS = (
    *(
        "exact",
        "balanced_accuracy",
        "macro_f1",
        "kappa",
        "kappa_linear",
        "qwk",
        "qwk_matched",
        "alpha_nominal",
    ),
    *("alpha_ordinal", "alpha_interval", "ac1", "ac2", "spearman", "kendall", "icc"),
)
MODELS = ("ada", "bea/2", "cyd")


def full_result(*, seed: int = 0) -> dict[str, Any]:
    """What `calibrate` gives with texts, probes and several runs; the ceiling is not identifiable."""
    chance = Random(seed)
    result: dict[str, Any] = {
        "verdict": ["This judge ranks replies as a person would.", "It is too kind to long ones."],
        "headline": "qwk_matched",
        "calibration": {
            "digest": "c0ffee",
            "created": "2026-01-02",
            "expires": "2026-04-02",
            "ratings": "beef",
        },
        "judge": {
            "name": "tiny",
            "version": "3",
            "rubric": "r1",
            "source": "run",
            "cost": 0.12,
            "seconds": 8.0,
        },
        "data": _data(),
        "agreement": _metrics(chance),
        "baselines": [
            {"name": name, "about": "knows nothing", "metrics": _metrics(chance)}
            for name in ("majority", "length")
        ],
        "ceiling": _ceiling(),
        "over_models": {"tau": estimate(chance), "mean_error": estimate(chance), "shares": _shares(chance)},
        "confusion": {"labels": list(LABELS), "rows": [[31, 12, 7], [9, 44, 22], [3, 17, 155]]},
        "reliability": {"label": "Good", "before": _stage(chance), "after": _stage(chance)},
        "mapping": {
            "chosen": "temperature",
            "folds": 5,
            "losses": {"temperature": _loss(), "identity": _loss()},
        },
        "conformal": _conformal(chance),
        "models": [*(_model(chance, name) for name in MODELS), _refused()],
        "between": {
            "lines": {label: _line() for label in LABELS},
            "as_exact_as": 213.0,
            "worth_in_ratings": 900.0,
        },
        "planning": [_plan(difference) for difference in (0.02, 0.1)],
        "rater_model": _raters(chance),
        "policy": _policy(chance),
        "by_emotion": _by_emotion(chance),
        "bias": {"findings": _findings(chance)},
        "probes": [_probe(chance, name, result) for name, result in PROBES.items()],
        "disagreements": {"too_kind": [_apart("r1")], "too_harsh": [_apart("r2"), _apart("r3", texts=False)]},
        "runs": _runs(chance),
    }
    return result


PROBES = {"padding": "fails", "dismissal": "passes", "advice": "cannot tell"}


def estimate(chance: Random, middle: float = 0.3) -> dict[str, float]:
    value = middle + chance.uniform(-0.1, 0.1)
    return {
        "value": value,
        "low": value - chance.uniform(0.01, 0.05),
        "high": value + chance.uniform(0.01, 0.05),
    }


def identified(result: dict[str, Any], *, seed: int = 1) -> dict[str, Any]:
    """The same with several raters a response, so that there is a ceiling."""
    chance = Random(seed)
    test = {
        "is_passed": True,
        "winning_rate": 0.75,
        "advantage": estimate(chance, 0.8),
        "epsilon": 0.1,
        "undefined": None,
    }
    ceiling = {
        "raters": 4,
        "responses": 300,
        "shared": 280,
        "not_identifiable": None,
        "people": {"pairwise_qwk": estimate(chance), "alpha_ordinal": estimate(chance)},
        "left_out": [{"rater": "r7", "responses": 70, "person": 0.314, "judge": None}],
        "person_against_rest": estimate(chance),
        "judge_against_rest": estimate(chance),
        "gap": estimate(chance, 0.0),
        "alternative": test,
        "bounds": [],
    }
    return {**result, "ceiling": ceiling}


def _data() -> dict[str, Any]:
    return {
        **{"ratings": 300, "responses": 300, "raters": 30, "batches": 30, "models": list(MODELS)},
        **{
            "scale": list(LABELS),
            "columns": list(LABELS),
            "dimension": "empathy",
            "reference": "each rating",
        },
        **{"shares": {"Bad": 0.17, "Okay": 0.25, "Good": 0.58}, "clusters": "batch", "cluster_count": 30},
        **{"draws": 2000, "seed": 0, "unscored": {"timed out": 4}, "unjudged": 0, "unrated": 2},
    }


def _metrics(chance: Random) -> dict[str, Any]:
    return {name: estimate(chance) for name in METRICS}


def _ceiling() -> dict[str, Any]:
    reach = {"exact": 0.638, "balanced_accuracy": 0.557, "qwk": 0.484, "spearman": 0.512}
    bound = {"reliability": 0.2817, "perfect": reach, "second_person": {**reach, "qwk": 0.2817}}
    nothing = {"value": None, "low": None, "high": None}
    return {
        **{"raters": 30, "responses": 300, "shared": 0, "left_out": [], "people": {}, "alternative": None},
        "not_identifiable": "not identifiable: every response has one rating",
        **{name: nothing for name in ("person_against_rest", "judge_against_rest", "gap")},
        "bounds": [bound],
    }


def _levels(chance: Random) -> dict[str, float]:
    bad, okay = chance.uniform(0.1, 0.2), chance.uniform(0.2, 0.4)
    return {"Bad": bad, "Okay": okay, "Good": 1 - bad - okay}


def _shares(chance: Random) -> list[dict[str, Any]]:
    return [{"model": name, "crowd_standard_error": chance.uniform(0.01, 0.02)} for name in MODELS]


def _stage(chance: Random) -> dict[str, Any]:
    curve = [
        {
            "count": 60,
            "predicted": said,
            "value": said + chance.uniform(-0.05, 0.05),
            "low": said - 0.1,
            "high": said + 0.1,
        }
        for said in (0.3, 0.5, 0.7)
    ]
    brier = {"brier": 0.53, "reliability": 0.001, "resolution": 0.02, "uncertainty": 0.55, "within_bins": 0.0}
    return {"curve": curve, "ece": chance.uniform(0, 0.1), "brier": brier, "log_loss": 0.88}


def _loss() -> dict[str, float]:
    return {"loss": 0.8801, "excess": 0.0007, "excess_error": 0.0003}


def _conformal(chance: Random) -> dict[str, Any]:
    asked = {"id": "r1", "model": "ada", "set": ["Bad", "Good"], "probabilities": _levels(chance)}
    return {
        "wanted": 0.9,
        "coverage": estimate(chance, 0.9),
        "by_label": {label: estimate(chance, 0.9) for label in LABELS},
        "mean_size": 2.43,
        "sizes": [0.15, 0.27, 0.58],
        "ask_first": [asked],
    }


def _model(chance: Random, name: str) -> dict[str, Any]:
    return {
        **{"model": name, "judged": 100, "ratings": 100, "clusters": 10, "how": "both", "reason": None},
        **{
            "judge": _levels(chance),
            "crowd": _levels(chance),
            "design_effect": 1.5,
            "worth_in_ratings": 812.0,
        },
        "corrected": {label: estimate(chance) for label in LABELS},
        "left_out": {label: estimate(chance) for label in LABELS},
        "covered": {"Bad": True, "Okay": True, "Good": False},
    }


def _refused() -> dict[str, Any]:
    return {
        **{"model": "dee", "judged": 40, "ratings": 0, "clusters": 0, "how": "refused"},
        **{"reason": "its Good share lies outside the calibrated range", "judge": {"Good": 0.97}},
        **{"crowd": {}, "corrected": {}, "left_out": {}, "covered": {}, "worth_in_ratings": None},
    }


def _line() -> dict[str, Any]:
    return {"intercept": -0.03, "slope": 1.26, "between_sd": 0.017, "range": [0.21, 0.64]}


def _plan(difference: float) -> dict[str, Any]:
    counts = {"people_only": 15904, "with_judge": 15106, "with_line": None, "line_detects": 0.069}
    return {"difference": difference, "power": 0.8, **counts}


def _raters(chance: Random) -> dict[str, Any]:
    return {
        **{"ratings": 300, "raters": 30, "undefined": None},
        "variance": {"models": 0.02, "severity": 0.16, "noise": 0.82},
        "rater_share": {name: estimate(chance) for name in MODELS},
        "raw": {name: _levels(chance) for name in MODELS},
        "adjusted": {name: {label: estimate(chance) for label in LABELS} for name in MODELS},
    }


def _policy(chance: Random) -> dict[str, Any]:
    rows = [{"model": name, "crowd": chance.random(), "judge": chance.random()} for name in MODELS]
    policy = {"says": "Okay counts with Bad", "models": rows, "order_people": list(MODELS)}
    policy |= {"order_judge": list(MODELS), "agreement": {"exact": estimate(chance)}}
    return {"strict": policy, "lenient": policy, "same_order": False}


def _by_emotion(chance: Random) -> dict[str, Any]:
    def cell(count: int) -> dict[str, Any]:
        return {"n": count, "difference": chance.uniform(-0.2, 0.2), "standard_error": 0.031}

    rows = [
        {"emotion": name, **cell(12 if name == "sad" else 90), "models": [cell(30), cell(30), cell(8)]}
        for name in EMOTIONS
    ]
    return {"level": "share of Good", "models": list(MODELS), "emotions": rows}


def _findings(chance: Random) -> list[dict[str, Any]]:
    asked = [("length", ""), ("valence", ""), *(("model", name) for name in MODELS)]
    asked += [("emotion", name) for name in EMOTIONS]
    rows = [
        {
            **{
                "audit": audit,
                "about": about,
                "effect": estimate(chance, 0.0),
                "p": 0.31,
                "detectable": 0.081,
            },
            **{
                "threshold": 0.1,
                "verdict": "none found",
                "size": "small",
                "ratings": 300,
                "what": "asks",
                "note": "",
            },
        }
        for audit, about in asked
    ]
    rows[0] |= {"verdict": "found", "size": "matters", "p": 0.001}
    nothing = {"value": None, "low": None, "high": None}
    note = "needs positive and negative emotions"
    rows[1] |= {
        "verdict": "could not have been found",
        "effect": nothing,
        "detectable": None,
        "p": None,
        "note": note,
    }
    return rows


def _probe(chance: Random, name: str, outcome: str) -> dict[str, Any]:
    should = {"padding": "not up", "dismissal": "down"}.get(name, "same")
    return {
        **{"name": name, "should": should, "limit": 0.1, "why": "words are not warmth", "result": outcome},
        **{"change": estimate(chance, 0.0), "to_good": estimate(chance), "from_good": estimate(chance)},
        **{"pairs": 100, "prompts": 90, "unscored": {"timed out": 1}},
    }


def _apart(identity: str, *, texts: bool = True) -> dict[str, Any]:
    return {
        **{
            "id": identity,
            "model": "ada",
            "ratings": ["Bad"],
            "label": "Good",
            "score": 2.71,
            "rationale": None,
        },
        **{"probabilities": {"Bad": 0.02, "Okay": 0.19, "Good": 0.79}, "emotion": "proud" if texts else None},
        "prompt": "My daughter found a job." if texts else None,
        "response": "So what? Mine has two." if texts else None,
    }


def _runs(chance: Random) -> list[dict[str, Any]]:
    costs = {"tiny": (0.0, 11.5), "large": (0.42, 140.0), "panel": (6.4, 310.0)}
    rows = [
        {"name": name, "kind": "judge", "note": "run", "n": 300, "metrics": _metrics(chance), **_cost(*cost)}
        for name, cost in costs.items()
    ]
    rows.append(
        {"name": "majority", "kind": "baseline", "n": 300, "metrics": _metrics(chance), **_cost(0.0, 0.0)}
    )
    people = {"qwk": {"value": 0.2817, "low": None, "high": None}}
    return [*rows, {"name": "people", "kind": "people", "n": 0, "metrics": people, **_cost(None, None)}]


def _cost(usd: float | None, seconds: float | None) -> dict[str, float | None]:
    return {"usd_per_1000": usd, "seconds_per_1000": seconds}
