"""Judged models of runs, and their shares for a comparison: by ratings, by the calibrated line, or by both.

Without either, shares are the judge's own, and marked so.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Final, Literal

import numpy as np

from empathy_judge.calibration import artifact
from empathy_judge.calibration.artifact import CalibrationChoice
from empathy_judge.calibration.cluster import UNDEFINED_CONTRAST, Contrast, contrast, widen_certain
from empathy_judge.calibration.estimate import LEAST_RATERS, UNDEFINED, Estimate, Floats, Interval
from empathy_judge.calibration.pairing import chances_of
from empathy_judge.calibration.prompt_fit import MANY_REPEATS, PromptFit
from empathy_judge.calibration.shares import ppi
from empathy_judge.calibration.shares.correction import NO_LEVEL, UNCALIBRATED, correct
from empathy_judge.calibration.shares.ppi import PpiEstimate, RatedModel
from empathy_judge.calibration.shares.transport import LEAST_REPLIES, MIN_SHARE, CalibratedModels
from empathy_judge.data.errors import UserError
from empathy_judge.data.judgments import JudgedRun
from empathy_judge.data.records import LABELS, UNNAMED_MODEL, Judgment, Rating

How = Literal["ratings", "line", "both", "prior", "judge", "same", "refused"]
GOOD: Final = LABELS[-1]
UNRESPONSIVE: Final = "the replies do not respond to their prompts"
SCORES: Final = (0.0, 0.5, 1.0)  # of the labels


@dataclass(frozen=True, kw_only=True, eq=False)
class JudgedModel:
    """One model's scored responses, with ratings of some or none, and how many the judge did not score."""

    name: str  # unique in the comparison
    rated: RatedModel
    unscored: int = 0
    model: str = ""  # the name in calibrations, if that differs
    contents: tuple[str, ...] = ()  # the digests of its scored responses
    replies: tuple[str, ...] = ()  # those of the replies alone
    fit: PromptFit | None = None
    known: Mapping[str, Estimate] | None = None  # its shares, if the calibration has ratings of these replies

    @property
    def known_as(self) -> str:
        return self.model or self.name

    @property
    def scores(self) -> Floats:
        """The judge's score of each response, from 0 (Bad) to 1 (Good)."""
        return np.asarray(self.rated.judged @ SCORES)

    @property
    def is_unresponsive(self) -> bool:
        """Whether its replies do not respond to their prompts."""
        return self.fit is not None and self.fit.state == "unresponsive"

    @property
    def repeats_itself(self) -> bool:
        """Whether many of its replies nearly repeat a reply to another prompt."""
        return self.fit is not None and self.fit.repeated >= MANY_REPEATS

    @cached_property
    def ppi(self) -> PpiEstimate | None:
        """The estimate by its own ratings, if enough people gave them for it to have an error."""
        if len(np.unique(self.rated.cluster)) < LEAST_RATERS:
            return None
        estimate = ppi.ppi_estimate(self.rated)
        return estimate if np.isfinite(estimate.variance).all() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonSettings:
    """A calibration's models by label, or None, its raters' design effect, and options."""

    calibrated: tuple[CalibratedModels, ...] | None = None
    design_effect: float = 1.0
    margin: float = 0.05  # the smallest relevant difference of Good shares
    max_drop: float = 0.10  # the largest loss with which a model is still at least as good
    are_variants: bool = False  # all models compared are variants of one
    has_no_level: bool = False  # the judge is a language model without a calibration

    @property
    def lines(self) -> tuple[CalibratedModels, ...]:
        """The calibrated line of each label; through no models without a calibration."""
        return self.calibrated or (UNCALIBRATED,) * len(LABELS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedLevel:
    """One model's shares; `how` they were estimated, and the `reason` if the line was refused."""

    model: str
    how: How
    reason: str | None
    shares: Mapping[str, Estimate]
    judged: int
    unscored: int
    ratings: int
    fit: PromptFit | None = None
    apart: tuple[Estimate, Estimate] | None = None  # Good by the judge and by people, where both say no more

    @property
    def good(self) -> float:
        """The share of Good, for an order of models; nan where undefined."""
        return self.shares[GOOD].order if GOOD in self.shares else math.nan

    @property
    def missing(self) -> float:
        """The part of its responses that was not scored."""
        return self.unscored / (self.judged + self.unscored) if self.unscored else 0.0


def compared_level(model: JudgedModel, settings: ComparisonSettings) -> ComparedLevel:
    """Return the model's shares: corrected, or the judge's own where nothing can correct them."""
    level = ComparedLevel(
        model=model.name,
        how="refused",
        reason=UNRESPONSIVE if model.is_unresponsive else None,
        shares={},
        judged=len(model.rated.judged),
        unscored=model.unscored,
        ratings=len(model.rated.item),
        fit=model.fit,
    )
    if 0 < level.judged < LEAST_REPLIES and model.ppi is None:
        return replace(level, reason=f"fewer than {LEAST_REPLIES} scored")
    if model.is_unresponsive:
        return level
    if model.known is not None:
        return replace(level, how="ratings", shares=model.known)
    rated = model.rated if model.ppi is not None else model.rated.without_ratings()
    (found,) = correct({model.known_as: rated}, calibrated=settings.lines)
    level = replace(level, reason=found.reason if settings.calibrated else None)
    if found.how == "both" and model.ppi is not None:
        (alone,) = correct({model.known_as: rated.without_ratings()}, calibrated=settings.lines)
        if found.corrected[GOOD].width >= alone.corrected[GOOD].width:
            level = replace(level, apart=(alone.corrected[GOOD], model.ppi.shares()[GOOD]))
    if found.how != "refused":
        return replace(level, how=found.how, shares=found.corrected)
    if level.judged and settings.has_no_level:
        return replace(level, how="prior", reason=NO_LEVEL, shares=order_only(float(model.scores.mean())))
    if level.judged:
        return replace(level, how="judge", shares=judge_shares(model.rated))
    return replace(level, reason="nothing was scored")


def order_only(score: float) -> dict[str, Estimate]:
    """Return undefined shares, Good with a place in the order of models by the judge's score."""
    return dict.fromkeys(LABELS, UNDEFINED) | {GOOD: Estimate(math.nan, None, rank=score)}


def equal_share(one: JudgedModel, other: JudgedModel) -> float:
    """Return the part of the prompts to which both gave the same replies, but for case and white space."""
    first, second = (_replies_by_prompt(item) for item in (one, other))
    prompts = first.keys() | second.keys()
    return sum(first.get(prompt) == second.get(prompt) for prompt in prompts) / max(1, len(prompts))


def _replies_by_prompt(model: JudgedModel) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    if model.rated.prompt is not None:
        for prompt, reply in zip(model.rated.prompt.tolist(), model.replies, strict=False):
            found.setdefault(prompt, Counter())[reply] += 1
    return {} if "" in model.replies else found


def judge_shares(rated: RatedModel) -> dict[str, Estimate]:
    """Return the judge's own means, with intervals over prompts."""
    prompts = ppi.prompt_numbers((rated.prompt, np.arange(len(rated.judged))))
    ones = np.ones(len(rated.judged))
    shares = {}
    for label, values in zip(LABELS, rated.judged.T, strict=True):
        ends = contrast(values, ones, prompts).estimate().interval
        # An interval by t may leave the scale where shares are near its ends.
        ends = ends and Interval(max(0.0, ends.low), min(1.0, ends.high))
        shares[label] = widen_certain(Estimate(float(values.mean()), ends), rated.prompt_count)
    return shares


def judge_contrast(one: RatedModel, other: RatedModel) -> dict[str, Contrast]:
    """Return one - other by the judge alone, with prompts as clusters, so that shared ones are paired."""
    columns = zip(LABELS, one.judged.T, other.judged.T, strict=True)
    return {label: _paired(one, other, first, second) for label, first, second in columns}


def logit_contrast(one: RatedModel, other: RatedModel) -> Contrast:
    """Return the paired difference of Good with each model's shares scaled to logits (delta method).

    Its error is that of the difference of the two logits over the choice of prompts.
    """
    columns = [model.judged[:, -1] for model in (one, other)]
    means = [float(np.clip(column.mean(), MIN_SHARE, 1 - MIN_SHARE)) for column in columns]
    first, second = (column / (mean * (1 - mean)) for column, mean in zip(columns, means, strict=True))
    return _paired(one, other, first, second)


def score_contrast(one: JudgedModel, other: JudgedModel) -> Contrast:
    """Return the paired difference of the judge's scores."""
    return _paired(one.rated, other.rated, one.scores, other.scores)


def _paired(one: RatedModel, other: RatedModel, first: Floats, second: Floats) -> Contrast:
    if not len(first) or not len(second):
        return UNDEFINED_CONTRAST
    feature = np.repeat([1.0, 0.0], [len(first), len(second)])
    clusters = ppi.prompt_numbers(*((item.prompt, np.arange(len(item.judged))) for item in (one, other)))
    strata = np.zeros(len(feature), dtype=np.intp)
    return contrast(np.concatenate([first, second]), feature, clusters, strata=strata)


def name_models(runs: Sequence[tuple[str, Collection[str]]]) -> list[dict[str, str]]:
    """Return the unique name of every model in each run, from the runs' labels and models.

    A name in several runs gets the run's label, and a model without a name is called by it.

    >>> name_models([("new", {"gpt"}), ("old", {"gpt", "unnamed"})])[0]
    {'gpt': 'gpt (new)'}
    """
    times = Counter(model for _, models in runs for model in models)
    return [
        {
            model: label if model == UNNAMED_MODEL else model if times[model] == 1 else f"{model} ({label})"
            for model in models
        }
        for label, models in runs
    ]


def judged_models(
    runs: Sequence[JudgedRun], ratings: Sequence[Rating], calibration: artifact.Calibration | None
) -> dict[str, JudgedModel]:
    """Return every model of every run, by the names that `name_models` gives."""
    names = name_models([(run.label, {item.model for item in run.judged.judgments}) for run in runs])
    by_id: dict[str, list[Rating]] = {}
    dimensions = {run.judged.dimension for run in runs}
    for rating in ratings:
        if rating.dimension in dimensions:
            by_id.setdefault(rating.id, []).append(rating)
    models: dict[str, JudgedModel] = {}
    for run, name_of in zip(runs, names, strict=True):
        rows = run.summary.get("models", ())
        fits = {row["model"]: PromptFit.from_dict(row["fit"]) for row in rows if row.get("fit")}
        by_model: dict[str, list[Judgment]] = {}
        for judgment in artifact.map_judgments(calibration, run.judged.judgments):
            judgments = by_model.setdefault(judgment.model, [])
            if judgment.flag is None:  # the others are for people to read
                judgments.append(judgment)
        for model, judgments in by_model.items():
            name = name_of[model]
            if name in models:
                raise UserError(f"{run.folder}: two run folders have this name and the model {model!r}")
            models[name] = replace(_judged_model(name, model, judgments, by_id), fit=fits.get(model))
    if ratings and not any(len(item.rated.item) for item in models.values()):
        raise UserError("--ratings: no rating matches a scored reply; use the ids of the runs")
    return models


def _judged_model(
    name: str, model: str, judgments: Sequence[Judgment], ratings: Mapping[str, Sequence[Rating]]
) -> JudgedModel:
    scored = [item for item in judgments if item.label is not None or item.probabilities is not None]
    if any(item.probabilities is not None and set(item.probabilities) != set(LABELS) for item in scored):
        raise UserError(
            f"{name}: probabilities are expected of {', '.join(LABELS)}; `score` its replies again"
        )
    place = {item.id: number for number, item in enumerate(scored)}
    own_ratings = [rating for item in scored for rating in ratings.get(item.id, ())]
    for rating in own_ratings:
        if rating.rating not in (1, 2, 3):
            raise UserError(
                f"--ratings: {rating.rating:g} of {rating.id!r}: expected 1 to 3, or Bad, Okay or Good"
            )
    judged = [
        [float(label == item.label) for label in LABELS]
        if item.probabilities is None
        else [item.probabilities[label] for label in LABELS]
        for item in scored
    ]
    return JudgedModel(
        name=name,
        rated=RatedModel(
            judged=np.array(judged).reshape(-1, len(LABELS)),
            item=np.array([place[rating.id] for rating in own_ratings], dtype=np.intp),
            value=ppi.one_hot(np.array([rating.rating for rating in own_ratings]), len(LABELS)),
            cluster=np.array([rating.batch or rating.rater for rating in own_ratings]),
            prompt=np.array([item.prompt_digest for item in scored]),
            chance=chances_of(own_ratings),
        ),
        unscored=len(judgments) - len(scored),
        model=model,
        contents=tuple(item.content_digest for item in scored),
        replies=tuple(item.reply_digest for item in scored),
    )


def find_calibration_of_runs(
    runs: Sequence[JudgedRun], wanted: str | None, *, weights: Path | None, today: date
) -> CalibrationChoice:
    """Find the calibration named, else the one the runs were scored with.

    That one lies with a run, or with the shipped judge of this name in the folder `weights`.
    """
    first = runs[0].judged
    judge = artifact.JudgeIdentity(name=first.name, version=first.version, rubric=first.rubric)
    if wanted is not None:
        return artifact.take_named(wanted, judge, today=today)
    digests = {run.summary.get("calibration") for run in runs}
    if digests == {None}:
        return CalibrationChoice(calibration=None, note="the runs have no calibration")
    folders = [run.folder for run in runs] + ([weights / first.name] if weights else [])
    for calibration in map(artifact.read_saved, folders):
        if calibration is not None and calibration.digest in digests:
            return artifact.take_fitting(calibration, judge, today=today)
    digest = next(filter(None, digests))
    return CalibrationChoice(
        calibration=None,
        note=f"the runs' calibration {digest[:12]} was not found; pass it with --calibration",
    )
