"""`calibrate()`: the report on a judge, and the calibration that corrects it.

Levels of a model are its shares of Bad, Okay and Good (0 to 1), on other scales its `mean` in the scale's own
numbers.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import date
from hashlib import sha256
from typing import Any, Final, Literal

import numpy as np

from empathy_judge.calibration.agreement import metrics
from empathy_judge.calibration.agreement.ceiling import Ceiling, ceiling
from empathy_judge.calibration.agreement.judge_vs_people import Agreement, agreement, independent_judges
from empathy_judge.calibration.agreement.metrics import ReliabilityBin
from empathy_judge.calibration.artifact import Calibration, JudgeIdentity, RatedReplies, misfit
from empathy_judge.calibration.bias import Disagreements, Finding, audit, response_facts, worst_disagreements
from empathy_judge.calibration.estimate import UNDEFINED, Estimate, Population
from empathy_judge.calibration.pairing import Paired, labels_from_probabilities, pair
from empathy_judge.calibration.proportional_odds import folds_of, held_out
from empathy_judge.calibration.rating_map import MapTrial, try_map
from empathy_judge.calibration.shares.model_table import ModelFit, fit_models, rated_models
from empathy_judge.calibration.shares.tally import replies_by_model
from empathy_judge.calibration.shares.transport import recorded_deviation
from empathy_judge.data.crisis import find_flags
from empathy_judge.data.judgments import Judged, with_exchanges
from empathy_judge.data.rated_range import RatedRange, rated_range_of
from empathy_judge.data.records import LABELS, Exchange, Judgment, Rating, to_plain

BASELINES: Final = {
    "majority": "always returns the most common human label",
    "length": "counts words; fitted on the other clusters",
}
Metrics = Mapping[str, Estimate]


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationOptions:
    """Settings of a calibration, which expires after `days`."""

    scale: tuple[str, ...] = LABELS
    dimension: str = "empathy"
    days: int = 90
    seed: int = 0
    draws: int = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class RatedData:
    """The data of a calibration."""

    ratings: int
    responses: int
    raters: int
    batches: int
    models: tuple[str, ...]
    scale: tuple[str, ...]
    columns: tuple[str, ...]  # of a model's level
    dimension: str
    shares: Mapping[str, float]
    clusters: str  # what was resampled
    cluster_count: int
    population: Population
    draws: int
    seed: int
    unscored: Mapping[str, int]  # rated responses without a score, by reason
    unjudged: int  # rated responses that the judge was not given
    unrated: int
    notes: tuple[str, ...] = ()  # how the files were read

    @property
    def has_shares(self) -> bool:
        """Whether levels are shares of labels, shown in percent, or means on a scale."""
        return self.scale == LABELS


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """A judge, a baseline or people: agreement with `n` ratings, mean error of models' levels, and cost."""

    name: str
    kind: Literal["judge", "baseline", "people"]
    note: str
    n: int
    metrics: Metrics
    level_error: Estimate = UNDEFINED
    usd_per_1000: float | None = None
    seconds_per_1000: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """The reliability of the judge's probabilities of `label`, the highest."""

    label: str
    curve: tuple[ReliabilityBin, ...]
    ece: float
    log_loss: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """Some replies judged several times, and how many of their labels changed."""

    replies: int
    times: int
    changed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationReport:
    """The report on one judge, with its `calibration`."""

    headline: str  # the metric of `agreement` to lead with
    judge: Judged  # without its judgments
    flagged: Mapping[str, Any] | None  # counts of speakers who may be in danger, if any
    calibration: Calibration
    data: RatedData
    agreement: Agreement
    ceiling: Ceiling
    runs: tuple[RunRow, ...]  # the judge, those it was compared with, baselines and people
    reliability: Reliability | None
    map_trial: MapTrial | None
    models: ModelFit
    independent_judges: float  # that the judges amount to, by the correlation of their errors on models
    repeats: Repeats | None  # where the judge was asked again
    findings: tuple[Finding, ...]
    disagreements: Disagreements

    @property
    def baselines(self) -> tuple[RunRow, ...]:
        """The trivial baselines."""
        return tuple(run for run in self.runs if run.kind == "baseline")

    def as_dict(self) -> dict[str, Any]:
        """Return the content of report.json."""
        made, agreed = self.calibration, self.agreement
        bound_to = ("digest", "created", "expires", "ratings", "covers")
        # Empathy as a whole has no dimension.
        hidden = {"judgments", *(() if self.judge.dimension_note else ("dimension", "dimension_note"))}
        return {
            **{item.name: getattr(self, item.name) for item in fields(self)},
            "judge": {key: value for key, value in asdict(self.judge).items() if key not in hidden},
            "calibration": {name: getattr(made, name) for name in bound_to},
            "agreement": agreed.metrics,
            "undefined": agreed.undefined,
            "over_models": agreed.levels,
            "confusion": {"labels": agreed.scale, "rows": agreed.confusion},
            "models": self.models.rows,
            "calibration_line": self.models,
        }


def calibrate(
    runs: Sequence[Judged],
    ratings: Sequence[Rating],
    *,
    exchanges: Mapping[str, Exchange] | None = None,
    options: CalibrationOptions | None = None,
    notes: Sequence[str] = (),
    shipped: Calibration | None = None,
    repeats: Repeats | None = None,
) -> CalibrationReport:
    """Calibrate the first judge against human ratings, and compare all judges.

    The models of the `shipped` calibration of the same judge share the line with those rated here.
    """
    options = options or CalibrationOptions()
    texts = exchanges or {}
    judges = [with_exchanges(run, texts) for run in runs]
    pairs = [
        pair(item.judgments, ratings, scale=options.scale, dimension=options.dimension) for item in judges
    ]
    judged, paired, names = judges[0], pairs[0], [item.name for item in judges]
    identity = JudgeIdentity(name=judged.name, version=judged.version, rubric=judged.rubric)
    is_same = shipped is not None and misfit(shipped, identity, today=date.today()) is None
    rng = np.random.default_rng(options.seed)
    trial, mapped = try_map(paired, judged.judgments, rng=rng, draws=options.draws)
    rating_map = trial.rating_map if trial else None
    model_fit = fit_models(
        rated_models(paired, mapped),
        shipped.calibrated_models if shipped and is_same and not rating_map else None,
        deviation=recorded_deviation()[0] if judged.is_language_model else None,
    )
    rated = set(paired.id.tolist())
    calibration = make_calibration(
        identity,
        paired,
        model_fit,
        created=date.today(),
        days=options.days,
        covers=rated_range_of(
            item.features for item in judged.judgments if item.id in rated and item.features
        ),
        judgments=judged.judgments,
    )
    calibration = replace(calibration, rating_map=rating_map)
    agreements = [_agree(item, options) for item in pairs]
    agreed, rows = agreements[0], list(map(_judge_row, judges, agreements))
    people = ceiling(paired, rng=np.random.default_rng(options.seed), draws=options.draws)
    words, emotion = response_facts(texts.values())
    counts = np.bincount(paired.rating, minlength=paired.levels + 1)[1:]
    return CalibrationReport(
        # Of a judge that gives probabilities the order counts: kappa by label depends on the rule that makes
        # labels of them, and is near 0 for the likeliest however well it ranks.
        headline="qwk" if all(item.probabilities is None for item in pairs) else "qwk_matched",
        judge=replace(judged, judgments=()),
        flagged=find_flags(judged.judgments).get("flagged"),
        calibration=calibration,
        data=RatedData(
            ratings=len(paired),
            responses=len(np.unique(paired.id)),
            raters=len(np.unique(paired.rater)),
            batches=len(np.unique(paired.batch)),
            models=paired.models,
            scale=paired.scale,
            columns=tuple(model_fit.calibrated),
            dimension=options.dimension,
            shares=dict(zip(paired.scale, (counts / len(paired)).tolist(), strict=True)),
            clusters=agreed.clusters,
            population=paired.population,
            cluster_count=agreed.cluster_count,
            draws=agreed.draws,
            seed=options.seed,
            unscored=paired.unscored,
            unjudged=paired.unjudged,
            unrated=paired.unrated,
            notes=tuple(notes),
        ),
        agreement=agreed,
        ceiling=people,
        runs=(
            *(
                row if names.count(row.name) == 1 else replace(row, name=f"{row.name} ({row.note})")
                for row in rows
            ),
            *baseline_rows(paired, texts, options),
            _people_row(people),
        ),
        reliability=_reliability(paired),
        map_trial=trial,
        models=model_fit,
        independent_judges=independent_judges([item.levels for item in agreements]),
        repeats=repeats,
        findings=audit(paired, words=words, emotion=emotion),
        disagreements=worst_disagreements(paired, {item.id: item for item in judged.judgments}, texts),
    )


def _agree(paired: Paired, options: CalibrationOptions) -> Agreement:
    return agreement(paired, rng=np.random.default_rng(options.seed), draws=options.draws)


def _judge_row(judge: Judged, agreed: Agreement) -> RunRow:
    return RunRow(
        name=judge.name,
        kind="judge",
        note=judge.source,
        n=sum(map(sum, agreed.confusion)),
        metrics=agreed.metrics,
        level_error=agreed.levels.mean_error,
        usd_per_1000=judge.per_thousand(judge.cost),
        seconds_per_1000=judge.per_thousand(judge.seconds),
    )


def baseline_rows(
    paired: Paired, exchanges: Mapping[str, Exchange], options: CalibrationOptions
) -> Iterator[RunRow]:
    """Yield the baselines: the most common label, and length; they cost nothing."""
    shares = np.bincount(paired.rating, minlength=paired.levels + 1)[1:] / max(1, len(paired))
    tables = {"majority": np.tile(shares, (len(paired), 1))}
    rated = [exchanges[name] for name in paired.id.tolist() if name in exchanges]
    folds = folds_of(paired.clusters(), rng=np.random.default_rng(options.seed))
    if folds and len(rated) == len(paired):
        words = np.array([np.log(max(1, len(item.response.split()))) for item in rated])
        tables["length"] = held_out(words, paired.rating, folds, levels=paired.levels)
    for name, table in tables.items():
        score = np.clip(table @ np.arange(1.0, paired.levels + 1), 1, paired.levels)
        label = labels_from_probabilities(table, paired.scale)
        agreed = _agree(replace(paired, probabilities=table, score=score, label=label), options)
        row = _judge_row(Judged(name=name, source=BASELINES[name], judgments=()), agreed)
        yield replace(row, kind="baseline", usd_per_1000=0.0, seconds_per_1000=0.0)


def _people_row(people: Ceiling) -> RunRow:
    """Return one person against the others."""
    is_known = people.not_identifiable is None
    return RunRow(
        name="people",
        kind="people",
        note="one person against the median of the others" if is_known else "not identifiable",
        n=people.shared if is_known else 0,
        # Human labels are as frequent as ratings, so both kappas are the same.
        metrics=dict.fromkeys(("qwk", "qwk_matched"), people.person_against_rest),
    )


def _reliability(paired: Paired) -> Reliability | None:
    """Return the reliability of the judge's probabilities, if it gives any."""
    if paired.probabilities is None:
        return None
    is_top, given = paired.rating == paired.levels, paired.probabilities[:, -1]
    curve = metrics.reliability_curve(is_top, given, clusters=paired.clusters())
    return Reliability(
        label=paired.scale[-1],
        curve=curve,
        ece=metrics.calibration_error(curve),
        log_loss=float(metrics.log_losses(paired.rating, paired.probabilities).mean()),
    )


def make_calibration(
    judge: JudgeIdentity,
    paired: Paired,
    model_fit: ModelFit,
    *,
    created: date,
    days: int,
    source: str = "",
    covers: RatedRange | None = None,
    judgments: Iterable[Judgment] = (),
) -> Calibration:
    """Bind the calibrated models to the judge and to the ratings; `judgments` are of the rated replies."""
    replies = replies_by_model(judgments) if paired.population == "general" else {}
    # Who rated what and how, in whatever order.
    columns = (paired.id.tolist(), paired.rater.tolist(), paired.rating.tolist())
    rows = sorted(json.dumps(row) for row in zip(*columns, strict=True))
    return Calibration(
        judge=judge.name,
        version=judge.version,
        rubric=judge.rubric,
        ratings=sha256("\n".join(rows).encode("utf-8", "surrogatepass")).hexdigest(),
        created=created,
        days=days,
        count=len(paired),
        design_effect=model_fit.design_effect,
        calibrated_models=model_fit.calibrated,
        source=source,
        covers=covers,
        population=paired.population,
        rated={
            row.model: RatedReplies(replies=replies[row.model], shares=to_plain(row.corrected))
            for row in model_fit.rows
            if row.model in replies and row.ratings and row.corrected
        },
    )
