"""The fit of conversations chosen inside the training sets alone, then asked about a set it never met.

The shipped fit was chosen by how it did on the very sets that it is measured on, so its figures flatter it.
Here each set is left out twice over: the others choose among the ways to fit by leaving out one of
themselves, and only then is the set asked about. What this cannot undo: the features were thought of by
people who had seen the sets.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, Final

import numpy as np

from calibration.agreement.metrics import spearman
from data.importers.rated_sets import RATED_SETS
from data.records import to_plain
from judge.conversations.conversation_features import LISTENER, REPLIES, SPEAKER
from judge.conversations.fit_conversations import (
    EQUAL,
    SETS_APART,
    Rated,
    Variant,
    measure_held,
    predict,
    splits,
)

STEP: Final = 0.1  # what every feature counts for one standard deviation where only its sign is known
FEATURES: Final = {
    "the replies alone": REPLIES,
    "replies and listener": {**REPLIES, **LISTENER},
    "all": {**REPLIES, **LISTENER, **SPEAKER},
}
STARTS: Final = {"from nothing": 0.0, "from equal weights": STEP}
ALPHAS: Final = {"freely": 30.0, "held": 3000.0, "not at all": 1e9}
BOUNDS: Final = (2.0, 4.0)


def variants() -> Iterator[Variant]:
    """Ways to fit that know no more than each feature's sign: the written weights had seen the sets."""
    for (which, features), (begin, size), (how, alpha), bound in product(
        FEATURES.items(), STARTS.items(), ALPHAS.items(), BOUNDS
    ):
        if size or alpha < max(ALPHAS.values()):  # neither a start nor a fit is no judge
            start = {name: float(np.sign(weight)) * size for name, weight in features.items()}
            yield Variant(
                name=f"{which}, {begin}, fitted {how}, bound {bound:g}", start=start, alpha=alpha, bound=bound
            )


def choose_inside(rated: Sequence[Rated], *, seed: int = 0) -> dict[str, Any] | None:
    """For each source left out: the variant that the others choose, and how it does on the one left out.

    None where there are fewer than three sources: two cannot leave one of themselves out and learn.
    """
    if len({RATED_SETS[one.item.set].source for one in rated}) < 3:
        return None
    tried = list(variants())
    measured, chosen = [], {}
    for train, test in splits(rated, SETS_APART):
        inner = list(splits(train, SETS_APART))
        best = max(tried, key=lambda variant: _agreement(inner, variant))
        for name, held in predict(train, test, best).items():
            measured.append(to_plain(measure_held(held, seed=seed)))
            chosen[name] = best.name
    return {"variants": len(tried), "chosen": chosen, "sets": measured}


def _agreement(inner: Sequence[tuple[list[Rated], list[Rated]]], variant: Variant) -> float:
    """The mean rank correlation over the sets left out; a larger one counts more, none more than EQUAL."""
    values, counts = [], []
    for train, test in inner:
        for held in predict(train, test, variant).values():
            places = np.array([place for _, place, _ in held])
            rho = spearman(np.array([one.item.rating for one, _, _ in held]), places)
            values.append(rho if np.isfinite(rho) else 0.0)
            counts.append(min(EQUAL, len(held)))
    return float(np.average(values, weights=counts))
