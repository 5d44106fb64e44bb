"""Models compared: by a judge's runs or by people's ratings; `reports` makes sentences and pages of it."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from itertools import combinations
from pathlib import Path
from typing import Any

from calibration.artifact import Found
from calibration.comparison.differences import ALPHA, Difference, differences
from calibration.comparison.judged_models import (
    ComparisonSettings,
    JudgedLevel,
    JudgedModel,
    Published,
    find_corrector,
    in_order,
    judged_level,
    judged_models,
    read_runs,
)
from calibration.comparison.published_models import is_published, published
from calibration.comparison.ratings import ALL, Comparison, compare_file
from calibration.multiple_testing import tie_letters
from data.crisis import find_flags
from data.errors import UserError
from data.judgments import Judged
from data.tables import read_ratings


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What to compare: runs or one file of ratings, with what, and how.

    `weights` is the folder of the shipped judges: the calibration a run was scored with may lie there.
    """

    paths: tuple[Path, ...]
    baselines: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    ratings: Path | None = None
    exchanges: Path | None = None
    calibration: str | None = None
    margin: float = ComparisonSettings().margin
    weights: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRatings:
    """The crowd study's tables of one file of ratings; `left_out` are the models that were not compared."""

    comparison: Comparison
    left_out: tuple[str, ...]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRuns:
    """Judged models compared, the one with the largest share of Good first.

    `letters` are shared by models that are not told apart. `never_met` are models that no rating of the
    calibration was about, `repeated` those that stand in more than one run. `flags` is the part of a report
    about speakers who may be in danger; empty where there are none.
    """

    judge: Judged
    corrector: Found
    margin: float
    models: tuple[JudgedLevel, ...]
    letters: Mapping[str, str]
    baselines: tuple[Published, ...]
    pairs: tuple[Difference, ...]
    never_met: tuple[str, ...]
    repeated: tuple[str, ...]
    flags: Mapping[str, Any]

    @property
    def tests(self) -> int:
        """How many differences Holm's adjustment counted."""
        return sum(1 for pair in self.pairs if pair.p == pair.p)


def compare(question: Question, *, today: date) -> ComparedRuns | ComparedRatings:
    """Compare runs if folders are given, else the models of one file of ratings."""
    folders = [path for path in question.paths if path.is_dir()]
    if folders and len(folders) < len(question.paths):
        raise UserError("compare: give runs, or one file of ratings; --ratings adds ratings to runs")
    if folders:
        return compare_runs(question, today=today)
    if len(question.paths) != 1:
        raise UserError("compare: one file of ratings at a time; runs are folders")
    if question.ratings or question.calibration:
        raise UserError("compare: --ratings and --calibration are for runs; a file of ratings needs neither")
    comparison, left_out = compare_file(
        question.paths[0],
        baselines=question.baselines,
        models=question.models,
        exchanges=question.exchanges,
    )
    return ComparedRatings(comparison=comparison, left_out=tuple(left_out), source=question.paths[0].name)


def compare_runs(question: Question, *, today: date) -> ComparedRuns:
    """Compare judged models with each other, or with the baselines alone where there are any."""
    runs = read_runs(question.paths)
    ratings = list(read_ratings(question.ratings)) if question.ratings else []
    everyone = judged_models(runs, ratings)
    models, baselines = _choose(everyone, question)
    corrector = find_corrector(runs, question.calibration, weights=question.weights, today=today)
    settings = ComparisonSettings(margin=question.margin)
    if corrector.calibration is not None:
        settings = replace(
            settings,
            calibrated=corrector.calibration.betweens(),
            design_effect=corrector.calibration.design_effect or 1.0,
        )
    levels = in_order([judged_level(model, settings) for model in models.values()])
    pairs: list[tuple[JudgedModel, JudgedModel | Published]] = [
        (models[level.model], baseline)
        for baseline in baselines
        for level in levels
        if level.model != baseline.name
    ]
    # Each two models once, the one with the larger share of Good first.
    all_pairs = differences(
        list(combinations([models[level.model] for level in levels], 2)), settings, is_planning=not baselines
    )
    told_apart = [frozenset((item.one, item.other)) for item in all_pairs if item.p_holm < ALPHA]
    times = Counter(model.known_as for model in models.values())
    calibrated = settings.calibrated[-1].models if settings.calibrated else ()
    return ComparedRuns(
        judge=runs[0].judged,
        corrector=corrector,
        margin=question.margin,
        models=tuple(levels),
        letters=tie_letters([level.model for level in levels], told_apart),
        baselines=tuple(item for item in baselines if isinstance(item, Published)),
        pairs=differences(pairs, settings) if baselines else all_pairs,
        never_met=tuple(
            name
            for name, model in models.items()
            if model.known_as not in calibrated and not len(model.rated.item)
        ),
        repeated=tuple(name for name, count in times.items() if count > 1),
        flags=find_flags(item for run in runs for item in run.judged.judgments),
    )


def _choose(
    everyone: dict[str, JudgedModel], question: Question
) -> tuple[dict[str, JudgedModel], list[JudgedModel | Published]]:
    """The models asked for, and the baselines; a baseline of the runs is always among the models."""
    judged = [name for name in question.baselines if not is_published(name)]
    for name in (*judged, *question.models):
        if name not in everyone and name != ALL:
            raise UserError(f"no model {name!r} in these runs; known: {', '.join(everyone)}")
    wanted = {*question.models, *judged} if question.models and ALL not in question.models else set(everyone)
    models = {name: model for name, model in everyone.items() if name in wanted}
    if len(models) + len(question.baselines) - len(judged) < 2:
        raise UserError(
            f"one model only, {next(iter(models))!r}; give another run, or a baseline such as study:human"
        )
    baselines: list[JudgedModel | Published] = [
        published(name) if is_published(name) else everyone[name]
        for name in dict.fromkeys(question.baselines)
    ]
    return models, baselines
