"""Figures that were printed about the study, checked against the data they were computed from."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import isnan, nan

from repository import ROOT

from data.tables import read_rows
from emotionbench.alignment import ModelAlignment, Norms, norm_of
from emotionbench.sheets import PEOPLE

PRINTED = ROOT / "tests" / "data" / "printed-figures.csv"
ROUNDING = 1e-6  # of floating point, beside that of print


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedFigure:
    """A figure as it was printed, beside the data; it `holds` if they agree to its decimals.

    `is_first_factor` explains a wrong one: an emotion's row holds that of its first factor.
    """

    who: str
    scale: str
    name: str
    subscale: str
    quantity: str
    printed: str
    found: float = nan
    where: str
    holds: bool = False
    is_first_factor: bool = False


def read_printed() -> tuple[PrintedFigure, ...]:
    return tuple(PrintedFigure(**row) for _, row in read_rows(PRINTED))


def check_printed(
    models: Sequence[ModelAlignment], printed: Iterable[PrintedFigure], norms: Norms
) -> list[PrintedFigure]:
    """Check every printed figure that the data at hand allow.

    People's are checked by their sheets where these are at hand, else by the norms reckoned from them.
    """
    shifts = {
        (model.model.casefold(), model.scale, row.name, scale): shift.norm
        for model in models
        if not model.variant
        for row in model.rows
        for scale, shift in row.scales.items()
    }
    checked = []
    for figure in printed:
        shift = shifts.get((figure.who.casefold(), figure.scale, figure.name, figure.subscale))
        value = getattr(shift, figure.quantity, nan)
        first = None
        if figure.who == PEOPLE:
            norm, first = (
                norm_of(norms, name, figure.subscale) for name in (figure.name, f"{figure.name}-0")
            )
            value = getattr(norm, figure.quantity, nan) if isnan(value) else value
        if not isnan(value):
            holds = agrees(figure.printed, value)
            is_first = False
            if first is not None and not holds and figure.quantity == "change":
                is_first = agrees(figure.printed, first.change)
            checked.append(replace(figure, found=value, holds=holds, is_first_factor=is_first))
    return checked


def agrees(printed: str, found: float) -> bool:
    """Whether a figure could have been printed so.

    >>> agrees("-5.1", -5.13), agrees("8.7", 8.88), agrees("12.6", 12.55)
    (True, False, True)
    """
    decimals = len(printed.partition(".")[2])
    return abs(float(printed) - found) <= 0.5 * 0.1**decimals + ROUNDING
