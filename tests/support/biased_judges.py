"""Rated responses whose judge has biases of a known size, and how often audits find them."""

from collections import Counter

import numpy as np

from empathy_judge.calibration.bias import audit
from empathy_judge.calibration.pairing import Paired
from empathy_judge.data.records import POSITIVE_EMOTIONS

Facts = tuple[dict[str, int], dict[str, str]]


def draw(
    rng: np.random.Generator,
    *,
    raters: int = 30,
    length: float = 0.0,
    author: float = 0.0,
    valence: float = 0.0,
) -> tuple[Paired, Facts]:
    """Raters of ten responses of one model each, some more severe than others, and a judge with biases."""
    count = 10 * raters
    rater = np.repeat(np.arange(raters), 10)
    model = np.array(["human", "ada", "bea"])[rater % 3]
    felt = 2.3 + 0.35 * rng.standard_normal(raters)[rater] + 0.6 * rng.standard_normal(count)
    words = rng.integers(8, 64, size=count)
    emotion = rng.choice(["joyful", "sad"], size=count)
    score = 2.0 + 0.1 * rng.uniform(-1, 1, size=count) + author * (model == "human")
    score += length * (np.log2(words) - 4.5) + valence * np.isin(emotion, list(POSITIVE_EMOTIONS))
    ids = np.array([f"r{number}" for number in range(count)])
    paired = Paired(
        id=ids,
        model=model,
        rater=rater.astype(str),
        batch=rater.astype(str),
        prompt=ids,
        rating=np.clip(np.rint(felt), 1, 3).astype(np.int64),
        score=score,
        label=np.rint(score).astype(np.int64),
    )
    keys = ids.tolist()
    return paired, (
        dict(zip(keys, words.tolist(), strict=True)),
        dict(zip(keys, emotion.tolist(), strict=True)),
    )


def rates(draws: int, seed: int) -> tuple[Counter[str], Counter[str], dict[str, float]]:
    """How often each audit finds something without a bias, and with one as large as it says it finds."""
    rng = np.random.default_rng(seed)
    alarms: Counter[str] = Counter()
    detectable: dict[str, list[float]] = {}
    for _ in range(draws):
        paired, (words, emotion) = draw(rng)
        for finding in audit(paired, words=words, emotion=emotion)[1:]:
            alarms[finding.audit] += finding.verdict == "found"
            detectable.setdefault(finding.audit, []).append(finding.detectable)
    planted = {name: float(np.mean(values)) for name, values in detectable.items()}
    found: Counter[str] = Counter()
    for place, name in enumerate(planted, start=1):  # one by one: another bias is noise to each
        for _ in range(draws):
            paired, (words, emotion) = draw(rng, **{name: planted[name]})
            finding = audit(paired, words=words, emotion=emotion)[place]
            found[name] += finding.verdict == "found" and finding.effect.value > 0
    return alarms, found, planted
