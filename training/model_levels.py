"""Each model's level, its share of Good responses or its mean: by people, by a judge, and by a guess.

Intervals resample rating batches and nothing else. They say how far other raters and prompts could have moved
a number, not how far other models could: with a handful of models that is the larger doubt. Noise also pushes
up a mean of absolute errors, once in the value and once more in the draws, so its interval leans high.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.agreement.level_errors import estimate_over_models, over_models
from calibration.bootstrap import Draws, Sampled, leaves_one_out, ratio
from calibration.estimate import CONFIDENCE, Estimate, Floats, Integers, Interval
from data.records import LABELS

GOOD = LABELS.index("Good")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLevel:
    """One model: the shares by crowd and by judge (its mean probabilities), and how far apart they are.

    `share_error` is judge - crowd of the Good share, with its sign. Standard errors are clustered by batch:
    the crowd's Good share's, and that of `share_error`. `design_effect`, clustered over binomial variance of
    the crowd's Good share, is undefined at shares 0 and 1.
    """

    model: str
    ratings: int
    batches: int
    crowd: Mapping[str, float]
    judge: Mapping[str, float]
    share_error: Estimate
    crowd_standard_error: float
    error_standard_error: float
    design_effect: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """Several models together; errors are absolute errors of the Good share.

    `tau` is Kendall's, between the crowd's Good shares and the judge's. `guess_error` is the mean error of
    guessing each model's share as the mean of the crowd's shares of all other models of the study;
    `guess_error_among` takes the others of `models` only. `between_sd` is the spread of the judge's errors
    without the noise of raters and prompts: sqrt(mean share_error^2 - mean error_standard_error^2), 0 if that
    is negative. `worth_in_ratings` is how many human ratings carry as much: p (1 - p) design_effect /
    between_sd^2, with p the crowd's mean share; infinite when between_sd is 0, which says that these models
    show no error beyond noise, not that there is none. `worth_range` is within what it lies by so few models,
    which no resampling of batches can vary; its end is infinite where noise may explain all errors.
    """

    models: tuple[str, ...]
    mean_share_error: Estimate
    worst_share_error: Estimate
    tau: Estimate
    guess_error: Estimate
    guess_error_among: Estimate
    design_effect: float
    between_sd: float
    worth_in_ratings: float
    worth_range: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTable:
    """Sums by batch and model, all that levels and their draws need; `counts` is (batches, models)."""

    models: tuple[str, ...]
    counts: Floats
    crowd: Floats  # how many of each label the crowd gave, (batches, models, labels)
    judge: Floats  # the judge's probabilities, summed, (batches, models, labels)
    drawn: Draws  # (draws, batches)

    @property
    def rows(self) -> Floats:
        """Responses of each model."""
        total: Floats = self.counts.sum(axis=0)
        return total

    def shares(self, sums: Floats) -> Floats:
        """(models, labels) from `crowd` or `judge`."""
        total: Floats = sums.sum(axis=0) / self.rows[:, None]
        return total

    def good_draws(self, sums: Floats) -> Floats:
        """The Good share in each draw, (draws, models); nan for a model with one batch, which cannot vary."""
        drawn = self.drawn.astype(float)
        varies = (self.counts > 0).sum(axis=0) > 1
        return ratio(drawn @ sums[:, :, GOOD], np.where(varies, drawn @ self.counts, 0.0))

    def standard_errors(self, sums: Floats) -> Floats:
        """Standard errors of each model's share of Good, from the spread between batches; (models,)."""
        batches = (self.counts > 0).sum(axis=0).astype(float)
        residuals = sums[:, :, GOOD] - self.counts * self.shares(sums)[:, GOOD]
        errors: Floats = np.sqrt(ratio(batches, batches - 1) * (residuals**2).sum(axis=0)) / self.rows
        return errors

    def binomial_variances(self) -> Floats:
        """Variances of each model's share of Good, were every rating independent; (models,)."""
        good = self.shares(self.crowd)[:, GOOD]
        variances: Floats = good * (1 - good) / self.rows
        return variances


def tabulate(
    model: NDArray[Any], batches: Integers, ratings: NDArray[Any], probabilities: Floats, drawn: Draws
) -> ModelTable:
    """Sum up one judge's rows; `batches` is each row's column in `drawn`."""
    names, codes = np.unique(model, return_inverse=True)
    shape = (drawn.shape[1], len(names))
    cells = batches * len(names) + codes

    def by_cell(values: Floats) -> Floats:
        return np.bincount(cells, values, shape[0] * shape[1]).astype(float).reshape(shape)

    columns = range(len(LABELS))
    return ModelTable(
        models=tuple(str(name) for name in names),
        counts=by_cell(np.ones(len(cells))),
        crowd=np.stack([by_cell((ratings == label + 1).astype(float)) for label in columns], axis=-1),
        judge=np.stack([by_cell(probabilities[:, label]) for label in columns], axis=-1),
        drawn=drawn,
    )


def model_levels(table: ModelTable) -> tuple[ModelLevel, ...]:
    """Every model, the one the crowd found best first."""
    crowd, judge = table.shares(table.crowd), table.shares(table.judge)
    draws = table.good_draws(table.judge) - table.good_draws(table.crowd)
    is_left_out = leaves_one_out(table.drawn)
    crowd_errors = table.standard_errors(table.crowd)
    error_errors = table.standard_errors(table.judge - table.crowd)
    effects = ratio(crowd_errors**2, table.binomial_variances())
    levels = [
        ModelLevel(
            model=name,
            ratings=int(table.rows[index]),
            batches=int((table.counts[:, index] > 0).sum()),
            crowd=dict(zip(LABELS, crowd[index].tolist(), strict=True)),
            judge=dict(zip(LABELS, judge[index].tolist(), strict=True)),
            share_error=Sampled(float((judge - crowd)[index, GOOD]), draws[:, index], is_left_out).estimate(
                low=-1.0, high=1.0
            ),
            crowd_standard_error=float(crowd_errors[index]),
            error_standard_error=float(error_errors[index]),
            design_effect=float(effects[index]),
        )
        for index, name in enumerate(table.models)
    ]
    return tuple(sorted(levels, key=lambda level: (-level.crowd["Good"], level.model)))


def sample_levels(table: ModelTable, models: Sequence[str]) -> dict[str, Sampled]:
    """The estimates of `Levels` over these models, with their draws."""
    chosen = [table.models.index(name) for name in models]
    values = _level_values(
        table.shares(table.crowd)[None, :, GOOD], table.shares(table.judge)[None, :, GOOD], chosen
    )
    draws = _level_values(table.good_draws(table.crowd), table.good_draws(table.judge), chosen)
    is_left_out = leaves_one_out(table.drawn)
    return {name: Sampled(float(values[name][0]), draws[name], is_left_out) for name in values}


def levels_over(table: ModelTable, models: Sequence[str], sampled: Mapping[str, Sampled]) -> Levels:
    """What `sample_levels` found of these models, and what their errors make a judgment worth."""
    chosen = [table.models.index(name) for name in models]
    crowd = table.shares(table.crowd)[chosen, GOOD]
    errors = table.shares(table.judge)[chosen, GOOD] - crowd
    noise = table.standard_errors(table.judge - table.crowd)[chosen] ** 2
    between = (
        math.sqrt(max(0.0, mean)) if math.isfinite(mean := float((errors**2 - noise).mean())) else math.nan
    )
    clustered = (table.standard_errors(table.crowd)[chosen] ** 2).sum()
    effect = float(ratio(np.array(clustered), np.array(table.binomial_variances()[chosen].sum())))
    return Levels(
        models=tuple(models),
        **{name: estimate_over_models(name, item) for name, item in sampled.items()},
        design_effect=effect,
        between_sd=between,
        worth_in_ratings=worth_in_ratings(float(crowd.mean()), effect, between),
        worth_range=worth_range(errors, noise, float(crowd.mean()), effect),
    )


def worth_in_ratings(share: float, design_effect: float, between_sd: float) -> float:
    """How many ratings tell as much of a share as a judge whose level errs by `between_sd`.

    >>> round(worth_in_ratings(0.6, 1.5, 0.05))
    144
    >>> worth_in_ratings(0.6, 1.5, 0.0)
    inf
    """
    ratings = share * (1 - share) * design_effect
    if between_sd == 0 and ratings > 0:
        return math.inf
    return ratings / between_sd**2 if between_sd else math.nan


def worth_range(errors: Floats, noise: Floats, share: float, design_effect: float) -> Interval | None:
    """Within what a judge's worth lies, with 95 % confidence, by its errors on a few models.

    Errors have the judge's own variance and `noise`; the ends are where their squares, so scaled, are as
    small or as large as chi-square of so many models allows (the Q profile: Viechtbauer 2007, about 0).

    >>> found = worth_range(np.array([0.05, -0.04, 0.06, -0.05]), np.zeros(4), 0.6, 2.0)
    >>> round(found.low), round(found.high)
    (23, 524)
    """
    from scipy.optimize import brentq
    from scipy.special import chdtri

    if not len(errors) or not np.isfinite(errors).all() or not np.isfinite(noise).all():
        return None

    def spread(wanted: float) -> float:
        def excess(variance: float) -> float:
            return float((errors**2 / (variance + noise)).sum()) - wanted

        least, most = 1e-12, 2 * float((errors**2).sum()) / wanted + 1e-9
        return math.sqrt(brentq(excess, least, most, xtol=1e-12)) if excess(least) > 0 else 0.0

    # chdtri takes the part above: few squares leave room for a large spread.
    tail = (1 - CONFIDENCE) / 2
    widest, least = (spread(float(chdtri(len(errors), part))) for part in (1 - tail, tail))
    return Interval(*(worth_in_ratings(share, design_effect, sd) for sd in (widest, least)))


def say_worth(evaluation: Mapping[str, Any]) -> str:
    """Say what a judge is worth by an evaluation with models apart, as JSON has it."""
    levels = evaluation["chosen_models"] or evaluation["all_models"]
    rows = [row for row in evaluation["models"] if row["model"] in levels["models"]]
    ends = worth_range(
        np.array([row["share_error"]["value"] for row in rows], dtype=float),
        np.array([row["error_standard_error"] for row in rows], dtype=float) ** 2,
        float(np.mean([row["crowd"]["Good"] for row in rows])),
        levels["design_effect"],
    )
    worth = f"{levels['worth_in_ratings']:,.0f} ratings"
    if ends is None:
        return worth
    upper = f"to {ends.high:,.0f}" if math.isfinite(ends.high) else "to any number"
    return f"{worth} ({ends.low:,.0f} {upper}: {len(rows)} models tell no more)"


def _level_values(crowd: Floats, judge: Floats, chosen: Sequence[int]) -> dict[str, Floats]:
    """Make the estimates of each draw from Good shares, (draws, models)."""
    over = over_models(crowd[:, chosen], judge[:, chosen])
    return {
        "mean_share_error": over["mean_error"],
        "worst_share_error": over["worst_error"],
        "tau": over["tau"],
        "guess_error": _guess_errors(crowd)[:, chosen].mean(axis=1),
        "guess_error_among": _guess_errors(crowd[:, chosen]).mean(axis=1),
    }


def _guess_errors(shares: Floats) -> Floats:
    """How far each share is from the mean of the others, (draws, models); undefined without others."""
    others = float(shares.shape[1] - 1)
    guesses = ratio(shares.sum(axis=1, keepdims=True) - shares, np.full(shares.shape, others))
    return np.abs(guesses - shares)
