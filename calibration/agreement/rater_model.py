"""How much of the ratings is the raters: an ordinal model in which people differ in severity.

A rating is where a latent liking falls among thresholds:

    liking = effect of the model + slopes * covariates of the rater - severity of the rater + noise

with noise standard normal and severity normal around 0. The link is probit, not logit, because severity and
noise then add up to one normal: shares over all raters have a closed form, and so has the raters' part of the
variance. Where a person rates one model only, that all models meet the same kind of raters is an assumption
(by design: raters are dealt out by chance). That noise and severity spread as widely for all models is
another, made only if Akaike's criterion finds no fault with it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibration.agreement.rater_likelihood import (
    Cells,
    Fit,
    count_cells,
    covariance_of,
    maximise,
    share_errors,
    spread_interval,
    standard_shares,
    start_of,
)
from calibration.estimate import Estimate, Floats, Integers, Interval
from data.errors import UserError
from data.records import LABELS

Spread = Literal["shared", "by model"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rows:
    """The rows a fit uses, by number; `population` is each rater's covariates, centred."""

    models: tuple[str, ...]  # the reference first
    raters: tuple[str, ...]
    levels: tuple[int, ...]  # the ratings in use
    cells: Cells
    names: tuple[str, ...]  # of the covariates
    constant: tuple[str, ...]  # of those that are the same for all raters, and have no effect to be found
    scales: Floats  # by which covariates were divided
    population: Floats


def number_rows(
    ratings: NDArray[Any],
    raters: NDArray[np.str_],
    models: NDArray[np.str_],
    table: Floats,
    names: tuple[str, ...],
    reference: str | None,
    spread: Spread,
) -> Rows:
    """The rows as numbers; the reference, or the first model by name, is number 0."""
    levels, level = np.unique(ratings, return_inverse=True)
    rater_names, first, rater = np.unique(raters, return_index=True, return_inverse=True)
    population = table[first]
    if differing := raters[(table != population[rater]).any(axis=1)].tolist():
        raise UserError(f"rater {differing[0]!r} has two values of a covariate; give one for each rater")
    model_names = sorted(set(models.tolist()), key=lambda name: (name != reference, name))
    number = {name: index for index, name in enumerate(model_names)}
    model = np.array([number[name] for name in models.tolist()], dtype=np.intp)
    # Centred and scaled, so that one step of the search means as much in every direction.
    scales = population.std(axis=0)
    varies = scales > 0
    population = (population - population.mean(axis=0))[:, varies] / scales[varies]
    return Rows(
        models=tuple(model_names),
        raters=tuple(rater_names.tolist()),
        levels=tuple(levels.tolist()),
        cells=count_cells(
            rater,
            model,
            level,
            population[rater],
            models=len(model_names),
            levels=len(levels),
            by_model=spread == "by model",
        ),
        names=tuple(name for name, does in zip(names, varies, strict=True) if does),
        constant=tuple(name for name, does in zip(names, varies, strict=True) if not does),
        scales=scales[varies],
        population=population,
    )


def why_undefined(
    ratings: NDArray[Any], raters: NDArray[np.str_], models: NDArray[np.str_], spread: Spread
) -> str | None:
    """Say why these ratings do not identify the model; None where they do."""
    levels = np.unique(ratings)
    if len(levels) < 2:
        return "there is no rating, or all ratings of a model are the same and the highest or lowest"
    _, number, given = np.unique(raters, return_inverse=True, return_counts=True)
    names, model = np.unique(models, return_inverse=True)
    several = given[number] > 1
    if _comparisons(number[several], model[several]) < 1:
        return "severity cannot be told from the models: no two raters of one model gave several ratings each"
    if spread == "by model":
        for index, name in enumerate(names.tolist()):
            own = model == index
            if len(levels) < 3 or len(np.unique(ratings[own])) < len(levels):
                return f"the noise of {name!r} cannot be told: it takes three ratings, all of them given"
            if len(np.unique(number[own & several])) < 2:
                return f"the severity of {name!r} cannot be told: it takes two raters with several ratings"
    return None


def _comparisons(rater: Integers, model: Integers) -> int:
    """How many differences between raters do not depend on differences between models.

    Raters and models form a graph, joined by ratings; within a connected part all raters can be compared.
    Raters with a single rating are no use: their severity cannot be told from noise.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    if not len(rater):
        return 0
    raters, one = np.unique(rater, return_inverse=True)
    models, two = np.unique(model, return_inverse=True)
    size = len(raters) + len(models)
    graph = coo_array((np.ones(len(one)), (one, two + len(raters))), shape=(size, size))
    return len(raters) - int(connected_components(graph, directed=False)[0])


Z: Final = 1.959963984540054  # of a 95 % interval
FAR_FROM_ZERO: Final = 4  # standard errors, from where on the Wald and the profile interval are the same


@dataclass(frozen=True, slots=True)
class Effect:
    """A coefficient on the latent scale, in units of the rating noise."""

    value: float
    standard_error: float  # nan where undefined


@dataclass(frozen=True, slots=True, kw_only=True)
class RaterModel:
    """What `fit_rater_model` found; `undefined` says why there is nothing but counts and raw shares.

    `effects` are relative to the model `reference`, whose own is 0; that of a model whose ratings are all the
    lowest or all the highest is infinite, its shares stay raw, and its ratings are left out of the rest.
    `covariates` are per unit of the covariate. `severity_sd` is in units of the model's noise. `rater_share`
    is the latent intraclass correlation, severity's part of what varies between ratings of one model:
    sd^2 / (sd^2 + 1). `variance` parts all latent variance into models, covariates, severity and noise.
    `adjusted` shares are those over one and the same population of raters: all of this fit, with their
    covariates, and severities from the fitted normal. `severities` are posterior means in units of the
    severity's spread, shrunken towards 0: more is harsher.
    """

    ratings: int
    raters: int
    left_out: int  # ratings without a covariate
    undefined: str | None = None
    reference: str | None = None
    log_likelihood: float = math.nan
    spread: Spread | None = None
    aic: float = math.nan  # Akaike's criterion: smaller is better
    thresholds: tuple[float, ...] = ()
    variance: Mapping[str, float] = field(default_factory=dict)
    severity_sd: Mapping[str, Estimate] = field(default_factory=dict)
    rater_share: Mapping[str, Estimate] = field(default_factory=dict)
    effects: Mapping[str, Effect] = field(default_factory=dict)
    covariates: Mapping[str, Effect] = field(default_factory=dict)
    raw: Mapping[str, Mapping[str, float]]
    adjusted: Mapping[str, Mapping[str, Estimate]] = field(default_factory=dict)
    severities: Mapping[str, Effect] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Leave single raters out: a report has no use for them."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.name != "severities"}


def fit_rater_model(
    rating: ArrayLike,
    rater: ArrayLike,
    model: ArrayLike,
    *,
    covariates: Mapping[str, ArrayLike] | None = None,
    labels: Sequence[str] = LABELS,
    reference: str | None = None,
    spread: Spread | None = None,
) -> RaterModel:
    """Fit by maximum marginal likelihood; one row a rating, ratings 1 to len(labels).

    A covariate belongs to the rater: one value each, nan where unknown. `reference` is the model the others
    are compared with, by default the first by name. The `spread` of noise and severity is shared by all
    models or each model's own; by default whichever has the lower AIC. Undefined when everyone gave the same
    rating, or when severity cannot be told from the rest: no two raters of one model (or of models joined by
    shared raters) gave two ratings or more each.
    """
    ratings, raters, models = np.asarray(rating), np.asarray(rater).astype(str), np.asarray(model).astype(str)
    columns = [np.asarray(values, dtype=float) for values in (covariates or {}).values()]
    table = np.column_stack(columns) if columns else np.zeros((len(ratings), 0))
    is_complete = np.isfinite(table).all(axis=1)
    ratings, raters, models = ratings[is_complete], raters[is_complete], models[is_complete]
    table = table[is_complete]
    raw: dict[str, dict[str, float]] = {}
    infinite: dict[str, Effect] = {}
    for name in np.unique(models).tolist():
        given = ratings[models == name]
        raw[name] = {label: float(np.mean(given == rank)) for rank, label in enumerate(labels, 1)}
        if given.min() == ratings.max() or given.max() == ratings.min():
            infinite[name] = Effect(math.inf if given.min() == ratings.max() else -math.inf, math.nan)
    if reference is not None and (reference not in raw or reference in infinite):
        possible = ", ".join(name for name in raw if name not in infinite) or "none"
        raise UserError(f"no effect can be relative to {reference!r}; possible: {possible}")
    used = ~np.isin(models, list(infinite))
    counts: dict[str, Any] = {
        "ratings": len(ratings),
        "raters": len(np.unique(raters)),
        "left_out": int((~is_complete).sum()),
        "raw": raw,
    }
    wanted: tuple[Spread, ...] = ("shared", "by model") if spread is None else (spread,)
    rows = ratings[used], raters[used], models[used]
    whys = {name: why_undefined(*rows, name) for name in wanted}
    if why := whys[wanted[0]]:
        return RaterModel(**counts, undefined=why)
    names = tuple(covariates or ())
    candidates = [number_rows(*rows, table[used], names, reference, name) for name in whys if not whys[name]]
    fits = [(numbered, maximise(numbered.cells, start_of(numbered.cells))) for numbered in candidates]
    converged = [(numbered, fit) for numbered, fit in fits if fit.converged]
    if not converged:
        return RaterModel(**counts, undefined="no maximum of the likelihood was found")
    findings = _findings(*min(converged, key=lambda each: _aic(*each)), labels)
    findings["effects"] |= infinite
    for name in infinite:
        findings["adjusted"][name] = {label: Estimate(share, None) for label, share in raw[name].items()}
    return RaterModel(**counts, **findings)


def _aic(rows: Rows, fit: Fit) -> float:
    return 2 * (sum(rows.cells.sizes) - fit.log_likelihood)


def _findings(rows: Rows, fit: Fit, labels: Sequence[str]) -> dict[str, Any]:
    cells, unpacked = rows.cells, rows.cells.unpack(fit.parameters)
    covariance = covariance_of(cells, fit)
    errors = np.full(len(fit.parameters), np.nan) if covariance is None else np.sqrt(np.diag(covariance))
    _, of_effects, of_slopes, _, of_spreads = cells.split(errors)
    spreads = [_spread(cells, fit, which, float(error)) for which, error in enumerate(of_spreads)]
    sds = dict(zip(rows.models, spreads if cells.by_model else spreads * len(rows.models), strict=True))
    weights = np.bincount(cells.model, cells.count, len(rows.models))
    middle = np.average(unpacked.effects, weights=weights)
    parts = {
        "models": float(np.average((unpacked.effects - middle) ** 2, weights=weights)),
        "covariates": float((rows.population @ unpacked.slopes).var()),
        "severity": float(np.average((unpacked.spreads * unpacked.noises) ** 2, weights=weights)),
        "noise": float(np.average(unpacked.noises**2, weights=weights)),
    }
    return {
        "reference": rows.models[0],
        "log_likelihood": fit.log_likelihood,
        "spread": "by model" if cells.by_model else "shared",
        "aic": _aic(rows, fit),
        "thresholds": tuple(unpacked.thresholds.tolist()),
        "severity_sd": sds,
        "rater_share": {name: _rater_share(sd) for name, sd in sds.items()},
        "variance": {name: part / sum(parts.values()) for name, part in parts.items()},
        "effects": _effects(rows.models, unpacked.effects, np.append(0.0, of_effects)),
        "covariates": dict.fromkeys(rows.constant, Effect(math.nan, math.nan))
        | _effects(rows.names, unpacked.slopes / rows.scales, of_slopes / rows.scales),
        "adjusted": _adjusted(rows, fit, covariance, labels),
        "severities": _effects(rows.raters, *fit.severities),
    }


def _effects(names: Sequence[str], values: Floats, errors: Floats) -> dict[str, Effect]:
    return dict(zip(names, map(Effect, values.tolist(), errors.tolist()), strict=True))


def _adjusted(
    rows: Rows, fit: Fit, covariance: Floats | None, labels: Sequence[str]
) -> dict[str, dict[str, Estimate]]:
    """The shares of every label, 0 where nobody gave it; intervals by the delta method on the logit scale."""
    shares = standard_shares(rows.cells, fit.parameters, rows.population)
    errors = share_errors(rows.cells, fit.parameters, rows.population, covariance)
    adjusted = {}
    for name, of_model, off in zip(rows.models, shares, errors, strict=True):
        estimates = map(_share_estimate, of_model.tolist(), off.tolist())
        given = dict(zip(rows.levels, estimates, strict=True))
        adjusted[name] = {label: given.get(rank, Estimate(0.0, None)) for rank, label in enumerate(labels, 1)}
    return adjusted


def _share_estimate(share: float, error: float) -> Estimate:
    if not 0 < share < 1 or not math.isfinite(error):
        return Estimate(share, None)
    middle, half = math.log(share / (1 - share)), Z * error / (share * (1 - share))
    low, high = (float(1 / (1 + np.exp(-end))) for end in (middle - half, middle + half))
    return Estimate(share, Interval(low, high))


def _spread(cells: Cells, fit: Fit, which: int, error: float) -> Estimate:
    spread = float(cells.unpack(fit.parameters).spreads[which])
    if spread > FAR_FROM_ZERO * error:  # on the logarithm: as the profile's, at a tenth of its cost
        factor = math.exp(Z * error / spread)
        return Estimate(spread, Interval(spread / factor, spread * factor))
    return Estimate(spread, Interval(*spread_interval(cells, fit, which, drop=Z**2 / 2)))


def _rater_share(sd: Estimate) -> Estimate:
    part, low, high = (
        1 / (1 + spread**-2) if spread else 0.0
        for spread in (sd.value, *((sd.interval.low, sd.interval.high) if sd.interval else (0.0, math.inf)))
    )
    return Estimate(part, Interval(low, high))
