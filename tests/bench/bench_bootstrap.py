"""How much faster draws from count tables are than a library called once a draw.

One run measures both on the same 12,000 ratings: 2,000 draws of ordinal alpha and quadratic kappa, drawing
included, against `krippendorff` and scikit-learn. The libraries are timed on some draws only, and scaled up;
what picks a draw's rows for them is not counted.
"""

from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import numpy as np
from bench_figures import Figure, in_turns, medians

RATINGS, RATERS, LEVELS = 12_000, 1_200, 3
DRAWS = 2_000


def measure(scratch: Path, *, quick: bool) -> Iterator[Figure]:
    import krippendorff
    from sklearn.metrics import cohen_kappa_score

    from calibration.agreement.metrics import TABLE_STATISTICS, tables_of
    from calibration.bootstrap import resample_clusters

    rng = np.random.default_rng(0)
    ratings = 1 + rng.choice(LEVELS, RATINGS, p=[0.11, 0.31, 0.58])
    labels = np.where(rng.random(RATINGS) < 0.4, ratings, 1 + rng.integers(0, LEVELS, RATINGS))
    raters = np.arange(RATINGS) % RATERS
    drawn = resample_clusters(RATERS, rng=np.random.default_rng(1), draws=DRAWS)
    ours, theirs = {}, {}

    def tables(_: int) -> float:
        start = perf_counter()
        again = resample_clusters(RATERS, rng=np.random.default_rng(1), draws=DRAWS)
        counted = tables_of(ratings, labels, LEVELS, raters, again)
        alphas, kappas = TABLE_STATISTICS["alpha_ordinal"](counted), TABLE_STATISTICS["qwk"](counted)
        took = perf_counter() - start
        ours.update(enumerate(zip(alphas, kappas, strict=True)))
        return took

    def libraries(number: int) -> float:
        took, draws = 0.0, range(number * timed, (number + 1) * timed)
        for draw in draws:
            rows = np.repeat(np.arange(RATINGS), drawn[draw][raters])
            first, second = ratings[rows], labels[rows]
            both = np.stack([first, second])
            start = perf_counter()
            alpha = krippendorff.alpha(both, level_of_measurement="ordinal")
            kappa = cohen_kappa_score(first, second, weights="quadratic")
            took += perf_counter() - start
            theirs[draw] = alpha, kappa
        return took * DRAWS / timed

    rounds, timed = (1, 1) if quick else (5, 8)
    in_turns({"warming up": libraries}, 1)
    found = in_turns({"count tables": tables, "libraries": libraries}, rounds)
    took = medians(found)
    apart = max(abs(a - b) for draw in theirs for a, b in zip(theirs[draw], ours[draw], strict=True))
    yield Figure(
        name="bootstrap",
        value=took["libraries"] / took["count tables"],
        unit=" x",
        least=50,
        about=f"{DRAWS:,} draws of ordinal alpha and quadratic kappa on {RATINGS:,} ratings: "
        f"{took['count tables']:.3f} s, `krippendorff` and scikit-learn {took['libraries']:.1f} s "
        f"(scaled from {timed} draws a round, {rounds} rounds)",
        measured=found,
    )
    yield Figure(name="values apart", value=apart, about="at most, ours from theirs", most=1e-9)
