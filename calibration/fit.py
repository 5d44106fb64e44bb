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
    planning       rows: difference, ppi_estimate, people_only, with_judge, with_line, line_detects
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

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from hashlib import sha256
from typing import Any, Final

import numpy as np

from calibration.agreement.alt_test import EPSILON
from calibration.agreement.ceiling import PILOT_KAPPA, Ceiling, ceiling
from calibration.agreement.judge_vs_people import Agreement, agreement
from calibration.agreement.metrics import calibration_error, log_losses
from calibration.agreement.rater_model import fit_rater_model
from calibration.artifact import Calibration, JudgeIdentity
from calibration.bias.audits import audit, response_facts
from calibration.bias.slices import _says, by_emotion, clusters_of, label_policies, worst_disagreements
from calibration.estimate import Floats, finite_or_none
from calibration.pairing import Paired, median_ratings, pair
from calibration.probabilities.conformal import (
    Thresholds,
    ask_first,
    cross_assess_sets,
    fit_thresholds,
    prediction_sets,
)
from calibration.probabilities.maps import FOLDS, Choice, choose_map, fit_map, fold_of
from calibration.probabilities.reliability import brier_parts, reliability_curve
from calibration.shares.correction import calibrated_models
from calibration.shares.model_table import (
    between_part,
    columns_of,
    design_effect_of,
    judged_values,
    models_part,
    planning_part,
    rated_models,
)
from calibration.shares.ppi import RatedModel
from calibration.shares.transport import fit_line
from data.errors import UserError
from data.judgments import Judged, find_flags, with_exchanges
from data.records import LABELS, Exchange, Judgment, Rating, to_plain
from reports.calibration.verdict import headline, say_verdict


def majority_baseline(paired: Paired) -> Paired:
    """A judge that says of every response what people said most often."""
    shares = np.bincount(paired.rating, minlength=paired.levels + 1)[1:] / max(1, len(paired))
    return _says(paired, np.tile(shares, (len(paired), 1)))


def length_baseline(
    paired: Paired, exchanges: Mapping[str, Exchange], *, rng: np.random.Generator
) -> Paired | None:
    """One that counts words, fitted on the other clusters; None where a text is missing."""
    known = [exchanges.get(str(name)) for name in paired.id]
    if any(exchange is None for exchange in known):
        return None
    words = np.array([np.log(max(1, len(item.response.split()))) for item in known if item is not None])
    clusters = clusters_of(paired)
    folds = min(FOLDS, int(clusters.max()) + 1)
    if folds < 2:
        return None
    fold = fold_of(clusters, folds=folds, rng=rng)
    said = np.empty((len(paired), paired.levels))
    for part in range(folds):
        inside = fold == part
        fitted = fit_map("proportional", words[~inside], paired.rating[~inside], levels=paired.levels)
        said[inside] = fitted.apply(words[inside])
    return _says(paired, said)


# What is fitted to a judge's word on single responses: a map and sets of labels; and how well each holds.

ASK_FIRST: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A map and what it makes of every paired row when fitted on the other clusters."""

    choice: Choice
    held_out: Floats
    thresholds: Thresholds


def fit(paired: Paired, *, seed: int) -> Fitted:
    """The map chosen for the judge's probabilities, or scores where it gives none, and the sets' thresholds.

    Thresholds come from held-out maps, so that they are no tighter than a new response deserves.
    """
    values = said_values(paired)
    clusters = clusters_of(paired)
    levels = paired.levels
    choice = choose_map(values, paired.rating, clusters, rng=np.random.default_rng(seed), levels=levels)
    folds = min(FOLDS, int(clusters.max()) + 1)
    if folds < 2:
        held_out = choice.map.apply(values)
    else:
        fold = fold_of(clusters, folds=folds, rng=np.random.default_rng(seed))
        held_out = np.empty((len(paired), levels))
        for part in range(folds):
            inside = fold == part
            fitted = fit_map(choice.map.kind, values[~inside], paired.rating[~inside], levels=levels)
            held_out[inside] = fitted.apply(values[inside])
    thresholds = fit_thresholds(held_out, paired.rating, labels=paired.scale)
    return Fitted(choice=choice, held_out=held_out, thresholds=thresholds)


def said_values(paired: Paired) -> Floats:
    """What the map starts from."""
    return paired.score if paired.probabilities is None else paired.probabilities


def mapping_part(fitted: Fitted) -> dict[str, Any]:
    """The chosen map and how the others did."""
    return {"chosen": fitted.choice.map.kind, **fitted.choice.as_dict()}


def reliability_part(paired: Paired, fitted: Fitted) -> dict[str, Any]:
    """Whether the highest label's probability means what it says, before the map and after."""
    clusters = clusters_of(paired)
    said = paired.probabilities
    return {
        "label": paired.scale[-1],
        "before": _reliability(paired, said, clusters) if said is not None else None,
        "after": _reliability(paired, fitted.held_out, clusters),
    }


def _reliability(paired: Paired, said: Floats, clusters: Any) -> dict[str, Any]:
    top = paired.rating == paired.levels
    return {
        "curve": [item.as_dict() for item in reliability_curve(top, said[:, -1], clusters=clusters)],
        "ece": finite_or_none(calibration_error(top, said[:, -1])),
        "brier": {
            name: finite_or_none(value) for name, value in asdict(brier_parts(paired.rating, said)).items()
        },
        "log_loss": finite_or_none(float(log_losses(paired.rating, said).mean())),
    }


def conformal_part(
    paired: Paired, fitted: Fitted, judgments: Sequence[Judgment], *, seed: int
) -> dict[str, Any]:
    """How often sets hold the rating, how large they are, and whom to ask first."""
    report = cross_assess_sets(
        fitted.held_out,
        paired.rating,
        clusters_of(paired),
        rng=np.random.default_rng(seed),
        labels=paired.scale,
    )
    return {
        **report.as_dict(),
        "thresholds": fitted.thresholds.as_dict(),
        "ask_first": _ask_first(paired, fitted, judgments),
    }


def _ask_first(paired: Paired, fitted: Fitted, judgments: Sequence[Judgment]) -> list[dict[str, Any]]:
    """Responses nobody rated, or all where everything was rated; the least certain first."""
    rated = set(paired.id.tolist())
    scored = [item for item in judgments if item.unscored is None]
    asked = [item for item in scored if item.id not in rated] or scored
    said = fitted.choice.map.apply(judged_values(asked, paired.scale, paired.probabilities is not None))
    order = ask_first(said, fitted.thresholds)[:ASK_FIRST]
    sets = prediction_sets(said[order], fitted.thresholds)
    return [
        {
            "id": asked[row].id,
            "model": asked[row].model,
            "set": list(labels),
            "probabilities": dict(zip(paired.scale, said[row].tolist(), strict=True)),
        }
        for row, labels in zip(order.tolist(), sets, strict=True)
    ]


def make_calibration(
    *,
    judge: JudgeIdentity,
    paired: Paired,
    fitted: Fitted,
    models: Mapping[str, RatedModel],
    created: date,
    days: int,
    leave_out: Sequence[str] = (),
    figures: Mapping[str, Any] | None = None,
) -> Calibration:
    """What was fitted, bound to `judge` and to the ratings it was fitted on."""
    names = columns_of(paired.scale)
    lines = dict(zip(names, calibrated_models(in_line(models, leave_out)), strict=False))
    return Calibration(
        judge=judge.name,
        version=judge.version,
        rubric=judge.rubric,
        ratings=digest_ratings(paired),
        created=created,
        days=days,
        count=len(paired),
        design_effect=design_effect_of(models),
        mapping=fitted.choice.map.as_dict(),
        conformal=fitted.thresholds.as_dict(),
        between={name: to_plain(line) for name, line in lines.items()},
        lines={name: to_plain(fit_line(line)) for name, line in lines.items()},
        ranges={name: line.range for name, line in lines.items() if line.models},
        figures=figures or {},
    )


def in_line(models: Mapping[str, RatedModel], leave_out: Sequence[str]) -> dict[str, RatedModel]:
    """The models the line is drawn through: all rated ones, people's replies too, unless left out by name.

    A new model is a language model, yet the study's differ by so little that a line through them alone holds
    for a range of two points of Good; people's replies, which the judge misses by no more than it misses a
    language model, are what tells how it follows a lower level.
    """
    if unknown := sorted(set(leave_out) - set(models)):
        raise UserError(f"--leave-out: no model {unknown[0]!r}; known: {', '.join(sorted(models))}")
    return {name: rated for name, rated in models.items() if name not in leave_out}


def digest_ratings(paired: Paired) -> str:
    """Known by who rated what and how, in whatever order."""
    columns = (paired.id.tolist(), paired.rater.tolist(), paired.rating.tolist())
    rows = sorted(json.dumps(row) for row in zip(*columns, strict=True))
    return sha256("\n".join(rows).encode("utf-8", "surrogatepass")).hexdigest()


# Judges, baselines and people as rows of one table: how well each agrees, and what it takes.

ABOUT: Final = {
    "majority": "says of every response what people said most often",
    "length": "counts words; fitted on the other clusters",
}


def metrics_of(found: Agreement) -> dict[str, Any]:
    """Every metric as an estimate, ready for JSON."""
    return {name: estimate.as_dict() for name, estimate in found.metrics.items()}


def judge_row(judged: Judged, found: Agreement) -> dict[str, Any]:
    """A judge, with the money and time its run took."""
    return {
        **_row(judged.name, "judge", judged.source, found),
        "usd_per_1000": judged.per_thousand(judged.cost),
        "seconds_per_1000": judged.per_thousand(judged.seconds),
    }


def baseline_row(name: str, found: Agreement) -> dict[str, Any]:
    """A baseline, which asks nobody and takes no time worth a digit."""
    return {
        **_row(name, "baseline", ABOUT[name], found),
        "usd_per_1000": 0.0,
        "seconds_per_1000": 0.0,
    }


def people_row(people: Ceiling) -> dict[str, Any]:
    """One person against the others; where that is not identifiable, what the given reliability implies."""
    row = {"name": "people", "kind": "people", "usd_per_1000": None, "seconds_per_1000": None}
    if people.not_identifiable is None:
        metrics: dict[str, Any] = {"qwk": people.person_against_rest.as_dict()}
        note = "one person against the median of the others"
        return {**row, "note": note, "n": people.shared, "metrics": metrics}
    bound = people.bounds[0]
    reach = bound.as_dict()["second_person"]
    metrics = {name: {"value": value, "low": None, "high": None} for name, value in reach.items()}
    note = f"not identifiable; a second person, were two to agree by kappa {bound.reliability:.2f}"
    return {**row, "note": note, "n": 0, "metrics": metrics}


def _row(name: str, kind: str, note: str, found: Agreement) -> dict[str, Any]:
    return {"name": name, "kind": kind, "note": note, "n": found.ratings, "metrics": metrics_of(found)}


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
        judge=JudgeIdentity(name=first.judged.name, version=first.judged.version, rubric=first.judged.rubric),
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
    joined: Joined, fitted: Fitted, models: Mapping[str, RatedModel], options: Options
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
