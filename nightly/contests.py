"""Judged runs as contenders: read, checked to be one judge's, joined with ratings and a calibration."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np

import judge
from calibration.artifact import read_calibration
from calibration.contenders import JudgedModel
from calibration.powered import Rated, one_hot
from data.errors import UserError
from data.records import LABELS, Judgment, Rating
from data.runs import read_summary
from nightly.calibrated import FILE, Found, fitting, take_named, why_not
from nightly.judged import Judged, read_judged

WEIGHTS = Path(judge.__file__).parent / "weights"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entered:
    """One run that takes part; `calibration` is the digest of the one its shares were corrected by."""

    folder: Path
    judged: Judged
    calibration: str | None


def enter_runs(folders: Sequence[Path]) -> list[Entered]:
    """The runs, refused unless one and the same judge made them all: two judges' shares do not compare."""
    found = []
    for folder in folders:
        (judged,) = read_judged(folder, scale=LABELS)
        digest = read_summary(folder).get("calibration")
        found.append(Entered(folder=folder, judged=judged, calibration=digest))
    known = {(item.judged.name, item.judged.version, item.judged.rubric): item for item in found}
    if len(known) > 1:
        one, other = list(known.values())[:2]
        raise UserError(
            f"{one.folder} and {other.folder}: judged by {_judge(one)} and by {_judge(other)}, whose"
            " shares do not compare; score both with one judge"
        )
    if len({item.folder.resolve() for item in found}) < len(found):
        raise UserError(f"{_twice([str(item.folder) for item in found])}: given twice; name each run once")
    return found


def _judge(item: Entered) -> str:
    return f"{item.judged.name} {item.judged.version}".strip()


def _twice(names: Sequence[str]) -> str:
    return Counter(names).most_common(1)[0][0]


def contenders(runs: Sequence[Entered], ratings: Sequence[Rating] = ()) -> dict[str, JudgedModel]:
    """Every model of every run; a name that stands in several runs is told with its run's."""
    times = Counter(name for run in runs for name in {item.model for item in run.judged.judgments})
    if ratings:
        _check_ids(runs)
    by_id: dict[str, list[Rating]] = {}
    for rating in ratings:
        if rating.dimension == "empathy":
            by_id.setdefault(rating.id, []).append(rating)
    found: dict[str, JudgedModel] = {}
    for run in runs:
        own: dict[str, list[Judgment]] = {}
        for judgment in run.judged.judgments:
            own.setdefault(judgment.model, []).append(judgment)
        for model, judgments in own.items():
            name = model if times[model] == 1 else f"{model} ({run.folder.name})"
            if name in found:
                raise UserError(f"{run.folder}: another run's folder has this name too, and {model!r} in it")
            found[name] = _contender(name, model, judgments, by_id)
    if ratings and not any(len(item.rated.item) for item in found.values()):
        raise UserError("--ratings: none belongs to a scored response; its ids must be those of the runs")
    return found


def _check_ids(runs: Sequence[Entered]) -> None:
    """Ratings know a response by its id alone, so one id must not stand for two responses."""
    seen: dict[str, tuple[str, Path]] = {}
    for run in runs:
        for item in run.judged.judgments:
            content, folder = seen.setdefault(item.id, (item.content, run.folder))
            if content != item.content:
                raise UserError(
                    f"--ratings: the id {item.id!r} is another response in {folder} than in {run.folder};"
                    " give every response an id of its own"
                )


def _contender(
    name: str, model: str, judgments: Sequence[Judgment], ratings: Mapping[str, Sequence[Rating]]
) -> JudgedModel:
    scored = [item for item in judgments if item.label is not None or item.probabilities is not None]
    place = {item.id: number for number, item in enumerate(scored)}
    given = [rating for item in scored for rating in ratings.get(item.id, ())]
    for rating in given:
        if rating.rating not in (1, 2, 3):
            raise UserError(
                f"--ratings: {rating.rating:g} of {rating.id!r}: expected 1 to 3, or Bad, Okay or Good"
            )
    rated = Rated(
        judged=np.array([_said(item) for item in scored]).reshape(-1, len(LABELS)),
        item=np.array([place[rating.id] for rating in given], dtype=np.intp),
        value=one_hot(np.array([rating.rating for rating in given]), len(LABELS)),
        cluster=np.array([rating.batch or rating.rater for rating in given]),
        prompt=np.array([item.prompt_digest for item in scored]),
    )
    return JudgedModel(name=name, rated=rated, unscored=len(judgments) - len(scored), model=model)


def _said(judgment: Judgment) -> list[float]:
    if judgment.probabilities is not None:
        return [judgment.probabilities[label] for label in LABELS]
    return [float(label == judgment.label) for label in LABELS]


def find_corrector(runs: Sequence[Entered], wanted: str | None, *, today: date) -> Found:
    """The calibration named, else the one the runs were scored with, where it lies with a run or a judge."""
    first = runs[0].judged
    about = {"judge": first.name, "version": first.version, "rubric": first.rubric}
    if wanted is not None:
        return take_named(wanted, about, today=today)
    digests = {run.calibration for run in runs}
    if digests == {None}:
        return Found(calibration=None, says="the runs were scored without a calibration")
    for path in (*(run.folder / FILE for run in runs), WEIGHTS / first.name / FILE):
        if path.is_file() and (calibration := read_calibration(path)).digest in digests:
            if reason := why_not(calibration, about, today=today):
                return Found(calibration=None, says=f"no calibration fits: {reason}")
            return fitting(calibration)
    digest = next(filter(None, digests))
    return Found(
        calibration=None,
        says=f"the runs were scored with the calibration {digest[:12]}, which is not at hand: --calibration",
    )
