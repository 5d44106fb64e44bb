"""`calibration.json`: the fitted calibration of one judge, the ratings behind it, and its expiry date."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol

import numpy as np

from empathy_judge.calibration.estimate import THESE_RATERS_ONLY, Estimate, Floats, Population
from empathy_judge.calibration.shares.transport import CalibratedModels
from empathy_judge.data.errors import StaleCalibration, UserError
from empathy_judge.data.files import digest_json, read_sealed, write_sealed
from empathy_judge.data.rated_range import RatedRange
from empathy_judge.data.records import LABELS, LEAST_PROBABILITY, Judgment, to_plain, with_probabilities
from empathy_judge.data.rubric import Rubric
from empathy_judge.data.tables import first_problem

CALIBRATION_FILE: Final = "calibration.json"
NONE: Final = "none"  # the name of no calibration
FORMAT: Final = 3
MAKE_ANEW: Final = "run `calibrate` again to create a new one"
NONE_CAME: Final = "this judge has no calibration; `calibrate` creates one"


class CalibratableJudge(Protocol):
    """The part of a judge that a calibration is bound to."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def rubric(self) -> Rubric: ...
    @property
    def folder(self) -> Path | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeIdentity:
    """Name and version of a judge, and the digest of its instructions."""

    name: str
    version: str
    rubric: str


def identify(judge: CalibratableJudge) -> JudgeIdentity:
    """Return the identity of a judge."""
    return JudgeIdentity(name=judge.name, version=judge.version, rubric=judge.rubric.digest)


@dataclass(frozen=True, slots=True, kw_only=True)
class RatedReplies:
    """The replies of a rated model, as a digest of all of them, and its corrected shares."""

    replies: str
    shares: Mapping[str, Mapping[str, float | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingMap:
    """A map of a judge's probabilities to ratings; the logit of each label is linear in `map_inputs`."""

    weights: tuple[tuple[float, ...], ...]  # (labels, inputs)
    constants: tuple[float, ...]

    def apply(self, inputs: Floats) -> Floats:
        """Return the mapped probabilities, (rows, labels)."""
        logits = inputs @ np.array(self.weights).T + np.array(self.constants)
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(odds / odds.sum(axis=1, keepdims=True))


def map_inputs(judgments: Sequence[Judgment]) -> Floats | None:
    """Return log P(Okay)/P(Bad), log P(Good)/P(Bad) and the log of the words; None where one is unknown."""
    rows = []
    for item in judgments:
        given, words = item.probabilities or {}, (item.features or {}).get("words")
        if {*given} != {*LABELS} or words is None:
            return None
        bad, *others = (max(given[label], LEAST_PROBABILITY) for label in LABELS)
        rows.append([*(other / bad for other in others), max(1, words)])
    return np.asarray(np.log(np.array(rows)))


@dataclass(frozen=True, kw_only=True)  # without slots, for the cached digest
class Calibration:
    """A fitted calibration of one judge; it expires `days` after it was `created`."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    judge: str
    version: str
    rubric: str  # its digest
    ratings: str  # the digest of the rating set
    created: date
    days: int
    count: int  # of the ratings
    calibrated_models: Mapping[str, CalibratedModels]  # by label, or under "mean"
    design_effect: float | None = None
    covers: RatedRange | None = None  # the rated replies, where they are known
    population: Population = "general"  # fewer than four raters do not represent people
    source: str = ""  # of data that are not a run and ratings
    rated: Mapping[str, RatedReplies] = field(default_factory=dict)  # for when the same are scored again
    rating_map: RatingMap | None = None  # applied to the judge's probabilities before anything else

    @cached_property
    def digest(self) -> str:
        """The digest of the file; runs refer to their calibration by it."""
        return digest_json(_content(self))

    @property
    def expires(self) -> date:
        """The first day on which it no longer holds."""
        return self.created + timedelta(days=self.days)

    def rated_shares(self, replies: str) -> Mapping[str, Estimate] | None:
        """Return the shares by ratings of the replies with this digest; None without ratings."""
        shares = next((rated.shares for rated in self.rated.values() if rated.replies == replies), {})
        return {label: Estimate.from_dict(share) for label, share in shares.items()} or None

    @property
    def models(self) -> tuple[str, ...]:
        """The rated models behind the last label, Good, or the mean."""
        return [*self.calibrated_models.values()][-1].models


def write_calibration(path: Path, calibration: Calibration) -> None:
    """Write a calibration; the file is complete or absent."""
    write_sealed(path, _content(calibration))


def read_calibration(path: Path) -> Calibration:
    """Read a calibration; refused when damaged, changed since it was written, or of another format."""
    from pydantic import TypeAdapter, ValidationError

    row = read_sealed(path, what="calibration", version=FORMAT, remedy=MAKE_ANEW)
    del row["format"]
    try:
        calibration: Calibration = TypeAdapter(Calibration).validate_python(row)
    except ValidationError as error:
        raise UserError(f"{path}: {': '.join(first_problem(error))}; {MAKE_ANEW}") from error
    if not calibration.calibrated_models:
        raise UserError(f"{path}: no calibrated models; {MAKE_ANEW}")
    return calibration


def read_saved(folder: Path) -> Calibration | None:
    """Read the calibration in a folder of a run or a judge, if there is one."""
    path = folder / CALIBRATION_FILE
    return read_calibration(path) if path.is_file() else None


def misfit(calibration: Calibration, judge: JudgeIdentity, *, today: date) -> str | None:
    """Return why a calibration must not be applied to this judge today; None where it may.

    It holds before it was made, too: one version of a judge does not change with the day.
    """
    if calibration.judge != judge.name:
        return f"it is for the judge {calibration.judge!r}, not {judge.name!r}"
    if calibration.version != judge.version:
        return f"it is for judge version {calibration.version!r}, not {judge.version!r}"
    if calibration.rubric != judge.rubric:
        return "it is for another rubric"
    if today >= calibration.expires:
        return f"it expired on {calibration.expires}"
    columns = tuple(calibration.calibrated_models)
    if columns != LABELS:
        return f"it is for the levels {', '.join(columns)}, not Bad, Okay and Good"
    return None


def map_judgments(calibration: Calibration | None, judgments: Iterable[Judgment]) -> Iterator[Judgment]:
    """Yield the judgments by the calibration's map; as they are without a map, or the inputs for it.

    Runs store the judge's own probabilities. Whatever applies a calibration to them maps them here first.
    """
    rating_map = calibration.rating_map if calibration else None
    for item in judgments:
        inputs = map_inputs([item]) if rating_map else None
        if rating_map and inputs is not None:
            item = with_probabilities(item, dict(zip(LABELS, rating_map.apply(inputs)[0], strict=True)))
        yield item


def _content(calibration: Calibration) -> dict[str, Any]:
    plain = to_plain(calibration)
    if calibration.rating_map is None:  # such files are as they were before there were maps
        del plain["rating_map"]
    return {"format": FORMAT, **plain}


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationChoice:
    """The calibration to apply, or None, and a `note` about it for the user."""

    calibration: Calibration | None
    note: str

    @property
    def digest(self) -> str | None:
        """The digest of the calibration, if there is one."""
        return self.calibration.digest if self.calibration else None

    @property
    def covers(self) -> RatedRange | None:
        """The description of the rated replies, where it is known."""
        return self.calibration.covers if self.calibration else None


def find_calibration(judge: CalibratableJudge, wanted: str | None, *, today: date) -> CalibrationChoice:
    """Find the calibration named, or the one beside the judge's weights, if it fits.

    A named calibration that does not fit is an error; without a name, one that does not fit is left out.
    """
    if wanted is not None:
        return take_named(wanted, identify(judge), today=today)
    if judge.folder is None or not (path := judge.folder / CALIBRATION_FILE).exists():
        return CalibrationChoice(calibration=None, note=NONE_CAME)
    try:
        return take_fitting(read_calibration(path), identify(judge), today=today)
    except UserError as error:
        return CalibrationChoice(calibration=None, note=f"the calibration was not applied: {error}")


def take_named(wanted: str, judge: JudgeIdentity, *, today: date) -> CalibrationChoice:
    """Read the calibration named by its file or folder, or by `none`; refused where it does not fit."""
    if wanted == NONE:
        note = "no calibration (--calibration none): the shares are the judge's own"
        return CalibrationChoice(calibration=None, note=note)
    path = Path(wanted) / CALIBRATION_FILE if Path(wanted).is_dir() else Path(wanted)
    calibration = read_calibration(path)
    if reason := misfit(calibration, judge, today=today):
        raise StaleCalibration(f"{path}: does not apply: {reason}; {MAKE_ANEW}")
    return take_fitting(calibration, judge, today=today)


def take_fitting(calibration: Calibration, judge: JudgeIdentity, *, today: date) -> CalibrationChoice:
    """Choose the calibration if it fits the judge."""
    if reason := misfit(calibration, judge, today=today):
        return CalibrationChoice(calibration=None, note=f"the calibration was not applied: {reason}")
    note = (
        f"calibration {calibration.digest[:12]} applies ({calibration.count:,} ratings,"
        f" {len(calibration.models)} models; expires {calibration.expires})"
    )
    if calibration.rating_map is not None:
        note += "; probabilities are mapped to its ratings"
    # A day of grace: it may have been made in an eastern time zone, or before a clock was put back.
    if today < calibration.created - timedelta(days=1):
        note += f"; it was made on {calibration.created}, after {today}, and is used for that date too"
    if calibration.population != "general":
        note += f"; {THESE_RATERS_ONLY}"
    return CalibrationChoice(calibration=calibration, note=note)
