"""Judges, baselines and people as rows of one table: how well each agrees, and what it takes."""

from typing import Any, Final

from calibration.ceiling import Ceiling
from calibration.concordance import Agreement
from nightly.judged import Judged

ABOUT: Final = {
    "majority": "says of every response what people said most often",
    "length": "counts words; fitted on the other clusters",
}


def metrics_of(found: Agreement) -> dict[str, Any]:
    """Every metric as an estimate, ready for JSON."""
    return {name: estimate.as_dict() for name, estimate in found.metrics.items()}


def judge_row(judged: Judged, found: Agreement) -> dict[str, Any]:
    """A judge, with the money and time its run took."""
    return {
        **_row(judged.name, "judge", judged.source, found),
        "usd_per_1000": judged.per_thousand(judged.cost),
        "seconds_per_1000": judged.per_thousand(judged.seconds),
    }


def baseline_row(name: str, found: Agreement) -> dict[str, Any]:
    """A baseline, which asks nobody and takes no time worth a digit."""
    return {
        **_row(name, "baseline", ABOUT[name], found),
        "usd_per_1000": 0.0,
        "seconds_per_1000": 0.0,
    }


def people_row(people: Ceiling) -> dict[str, Any]:
    """One person against the others; where that is not identifiable, what the given reliability implies."""
    row = {"name": "people", "kind": "people", "usd_per_1000": None, "seconds_per_1000": None}
    if people.not_identifiable is None:
        metrics: dict[str, Any] = {"qwk": people.person_against_rest.as_dict()}
        note = "one person against the median of the others"
        return {**row, "note": note, "n": people.shared, "metrics": metrics}
    bound = people.bounds[0]
    reach = bound.as_dict()["second_person"]
    metrics = {name: {"value": value, "low": None, "high": None} for name, value in reach.items()}
    note = f"not identifiable; a second person, were two to agree by kappa {bound.reliability:.2f}"
    return {**row, "note": note, "n": 0, "metrics": metrics}


def _row(name: str, kind: str, note: str, found: Agreement) -> dict[str, Any]:
    return {"name": name, "kind": kind, "note": note, "n": found.ratings, "metrics": metrics_of(found)}
