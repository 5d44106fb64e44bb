"""How often models that are alike are told apart: the promise behind every verdict of `compare`."""

import numpy as np

from calibration.comparison.differences import differences
from calibration.comparison.judged_models import ComparisonSettings, JudgedModel
from calibration.shares.ppi import RatedModel

NONE = np.zeros(0, dtype=np.intp)
PROBABLY = ("probably better", "probably worse")  # all that the judge alone can say


def shares_of(good: np.ndarray) -> np.ndarray:
    return np.column_stack([0.3 * (1 - good), 0.7 * (1 - good), good])


def judged(
    name: str, shift: float, rng: np.random.Generator, difficulty: np.ndarray, *, first: int = 0
) -> JudgedModel:
    """A model whose share of Good is about .6 + shift, on prompts of this difficulty."""
    good = np.clip(0.6 + shift + difficulty + rng.normal(0, 0.1, len(difficulty)), 0.02, 0.98)
    numbers = np.arange(first, first + len(difficulty)).astype(str)
    rated = RatedModel(
        judged=shares_of(good), item=NONE, value=np.zeros((0, 3)), cluster=NONE, prompt=numbers
    )
    return JudgedModel(name=name, rated=rated, unscored=0)


def test_among_four_models_any_pair_in_one_of_twenty() -> None:
    """Holm: six comparisons, and still 5 % of the times at most with any finding at all."""
    rng = np.random.default_rng(8)
    times = 0
    for _ in range(100):
        models = [judged(name, 0.0, rng, np.zeros(30)) for name in "abcd"]
        pairs = [(one, other) for at, one in enumerate(models) for other in models[at + 1 :]]
        verdicts = [item.verdict for item in differences(pairs, ComparisonSettings())]
        times += any(verdict in PROBABLY for verdict in verdicts)
    assert times <= 11
