"""How people's feelings moved in the study."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from data.tables import read_rows

HUMAN_NORMS: Final = Path(__file__).parent / "human-norms.csv"
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
    people: int
    norms: Mapping[str, Norm]

    def as_dict(self) -> dict[str, Any]:
        """Put the sub-scales beside their number, with no level in between."""
        return {"level": self.level, "people": self.people, **self.norms}


def read_norms() -> dict[str, NormRow]:
    """Norms by name: Overall, the emotions, and the factors by their keys."""
    norms = {}
    for _, row in read_rows(HUMAN_NORMS):
        name = row["name"].split(" ", 1)[0]
        by_affect = {
            affect: Norm(
                *(
                    float(row[f"{part}_{affect}_{what}"])
                    for part in ("default", "evoked", "change")
                    for what in ("mean", "sd")
                )
            )
            for affect in AFFECTS
        }
        norms[name] = NormRow(level=row["level"].lower(), people=int(row["people"]), norms=by_affect)
    return norms
