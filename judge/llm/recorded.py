"""What a language model's answers are worth as probabilities, fitted on the recorded answers of one model."""

import json
from collections.abc import Mapping
from functools import cache
from math import exp
from pathlib import Path
from typing import Any, Final

from empathy_judge.data.records import LABELS

FITTED: Final = Path(__file__).with_suffix(".json")  # written by tests/support/recorded_judges.py


@cache
def read_fitted() -> Mapping[str, Any]:
    """Return the fitted values: ratings by label, and the odds of grades."""
    fitted: dict[str, Any] = json.loads(FITTED.read_text(encoding="utf-8"))
    return fitted


def label_spread(label: str) -> dict[str, float]:
    """Return the probabilities of a label that came without any."""
    return dict(zip(LABELS, read_fitted()["labels"][label], strict=True))


def grade_probabilities(grade: float) -> dict[str, float]:
    """Return the probabilities of the labels by a grade from 0 to 100, by proportional odds."""
    odds = read_fitted()["grades"]
    okay, good = (1 / (1 + exp(cut - odds["slope"] * (grade - odds["middle"]))) for cut in odds["cuts"])
    return dict(zip(LABELS, (1 - okay, okay - good, good), strict=True))
