"""Functions of the task `empathy_replies`: its prompts, the judgment of a reply, and the shares of all."""

import json
import logging
import os
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from datasets import Dataset

from empathy_judge.client import ModelShares, ReplyScorer, shared_judge

PROMPTS = files("empathy_judge.data") / "samples" / "prompts.jsonl"
JUDGE = "EMPATHY_JUDGE"  # the variable that names another judge than the default

log = logging.getLogger(__name__)


def load_prompts(**_: Any) -> dict[str, Dataset]:
    """Return the 160 prompts, five for each of 32 emotions; they are CC0."""
    lines = PROMPTS.read_text(encoding="utf-8").splitlines()
    return {"test": Dataset.from_list([json.loads(line) for line in lines])}


def judge_reply(doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, Any]:
    """Judge a reply; every metric is counted from the same judgment."""
    (judgment,) = _judge().judge_all([{**doc, "response": results[0], "model": "all"}])
    row = dict(judgment.row)
    return dict.fromkeys(("good", "good_low", "good_high", "good_by_judge", "unscored"), row)


def good(rows: Sequence[Mapping[str, Any]]) -> float:
    """Return the corrected share of Good replies."""
    model = _shares(rows)
    if model.refused:
        log.warning("empathy_replies: no corrected share: %s", model.refused)
    return model.good.value if model.good else float("nan")


def good_low(rows: Sequence[Mapping[str, Any]]) -> float:
    """Return the lower end of its 95% interval."""
    share = _shares(rows).good
    return share.low if share and share.low is not None else float("nan")


def good_high(rows: Sequence[Mapping[str, Any]]) -> float:
    """Return the upper end of its 95% interval."""
    share = _shares(rows).good
    return share.high if share and share.high is not None else float("nan")


def good_by_judge(rows: Sequence[Mapping[str, Any]]) -> float:
    """Return the judge's own share."""
    shares = _shares(rows).shares
    return shares["Good"].value if shares else float("nan")


def unscored(rows: Sequence[Mapping[str, Any]]) -> float:
    """Count the replies that could not be judged."""
    return float(_shares(rows).unscored)


def _shares(rows: Sequence[Mapping[str, Any]]) -> ModelShares:
    (model,) = _judge().shares(rows)
    return model


def _judge() -> ReplyScorer:
    return shared_judge(os.environ.get(JUDGE) or None)
