"""A rated model's shares, or its mean: PPI++ for the point, raters in the variance, t for few of them.

The judge has seen all of a model's responses and people some of them. What people said of those, plus
`weight` times how far the judge thinks the others differ from them, is right on average whatever the judge's
bias; a good judge only makes it less noisy (Angelopoulos, Duchi and Zrnic 2023, arXiv 2311.01453).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibration.bootstrap import Integers
from calibration.cluster import cluster_sums, clustered_variance, joint_freedom, sum_variance
from calibration.estimate import CONFIDENCE, Floats

UNIT = (0.0, 1.0)
NORMAL = 1.959964  # standard errors to either side of a 95 % interval with known variance


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RatedModel:
    """What a judge said of one model's responses, and people's ratings of some (or none) of them.

    Columns are labels, where `judged` holds probabilities and `value` a 1 under the label given, or there is
    one column of scores on a scale from `bounds[0]` to `bounds[1]`. `cluster` is whose rating it is: the
    batch where there are batches, else the rater. Two models' clusters of one name are the same people.
    `prompt` names what each response answers; without it every response has a prompt of its own.
    """

    judged: Floats  # (responses, columns)
    item: Integers  # (ratings,): the row of `judged` that was rated
    value: Floats  # (ratings, columns)
    cluster: NDArray[Any]  # (ratings,)
    prompt: NDArray[Any] | None = None  # (responses,)
    bounds: tuple[float, float] = UNIT

    def __post_init__(self) -> None:
        columns = self.judged.shape[1:]
        if len(columns) != 1 or self.value.shape != (len(self.item), *columns):
            raise ValueError("ratings and judgments: one row each, with the same columns")
        if len(self.cluster) != len(self.item) or (
            self.prompt is not None and len(self.prompt) != len(self.judged)
        ):
            raise ValueError("ratings and judgments: columns of one length")
        if not np.isfinite(self.judged).all() or not np.isfinite(self.value).all():
            raise ValueError("ratings and judgments are numbers; leave out what is unscored")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PpiEstimate:
    """A model's shares or mean from its ratings and its judgments; arrays are by column.

    `variance` counts raters and prompts, with `freedom` degrees; both are nan where one cluster alone cannot
    tell. `weight` is how far the judge was believed, 0 to 1. `design_effect` is the clustered over the simple
    variance of the ratings alone, so that `ratings` of them count as ratings / design_effect.
    `apart` says how far each rating moves the value, and `raters`, `rows` and `rated_prompts` whose it is and
    of what; `prompts` and `prompt_pulls` say the same of unrated responses.
    """

    value: Floats
    low: Floats
    high: Floats
    variance: Floats
    freedom: Floats
    weight: float
    design_effect: Floats
    spread: Floats  # the variance of single ratings
    ratings: int
    items: int
    judged: int
    clusters: int
    apart: Floats  # (ratings, columns)
    raters: NDArray[Any]  # (ratings,)
    rows: Integers  # (ratings,)
    rated_prompts: NDArray[Any] | None  # (ratings,)
    prompts: NDArray[Any] | None
    prompt_pulls: Floats  # (prompts, columns)
    bounds: tuple[float, float]
    stand_in: float  # the effective number of ratings where a share shows no variance

    @property
    def stated_variance(self) -> Floats:
        """The variance of a normal error whose interval is as wide as this one."""
        found: Floats = ((self.high - self.low) / 2 / NORMAL) ** 2
        return found

    @property
    def least_variance(self) -> Floats:
        """`variance`, or the stated one where all ratings were alike, which does not make them exact."""
        return np.where(self.variance > 0, self.variance, self.stated_variance)


def one_hot(ratings: ArrayLike, levels: int) -> Floats:
    """Ratings 1..levels as rows of 0s and a 1.

    >>> one_hot([3, 1], 3).tolist()
    [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    """
    rows: Floats = (np.asarray(ratings)[:, None] == np.arange(1, levels + 1)).astype(float)
    return rows


def ppi_estimate(rated: RatedModel) -> PpiEstimate:
    """The model's shares, or its mean, corrected by its own ratings.

    The point is ppi-python's, with the mean of an item's ratings where it has several. Its intervals take
    ratings as independent, which those of one rater are not, so the variance is summed by cluster here, and
    by item too where raters share items; intervals use t with as many degrees of freedom as clusters allow.
    Shares come from one weight for all labels, so they add up to 1, and their intervals are Wilson's at the
    effective number of ratings: near 0 the plain ones are too short.
    """
    rows, position, counts = np.unique(rated.item, return_inverse=True, return_counts=True)
    if not len(rows):
        raise ValueError("no ratings: see calibration.transport")
    judged, rest = rated.judged[rows], np.delete(rated.judged, rows, axis=0)
    means = cluster_sums(position, rated.value, len(rows)) / counts[:, None]
    weight = ppi_weight(means, judged, rest)
    value = _point(means, judged, rest, weight)
    shares = 1 / (len(rows) * counts[position])[:, None]
    residuals = rated.value - weight * judged[position]
    apart = shares * (residuals - (means - weight * judged).mean(axis=0))
    clusters, owner = np.unique(rated.cluster, return_inverse=True)
    own, own_freedom = clustered_variance(apart, owner, position)
    others = None if rated.prompt is None else np.delete(rated.prompt, rows)
    prompts, prompt_pulls = _prompt_pulls(rest, others, weight)
    far = sum_variance(prompt_pulls)
    plain, _ = clustered_variance(shares * (rated.value - means.mean(axis=0)), owner, position)
    spread = rated.value.var(axis=0)
    return _with_interval(
        value=value,
        variance=own + far,
        freedom=joint_freedom(
            own + far, (own, own_freedom), (far, np.full(far.shape, len(prompt_pulls) - 1.0))
        ),
        weight=weight,
        design_effect=np.divide(plain * len(rated.item), spread, out=np.ones_like(spread), where=spread > 0),
        spread=spread,
        ratings=len(rated.item),
        items=len(rows),
        judged=len(rated.judged),
        clusters=len(clusters),
        apart=apart,
        raters=rated.cluster,
        rows=rated.item,
        rated_prompts=None if rated.prompt is None else rated.prompt[rated.item],
        prompts=prompts,
        prompt_pulls=prompt_pulls,
        bounds=rated.bounds,
    )


def _with_interval(**known: Any) -> PpiEstimate:
    effect = float(known["design_effect"].max())
    stand_in = known["ratings"] / max(1.0, effect)
    low, high = intervals(known["value"], known["variance"], known["freedom"], known["bounds"], stand_in)
    return PpiEstimate(low=low, high=high, stand_in=stand_in, **known)


def judge_means(rated: RatedModel) -> tuple[Floats, Floats]:
    """The judge's means over all responses and their sampling variances, by column; nan without responses."""
    count, columns = rated.judged.shape
    if not count:
        return np.full(columns, np.nan), np.full(columns, np.nan)
    _, pulls = _prompt_pulls(rated.judged, rated.prompt, 1.0)
    return rated.judged.mean(axis=0), sum_variance(pulls)


def ppi_weight(means: Floats, judged: Floats, rest: Floats) -> float:
    """PPI++'s weight for the judge, 0 to 1; by hand, since ppi-python does not say which one it took."""
    if len(means) < 2 or not len(rest):
        return 0.0
    shared = ((means - means.mean(axis=0)) * (judged - judged.mean(axis=0))).mean(axis=0).sum()
    own = np.concatenate([judged, rest]).var(axis=0, ddof=1).sum()
    return float(np.clip(shared / (own * (1 + len(means) / len(rest))), 0, 1)) if own > 1e-15 else 0.0


def intervals(
    value: Floats, variance: Floats, freedom: Floats, bounds: tuple[float, float], ratings: float
) -> tuple[Floats, Floats]:
    """Intervals by t, kept on the scale; Wilson's for shares, nan where the variance is unknown.

    `ratings` stands in for the effective number of ratings where a share is 0 or 1 and shows no variance.
    """
    quantile = t_quantile(freedom)
    if bounds != UNIT:
        wide = quantile * np.sqrt(variance)
        return np.clip(value - wide, *bounds), np.clip(value + wide, *bounds)
    inner = value * (1 - value)
    known = (inner > 0) & (variance > 0)
    number = np.divide(inner, variance, out=np.full(value.shape, float(ratings)), where=known)
    number[np.isnan(variance)] = np.nan
    squared = quantile**2 / number
    middle = (value + squared / 2) / (1 + squared)
    half = np.sqrt(np.maximum(squared * inner + squared**2 / 4, 0)) / (1 + squared)
    return np.clip(middle - half, 0, 1), np.clip(middle + half, 0, 1)


def t_quantile(freedom: ArrayLike) -> Floats:
    """How many standard errors a 95 % interval reaches to either side; nan without degrees of freedom.

    >>> t_quantile([4, 1e9, 0]).round(2).tolist()
    [2.78, 1.96, nan]
    """
    from scipy.special import stdtrit

    known = np.asarray(freedom, dtype=float)
    found: Floats = np.full(known.shape, np.nan)
    defined = known > 0
    found[defined] = stdtrit(known[defined], (1 + CONFIDENCE) / 2)
    return found


def _point(means: Floats, judged: Floats, rest: Floats, weight: float) -> Floats:
    if weight == 0:
        value: Floats = means.mean(axis=0)
        return value
    from ppi_py import ppi_mean_pointestimate

    return np.atleast_1d(np.asarray(ppi_mean_pointestimate(means, judged, rest), dtype=float))


def _prompt_pulls(
    rest: Floats, prompt: NDArray[Any] | None, weight: float
) -> tuple[NDArray[Any] | None, Floats]:
    if not len(rest) or weight == 0:
        return None, np.zeros((0, rest.shape[1]))
    apart = weight * (rest - rest.mean(axis=0)) / len(rest)
    if prompt is None:
        return None, apart
    names, owner = np.unique(prompt, return_inverse=True)
    return names, cluster_sums(owner, apart, len(names))
