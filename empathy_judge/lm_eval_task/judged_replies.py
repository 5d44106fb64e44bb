"""Functions of the task `empathy_replies`: its prompts, the judgment of a reply, and the shares of all."""

import json
import os
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from datasets import Dataset

from empathy_judge.client import JudgeClient, shared_judge

PROMPTS = files("empathy_judge.data") / "samples" / "prompts.jsonl"
METRICS = ("good", "good_low", "good_high", "good_by_judge", "unscored")
JUDGE = "EMPATHY_JUDGE"  # the variable that names another judge than the default


def load_prompts(**_: Any) -> dict[str, Dataset]:
    """Return the 160 prompts, five for each of 32 emotions; they are CC0."""
    lines = PROMPTS.read_text(encoding="utf-8").splitlines()
    return {"test": Dataset.from_list([json.loads(line) for line in lines])}


def judge_reply(doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, Any]:
    """Judge a reply; every metric is counted from the same judgment."""
    (judgment,) = _judge().judge_all([{**doc, "response": results[0], "model": "all"}])
    return {name: dict(judgment.row) for name in METRICS}


def good(rows: Sequence[Mapping[str, Any]]) -> float:
    """Return the corrected share of Good replies."""
    return _judge().pooled_shares(rows)["good"]


def good_low(rows: Sequence[Mapping[str, Any]]) -> float:
    """Return the lower end of its 95% interval."""
    return _judge().pooled_shares(rows)["good_low"]


def good_high(rows: Sequence[Mapping[str, Any]]) -> float:
    """Return the upper end of its 95% interval."""
    return _judge().pooled_shares(rows)["good_high"]


def good_by_judge(rows: Sequence[Mapping[str, Any]]) -> float:
    """Return the judge's own share."""
    return _judge().pooled_shares(rows)["good_by_judge"]


def unscored(rows: Sequence[Mapping[str, Any]]) -> float:
    """Count the replies that could not be judged."""
    return _judge().pooled_shares(rows)["unscored"]


def _judge() -> JudgeClient:
    return shared_judge(os.environ.get(JUDGE) or None)
