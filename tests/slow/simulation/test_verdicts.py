"""How often `compare` gives each verdict on variants of one model and on several pairs at once."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
from simulated_ratings import calibrated, label_shares, two_models, without_ratings

from empathy_judge.calibration.comparison.differences import differences
from empathy_judge.calibration.comparison.judged_models import ComparisonSettings

DRAWS = 100


def verdicts(prompts: int, *, are_variants: bool = False, **world: Any) -> Counter[str]:
    """Count the verdicts on the first of two models without human ratings, corrected by a calibration."""
    rng, counts = np.random.default_rng(0), Counter[str]()
    for _ in range(DRAWS):
        one, other = map(without_ratings, two_models(4, prompts, rng, **world))
        settings = replace(calibrated(rng), are_variants=are_variants)
        (found,) = differences([(one, other)], settings)
        counts[found.verdict] += 1
    return counts


def test_variants_that_do_not_differ_are_seldom_told_apart() -> None:
    """Chance takes 5% beyond 11 of 100, and 20% beyond 29, in fewer than 1 of 100 tries."""
    found = verdicts(64, alike=0.5, are_variants=True)
    assert found["better"] + found["worse"] <= 11
    assert found["probably better"] + found["probably worse"] <= 29


def test_among_four_models_any_pair_in_one_of_twenty() -> None:
    """Holm: six comparisons, and still 5 % of the times at most with any finding at all."""
    rng, times = np.random.default_rng(8), 0
    model = without_ratings(two_models(4, 30, rng)[0])
    for _ in range(DRAWS):
        drawn = {name: label_shares(rng.normal(0.2, 0.4, 30), 1.0) for name in "abcd"}
        models = [
            replace(model, name=name, rated=replace(model.rated, judged=judged))
            for name, judged in drawn.items()
        ]
        pairs = [(one, other) for at, one in enumerate(models) for other in models[at + 1 :]]
        found = differences(pairs, ComparisonSettings())
        times += any(item.verdict.startswith("probably") for item in found)
    assert times <= 11
