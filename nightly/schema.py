"""The tables of the history, and the records of a night that it keeps and gives back."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal

from sqlalchemy import (
    JSON,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.dialects import postgresql

Kind = Literal["good_share_drop", "bad_share_rise", "floor", "max_cost", "max_unscored"]
Outcome = Literal["pass", "skipped", "inconclusive", "stale", "failed", "regression"]
FINE: Final[tuple[Outcome, ...]] = ("pass", "skipped")


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """A night by its name, usually a date, and the digest of the config it ran under; times are ISO texts.

    `status` is what the gates came to.
    """

    config: str
    night: str
    started: str
    finished: str
    judge: str
    judge_version: str
    calibration: str | None = None
    status: Outcome
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        """What it is known by in the history."""
        return self.config, self.night


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareResult:
    """One label's share with its interval, and `how` they were come by; None where undefined."""

    share: float | None
    low: float | None = None
    high: float | None = None
    how: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelResult:
    """A model's night: what was judged, and its shares by label, as judged and as corrected.

    `served` is the model's id as the server gave it, `responses` the digest of what was judged, and
    `unscored` counts by reason, prompts that got no response among them.
    """

    model: str
    served: str | None = None
    responses: str | None = None
    n: int
    unscored: Mapping[str, int] = field(default_factory=dict)
    raw: Mapping[str, ShareResult] = field(default_factory=dict)
    corrected: Mapping[str, ShareResult] = field(default_factory=dict)
    cost: float | None = None
    seconds: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def unscored_share(self) -> float | None:
        """The part of all that was to be judged that got no judgment."""
        missing = sum(self.unscored.values())
        return missing / (self.n + missing) if self.n + missing else None


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
    """What the night's judge said of one item of the anchor set, which is known by its digest."""

    anchors: str
    item: str
    score: float | None
    bad: float | None = None
    okay: float | None = None
    good: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """What one gate said of one model, or of the whole night where `model` is empty.

    `subject` is what a change is held against, or a floor's emotion. `value`, `low` and `high` are in the
    gate's unit, and larger is worse except for a floor; None is undefined. So many more `nights` like this
    one would tell with a power of 80 %; None where none is sure to. `emotions` are those a regression comes
    from.
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
    nights: int | None = None
    emotions: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The gate as in the configuration, with its subject."""
        return name_gate(self.gate, self.subject)


def name_gate(kind: Kind, subject: str = "") -> str:
    """A gate as in the configuration, with its subject.

    >>> name_gate("good_share_drop", "last night"), name_gate("floor", "sad"), name_gate("max_cost")
    ('good_share_drop against last night', 'floor sad', 'max_cost')
    """
    if kind in ("good_share_drop", "bad_share_rise"):
        return f"{kind} against {subject}" if subject else kind
    return f"{kind} {subject}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedResponse:
    """A response with its judgment, for looking into; `highlights` are plain values for the page to show."""

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
    """A night with all its results; of older nights the judgments are no longer kept."""

    models: tuple[ModelResult, ...] = ()
    emotions: tuple[EmotionResult, ...] = ()
    anchors: tuple[AnchorResult, ...] = ()
    gates: tuple[GateResult, ...] = ()
    judgments: tuple[JudgedResponse, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelNight:
    """One point of a model's series."""

    night: Night
    result: ModelResult


VERSION: Final = 3  # raise when a table changes: a history of other tables is refused, not read wrongly
PREFIX: Final = "empathy_"  # a PostgreSQL database may be shared with others
METADATA: Final = MetaData()
# Sorted as SQLite sorts, whatever language the server speaks.
TEXT: Final = Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")
REQUIRED: Final = (str, int, Kind, Outcome)  # a number may always be undefined
COLUMN_TYPES: Final[Mapping[Any, Any]] = {
    **dict.fromkeys((str, str | None, Kind, Outcome), TEXT),
    **dict.fromkeys((int, int | None), Integer()),
    **dict.fromkeys((float, float | None), Double()),
}


def _columns(record: type, *keys: str) -> list[Column[Any]]:
    """A column for each field but shares, which have a table; what is neither text nor number is JSON."""
    return [
        Column(
            item.name,
            COLUMN_TYPES.get(item.type, JSON(none_as_null=True)),
            primary_key=item.name in keys,
            nullable=item.type not in REQUIRED,
        )
        for item in fields(record)
        if item.type != Mapping[str, ShareResult]
    ]


def _table(name: str, *columns: Any) -> Table:
    """A table whose rows belong to a night, and go with it."""
    night = ForeignKey(f"{PREFIX}nights.id", ondelete="CASCADE")
    key = Column("night_id", Integer, night, primary_key=True, autoincrement=False)
    return Table(PREFIX + name, METADATA, key, *columns)


SCHEMA: Final = Table(f"{PREFIX}schema", METADATA, Column("version", Integer, nullable=False))
NIGHTS: Final = Table(
    f"{PREFIX}nights",
    METADATA,
    Column("id", Integer, primary_key=True),
    *_columns(Night),
    UniqueConstraint("config", "night"),
)
MODELS: Final = _table(
    "models", *_columns(ModelResult, "model"), Index(f"{PREFIX}models_by_model", "model", "night_id")
)
SHARES: Final = _table(
    "shares",
    *(Column(name, TEXT, primary_key=True, nullable=False) for name in ("model", "kind", "label")),
    *_columns(ShareResult),
)
EMOTIONS: Final = _table("emotions", *_columns(EmotionResult, "model", "emotion"))
ANCHORS: Final = _table("anchors", *_columns(AnchorResult, "anchors", "item"))
GATES: Final = _table("gates", *_columns(GateResult, "gate", "model", "subject"))
JUDGMENTS: Final = _table("judgments", *_columns(JudgedResponse, "model", "id"))
