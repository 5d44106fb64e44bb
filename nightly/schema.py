"""The tables of the history, and the steps by which an older history becomes a current one.

Steps only go forward and are never changed once released: what they make must equal the tables below, which
a test holds. By hand, since Alembic would bring a folder of scripts and a template engine for a short list.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import (
    JSON,
    Column,
    Connection,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    inspect,
    select,
)

PREFIX: Final = "empathy_"  # a PostgreSQL database may be shared with others
METADATA: Final = MetaData()


def _text(name: str, *, key: bool = False) -> Column[str]:
    return Column(name, Text, primary_key=key, nullable=False)


def _number(name: str) -> Column[float]:
    return Column(name, Double)


def _night() -> Column[int]:
    owner = ForeignKey(f"{PREFIX}nights.id", ondelete="CASCADE")
    return Column("night_id", Integer, owner, primary_key=True, autoincrement=False)


SCHEMA: Final = Table(f"{PREFIX}schema", METADATA, Column("version", Integer, nullable=False))
NIGHTS: Final = Table(
    f"{PREFIX}nights",
    METADATA,
    Column("id", Integer, primary_key=True),
    *(_text(name) for name in ("config", "night", "started", "finished", "judge", "judge_version")),
    Column("calibration", Text),
    _text("status"),
    Column("details", JSON(none_as_null=True)),
    UniqueConstraint("config", "night"),
)
MODELS: Final = Table(
    f"{PREFIX}models",
    METADATA,
    _night(),
    _text("model", key=True),
    Column("served", Text),
    Column("responses", Text),
    Column("n", Integer, nullable=False),
    Column("unscored", JSON(none_as_null=True)),
    _number("cost"),
    _number("seconds"),
    Column("details", JSON(none_as_null=True)),
    Index(f"{PREFIX}models_by_model", "model", "night_id"),
)
SHARES: Final = Table(
    f"{PREFIX}shares",
    METADATA,
    _night(),
    *(_text(name, key=True) for name in ("model", "kind", "label")),
    *(_number(name) for name in ("share", "low", "high")),
    _text("how"),
)
EMOTIONS: Final = Table(
    f"{PREFIX}emotions",
    METADATA,
    _night(),
    *(_text(name, key=True) for name in ("model", "emotion")),
    Column("n", Integer, nullable=False),
    *(_number(name) for name in ("bad", "okay", "good")),
)
ANCHORS: Final = Table(
    f"{PREFIX}anchors",
    METADATA,
    _night(),
    *(_text(name, key=True) for name in ("anchors", "item")),
    *(_number(name) for name in ("score", "bad", "okay", "good")),
)
GATES: Final = Table(
    f"{PREFIX}gates",
    METADATA,
    _night(),
    *(_text(name, key=True) for name in ("gate", "model", "subject")),
    _text("outcome"),
    *(_number(name) for name in ("value", "limit")),
    _text("sentence"),
)
JUDGMENTS: Final = Table(
    f"{PREFIX}judgments",
    METADATA,
    _night(),
    *(_text(name, key=True) for name in ("model", "id")),
    *(_text(name) for name in ("prompt", "response")),
    *(Column(name, Text) for name in ("emotion", "situation", "label")),
    *(_number(name) for name in ("score", "bad", "okay", "good")),
    *(Column(name, Text) for name in ("rationale", "unscored")),
    Column("highlights", JSON(none_as_null=True)),
)

_OWNED: Final = "night_id INTEGER NOT NULL REFERENCES empathy_nights (id) ON DELETE CASCADE"
_LABELS: Final = "bad DOUBLE PRECISION, okay DOUBLE PRECISION, good DOUBLE PRECISION"
# One entry a version, in the SQL that SQLite and PostgreSQL share; `_DIALECTS` says where they differ.
STEPS: Final = (
    (
        "CREATE TABLE empathy_nights (id {identity}, config TEXT NOT NULL, night TEXT NOT NULL, "
        "started TEXT NOT NULL, finished TEXT NOT NULL, judge TEXT NOT NULL, judge_version TEXT NOT NULL, "
        "calibration TEXT, status TEXT NOT NULL, UNIQUE (config, night))",
        f"CREATE TABLE empathy_models ({_OWNED}, model TEXT NOT NULL, served TEXT, responses TEXT, "
        "n INTEGER NOT NULL, unscored JSON, cost DOUBLE PRECISION, seconds DOUBLE PRECISION, "
        "PRIMARY KEY (night_id, model))",
        "CREATE INDEX empathy_models_by_model ON empathy_models (model, night_id)",
        f"CREATE TABLE empathy_shares ({_OWNED}, model TEXT NOT NULL, kind TEXT NOT NULL, "
        "label TEXT NOT NULL, share DOUBLE PRECISION, low DOUBLE PRECISION, high DOUBLE PRECISION, "
        "how TEXT NOT NULL, PRIMARY KEY (night_id, model, kind, label))",
        f"CREATE TABLE empathy_emotions ({_OWNED}, model TEXT NOT NULL, emotion TEXT NOT NULL, "
        f"n INTEGER NOT NULL, {_LABELS}, PRIMARY KEY (night_id, model, emotion))",
        f"CREATE TABLE empathy_anchors ({_OWNED}, anchors TEXT NOT NULL, item TEXT NOT NULL, "
        f"score DOUBLE PRECISION, {_LABELS}, PRIMARY KEY (night_id, anchors, item))",
        f"CREATE TABLE empathy_gates ({_OWNED}, gate TEXT NOT NULL, model TEXT NOT NULL, "
        "subject TEXT NOT NULL, outcome TEXT NOT NULL, value DOUBLE PRECISION, "
        '"limit" DOUBLE PRECISION, sentence TEXT NOT NULL, PRIMARY KEY (night_id, gate, model, subject))',
    ),
    (
        "ALTER TABLE empathy_nights ADD COLUMN details JSON",
        "ALTER TABLE empathy_models ADD COLUMN details JSON",
        f"CREATE TABLE empathy_judgments ({_OWNED}, model TEXT NOT NULL, id TEXT NOT NULL, "
        "prompt TEXT NOT NULL, response TEXT NOT NULL, emotion TEXT, situation TEXT, label TEXT, "
        f"score DOUBLE PRECISION, {_LABELS}, rationale TEXT, unscored TEXT, highlights JSON, "
        "PRIMARY KEY (night_id, model, id))",
    ),
)
VERSION: Final = len(STEPS)
_DIALECTS: Final = {
    "sqlite": {"{identity}": "INTEGER PRIMARY KEY"},
    "postgresql": {
        "{identity}": "INTEGER GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
        " TEXT": ' TEXT COLLATE "C"',  # sorted as SQLite sorts, whatever language the server speaks
    },
}


def read_version(connection: Connection) -> int:
    """The version of the history behind a connection; 0 where there is none yet."""
    if not inspect(connection).has_table(SCHEMA.name):
        return 0
    return connection.scalar(select(SCHEMA.c.version)) or 0


def migrate(connection: Connection, *, to: int = VERSION) -> None:
    """Take the steps that are missing, inside the caller's transaction: all of them or none."""
    version = read_version(connection)
    if version == 0:
        connection.exec_driver_sql("CREATE TABLE IF NOT EXISTS empathy_schema (version INTEGER NOT NULL)")
        connection.execute(SCHEMA.insert().values(version=0))
    for statements in STEPS[version:to]:
        for statement in statements:
            for ours, theirs in _DIALECTS[connection.dialect.name].items():
                statement = statement.replace(ours, theirs)
            connection.exec_driver_sql(statement)
    if version < to:
        connection.execute(SCHEMA.update().values(version=to))


# What is known of a night once it is over: the records that the history keeps and gives back.


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """A night by its name, usually a date, and the digest of the config it ran under; times are ISO texts.

    `status` is what the gates came to, such as pass, regression, inconclusive or stale.
    """

    config: str
    night: str
    started: str
    finished: str
    judge: str
    judge_version: str
    calibration: str | None = None
    status: str
    details: Mapping[str, Any] = field(default_factory=dict)


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

    `subject` tells several results of one gate apart, such as an emotion's floor from another's.
    """

    gate: str
    model: str = ""
    subject: str = ""
    outcome: str
    value: float | None = None
    limit: float | None = None
    sentence: str = ""


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
