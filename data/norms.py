"""How people's feelings moved, and which figures were printed about that."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from data.errors import UserError

HUMAN_NORMS: Final = Path(__file__).parent / "studies" / "emotionbench-human-norms.csv"
PRINTED: Final = Path(__file__).parent / "studies" / "emotionbench-printed.csv"
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
