"""Models compared: by a judge's runs or by people's ratings; the result as plain values and as a page.

Of runs, the result is a dict:

    kind          "runs"
    judge         name, version, rubric
    calibration   digest, created, expires, models; null without one
    says          what is told about the calibration
    margin        the least difference of shares of Good worth telling
    models        as `calibration.contenders.Level.as_dict`, with letters; the largest share of Good first
    baselines     published models: model, shares, ratings, design_effect
    pairs         as `calibration.differences.Difference.as_dict`, with a sentence each
    tests         how many differences Holm's adjustment counted
    never_met     models that no rating of the calibration was about
    repeated      models that stand in more than one run
    notes         what one must know to read it

Of ratings, `kind` is "ratings", `left_out` names the models that were not compared, and the rest is
`calibration.compared.Comparison.as_dict`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from calibration.artifact import Found
from calibration.comparison.differences import ALPHA, differences
from calibration.comparison.judged_models import (
    Ground,
    JudgedModel,
    Level,
    Published,
    contenders,
    enter_runs,
    find_corrector,
    in_order,
    level_of,
)
from calibration.comparison.published_models import is_published, published
from calibration.comparison.ratings import ALL, compare_file
from calibration.multiple_testing import tie_letters
from data.errors import UserError
from data.judgments import find_flags, say_flags
from data.tables import read_ratings
from reports.comparison import contest_page, notes_of, say_pair
from reports.page import Page
from reports.study_tables import crowd_page


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What to compare: runs or one file of ratings, with what, and how."""

    paths: tuple[Path, ...]
    baselines: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    ratings: Path | None = None
    exchanges: Path | None = None
    calibration: str | None = None
    margin: float = Ground().margin


def compare(question: Question, *, today: date) -> tuple[dict[str, Any], Page]:
    """The result, and the page that shows it."""
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
    result = {"kind": "ratings", "left_out": list(left_out), **comparison.as_dict()}
    return result, crowd_page(comparison, left_out=left_out, source=question.paths[0].name)


def compare_runs(question: Question, *, today: date) -> tuple[dict[str, Any], Page]:
    """Judged models against each other, or against the baselines alone where there are any."""
    runs = enter_runs(question.paths)
    ratings = list(read_ratings(question.ratings)) if question.ratings else []
    everyone = contenders(runs, ratings)
    models, baselines = _choose(everyone, question)
    corrector = find_corrector(runs, question.calibration, today=today)
    ground = _ground(corrector, question.margin)
    levels = in_order([level_of(model, ground) for model in models.values()])
    every = _all_pairs(levels, models)
    pairs = [
        (models[level.model], baseline)
        for baseline in baselines
        for level in levels
        if level.model != baseline.name
    ]
    told_apart = differences(every, ground, is_planning=not baselines)
    found = differences(pairs, ground) if baselines else told_apart
    apart = [frozenset((item.one, item.other)) for item in told_apart if item.p_holm < ALPHA]
    letters = tie_letters([level.model for level in levels], apart)
    studies = [item for item in baselines if isinstance(item, Published)]
    result = _result(runs[0].judged, corrector, question.margin)
    result |= {
        "models": [{**level.as_dict(), "letters": letters[level.model]} for level in levels],
        "baselines": [_study_row(item) for item in studies],
        "pairs": [{**item.as_dict(), "sentence": say_pair(item, question.margin)} for item in found],
        "tests": sum(1 for item in found if item.p == item.p),
        "never_met": _never_met(models, corrector),
        "repeated": _repeated(models),
    }
    result |= find_flags(item for run in runs for item in run.judged.judgments)
    result["notes"] = [*notes_of(result), *(f"{line}." for line in say_flags(result.get("flagged")))]
    return result, contest_page(result)


def _choose(
    everyone: dict[str, JudgedModel], question: Question
) -> tuple[dict[str, JudgedModel], list[JudgedModel | Published]]:
    """The models asked for, and the baselines; a baseline of the runs is always among the models."""
    own = [name for name in question.baselines if not is_published(name)]
    for name in (*own, *question.models):
        if name not in everyone and name != ALL:
            raise UserError(f"no model {name!r} in these runs; known: {', '.join(everyone)}")
    wanted = {*question.models, *own} if question.models and ALL not in question.models else set(everyone)
    models = {name: model for name, model in everyone.items() if name in wanted}
    if len(models) + len(question.baselines) - len(own) < 2:
        raise UserError(
            f"one model only, {next(iter(models))!r}; give another run, or a baseline such as study:human"
        )
    baselines: list[JudgedModel | Published] = [
        published(name) if is_published(name) else everyone[name]
        for name in dict.fromkeys(question.baselines)
    ]
    return models, baselines


def _ground(corrector: Found, margin: float) -> Ground:
    if corrector.calibration is None:
        return Ground(margin=margin)
    return Ground(
        between=corrector.calibration.betweens(),
        design_effect=corrector.calibration.design_effect or 1.0,
        margin=margin,
    )


def _all_pairs(
    levels: Sequence[Level], models: dict[str, JudgedModel]
) -> list[tuple[JudgedModel, JudgedModel | Published]]:
    """Each two models once, the one with the larger share of Good first."""
    names = [level.model for level in levels]
    return [(models[one], models[other]) for at, one in enumerate(names) for other in names[at + 1 :]]


def _result(judged: Any, corrector: Found, margin: float) -> dict[str, Any]:
    known = corrector.calibration
    return {
        "kind": "runs",
        "judge": {"name": judged.name, "version": judged.version, "rubric": judged.rubric},
        "calibration": {
            "digest": known.digest,
            "created": known.created.isoformat(),
            "expires": known.expires.isoformat(),
            "models": list(known.betweens()[-1].models),
        }
        if known
        else None,
        "says": corrector.says,
        "margin": margin,
    }


def _study_row(item: Published) -> dict[str, Any]:
    return {
        "model": item.name,
        "shares": {label: share.as_dict() for label, share in item.shares.items()},
        "ratings": item.ratings,
        "design_effect": item.design_effect,
    }


def _repeated(models: Mapping[str, JudgedModel]) -> list[str]:
    """Models that more than one run has."""
    times = Counter(model.known_as for model in models.values())
    return [name for name, count in times.items() if count > 1]


def _never_met(models: Mapping[str, JudgedModel], corrector: Found) -> list[str]:
    """Those the calibration's ratings were not about and that have none of their own."""
    known = corrector.calibration.betweens()[-1].models if corrector.calibration else ()
    return [
        name for name, model in models.items() if model.known_as not in known and not len(model.rated.item)
    ]
