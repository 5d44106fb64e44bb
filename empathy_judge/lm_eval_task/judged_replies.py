"""Functions of the task `empathy_replies`: its prompts, the judgment of a reply, and the shares of all."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
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


def _metric(name: str) -> Callable[[Sequence[Mapping[str, Any]]], float]:
    """Return the function that counts a figure of all judgments."""
    return lambda rows: _judge().pooled_shares(rows)[name]


good, good_low, good_high, good_by_judge, unscored = map(_metric, METRICS)


def _judge() -> JudgeClient:
    return shared_judge(os.environ.get(JUDGE) or None)
