"""`calibration.json`: what was fitted, for which judge, on which ratings, and until when it holds."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import date, timedelta
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Protocol

from calibration.pairing import OF_THESE_RATERS, SpeaksFor
from calibration.probabilities.conformal import Thresholds, thresholds_from_dict
from calibration.probabilities.maps import LabelMap, map_from_dict
from calibration.shares.transport import CalibratedModels
from data.coverage import Coverage
from data.errors import StaleCalibration, UserError
from data.files import disk_errors, replacing
from data.records import LABELS, to_plain
from data.rubric import Rubric
from data.tables import first_problem

CALIBRATION_FILE: Final = "calibration.json"
NONE: Final = "none"  # the name of no calibration
FORMAT: Final = 1
MAX_BYTES: Final = 64 << 20
MAKE_ANEW: Final = "make it anew with `calibrate`"
NONE_CAME: Final = "no calibration came with this judge; `calibrate` makes one"


class Judge(Protocol):
    """What a calibration must know of a judge."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def rubric(self) -> Rubric: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeIdentity:
    """What a calibration is bound to; `rubric` is the digest of the judge's instructions."""

    name: str
    version: str
    rubric: str


def identify(judge: Judge) -> JudgeIdentity:
    """Take the identity of a judge that is at hand."""
    return JudgeIdentity(name=judge.name, version=judge.version, rubric=judge.rubric.digest)


@dataclass(frozen=True, kw_only=True)  # without slots: what follows from its values is made once and kept
class Calibration:
    """A fitted calibration; plain values throughout, so that it is the same after being written and read.

    It holds for one `judge` and `version`, the language model behind it (`model_id`, empty if none), `rubric`
    (the digest of prompt or rubric) and `decoding`; `ratings` is the digest of the rating set. `mapping` and
    `conformal` are as their modules wrote them. `between` has a row for each label, or for the mean: the
    calibrated models as `CalibratedModels` has them; `lines` what `fit_line` found of each, `ranges` from
    where to where a new model's judged mean may lie. `covers` tells what the rated replies were like, where
    that is known. `days` after `created` it has expired.
    """

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012

    judge: str
    version: str
    rubric: str
    ratings: str
    created: date
    days: int
    count: int
    model_id: str = ""
    decoding: Mapping[str, Any] = field(default_factory=dict)
    design_effect: float | None = None
    mapping: Mapping[str, Any] = field(default_factory=dict)
    conformal: Mapping[str, Any] = field(default_factory=dict)
    between: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    lines: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)
    covers: Coverage | None = None
    speaks_for: SpeaksFor = "people"  # fewer than four raters speak for themselves only

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of all of it as canonical JSON; runs name the calibration they used by this."""
        return sha256(_canonical(_as_row(self)).encode()).hexdigest()

    @cached_property
    def label_map(self) -> LabelMap:
        """The map from the judge's probabilities or scores to a crowd's."""
        return map_from_dict(self.mapping)

    @cached_property
    def thresholds(self) -> Thresholds:
        """What makes sets of labels from mapped probabilities."""
        return thresholds_from_dict(self.conformal)

    @property
    def expires(self) -> date:
        """The first day on which it no longer holds."""
        return self.created + timedelta(days=self.days)

    def betweens(self) -> tuple[CalibratedModels, ...]:
        """The calibrated models, column by column, for `calibration.correction`."""
        return tuple(CalibratedModels.from_dict(dict(row)) for row in self.between.values())


def write_calibration(path: Path, calibration: Calibration) -> None:
    """Write it whole or not at all; a value that JSON has no word for (nan) is refused."""
    row = {"format": FORMAT, "digest": calibration.digest, **_as_row(calibration)}
    text = json.dumps(row, ensure_ascii=False, allow_nan=False, indent=1)
    with disk_errors(path), replacing(path) as partial:
        partial.write_text(f"{text}\n", encoding="utf-8")


def read_calibration(path: Path) -> Calibration:
    """Read what `write_calibration` wrote; refused when damaged, changed since, or of another format."""
    from pydantic import TypeAdapter, ValidationError

    with disk_errors(path):
        if not path.is_file():
            raise UserError(f"{path}: no calibration here; make one with `calibrate`")
        if path.stat().st_size > MAX_BYTES:
            raise UserError(f"{path}: too large for a calibration; {MAKE_ANEW}")
        raw = path.read_bytes()
    try:
        row = json.loads(raw.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: damaged, not JSON ({error}); {MAKE_ANEW}") from error
    if not isinstance(row, dict) or "format" not in row or "digest" not in row:
        raise UserError(f"{path}: not a calibration; name a calibration.json")
    if (version := row.pop("format")) != FORMAT:
        raise UserError(f"{path}: format {version!r}, and this version reads {FORMAT}; {MAKE_ANEW}")
    digest = row.pop("digest")
    try:
        actual = sha256(_canonical(row).encode()).hexdigest()
    except (ValueError, RecursionError):  # what we never write: a lone surrogate, or 1e999
        actual = ""
    if actual != digest:
        raise UserError(f"{path}: damaged or changed since it was written (digest differs); {MAKE_ANEW}")
    try:
        calibration = TypeAdapter(Calibration).validate_python(row)
    except ValidationError as error:
        raise UserError(f"{path}: {': '.join(first_problem(error))}; {MAKE_ANEW}") from error
    try:
        calibration.betweens()
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise UserError(f"{path}: between: {error!r}; {MAKE_ANEW}") from error
    return calibration


def own_version(version: str) -> str:
    """A judge's version without what it runs on, which follows a plus: its calibration is the same there."""
    return version.partition("+")[0]


def misfit(calibration: Calibration, judge: JudgeIdentity, *, today: date) -> str | None:
    """Say why a calibration must not be applied to this judge today; None where it may.

    It holds before it was made, too: what it tells of one version of a judge does not depend on the day.
    """
    if calibration.judge != judge.name:
        return f"another judge: it is for {calibration.judge!r}, not {judge.name!r}"
    if own_version(calibration.version) != own_version(judge.version):
        return f"another judge version: it is for {calibration.version!r}, not {judge.version!r}"
    if calibration.rubric != judge.rubric:
        return "another rubric: the judge was calibrated with other instructions"
    if today >= calibration.expires:
        return f"expired on {calibration.expires}"
    if tuple(calibration.between) != LABELS:
        return (
            f"it is for a level of {', '.join(calibration.between) or 'nothing'}, not of Bad, Okay and Good"
        )
    return None


def _as_row(calibration: Calibration) -> dict[str, Any]:
    row = {item.name: getattr(calibration, item.name) for item in fields(calibration)}
    row["created"] = calibration.created.isoformat()
    row["covers"] = to_plain(calibration.covers)
    if row["covers"] is None:
        del row["covers"]  # so that a calibration older than this keeps its digest
    if row["speaks_for"] == "people":
        del row["speaks_for"]  # likewise
    # Through JSON once, so that tuples are lists and the digest is that of what will be read.
    # In its own order: that of the labels is the order of the columns.
    plain: dict[str, Any] = json.loads(json.dumps(row, ensure_ascii=False, allow_nan=False, default=dict))
    return plain


def _canonical(row: Mapping[str, Any]) -> str:
    return json.dumps(
        row, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"), default=dict
    )


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The calibration to apply, or None; `says` is what the person is told about it."""

    calibration: Calibration | None
    says: str

    @property
    def digest(self) -> str | None:
        """What a run is known by."""
        return self.calibration.digest if self.calibration else None

    @property
    def covers(self) -> Coverage | None:
        """What the rated replies were like, where that is known."""
        return self.calibration.covers if self.calibration else None


def find_calibration(judge: Judge, wanted: str | None, *, today: date) -> Found:
    """Find the calibration named, or the one that lies beside the judge's weights, if it fits.

    One that was asked for by name and does not fit is an error; that none is shipped, or none fits, is not.
    """
    identity = identify(judge)
    if wanted is not None:
        return take_named(wanted, identity, today=today)
    folder = getattr(judge, "folder", None)
    if folder is None or not (Path(folder) / CALIBRATION_FILE).exists():
        return Found(calibration=None, says=NONE_CAME)
    try:
        return take_fitting(read_calibration(Path(folder) / CALIBRATION_FILE), identity, today=today)
    except UserError as error:
        return Found(calibration=None, says=f"no calibration fits: {error}")


def take_named(wanted: str, judge: JudgeIdentity, *, today: date) -> Found:
    """Read the calibration asked for by its file or folder, or by `none`; refused where it does not fit."""
    if wanted == NONE:
        return Found(calibration=None, says="no calibration, as asked: the shares are the judge's own")
    path = Path(wanted) / CALIBRATION_FILE if Path(wanted).is_dir() else Path(wanted)
    calibration = read_calibration(path)
    if reason := misfit(calibration, judge, today=today):
        raise StaleCalibration(f"{path}: does not fit: {reason}; {MAKE_ANEW}")
    return take_fitting(calibration, judge, today=today)


def take_fitting(calibration: Calibration, judge: JudgeIdentity, *, today: date) -> Found:
    """Take the calibration if it fits the judge; either way with what is said of it."""
    if reason := misfit(calibration, judge, today=today):
        return Found(calibration=None, says=f"no calibration fits: {reason}")
    _ = calibration.label_map, calibration.thresholds  # refused here, and not at the first judgment
    models = len(calibration.betweens()[-1].models)
    # A day of grace: it may have been made east of here, or before a clock was put back over midnight.
    is_later = today < calibration.created - timedelta(days=1)
    note = f"; it was made on {calibration.created}, after {today}, and is taken to hold for then too"
    return Found(
        calibration=calibration,
        says=(
            f"calibration {calibration.digest[:12]} fits: {calibration.count:,} ratings, a line through "
            f"{models} models, until {calibration.expires}{note if is_later else ''}"
            + ("" if calibration.speaks_for == "people" else f"; {OF_THESE_RATERS}")
        ),
    )
