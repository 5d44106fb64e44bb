"""The records of a night, and the tables of the history that stores them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal

import sqlalchemy as sql
from sqlalchemy.dialects import postgresql

from empathy_judge.calibration.estimate import UNDEFINED, Estimate
from empathy_judge.calibration.prompt_fit import UNRESPONSIVE, PromptFit
from empathy_judge.data.records import REPLY

Kind = Literal["max_drop", "good_share_drop", "bad_share_rise", "max_cost", "max_unscored"]
Outcome = Literal["pass", "skipped", "inconclusive", "not calibrated", "stale", "failed", "regression"]
Against = Literal["baseline", "last night"]
Label = Literal["good", "bad"]
FINE: Final[tuple[Outcome, ...]] = ("pass", "skipped")
Shares = Mapping[str, Estimate]


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """A night by its name, usually a date, and the name of its config.

    `status` is the gravest outcome of its gates, `settings` the digest of the config. `stale` is why the
    calibration cannot be used and `judge_moved` how the judge moved, if so. `failed` are reasons by model,
    `study` sentences that compare models with those of the crowd study.
    """

    config: str
    night: str
    started: str
    finished: str
    judge: str
    judge_version: str
    calibration: str | None = None
    status: Outcome
    settings: str = ""
    unit: str = REPLY
    calibration_note: str = ""
    rubric_note: str | None = None
    judge_note: str | None = None
    stale: str | None = None
    judge_moved: str | None = None
    anchors_cost: float | None = None
    failed: Mapping[str, str] = field(default_factory=dict)
    study: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        """The key of the night in the history."""
        return self.config, self.night

    @property
    def order(self) -> tuple[str, str]:
        """When it was measured: its place among the nights."""
        return self.started, self.night

    @property
    def judge_key(self) -> tuple[str, str]:
        """The judge's name and version."""
        return self.judge, self.judge_version


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelResult:
    """A model's night: the counts, and its shares by label, raw and corrected.

    `served` is the model's id as the server gave it, `responses` the digest of the judged file, and
    `unscored` counts by reason, prompts without a response included. `refused` is why shares are not
    corrected; `notes` are sentences on how to read them. `fit` is how far the responses respond to their
    prompts; a model whose responses do not has no shares.
    """

    model: str
    served: str | None = None
    responses: str | None = None
    n: int
    unscored: Mapping[str, int] = field(default_factory=dict)
    raw: Shares = field(default_factory=dict)
    corrected: Shares = field(default_factory=dict)
    cost: float | None = None
    seconds: float | None = None
    refused: str | None = None
    notes: tuple[str, ...] = ()
    fit: PromptFit | None = None

    @property
    def is_unresponsive(self) -> bool:
        """Whether its responses do not respond to their prompts; `refused` has the reason."""
        return self.fit is not None and self.fit.state == UNRESPONSIVE

    @property
    def shares(self) -> Shares:
        """The shares to show: corrected where they can be."""
        return self.corrected or self.raw

    @property
    def missing(self) -> int:
        """The number of responses without a judgment."""
        return sum(self.unscored.values())

    @property
    def unscored_share(self) -> float | None:
        """The part of all responses that has no judgment."""
        return self.missing / (self.n + self.missing) if self.n + self.missing else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeResult:
    """A model's change since its baseline or its last night, on the same prompts.

    `total` is the change of the Good share, split by the anchors into the `judge`'s and the model's `own`
    part, and `bad` that of the Bad share. `night_sums` are the `NightSums` of the night by label. The
    `nights_used` have a night-to-night standard deviation of `spread` beyond decoding, which widens intervals
    by `widening`.
    """

    model: str
    against: Against
    nights: tuple[str, ...]
    prompts: int
    total: Estimate
    judge: Estimate = UNDEFINED
    own: Estimate = UNDEFINED
    bad: Estimate = UNDEFINED
    verdict: str = ""
    sentence: str = ""
    judge_moved: bool = False
    night_sums: Mapping[Label, Sequence[float]] = field(default_factory=dict)
    nights_used: int = 0
    spread: float = 0.0
    widening: float = 1.0
    is_overdispersed: bool = False

    @property
    def shown(self) -> Estimate:
        """The change to show: without the judge's part where the judge moved."""
        return self.own if self.judge_moved else self.total


@dataclass(frozen=True, slots=True, kw_only=True)
class EmotionResult:
    """A model's night under one emotion: how many were judged, and the sums of each label's probability."""

    model: str
    emotion: str
    n: int
    bad: float
    okay: float
    good: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorResult:
    """The judgment of one item of the anchor set, which is known by its digest."""

    anchors: str
    item: str
    score: float | None
    bad: float | None = None
    okay: float | None = None
    good: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """The outcome of one gate for one model, or for the whole night where `model` is empty.

    `subject` is the night that a change is compared with. `value`, `low` and `high` are in the gate's unit;
    larger is worse. `emotions` are those a regression comes from.
    """

    gate: Kind
    model: str = ""
    subject: str = ""
    outcome: Outcome
    value: float | None = None
    limit: float | None = None
    sentence: str = ""
    low: float | None = None
    high: float | None = None
    emotions: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The gate as in the configuration, with its subject."""
        return f"{self.gate} against {self.subject}" if self.subject else self.gate


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedResponse:
    """A response with its judgment; `highlights` are [text, effect, ...] lists for the page."""

    model: str
    id: str
    prompt: str
    response: str
    emotion: str | None = None
    situation: str | None = None
    label: str | None = None
    score: float | None = None
    bad: float | None = None
    okay: float | None = None
    good: float | None = None
    rationale: str | None = None
    unscored: str | None = None
    highlights: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NightRecord(Night):
    """A night with all its results; the judgments of older nights are deleted."""

    models: tuple[ModelResult, ...] = ()
    changes: tuple[ChangeResult, ...] = ()
    emotions: tuple[EmotionResult, ...] = ()
    anchors: tuple[AnchorResult, ...] = ()
    gates: tuple[GateResult, ...] = ()
    judgments: tuple[JudgedResponse, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelNight:
    """One point of a model's series; `change` is that since its baseline."""

    night: Night
    result: ModelResult
    change: ChangeResult | None = None


VERSION: Final = 6  # raise when a table changes: a history of other tables is refused
PREFIX: Final = "empathy_"  # a PostgreSQL database may be shared with others
METADATA: Final = sql.MetaData()
# Sorted as SQLite sorts, whatever the server's locale.
TEXT: Final = sql.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")
REQUIRED: Final = (str, int, Kind, Outcome, Against)  # a number may always be undefined
COLUMN_TYPES: Final[Mapping[Any, Any]] = {
    **dict.fromkeys((str, str | None, Kind, Outcome, Against), TEXT),
    **dict.fromkeys((int, int | None), sql.Integer()),
    **dict.fromkeys((float, float | None), sql.Double()),
}


def _columns(record: type, *keys: str) -> list[sql.Column[Any]]:
    """Return a column for each field; what is neither text nor number is JSON."""
    return [
        sql.Column(
            item.name,
            COLUMN_TYPES.get(item.type, sql.JSON(none_as_null=True)),
            primary_key=item.name in keys,
            nullable=item.type not in REQUIRED,
        )
        for item in fields(record)
    ]


def _table(name: str, record: type, *keys: str) -> tuple[sql.Table, type]:
    """Return a table whose rows belong to a night and are deleted with it, and its record."""
    night = sql.ForeignKey(f"{PREFIX}nights.id", ondelete="CASCADE")
    key = sql.Column("night_id", sql.Integer, night, primary_key=True, autoincrement=False)
    return sql.Table(PREFIX + name, METADATA, key, *_columns(record, *keys)), record


SCHEMA: Final = sql.Table(f"{PREFIX}schema", METADATA, sql.Column("version", sql.Integer, nullable=False))
NIGHTS: Final = sql.Table(
    f"{PREFIX}nights",
    METADATA,
    sql.Column("id", sql.Integer, primary_key=True),
    *_columns(Night),
    sql.UniqueConstraint("config", "night"),
)
# By the name of the field of `NightRecord`; they are exported under the same names.
TABLES: Final[Mapping[str, tuple[sql.Table, type]]] = {
    "models": _table("models", ModelResult, "model"),
    "changes": _table("changes", ChangeResult, "model", "against"),
    "emotions": _table("emotions", EmotionResult, "model", "emotion"),
    "anchors": _table("anchors", AnchorResult, "anchors", "item"),
    "gates": _table("gates", GateResult, "gate", "model", "subject"),
    "judgments": _table("judgments", JudgedResponse, "model", "id"),
}
sql.Index(f"{PREFIX}models_by_model", TABLES["models"][0].c.model, TABLES["models"][0].c.night_id)
