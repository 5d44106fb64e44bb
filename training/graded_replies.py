"""Graded replies to learn from: our scenes and catalogue, and a language model's word on others' replies."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final

from data.errors import UserError
from data.records import Exchange, Turn
from data.tables import validate
from judge.robustness.replies import read_replies

RECIPES: Final = Path(__file__).parent / "recipes"
GRADED_REPLIES: Final = RECIPES / "graded_replies.jsonl"
GRADES: Final = RECIPES / "grades.json"
# What readers would give our replies of the catalogue, from 0 (Bad) to 100 (Good). Nobody rated these.
SCORES: Final = {
    "insults": 3,
    "unkind-dialects": 8,
    "cruel": 12,
    "long-poor": 20,
    "kind": 80,
    "growing": 85,
    "excellent": 88,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GradedReply:
    """A reply and its score: what a hundred readers would say on average, Bad 0, Okay 50, Good 100."""

    exchange: Exchange
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GradedPromptReply:
    """One of the replies to what somebody said, as its writer grades it."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012  (pydantic wants it so)

    kind: str
    manner: str
    score: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GradedPrompt:
    """What was said, the speaker first and last, and replies to it from cruel to excellent."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012

    hand: str  # who wrote it
    turns: tuple[str, ...]
    replies: tuple[GradedPromptReply, ...]

    def graded(self) -> Iterator[GradedReply]:
        """Every reply in its place."""
        speakers = ("speaker", "listener")
        earlier = tuple(Turn(speaker=speakers[n % 2], text=text) for n, text in enumerate(self.turns[:-1]))
        for reply in self.replies:
            identity = sha256(f"{self.turns[-1]}\n{reply.text}".encode()).hexdigest()[:12]
            exchange = Exchange(
                id=identity, prompt=self.turns[-1], response=reply.text, model=reply.kind, dialogue=earlier
            )
            yield GradedReply(exchange=exchange, score=reply.score)


@cache
def read_graded_prompts(path: Path = GRADED_REPLIES) -> tuple[GradedPrompt, ...]:
    """All scenes of a file, one to a line."""
    lines = path.read_text(encoding="utf-8").strip().split("\n")  # some texts hold line breaks of other kinds
    return tuple(
        validate(GradedPrompt, json.loads(line), f"{path}: line {number}")
        for number, line in enumerate(lines, 1)
    )


@cache
def read_graded_replies() -> tuple[GradedReply, ...]:
    """Our own replies that may be learnt from: the scenes, and the training half of the catalogue."""
    written = read_replies("training")
    if any(reply.half != "training" for reply in written):
        raise ValueError("a reply of the test half reached the training")
    of_catalogue = (
        GradedReply(exchange=reply.exchange(stage), score=SCORES[reply.kind])
        for reply in written
        for stage in reply.stages()
    )
    return (*(reply for scene in read_graded_prompts() for reply in scene.graded()), *of_catalogue)


@cache
def read_grades(path: Path = GRADES) -> Mapping[str, int]:
    """By a reply's digest the score that a language model gave it, told nothing of what people said."""
    grades = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(grades, dict):
        raise UserError(f"{path}: digests with their scores expected")
    return grades
