"""Models compared: by a judge's runs or by people's ratings; `reports` makes sentences and pages of it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import combinations
from pathlib import Path
from typing import Any, Final, Literal

from calibration.agreement.choices import ChosenModels, compare_chosen
from calibration.artifact import CalibrationChoice
from calibration.comparison.differences import Difference, differences
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
    runs_to_rate,
)
from calibration.comparison.prompt_wins import PromptGap, find_texts
from calibration.comparison.published_models import USUAL_DESIGN_EFFECT, is_published, published
from calibration.comparison.ratings import ALL, Comparison, compare_sheet, read_people
from calibration.comparison.siblings import LEAST_PAIRS, Likeness, measure_likeness, stated
from calibration.comparison.verdicts import ALPHA, Verdict
from calibration.multiple_testing import tie_letters
from data.coverage import find_outside
from data.crisis import find_flags
from data.errors import UserError
from data.judgments import Judged
from data.rating_files.ai_raters import PEOPLE, name_ais
from data.rating_files.pairwise_choices import are_choices, people_first, read_choices
from data.rating_files.rating_sheet import RatingSheet, Replies, SheetOptions
from data.records import UNNAMED_MODEL, Exchange
from data.storage import Source
from data.tables import read_responses
from data.text import listed

MOST_SHOWN: Final = 6  # pairs whose replies are shown: those of four models
EXIT_CODES: Final[Mapping[Verdict, int]] = {"better": 0, "same": 0, "worse": 1}
TURNED: Final[Mapping[Verdict, Verdict]] = {
    "better": "worse",
    "worse": "better",
    "leans better": "leans worse",
    "leans worse": "leans better",
    "same": "same",
    "cannot say": "cannot say",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What to compare: runs or one file of ratings, with what, and how.

    `weights` is the folder of the shipped judges: the calibration a run was scored with may lie there.
    `labels` are names of runs, and `sources` the files of replies that they judged. `siblings` says that all
    are versions of one model, and how alike the judge errs on them: a correlation, or "measured". `reading`
    says how ratings are read.
    """

    paths: tuple[Path, ...]
    baselines: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    ratings: Path | None = None
    exchanges: tuple[Path, ...] = ()
    calibration: str | None = None
    margin: float = ComparisonSettings().margin
    weights: Path | None = None
    labels: Mapping[Path, str] = field(default_factory=dict)
    sources: tuple[Source, ...] = ()
    siblings: float | Literal["measured"] | None = None
    reading: SheetOptions | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRatings:
    """The crowd study's tables of one file of ratings; `left_out` are the models that were not compared."""

    comparison: Comparison
    left_out: tuple[str, ...]
    source: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRuns:
    """Judged models compared, the one with the largest share of Good first.

    `letters` are shared by models that are not told apart. `never_met` are models that no rating of the
    calibration was about, `repeated` those that stand in more than one run, `first` the first one given.
    `likeness` is how alike the judge errs on siblings, where that is known. `flags` is the part of a report
    about speakers who may be in danger, `outside` counts replies unlike those that people rated; each is
    empty where there are none.
    """

    judge: Judged
    corrector: CalibrationChoice
    margin: float
    models: tuple[JudgedLevel, ...]
    letters: Mapping[str, str]
    baselines: tuple[Published, ...]
    pairs: tuple[Difference, ...]
    has_baseline: bool
    never_met: tuple[str, ...]
    repeated: tuple[str, ...]
    first: str
    likeness: Likeness | None
    are_siblings: bool
    flags: Mapping[str, Any]
    outside: Mapping[str, Any]
    notes: tuple[str, ...] = ()  # how the ratings were read

    @property
    def tests(self) -> int:
        """How many differences Holm's adjustment counted."""
        return sum(1 for pair in self.pairs if pair.p == pair.p)

    @property
    def exit_code(self) -> int:
        """0 where the first model given is better than the other or the same, 1 where worse, 3 otherwise.

        With baselines: every other model against each of them, and the worst of it.
        """
        return min((code for code in map(self.exit_code_of, self.pairs) if code), default=0)

    def exit_code_of(self, pair: Difference) -> int:
        """The same for one pair."""
        if not self.has_baseline and len(self.pairs) != 1:
            raise UserError("more than two models; name the one to compare with: --baseline")
        is_turned = not self.has_baseline and pair.one != self.first
        return EXIT_CODES.get(TURNED[pair.verdict] if is_turned else pair.verdict, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedChoices:
    """Models by choices between their replies, of people, or of the AIs that `chosen_by` names."""

    pairs: tuple[ChosenModels, ...]
    chosen_by: str
    source: str
    notes: tuple[str, ...]


def compare(question: Question, *, today: date) -> ComparedRuns | ComparedRatings | ComparedChoices:
    """Compare runs if folders are given, else the models of one file of ratings or choices."""
    folders = [path for path in question.paths if path.is_dir()]
    if folders and len(folders) < len(question.paths):
        raise UserError("compare: give runs, or one file of ratings; --ratings adds ratings to runs")
    if folders:
        return compare_runs(question, today=today)
    if len(question.paths) != 1:
        raise UserError("compare: one file of ratings at a time; runs are folders")
    if question.ratings or question.calibration:
        raise UserError("compare: --ratings and --calibration are for runs; a file of ratings needs neither")
    if are_choices(question.paths[0], question.reading.columns if question.reading else None):
        return _compare_choices(question)
    sheet = read_people(question.paths[0], question.reading, exchanges=question.exchanges)
    comparison, left_out = compare_sheet(
        sheet, question.paths[0], baselines=question.baselines, models=question.models
    )
    return ComparedRatings(
        comparison=comparison,
        left_out=tuple(left_out),
        source=question.paths[0].name,
        notes=sheet.notes,
    )


def _compare_choices(question: Question) -> ComparedChoices:
    path, replies = question.paths[0], None
    if question.exchanges:
        replies = Replies(exchanges=read_responses(question.exchanges))
    sheet = people_first(read_choices(path, question.reading, replies=replies))
    choices = sheet.people or sheet.by_ai
    if wanted := {*question.models, *question.baselines} - {ALL}:
        choices = tuple(item for item in choices if set(item.models) <= wanted)
        if not choices:
            raise UserError(f"{path}: no choice between {listed(sorted(wanted))}")
    return ComparedChoices(
        pairs=compare_chosen(choices),
        chosen_by=PEOPLE if sheet.people else name_ais(sheet.ai_raters),
        source=path.name,
        notes=sheet.notes,
    )


def compare_runs(question: Question, *, today: date) -> ComparedRuns:
    """Compare judged models with each other, or with the baselines alone where there are any."""
    runs = read_runs(question.paths, question.labels)
    sheet = RatingSheet(people=())
    if question.ratings:
        runs = runs_to_rate(runs)
        judgments = [item for run in runs for item in run.judged.judgments]
        reading = replace(question.reading or SheetOptions(), dimension=runs[0].judged.dimension)
        sheet = read_people(question.ratings, reading, judgments=judgments, exchanges=question.exchanges)
    everyone = judged_models(runs, sheet.people)
    models, baselines = _choose(everyone, question)
    corrector = find_corrector(runs, question.calibration, weights=question.weights, today=today)
    settings = ComparisonSettings(margin=question.margin, design_effect=USUAL_DESIGN_EFFECT)
    if corrector.calibration is not None:
        settings = replace(
            settings,
            calibrated=tuple(corrector.calibration.calibrated_models.values()),
            design_effect=corrector.calibration.design_effect or USUAL_DESIGN_EFFECT,
        )
    settings = replace(settings, **_siblings(question, settings))
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
    judgments = [item for run in runs for item in run.judged.judgments]
    return ComparedRuns(
        judge=runs[0].judged,
        corrector=corrector,
        margin=question.margin,
        models=tuple(levels),
        letters=tie_letters([level.model for level in levels], told_apart),
        baselines=tuple(item for item in baselines if isinstance(item, Published)),
        pairs=with_texts(differences(pairs, settings) if baselines else all_pairs, question.sources),
        has_baseline=bool(baselines),
        never_met=tuple(
            name
            for name, model in models.items()
            if model.known_as not in calibrated and not len(model.rated.item)
        ),
        repeated=tuple(name for name, count in times.items() if count > 1 and name != UNNAMED_MODEL),
        first=next(iter(models)),
        likeness=settings.likeness,
        are_siblings=settings.are_siblings,
        flags=find_flags(judgments),
        outside=find_outside(judgments, runs[0].rated, corrector.covers),
        notes=sheet.notes,
    )


def _siblings(question: Question, settings: ComparisonSettings) -> dict[str, Any]:
    """How alike the judge errs on siblings: as stated, else as the calibration's siblings show it."""
    if isinstance(question.siblings, float):
        return {"likeness": stated(question.siblings), "are_siblings": True}
    measured = measure_likeness(settings.calibrated[-1]) if settings.calibrated else None
    if question.siblings and settings.calibrated is not None and measured is None:
        raise UserError(
            f"--siblings: the calibration has fewer than {LEAST_PAIRS} pairs of siblings, too few to measure"
            " how alike the judge errs on them; state it, from 0 (as on strangers) to 0.95: --siblings 0.8"
        )
    return {"likeness": measured, "are_siblings": question.siblings is not None}


def with_texts(pairs: Sequence[Difference], sources: Sequence[Source]) -> tuple[Difference, ...]:
    """The pairs, with both replies to each of the prompts on which they differ most, as far as at hand."""
    gaps = [gap for pair in pairs[:MOST_SHOWN] if pair.wins for gap in pair.wins.most]
    texts = find_texts(sources, {content for gap in gaps for content in gap.contents})
    if not texts:
        return tuple(pairs)
    told = []
    for pair in pairs:
        if pair.wins:
            most = tuple(_told(gap, texts) for gap in pair.wins.most)
            pair = replace(pair, wins=replace(pair.wins, most=most))
        told.append(pair)
    return tuple(told)


def _told(gap: PromptGap, texts: Mapping[str, Exchange]) -> PromptGap:
    one, other = map(texts.get, gap.contents)
    return replace(gap, exchanges=(one, other)) if one and other else gap


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
            f"one model only, {next(iter(models))!r}; give another run or file too, or --baseline study:human"
        )
    baselines: list[JudgedModel | Published] = [
        published(name) if is_published(name) else everyone[name]
        for name in dict.fromkeys(question.baselines)
    ]
    return models, baselines
