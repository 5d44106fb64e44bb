"""How much faster draws from count tables are than a library called once a draw (part of `make bench`).

One run measures both on the same 12,000 ratings: 2,000 draws of ordinal alpha and quadratic kappa, drawing
included, against `krippendorff` and scikit-learn. The libraries are timed on some draws only, and scaled up;
what picks a draw's rows for them is not counted. The exit code is 1 when the limit is missed.
"""

import json
import sys
from pathlib import Path
from time import perf_counter

import numpy as np

ROOT = Path(__file__).parent.parent
RATINGS, RATERS, LEVELS = 12_000, 1_200, 3
DRAWS, LIBRARY_DRAWS, REPEATS = 2_000, 20, 3
LIMIT = 50.0


def measure() -> dict[str, float]:
    """Seconds of both for all draws, their ratio, and how far their values are apart at most."""
    import krippendorff
    from sklearn.metrics import cohen_kappa_score

    from calibration.counts import TABLE_STATISTICS, tables_of
    from calibration.intervals import resample_clusters

    rng = np.random.default_rng(0)
    ratings = 1 + rng.choice(LEVELS, RATINGS, p=[0.11, 0.31, 0.58])
    labels = np.where(rng.random(RATINGS) < 0.4, ratings, 1 + rng.integers(0, LEVELS, RATINGS))
    raters = np.arange(RATINGS) % RATERS
    ours = float("inf")
    for _ in range(REPEATS):
        start = perf_counter()
        drawn = resample_clusters(RATERS, rng=np.random.default_rng(1), draws=DRAWS)
        tables = tables_of(ratings, labels, LEVELS, raters, drawn)
        alphas, kappas = TABLE_STATISTICS["alpha_ordinal"](tables), TABLE_STATISTICS["qwk"](tables)
        ours = min(ours, perf_counter() - start)
    # Once untimed: a first call is slower.
    krippendorff.alpha(np.stack([ratings, labels]), level_of_measurement="ordinal")
    cohen_kappa_score(ratings, labels, weights="quadratic")
    theirs, apart = 0.0, 0.0
    for draw in range(LIBRARY_DRAWS):
        rows = np.repeat(np.arange(RATINGS), drawn[draw][raters])
        first, second = ratings[rows], labels[rows]
        both = np.stack([first, second])
        start = perf_counter()
        alpha = krippendorff.alpha(both, level_of_measurement="ordinal")
        kappa = cohen_kappa_score(first, second, weights="quadratic")
        theirs += perf_counter() - start
        apart = max(apart, abs(alpha - alphas[draw]), abs(kappa - kappas[draw]))
    scaled = theirs * DRAWS / LIBRARY_DRAWS
    return {"ours_s": ours, "library_s": scaled, "ratio": scaled / ours, "apart": apart}


def main() -> int:
    """Print the ratio; 1 when it is below the limit."""
    sys.path.insert(0, str(ROOT))
    found = measure()
    verdict = "ok" if found["ratio"] >= LIMIT else "MISSED"
    print(
        f"bootstrap          {found['ratio']:>6.0f}x  at least {LIMIT:g}x   {verdict:<6}"
        f"  {DRAWS:,} draws of ordinal alpha and quadratic kappa on {RATINGS:,} ratings:"
        f" {found['ours_s']:.3f} s, the libraries {found['library_s']:.1f} s"
        f" (scaled from {LIBRARY_DRAWS} draws); values apart by at most {found['apart']:.0e}"
    )
    print(json.dumps(found), file=sys.stderr)
    return int(found["ratio"] < LIMIT)


if __name__ == "__main__":
    sys.exit(main())
