"""Comparisons of models: by a judge's runs, or by human ratings."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import numpy as np

from empathy_judge.calibration.artifact import Calibration, CalibrationChoice
from empathy_judge.calibration.comparison import judged_models, published_models
from empathy_judge.calibration.comparison.compare_ratings import RatedComparison, compare_sheet
from empathy_judge.calibration.comparison.differences import Difference, chances_of_best, differences
from empathy_judge.calibration.comparison.judged_models import ComparedLevel, ComparisonSettings, JudgedModel
from empathy_judge.calibration.comparison.published_models import PublishedModel, is_published
from empathy_judge.calibration.comparison.stop_rule import describe_few_raters
from empathy_judge.calibration.comparison.verdicts import Verdict
from empathy_judge.calibration.shares.tally import replies_digest
from empathy_judge.data.crisis import find_flags
from empathy_judge.data.errors import UserError
from empathy_judge.data.judgments import Judged, JudgedRun, make_ids_unique, read_judged_runs
from empathy_judge.data.rated_range import RatedRange, find_outside
from empathy_judge.data.rating_files.rated_inputs import read_people
from empathy_judge.data.rating_files.sheet import RatingSheet, SheetOptions
from empathy_judge.data.records import UNNAMED_MODEL, Judgment
from empathy_judge.data.tables import validate

MOST_RANKED: Final = 20  # models with a probability of being the best
MOST_SHOWN: Final = 6  # pairs whose replies are shown: those of four models
EXIT_CODES: Final[Mapping[Verdict, int]] = {
    **{"better": 0, "probably better": 0, "similar": 0, "at least as good": 0},
    **{"probably worse": 3, "inconclusive": 3, "worse": 1},
}
UNRESPONSIVE_CODE: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRequest:
    """A request for a comparison of runs, or of one file of ratings."""

    paths: tuple[Path, ...]
    baselines: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    ratings: Path | None = None
    exchanges: tuple[Path, ...] = ()
    calibration: str | None = None
    margin: float = ComparisonSettings().margin
    max_drop: float = ComparisonSettings().max_drop
    weights: Path | None = None  # the folder of the shipped judges and their calibrations
    labels: Mapping[Path, str] = field(default_factory=dict)  # names of runs
    are_variants: bool = False  # all are variants of one model
    is_gate: bool = False  # the verdict sets an exit code
    reading: SheetOptions | None = None  # how ratings are read


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRuns:
    """Judged models compared, the one with the largest share of Good first."""

    judge: Judged
    calibration: CalibrationChoice
    margin: float
    models: tuple[ComparedLevel, ...]
    baselines: tuple[PublishedModel, ...]
    pairs: tuple[Difference, ...]
    has_baseline: bool
    unrated_models: tuple[str, ...]  # without ratings, in the calibration or here
    models_in_several_runs: tuple[str, ...]
    best: Mapping[str, float]  # each model's probability of the highest Good share
    first: str  # the first model named
    are_variants: bool
    flags: Mapping[str, Any]  # of speakers who may be in danger; empty if none
    outside: Mapping[str, Any]  # counts of replies outside the rated range; empty if none
    runs: tuple[Path, ...] = ()  # their folders
    few_raters: str | None = None  # what too few raters said, who decide nothing
    notes: tuple[str, ...] = ()  # how the ratings were read

    @property
    def has_levels(self) -> bool:
        """Whether any model can have a level; a language model without a calibration gives none."""
        return {level.how for level in self.models} - {"refused"} != {"prior"}

    @property
    def calibrate_words(self) -> tuple[str, ...]:
        """The command that calibrates the judge of these runs, once people have rated."""
        return ("calibrate", *map(str, self.runs), "ratings.jsonl")

    @property
    def tests(self) -> int:
        """The number of differences that Holm's adjustment counts."""
        return sum(not math.isnan(pair.p_holm) for pair in self.pairs)

    @property
    def called(self) -> tuple[Difference, ...]:
        """The pairs of which the line says which model is better."""
        return tuple(pair for pair in self.pairs if pair.is_called)

    @property
    def expected_wrong(self) -> float:
        """How many of these verdicts are expected to be wrong."""
        return sum(min(pair.probability, 1 - pair.probability) for pair in self.called)

    @property
    def example_digests(self) -> set[str]:
        """The replies to the prompts with the largest differences."""
        wins = [pair.wins for pair in self.pairs[:MOST_SHOWN] if pair.wins]
        return {content for item in wins for gap in item.most for content in gap.contents}

    @property
    def exit_code(self) -> int:
        """0 if the first model is better, probably better, similar or at least as good; 1 if worse; else 3.

        1 also where its replies do not respond to their prompts. With baselines: of every other model against
        each of them, the worst.
        """
        return min((code for code in map(self.exit_code_of, self.pairs) if code), default=0)

    @property
    def unresponsive(self) -> tuple[str, ...]:
        """The models whose replies do not respond to their prompts."""
        return tuple(level.model for level in self.models if level.reason == judged_models.UNRESPONSIVE)

    @property
    def tiers(self) -> list[list[str]]:
        """The models in order; every model of a tier is better, or probably, than all of later tiers."""
        ranked = [level.model for level in self.models if level.shares]
        beaten = {(pair.one, pair.other) for pair in self.pairs if pair.verdict.endswith("better")}
        beaten |= {(pair.other, pair.one) for pair in self.pairs if pair.verdict.endswith("worse")}
        tiers: list[list[str]] = []
        for place, name in enumerate(ranked):
            is_new = all((one, other) in beaten for one in ranked[:place] for other in ranked[place:])
            tiers = [*tiers, [name]] if is_new else [*tiers[:-1], [*tiers[-1], name]]
        return tiers

    def exit_code_of(self, pair: Difference) -> int:
        """Return the exit code of one pair."""
        is_turned = not self.has_baseline and pair.one != self.first
        if (pair.other if is_turned else pair.one) in self.unresponsive:
            return UNRESPONSIVE_CODE
        return EXIT_CODES[(pair.reverse() if is_turned else pair).verdict]


def compare(request: ComparisonRequest, *, today: date) -> ComparedRuns | RatedComparison:
    """Compare runs if folders are given, else the models of one file of ratings."""
    folders = [path for path in request.paths if path.is_dir()]
    if folders and len(folders) < len(request.paths):
        raise UserError("compare: pass runs or one file of ratings; --ratings adds ratings to runs")
    if folders:
        return compare_runs(request, today=today)
    if len(request.paths) != 1:
        raise UserError("compare: pass one file of ratings at a time")
    if request.ratings or request.calibration:
        raise UserError("compare: --ratings and --calibration apply to runs, not to a file of ratings")
    sheet = read_people(request.paths[0], request.reading, exchanges=request.exchanges)
    return compare_sheet(sheet, request.paths[0], baselines=request.baselines, models=request.models)


def compare_runs(request: ComparisonRequest, *, today: date) -> ComparedRuns:
    """Compare judged models with each other, or with the baselines alone where there are any."""
    runs = read_judged_runs(request.paths, request.labels)
    choice = judged_models.find_calibration_of_runs(
        runs, request.calibration, weights=request.weights, today=today
    )
    sheet = RatingSheet(ratings=())
    if request.ratings:
        unique = make_ids_unique([run.judged for run in runs], [run.label for run in runs])
        runs = [replace(run, judged=judged) for run, judged in zip(runs, unique, strict=True)]
        judgments = [item for run in runs for item in run.judged.judgments]
        reading = replace(request.reading or SheetOptions(), dimension=runs[0].judged.dimension)
        sheet = read_people(request.ratings, reading, judgments=judgments, exchanges=request.exchanges)
    everyone = judged_models.judged_models(runs, sheet.ratings, choice.calibration)
    models = {name: everyone[name] for name in choose_models([*everyone], request)}
    baselines: list[JudgedModel | PublishedModel] = [
        published_models.published(name) if is_published(name) else everyone[name]
        for name in dict.fromkeys(request.baselines)
    ]
    models, settings = _apply(choice.calibration, models, request, runs[0].judged)
    levels = sorted(  # by the share of Good, the largest first; those without one last
        (judged_models.compared_level(model, settings) for model in models.values()),
        key=lambda level: (-level.good if math.isfinite(level.good) else 2.0, level.model),
    )
    pairs: list[tuple[JudgedModel, JudgedModel | PublishedModel]] = [
        (models[level.model], baseline)
        for baseline in baselines
        for level in levels
        if level.model != baseline.name
    ]
    if not baselines:  # every two models once, the one with the larger share of Good first
        pairs += combinations([models[level.model] for level in levels], 2)
    times = Counter(model.known_as for model in models.values())
    calibrated = settings.calibrated[-1].models if settings.calibrated else ()
    judgments = [item for run in runs for item in run.judged.judgments]
    row = runs[0].summary.get("rated")
    rated_range = validate(RatedRange, row, f"{runs[0].folder / 'summary.json'}: rated") if row else None
    return ComparedRuns(
        judge=runs[0].judged,
        calibration=choice,
        margin=request.margin,
        models=tuple(levels),
        baselines=tuple(item for item in baselines if isinstance(item, PublishedModel)),
        pairs=differences(pairs, settings),
        has_baseline=bool(baselines),
        unrated_models=tuple(
            name
            for name, model in models.items()
            if model.known_as not in calibrated and model.known is None and model.ppi is None
        ),
        models_in_several_runs=tuple(
            name for name, count in times.items() if count > 1 and name != UNNAMED_MODEL
        ),
        best=chances_of_best([models[level.model] for level in levels[:MOST_RANKED]], settings),
        first=next(iter(models)),
        are_variants=settings.are_variants,
        flags=find_flags(judgments),
        outside=find_outside(judgments, rated_range, choice.covers),
        runs=request.paths,
        few_raters=_few_raters(models.values()),
        notes=sheet.notes,
    )


def compare_judgments(
    judgments: Iterable[Judgment],
    choice: CalibrationChoice,
    *,
    baseline: str,
    max_drop: float,
    is_language_model: bool = False,
) -> tuple[Difference, ...]:
    """Compare the models of one judge's judgments with one of them."""
    judged = Judged(name="", judgments=tuple(judgments), is_language_model=is_language_model)
    run = JudgedRun(folder=Path(), label="", judged=judged, summary={})
    models = judged_models.judged_models([run], (), choice.calibration)
    if baseline not in models:
        raise UserError(f"no model {baseline!r} in these judgments; known: {', '.join(models)}")
    request = ComparisonRequest(paths=(), max_drop=max_drop)
    models, settings = _apply(choice.calibration, models, request, judged)
    return differences([(models[name], models[baseline]) for name in models if name != baseline], settings)


def _apply(
    calibration: Calibration | None,
    models: Mapping[str, JudgedModel],
    request: ComparisonRequest,
    judged: Judged,
) -> tuple[dict[str, JudgedModel], ComparisonSettings]:
    """Return the models with the ratings that a calibration has of them, and what to compare them by."""
    settings = ComparisonSettings(
        margin=request.margin,
        max_drop=request.max_drop,
        design_effect=published_models.USUAL_DESIGN_EFFECT,
        are_variants=request.are_variants,
    )
    if calibration is None:
        return {**models}, replace(settings, has_no_level=judged.is_language_model)
    lines, effect = tuple(calibration.calibrated_models.values()), calibration.design_effect
    settings = replace(settings, calibrated=lines, design_effect=effect or settings.design_effect)
    return {name: _with_known(model, calibration) for name, model in models.items()}, settings


def _with_known(model: JudgedModel, calibration: Calibration) -> JudgedModel:
    """Return the model with its shares from the calibration, where that rated these very replies."""
    if model.ppi is not None:
        return model
    replies = replies_digest(sum(int(content, 16) for content in model.contents))
    return replace(model, known=calibration.rated_shares(replies))


def _few_raters(models: Iterable[JudgedModel]) -> str | None:
    """Return what the raters of models that too few people rated gave, and that it decides nothing."""
    few = sorted(
        (item for item in models if len(item.rated.item) and item.ppi is None), key=lambda item: item.name
    )
    raters = max((len(np.unique(item.rated.cluster)) for item in few), default=0)
    shares = describe_few_raters(raters, {item.name: float(item.rated.crowd[-1]) for item in few})
    return shares and f"{shares} The figures below are by the judge."


def choose_models(everyone: Sequence[str], request: ComparisonRequest) -> list[str]:
    """Return the models to compare, with the baselines; refused where nothing can be compared."""
    for name in filter(is_published, request.baselines):
        published_models.published(name)
    judged = [name for name in request.baselines if not is_published(name)]
    for name in (*judged, *request.models):
        if name not in everyone:
            raise UserError(f"no model {name!r} in these runs; known: {', '.join(everyone)}")
    wanted = {*request.models, *judged} if request.models else set(everyone)
    models = [name for name in everyone if name in wanted]
    if len(models) + len(request.baselines) - len(judged) < 2:
        raise UserError(
            f"one model only, {', '.join(models)!r}; pass another run or file, or --baseline study:human"
        )
    if request.is_gate and not request.baselines and len(models) > 2:
        raise UserError("more than two models; set the one to compare with: --baseline")
    return models
