"""Replies with a grade instead of human ratings: those written for training, and a language model's grades.

The data files are in the repository and not in the wheel.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from itertools import cycle
from pathlib import Path
from typing import Final

from empathy_judge.data.errors import UserError
from empathy_judge.data.records import Exchange, Turn
from empathy_judge.judge.robustness.catalogue import read_replies

RECIPES: Final = Path(__file__).parent / "recipes"
GRADED_REPLIES: Final = RECIPES / "graded_replies.jsonl"
GRADES: Final = RECIPES / "grades.json"
CONSTANT_REPLIES: Final = RECIPES / "constant_replies.jsonl"
# Assumed scores of the catalogue's replies by kind, from 0 (Bad) to 100 (Good). Nobody rated these.
SCORES = {"insults": 3, "unkind-dialects": 8, "cruel": 12, "long-poor": 20}
SCORES |= {"kind": 80, "growing": 85, "excellent": 88}


@dataclass(frozen=True, slots=True, kw_only=True)
class GradedReply:
    """A reply and the mean rating that its writer expects: Bad 0, Okay 50, Good 100."""

    exchange: Exchange
    score: float


@cache
def read_written_replies(path: Path = GRADED_REPLIES) -> tuple[GradedReply, ...]:
    """Read the replies of a file: each line is a conversation with replies to it, from cruel to excellent."""
    replies = []
    key = "synthetic" if path.name == GRADED_REPLIES.name else path.stem
    for line in _read(path, key).strip().split("\n"):  # some texts hold line breaks of other kinds
        prompt = json.loads(line)
        *earlier, last = prompt["turns"]
        turns = zip(cycle(("speaker", "listener")), earlier, strict=False)
        dialogue = tuple(Turn(speaker=speaker, text=text) for speaker, text in turns)
        for reply in prompt["replies"]:
            text, kind = reply["text"], reply["kind"]
            identity = sha256(f"{last}\n{text}".encode()).hexdigest()[:12]
            exchange = Exchange(id=identity, prompt=last, response=text, model=kind, dialogue=dialogue)
            replies.append(GradedReply(exchange=exchange, score=reply["score"]))
    return tuple(replies)


@cache
def read_graded_replies() -> tuple[GradedReply, ...]:
    """Return all graded replies: those of the file, and the training half of the robustness catalog."""
    of_catalogue = (
        GradedReply(exchange=reply.exchange(stage), score=SCORES[reply.kind])
        for reply in read_replies("training")
        for stage in reply.stages()
    )
    return (*read_written_replies(), *of_catalogue)


@dataclass(frozen=True, slots=True)
class ConstantReply:
    """A reply that says nothing of its prompt; `feeling` is what it suits: sad, glad, or any."""

    text: str
    feeling: str


@cache
def read_constant_replies(use: str = "training", path: Path = CONSTANT_REPLIES) -> tuple[ConstantReply, ...]:
    """Read the constant replies for training, or every fourth one, which is for evaluation alone."""
    lines = _read(path, "constants").splitlines()
    return tuple(
        ConstantReply(**json.loads(line))
        for number, line in enumerate(lines)
        if (number % 4 == 3) == (use == "evaluation")
    )


@cache
def read_grades(path: Path = GRADES) -> Mapping[str, int]:
    """Return a language model's scores of replies by content digest; it was not shown the human ratings."""
    grades: dict[str, int] = json.loads(_read(path, "grades"))
    return grades


def _read(path: Path, key: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise UserError(
            f"{path}: missing, because the installed package does not contain it; train from the repository, "
            f"or with a recipe that has {key} = 0"
        ) from error
