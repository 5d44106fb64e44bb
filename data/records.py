"""The records that all packages use; frozen, and validated once when a file is read.

Exchange ── Turn               a prompt, the reply to it, and the turns before
  ├─ Judgment                  one judge's label of it
  │    └─ judgments.Judged     all judgments of one judge
  └─ Rating                    one person's rating of it
       ├─ rated_inputs.RatedExchange       joined with its exchange
       └─ rated_range.RatedRange           lengths and formats of the rated replies
storage.Shards, storage.Columns            where exchanges are read from
runs.RunPlan ── runs.FinishedRun           where judgments are saved
rubric.Rubric                              what raters were asked
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import date
from hashlib import sha256
from math import isfinite
from typing import Any, ClassVar, Final

from empathy_judge.data.crisis import danger_said
from empathy_judge.data.readers.chat_turns import is_answering

LABELS: Final = ("Bad", "Okay", "Good")  # in order: a label's rating is its position + 1
GOOD_ABOVE: Final = 0.55  # of the thresholds tried, labels agreed best with held-out ratings by this one
LEAST_PROBABILITY: Final = 1e-6  # judgments are written to six digits, so a 0 can be anything below this
EMPATHY: Final = "empathy"  # the default dimension of ratings
EMOTIONS: Final = tuple(
    "afraid angry annoyed anticipating anxious apprehensive ashamed caring confident content devastated"  # noqa: SIM905
    " disappointed disgusted embarrassed excited faithful furious grateful guilty hopeful impressed jealous"
    " joyful lonely nostalgic prepared proud sad sentimental surprised terrified trusting".split()
)
POSITIVE_EMOTIONS: Final = frozenset(
    "anticipating caring confident content excited faithful grateful hopeful impressed joyful prepared proud"  # noqa: SIM905
    " surprised trusting".split()
)
UNNAMED_MODEL: Final = "unnamed"
REPLY, CONVERSATION = "reply", "conversation"  # what is judged as one: the unit
NOUNS: Final = {REPLY: "replies", CONVERSATION: "conversations"}
PROMPT_NOUNS: Final = {REPLY: "prompts", CONVERSATION: "situations"}  # what several models are given alike


# A heading, an item of a list, a code fence or bold words, at least two of them: one dash makes no list.
_MARKDOWN: Final = re.compile(r"^ {0,3}(?:#{1,6} |[-*+•] |\d{1,2}[.)] |```)|\*\*[^*\n]+\*\*", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One earlier turn of a dialogue."""

    speaker: str
    """the name or role of the speaker"""
    text: str
    """the message"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A speaker's prompt and a model's reply."""

    id: str
    """unique in its file"""
    prompt: str
    """the speaker's message"""
    response: str
    """the model's reply"""
    model: str = UNNAMED_MODEL
    """the model's name"""
    situation: str | None = None
    """the background, in the speaker's words"""
    emotion: str | None = None
    """one of the 32 emotions of EmpatheticDialogues, or another word"""
    dialogue: tuple[Turn, ...] = ()
    """the turns before the prompt"""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """not a key itself: all other keys are saved and passed on"""

    @property
    def content_digest(self) -> str:
        """The digest of everything that a judge may read: neither `id` nor `model`."""
        seen = [self.prompt, self.response, self.situation or "", self.emotion or ""]
        for turn in self.dialogue:
            seen += turn.speaker, turn.text
        # The length in front keeps ("ab", "c") and ("a", "bc") apart.
        return _digest("".join([f"{len(text)}:{text}" for text in seen]))

    @property
    def read_digest(self) -> str:
        """The digest of what a language model reads: the prompt, the turns before it and the reply."""
        return replace(self, situation=None, emotion=None).content_digest

    @property
    def prompt_digest(self) -> str:
        """The digest of the prompt: replies to one prompt are not independent of each other."""
        return _digest(self.prompt)

    @property
    def reply_digest(self) -> str:
        """The digest of the reply without case and white space."""
        return _digest("".join(self.response.casefold().split()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rating:
    """One person's rating of one exchange on one dimension, on the scale of its source."""

    __pydantic_config__: ClassVar = {"allow_inf_nan": False}

    id: str
    """the id of the reply"""
    rater: str
    """a name that identifies the person"""
    rating: float
    """1 to 3, or Bad, Okay, Good; other scales with `--scale`"""
    batch: str | None = None
    """the batch of ratings made together; default: the rater"""
    dimension: str = EMPATHY
    """the rated dimension, where a source has several"""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """not a key itself: all other keys are saved"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgment:
    """One judge's label of one exchange with probabilities, or `unscored` with the reason."""

    __pydantic_config__: ClassVar = {"allow_inf_nan": False}

    id: str
    """the id of the reply"""
    model: str
    """the model's name"""
    content_digest: str
    """digest of everything the judge read"""
    prompt_digest: str
    """the same for all replies to one prompt"""
    reply_digest: str = ""
    """the same for equal replies, but for case and white space"""
    label: str | None = None
    """the likeliest label; Okay where that is Good with `GOOD_ABOVE` or less"""
    probabilities: Mapping[str, float] | None = None
    """of each label"""
    score: float | None = None
    """the expected rating, 1 to 3"""
    rationale: str | None = None
    """an LLM judge's reason, and notes on the judgment, such as a truncated reply"""
    unscored: str | None = None
    """the reason why there is no judgment; then all above is empty"""
    usage: Mapping[str, float] | None = None
    """tokens and USD, for judges on a server"""
    identity: str | None = None
    """the digest by which it is reused for other replies, where that is not `content_digest`"""
    reused: str | None = None
    """the run it was copied from, its own for equal replies; it costs nothing here"""
    flag: str | None = None
    """the danger the speaker may be in, such as `suicide`; it changes no label"""
    components: Mapping[str, float] | None = None
    """a decision judge's probability of each component of empathy"""
    decided_by: str | None = None
    """the deciding judge of a cascade"""
    features: Mapping[str, int] | None = None
    """`words` of the reply, `turns` before it, 1 or 0 for `situation` and `markdown`"""
    curve: tuple[float | None, ...] | None = None
    """the score of every reply of a conversation, in order; null where a reply has none"""


def reply_features(exchange: Exchange) -> dict[str, int]:
    """Count the words of a reply and the turns before it; 1 or 0 for a situation and for Markdown."""
    return {
        "words": len(exchange.response.split()),
        "turns": len(exchange.dialogue),
        "situation": int(bool(exchange.situation)),
        "markdown": int(len(_MARKDOWN.findall(exchange.response)) > 1),
    }


def label_of(probabilities: Mapping[str, float]) -> str:
    """Return the label of a probability for every level, worst level first; it is the same for every judge.

    It is the likeliest level, of equal ones the lowest; but Good needs more than `GOOD_ABOVE`, else Okay.
    In the crowd study Good is the likeliest label of nearly every reply, so labels would rarely differ.

    >>> label_of({"Bad": 0.1, "Okay": 0.3, "Good": 0.6}), label_of({"Bad": 0.2, "Okay": 0.35, "Good": 0.45})
    ('Good', 'Okay')
    >>> label_of({"Bad": 0.4, "Okay": 0.25, "Good": 0.35}), label_of({"1": 0.3, "2": 0.2, "3": 0.4, "4": 0.1})
    ('Bad', '3')
    """
    likeliest = max(probabilities, key=probabilities.__getitem__)
    is_weak_good = likeliest == "Good" and probabilities[likeliest] <= GOOD_ABOVE
    return "Okay" if is_weak_good and tuple(probabilities) == LABELS else likeliest


def judgment_of(exchange: Exchange, probabilities: Mapping[str, float]) -> Judgment:
    """Return the judgment that follows from a probability for every label."""
    return with_probabilities(_judgment(exchange), probabilities)


def with_probabilities(judgment: Judgment, probabilities: Mapping[str, float]) -> Judgment:
    """Return the judgment with these probabilities, and with the score and the label that follow."""
    rounded = {label: round(float(probabilities[label]), 6) for label in LABELS}
    bad, okay, good = rounded.values()
    score = round(bad + 2 * okay + 3 * good, 6)
    return replace(judgment, label=label_of(rounded), probabilities=rounded, score=score)


def unscored(exchange: Exchange, reason: str) -> Judgment:
    """Return a judgment without a label, with the reason; it is never converted to a low score."""
    return _judgment(exchange, unscored=reason)


def _judgment(exchange: Exchange, **judged: Any) -> Judgment:
    return Judgment(
        id=exchange.id,
        model=exchange.model,
        content_digest=exchange.content_digest,
        prompt_digest=exchange.prompt_digest,
        reply_digest=exchange.reply_digest,
        flag=danger_in(exchange),
        features=reply_features(exchange),
        **judged,
    )


def danger_in(exchange: Exchange) -> str | None:
    """Return the danger that the speaker may be in, by their turns, the situation and the prompt."""
    texts = [turn.text for turn in exchange.dialogue if not is_answering(turn.speaker)]
    texts += [exchange.situation] if exchange.situation else []
    return danger_said("\n".join([*texts, exchange.prompt]))


def _digest(text: str) -> str:
    # A lone surrogate is text too, and must not raise.
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def to_plain(value: Any) -> Any:
    """Return a record, or what its `as_dict` returns, as JSON values; a date is ISO text, nan is null."""
    if is_dataclass(value) and not isinstance(value, type):
        if hasattr(value, "as_dict"):
            return to_plain(value.as_dict())
        return {item.name: to_plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, float) and not isfinite(value):
        return None
    return value
