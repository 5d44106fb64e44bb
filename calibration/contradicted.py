"""Printed figures held against the data they were reckoned from."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from data.norms import NormRow, Printed
from data.sheets import PEOPLE

ROUNDING = 1e-6  # of floating point, beside that of print


def check_printed(
    results: Sequence[Mapping[str, Any]], printed: Iterable[Printed], norms: Mapping[str, NormRow]
) -> list[dict[str, Any]]:
    """Every printed figure that can be checked here: what was found, and whether it `holds` to its decimals.

    People's are checked by their sheets where these are at hand, else by the norms reckoned from them.
    """
    by_name = {
        (str(result["model"]).casefold(), result["scale"]): result
        for result in results
        if not result["variant"]
    }
    checked = []
    for figure in printed:
        result = by_name.get((figure.who.casefold(), figure.scale))
        found = _from_result(result, figure) if result else None
        if found is None and figure.who == PEOPLE:
            found = _from_norms(norms.get(figure.name), figure)
        if found is not None:
            checked.append(_check(figure, found, norms))
    return checked


def agrees(printed: str, found: float) -> bool:
    """Whether a figure could have been printed so.

    >>> agrees("-5.1", -5.13), agrees("8.7", 8.88), agrees("12.6", 12.55)
    (True, False, True)
    """
    decimals = len(printed.partition(".")[2])
    return abs(float(printed) - found) <= 0.5 * 0.1**decimals + ROUNDING


def _check(figure: Printed, found: float, norms: Mapping[str, NormRow]) -> dict[str, Any]:
    first = norms.get(f"{figure.name}-0")
    norm = first.norms.get(figure.subscale) if first and figure.who == PEOPLE else None
    holds = agrees(figure.text, found)
    # So it came about: the row of an emotion was filled with that of its first factor.
    is_first = (
        not holds and norm is not None and figure.quantity == "change" and agrees(figure.text, norm.change)
    )
    return {
        "who": figure.who,
        "scale": figure.scale,
        "name": figure.name,
        "subscale": figure.subscale,
        "quantity": figure.quantity,
        "printed": figure.text,
        "found": found,
        "where": figure.where,
        "holds": holds,
        "is_first_factor": is_first,
    }


def _from_result(result: Mapping[str, Any], figure: Printed) -> float | None:
    for row in result["rows"]:
        if row["name"] == figure.name and figure.subscale in row["scales"]:
            found = row["scales"][figure.subscale]
            values = {
                "change": found["change"],
                "default": found["default"]["mean"],
                "default_sd": found["default"]["sd"],
            }
            value = values.get(figure.quantity)
            return None if value is None else float(value)
    return None


def _from_norms(row: NormRow | None, figure: Printed) -> float | None:
    norm = row.norms.get(figure.subscale) if row else None
    return None if norm is None else float(getattr(norm, figure.quantity))
