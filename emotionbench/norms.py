"""How people's feelings moved, and which figures were printed about that."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from data.errors import UserError
from emotionbench.sheets import PEOPLE

HUMAN_NORMS: Final = Path(__file__).parent / "human-norms.csv"
PRINTED: Final = Path(__file__).parent / "printed-figures.csv"
AFFECTS: Final = ("positive", "negative")
# Split-half reliability of the 36 changes (Spearman-Brown): no model can be expected to agree better.
CEILING: Final = {"positive": 0.69, "negative": 0.82}


@dataclass(frozen=True, slots=True)
class Norm:
    """People's default and evoked level on one sub-scale and their change, each with its SD."""

    default: float
    default_sd: float
    evoked: float
    evoked_sd: float
    change: float
    change_sd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NormRow:
    """Norms of all people, of those who read about one emotion, or about one factor of it."""

    level: str
    name: str  # Overall, Anger, Anger-0
    people: int
    norms: Mapping[str, Norm]


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """A figure as it was printed, to the decimals of `text`."""

    who: str
    scale: str
    name: str
    subscale: str
    quantity: str
    text: str
    where: str


def read_norms(path: Path = HUMAN_NORMS) -> dict[str, NormRow]:
    """Norms by name: Overall, the emotions, and the factors by their keys."""
    found = {}
    for row in _rows(path):
        name = row["name"].split(" ", 1)[0]
        try:
            norms = {affect: _read_norm(row, affect) for affect in AFFECTS}
            people = int(row["people"])
        except (KeyError, ValueError) as error:
            raise UserError(f"{path}: {name}: not a row of norms: {error}") from error
        found[name] = NormRow(level=row["level"].lower(), name=name, people=people, norms=norms)
    return found


def read_printed(path: Path = PRINTED) -> tuple[Printed, ...]:
    """Every printed figure we know of."""
    return tuple(Printed(**row) for row in _rows(path))


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def _read_norm(row: Mapping[str, str], affect: str) -> Norm:
    measures = ("default", "evoked", "change")
    return Norm(
        *(float(row[f"{measure}_{affect}_{what}"]) for measure in measures for what in ("mean", "sd"))
    )


# Printed figures held against the data they were reckoned from.

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
