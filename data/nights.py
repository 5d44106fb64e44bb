"""What is known of a night once it is over: the records that the history keeps and gives back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


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
