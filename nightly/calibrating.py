"""From judgments and ratings to all that a calibration says, as one plain dict.

An *estimate* is `{"value", "low", "high"}`, null where undefined. Levels of a model are its shares of Bad,
Okay and Good (0 to 1), on other scales its `mean` in the scale's own numbers.

    verdict        sentences, the most important first
    headline       the metric of `agreement` to lead with: qwk_matched where the judge gives probabilities,
                   else qwk
    calibration    digest, created, expires (dates), ratings (the digest of the rating set)
    judge          name, version, rubric, source, cost (USD), seconds
    data           counts (ratings, responses, raters, batches), models, scale, columns (of levels),
                   dimension, reference ("each rating" or "median"), shares (of ratings), clusters (what was
                   resampled), cluster_count, draws, seed, unscored (reason -> count), unjudged, unrated
    agreement      metric -> estimate: exact, balanced_accuracy, macro_f1, kappa, kappa_linear, qwk,
                   qwk_matched, alpha_nominal, alpha_ordinal, alpha_interval, ac1, ac2, spearman, kendall, icc
    over_models    mean_error, worst_error, tau, pairwise_order (estimates over the models' means), models
                   (model, ratings, people, judge, error), shares (as `calibration.levels.ModelLevel`)
    baselines      rows: name, about, metrics (as `agreement`)
    ceiling        as `calibration.ceiling.Ceiling.as_dict`
    confusion      labels, rows (people down, judge across)
    reliability    label, before (null without probabilities) and after: curve (count, predicted, value, low,
                   high), ece, brier (brier, reliability, resolution, uncertainty, within_bins), log_loss
    mapping        chosen, map, folds, losses (kind -> loss, excess, excess_error)
    conformal      wanted, coverage, by_label, mean_size, sizes, thresholds, ask_first (id, model, set,
                   probabilities)
    rater_model    as `calibration.raters.RaterModel.as_dict`, or null
    models         rows: model, judged, ratings, clusters, judge, crowd (level by column), corrected (estimate
                   by column), how (ratings, judge, both, refused), reason, design_effect, worth_in_ratings,
                   left_out (what the other models' line says: estimate by column), covered (by column)
    between        columns, lines (column -> models, judge, crowd, noise, bounds, intercept, slope,
                   between_sd, residuals, range), within_slope, design_effect, worth_in_ratings (by the
                   line's spread), as_exact_as (ratings that give an interval as wide as a new model's)
    planning       rows: difference, power, people_only, with_judge, with_line, line_detects
    policy         strict and lenient (says, models: model, crowd, judge; order_people, order_judge,
                   agreement), same_order; null on other scales than Bad, Okay, Good
    by_emotion     level, models, emotions: rows of emotion, n, crowd, judge, difference, standard_error, and
                   models (the same cells, one a model); null without --exchanges
    bias           findings (as `calibration.bias.Finding.as_dict`)
    disagreements  too_kind, too_harsh: rows of id, model, ratings, label, score, probabilities, rationale,
                   emotion, prompt, response (texts null without --exchanges)
    runs           rows: name, kind (judge, baseline, people), note, n, metrics (metric -> estimate; of people
                   only some), usd_per_1000, seconds_per_1000 (null if unknown)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Final

import numpy as np

from calibration.alternative import EPSILON
from calibration.artifact import Calibration
from calibration.bias import audit, response_facts
from calibration.bound import PILOT_KAPPA
from calibration.ceiling import ceiling
from calibration.concordance import Agreement, agreement
from calibration.pairing import Paired, median_ratings, pair
from calibration.powered import Rated
from calibration.raters import fit_rater_model
from data.records import LABELS, Exchange, Rating
from nightly.artifacts import in_line, make_calibration
from nightly.facets import (
    by_emotion,
    label_policies,
    length_baseline,
    majority_baseline,
    worst_disagreements,
)
from nightly.fitting import Fitted, conformal_part, fit, mapping_part, reliability_part
from nightly.flags import find_flags
from nightly.judged import Judged, with_exchanges
from nightly.lines import between_part, columns_of, models_part, planning_part, rated_models
from nightly.rows import ABOUT, baseline_row, judge_row, metrics_of, people_row
from nightly.verdict import headline, say_verdict

DRAWS: Final = 2000
DAYS: Final = 90
OWN_SPREADS: Final = 8  # models whose raters may spread each in their own way; beyond, the fit takes minutes


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to calibrate; `is_median` holds the judge against the median of a response's ratings."""

    scale: tuple[str, ...] = LABELS
    dimension: str = "empathy"
    is_median: bool = False
    is_rounding: bool = False
    reliability: float = PILOT_KAPPA
    epsilon: float = EPSILON
    leave_out: tuple[str, ...] = ()  # models that are not to be in the line
    days: int = DAYS
    seed: int = 0
    draws: int = DRAWS


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """A judge and the ratings of what it judged; `reference` is what it is held against."""

    judged: Judged
    paired: Paired
    reference: Paired
    exchanges: Mapping[str, Exchange] = field(default_factory=dict)


def join(
    judged: Judged, ratings: Sequence[Rating], exchanges: Mapping[str, Exchange], options: Options
) -> Joined:
    """A judge's judgments with their ratings."""
    known = with_exchanges(judged, exchanges)
    paired = pair(
        known.judgments,
        ratings,
        scale=options.scale,
        dimension=options.dimension,
        is_rounding=options.is_rounding,
    )
    reference = median_ratings(paired) if options.is_median else paired
    return Joined(judged=known, paired=paired, reference=reference, exchanges=exchanges)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """The report, and the calibration of the first run."""

    report: dict[str, Any]
    calibration: Calibration


def calibrate(
    runs: Sequence[Judged],
    ratings: Sequence[Rating],
    *,
    exchanges: Mapping[str, Exchange] | None = None,
    options: Options | None = None,
    today: date | None = None,
) -> Calibrated:
    """All that is to be said of the first run, and a table of all of them; see the module for the shape."""
    options = options or Options()
    texts = exchanges or {}
    joined = [join(run, ratings, texts, options) for run in runs]
    first = joined[0]
    fitted = fit(first.reference, seed=options.seed)
    # Levels rest on every single rating: a median would hide how far raters differ.
    models = rated_models(first.paired, first.judged.judgments)
    calibration = make_calibration(
        judge={"name": first.judged.name, "version": first.judged.version, "rubric": first.judged.rubric},
        paired=first.paired,
        fitted=fitted,
        models=models,
        created=today or date.today(),
        days=options.days,
        leave_out=options.leave_out,
    )
    report = {
        "judge": _judge(first.judged),
        **find_flags(first.judged.judgments),
        "calibration": _about(calibration),
        **_agreement_parts(joined, options),
        **_fitted_parts(first, fitted, models, options),
        "rater_model": _rater_model(first.paired, ratings, options),
        "policy": label_policies(first.reference, seed=options.seed, draws=options.draws),
        "by_emotion": by_emotion(first.reference, texts),
        "bias": _bias(first),
        "disagreements": worst_disagreements(
            first.paired, {item.id: item for item in first.judged.judgments}, texts
        ),
    }
    report = {"verdict": say_verdict(report), "headline": headline(report), **report}
    return Calibrated(report=report, calibration=calibration)


def _about(calibration: Calibration) -> dict[str, Any]:
    return {
        "digest": calibration.digest,
        "created": calibration.created.isoformat(),
        "expires": calibration.expires.isoformat(),
        "ratings": calibration.ratings,
    }


def _agree(paired: Paired, options: Options) -> Agreement:
    return agreement(paired, rng=np.random.default_rng(options.seed), draws=options.draws)


def _agreement_parts(joined: Sequence[Joined], options: Options) -> dict[str, Any]:
    """The first judge beside people, and all of them beside baselines and people."""
    first = joined[0]
    found = [_agree(item.reference, options) for item in joined]
    baselines = _baselines(first, options)
    people = ceiling(
        first.paired,
        rng=np.random.default_rng(options.seed),
        draws=options.draws,
        reliability=options.reliability,
        epsilon=options.epsilon,
    )
    row = found[0].as_dict()
    return {
        "data": _data(first, found[0], options),
        "agreement": row["metrics"],
        "over_models": {**row["means"], "shares": row["shares"]},
        "confusion": {"labels": row["scale"], "rows": row["confusion"]},
        "baselines": [
            {"name": name, "about": ABOUT[name], "metrics": metrics_of(item)}
            for name, item in baselines.items()
        ],
        "ceiling": people.as_dict(),
        "runs": [
            *(judge_row(item.judged, agreed) for item, agreed in zip(joined, found, strict=True)),
            *(baseline_row(name, item) for name, item in baselines.items()),
            people_row(people),
        ],
    }


def _judge(judged: Judged) -> dict[str, Any]:
    names = ("name", "version", "rubric", "source", "cost", "seconds")
    return {name: getattr(judged, name) for name in names}


def _data(joined: Joined, found: Agreement, options: Options) -> dict[str, Any]:
    paired = joined.paired
    counts = np.bincount(paired.rating, minlength=paired.levels + 1)[1:]
    return {
        "ratings": len(paired),
        "responses": found.responses,
        "raters": len(np.unique(paired.rater)),
        "batches": len(np.unique(paired.batch)),
        "models": list(paired.models),
        "scale": list(paired.scale),
        "columns": list(columns_of(paired.scale)),
        "dimension": options.dimension,
        "reference": "median" if options.is_median else "each rating",
        "shares": dict(zip(paired.scale, (counts / len(paired)).tolist(), strict=True)),
        "clusters": found.clusters,
        "cluster_count": found.cluster_count,
        "draws": found.draws,
        "seed": options.seed,
        "unscored": dict(paired.unscored),
        "unjudged": paired.unjudged,
        "unrated": paired.unrated,
    }


def _baselines(joined: Joined, options: Options) -> dict[str, Agreement]:
    length = length_baseline(joined.reference, joined.exchanges, rng=np.random.default_rng(options.seed))
    rows = {"majority": majority_baseline(joined.reference), "length": length}
    return {name: _agree(paired, options) for name, paired in rows.items() if paired is not None}


def _fitted_parts(
    joined: Joined, fitted: Fitted, models: Mapping[str, Rated], options: Options
) -> dict[str, Any]:
    paired = joined.reference
    line = in_line(models, options.leave_out)
    between = between_part(models, line, paired.scale)
    return {
        "reliability": reliability_part(paired, fitted),
        "mapping": mapping_part(fitted),
        "conformal": conformal_part(paired, fitted, joined.judged.judgments, seed=options.seed),
        "models": models_part(models, line, paired.scale),
        "between": between,
        "planning": planning_part(models, between, paired.scale),
    }


def _rater_model(paired: Paired, ratings: Sequence[Rating], options: Options) -> dict[str, Any] | None:
    """With the rater's questionnaire score as a covariate where every rater has one."""
    scores = {
        rating.rater: rating.extra["rater_teq"]
        for rating in ratings
        if rating.dimension == options.dimension and rating.extra.get("rater_teq") is not None
    }
    covariates = None
    if all(str(name) in scores for name in np.unique(paired.rater)):
        covariates = {"questionnaire": [float(scores[str(name)]) for name in paired.rater]}
    return fit_rater_model(
        paired.rating,
        paired.rater,
        paired.model,
        covariates=covariates,
        labels=paired.scale,
        spread="shared" if len(paired.models) > OWN_SPREADS else None,
    ).as_dict()


def _bias(joined: Joined) -> dict[str, Any]:
    words, emotion = response_facts(joined.exchanges.values())
    found = audit(joined.paired, words=words or None, emotion=emotion or None)
    return {"findings": [item.as_dict() for item in found]}
