"""What agreement with single ratings can at most be, given how far two people would agree.

The model: every response has a quality, every rating is that quality plus the rater's own noise, both normal,
cut into levels where the observed shares say. The noise is what makes two raters agree by the given kappa.
Integrated over a grid of qualities, which is the simulation with infinitely many ratings and no chance in it.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from calibration.counts import balanced_accuracy, exact, kappa
from calibration.intervals import Floats, finite_or_none
from calibration.resampling import Weights
from data.errors import UserError

PILOT_KAPPA: Final = 0.2817  # weighted, of the crowd study's pilot; with which weights is not known
GRID: Final = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How well somebody meets a person's single rating; nan is undefined."""

    exact: float
    balanced_accuracy: float
    qwk: float
    spearman: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What `perfect` knowledge of every response's quality would reach, and what a `second_person` would.

    `correlation` is that of two raters' impressions before they are cut into levels. With perfect knowledge
    the likeliest level is said for `exact`, the one likeliest against its share for `balanced_accuracy`, and
    for `qwk` quality is cut so that labels are as frequent as ratings; `spearman` is the better of quality
    itself and those labels.
    """

    reliability: float
    weights: str
    shares: tuple[float, ...]
    correlation: float
    perfect: Reach
    second_person: Reach

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON; null is undefined."""
        reaches = {"perfect": self.perfect, "second_person": self.second_person}
        return {
            "reliability": self.reliability,
            "weights": self.weights,
            "shares": list(self.shares),
            "correlation": finite_or_none(self.correlation),
            **{
                name: {key: finite_or_none(value) for key, value in asdict(reach).items()}
                for name, reach in reaches.items()
            },
        }


def reliability_bound(
    shares: Sequence[float] | Floats, *, reliability: float = PILOT_KAPPA, weights: Weights = "quadratic"
) -> Bound:
    """The bound for ratings with these shares of levels, were two people to agree by this Cohen's kappa.

    >>> bound = reliability_bound([0.1111, 0.3116, 0.5773])
    >>> round(bound.perfect.exact, 2), round(bound.second_person.exact, 2)
    (0.64, 0.54)
    """
    if not 0 < reliability < 1:
        raise UserError(f"reliability {reliability:g}: give a kappa of two people between 0 and 1")
    parts = np.asarray(shares, dtype=float) / np.sum(shares)
    known: dict[str, Any] = {
        "reliability": reliability,
        "weights": weights or "none",
        "shares": tuple(float(part) for part in parts),
    }
    if (parts > 0).sum() < 2:
        nothing = Reach(exact=np.nan, balanced_accuracy=np.nan, qwk=np.nan, spearman=np.nan)
        return Bound(**known, correlation=np.nan, perfect=nothing, second_person=nothing)
    correlation = _solve(parts, reliability, weights)
    given = _chances(parts, correlation)
    return Bound(
        **known,
        correlation=correlation,
        perfect=_perfect(parts, given),
        second_person=_second(given.T @ given / GRID),
    )


def _chances(shares: Floats, correlation: float) -> Floats:
    """The chance of every level at every quality, (grid, k); qualities are equally likely."""
    from scipy.special import ndtr, ndtri

    quality = ndtri((np.arange(GRID) + 0.5) / GRID)[:, None]
    cuts = ndtri(np.clip(np.cumsum(shares)[:-1], 0, 1))
    below = ndtr((cuts - np.sqrt(correlation) * quality) / np.sqrt(1 - correlation))
    ends = np.zeros((GRID, 1)), np.ones((GRID, 1))
    chances: Floats = np.diff(np.hstack([ends[0], below, ends[1]]), axis=1)
    return chances


def _solve(shares: Floats, reliability: float, weights: Weights) -> float:
    from scipy.optimize import brentq

    def excess(correlation: float) -> float:
        given = _chances(shares, correlation)
        return float(kappa((given.T @ given)[None], weights)[0]) - reliability

    low, high = 1e-6, 1 - 1e-6
    # Outside only for a kappa so near 0 or 1 that the ends say as much.
    return (
        float(brentq(excess, low, high)) if excess(low) < 0 < excess(high) else (low, high)[excess(low) < 0]
    )


def _perfect(shares: Floats, given: Floats) -> Reach:
    """`given` is in order of quality, so a row's place is its rank."""
    used = shares > 0
    place = (np.arange(GRID) + 0.5) / GRID
    cut = np.searchsorted(np.cumsum(shares)[:-1], place, side="left")
    table = given.T @ (cut[:, None] == np.arange(len(shares))).astype(float) / GRID
    balanced = (given[:, used] / given.mean(axis=0)[used]).max(axis=1).mean() / used.sum()
    return Reach(
        exact=float(given.max(axis=1).mean()),
        balanced_accuracy=float(balanced),
        qwk=float(kappa(table[None], "quadratic")[0]),
        spearman=max(
            _correlation(given / GRID, _ranks(table.sum(axis=1)), place),
            # Where people agree almost always, their ties rank better than what tells all responses apart.
            _correlation(table, _ranks(table.sum(axis=0)), _ranks(table.sum(axis=1))),
        ),
    )


def _second(table: Floats) -> Reach:
    ranks = _ranks(table.sum(axis=0))
    return Reach(
        exact=float(exact(table[None])[0]),
        balanced_accuracy=float(balanced_accuracy(table[None])[0]),
        qwk=float(kappa(table[None], "quadratic")[0]),
        spearman=_correlation(table, ranks, ranks),
    )


def _ranks(shares: Floats) -> Floats:
    """Each level's mean rank, from 0 to 1."""
    ranks: Floats = np.cumsum(shares) - shares / 2
    return ranks


def _correlation(table: Floats, across: Floats, down: Floats) -> float:
    """Pearson's, of values at the rows and columns of a table of probabilities."""
    rows, columns = table.sum(axis=1), table.sum(axis=0)
    one, two = down - rows @ down, across - columns @ across
    return float(one @ table @ two / np.sqrt((rows @ one**2) * (columns @ two**2)))
