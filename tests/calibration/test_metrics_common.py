"""Every metric of agreement, and what must hold of all of them: order, names, copies, ends, the libraries."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import krippendorff
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from sklearn import metrics

from calibration.agreement.metrics import (
    LEAST_PROBABILITY,
    TABLE_STATISTICS,
    Scaling,
    auc_of,
    calibration_error,
    calibration_error_of,
    cohen_kappa,
    from_table,
    gwet_ac,
    icc_one,
    icc_sums,
    icc_two,
    kendall_of,
    krippendorff_alpha,
    log_losses,
    one_way_sums,
    point_value,
    spearman,
    spearman_of,
)
from calibration.agreement.model_levels import kendall
from calibration.bootstrap import Statistic, mean_of, percentile_interval, value_of
from calibration.estimate import Floats

SEEDS = range(4)
SCALINGS: tuple[Scaling, ...] = ("nominal", "ordinal", "interval")
WEIGHTS = {"kappa": None, "kappa_linear": "linear", "qwk": "quadratic"}


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Ratings, and what a middling judge makes of them: labels, scores and probabilities."""

    levels: int
    rating: NDArray[Any]
    label: NDArray[Any]
    score: Floats
    probabilities: Floats

    def take(self, rows: NDArray[Any]) -> "Rows":
        columns = ("rating", "label", "score", "probabilities")
        return replace(self, **{name: getattr(self, name)[rows] for name in columns})

    def relabel(self, order: NDArray[Any]) -> "Rows":
        """Level l is called order[l - 1] from now on, by both."""
        return replace(
            self,
            rating=order[self.rating - 1],
            label=order[self.label - 1],
            score=self.levels + 1 - self.score,
            probabilities=self.probabilities[:, np.argsort(order)],
        )


def some_rows(seed: int, levels: int = 3, rows: int = 60) -> Rows:
    """Make rows by chance; every other seed has many ties."""
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.arange(1, levels + 1), size=rows)
    if seed % 2:
        probabilities = np.round(4 * probabilities) + 1
        probabilities = probabilities / probabilities.sum(axis=1, keepdims=True)
    rating = 1 + (rng.random(rows)[:, None] > probabilities.cumsum(axis=1)[:, :-1]).sum(axis=1)
    label = np.where(rng.random(rows) < 0.5, rating, rng.integers(1, levels + 1, rows))
    score = np.round(probabilities @ np.arange(1, levels + 1), 9)
    return Rows(levels=levels, rating=rating, label=label, score=score, probabilities=probabilities)


def same(levels: int, values: Any) -> Rows:
    """A judge that says of every reply what people say."""
    rating = np.asarray(values, dtype=np.int64)
    sure = (rating[:, None] == np.arange(1, levels + 1)).astype(float)
    return Rows(levels=levels, rating=rating, label=rating, score=rating.astype(float), probabilities=sure)


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric: of its value and of its draws, as a library has it, and what is known of it beforehand."""

    statistic: Callable[[Rows], Statistic]
    value: Callable[[Rows], float] | None = None  # where it is not the statistic's
    library: Callable[[Rows], float]
    low: float
    high: float = 1.0
    perfect: float = 1.0  # with oneself
    of_one_level: float = math.nan
    is_symmetric: bool = False
    is_nominal: bool = False  # levels may change places
    is_blind_to_copies: bool = True

    def __call__(self, rows: Rows) -> float:
        return self.value(rows) if self.value else value_of(self.statistic(rows), len(rows.rating))


def top(rows: Rows) -> NDArray[np.bool_]:
    return np.asarray(rows.rating == rows.levels)


def of_table(name: str, library: Callable[[Rows], float], **facts: Any) -> Metric:
    return Metric(
        statistic=lambda rows: from_table(TABLE_STATISTICS[name], rows.rating, rows.label, rows.levels),
        value=lambda rows: point_value(name, rows.rating, rows.label, rows.levels),
        library=library,
        **facts,
    )


def alpha_of(scaling: Scaling) -> Metric:
    return of_table(
        f"alpha_{scaling}",
        lambda rows: krippendorff.alpha(
            [rows.rating, rows.label],
            level_of_measurement=scaling,
            value_domain=list(range(1, rows.levels + 1)),
        ),
        low=-1,
        is_symmetric=True,
        is_nominal=scaling == "nominal",
        is_blind_to_copies=False,  # more ratings leave less to chance
    )


def icc_by_anova(rows: Rows) -> float:
    """McGraw and Wong's ICC(A,1) of two columns, from the mean squares of their analysis of variance."""
    table = np.stack([rows.rating.astype(float), rows.score])
    items = table.shape[1]
    between = 2 * table.mean(axis=0).var() * items / (items - 1)
    parties = items * table.mean(axis=1).var() * 2
    left = table - table.mean(axis=0) - table.mean(axis=1)[:, None] + table.mean()
    within = (left**2).sum() / (items - 1)
    return float((between - within) / (between + within + 2 * (parties - within) / items))


METRICS = {
    "exact": of_table(
        "exact",
        lambda rows: metrics.accuracy_score(rows.rating, rows.label),
        low=0,
        of_one_level=1.0,
        is_symmetric=True,
        is_nominal=True,
    ),
    "macro_f1": of_table(
        "macro_f1",
        lambda rows: metrics.f1_score(rows.rating, rows.label, average="macro", zero_division=0.0),
        low=0,
        of_one_level=1.0,
        is_symmetric=True,
        is_nominal=True,
    ),
    "balanced_accuracy": of_table(
        "balanced_accuracy",
        lambda rows: metrics.recall_score(
            rows.rating, rows.label, labels=np.unique(rows.rating), average="macro", zero_division=0.0
        ),
        low=0,
        is_nominal=True,
    ),
    **{
        name: of_table(
            name,
            lambda rows, weights=weights: metrics.cohen_kappa_score(
                rows.rating, rows.label, weights=weights, labels=np.arange(1, rows.levels + 1)
            ),
            low=-1,
            is_symmetric=True,
            is_nominal=weights is None,
        )
        for name, weights in WEIGHTS.items()
    },
    **{f"alpha_{scaling}": alpha_of(scaling) for scaling in SCALINGS},
    # Held to our coefficient of any number of people, which the published examples hold.
    "ac1": of_table(
        "ac1",
        lambda rows: gwet_ac([rows.rating, rows.label], None, levels=rows.levels),
        low=-1,
        of_one_level=1.0,
        is_symmetric=True,
        is_nominal=True,
    ),
    "ac2": of_table(
        "ac2",
        lambda rows: gwet_ac([rows.rating, rows.label], "quadratic", levels=rows.levels),
        low=-2.6,  # with weights chance may be up to .72 of agreement
        of_one_level=1.0,
        is_symmetric=True,
    ),
    "spearman": Metric(
        statistic=lambda rows: spearman_of(rows.rating.astype(float), rows.score),
        value=lambda rows: spearman(rows.rating, rows.score),
        library=lambda rows: stats.spearmanr(rows.rating, rows.score).statistic,
        low=-1,
    ),
    "kendall": Metric(
        statistic=lambda rows: kendall_of(rows.rating, rows.score),
        library=lambda rows: stats.kendalltau(rows.rating, rows.score).statistic,
        low=-1,
    ),
    "icc": Metric(
        statistic=lambda rows: (
            lambda counts: icc_two(
                counts @ icc_sums(rows.rating.astype(float), rows.score, (rows.levels + 1) / 2)
            )
        ),
        library=icc_by_anova,
        low=-1,
        is_blind_to_copies=False,
    ),
    "auc": Metric(
        statistic=lambda rows: auc_of(top(rows), rows.probabilities[:, -1]),
        library=lambda rows: metrics.roc_auc_score(top(rows), rows.probabilities[:, -1]),
        low=0,
    ),
    "log_loss": Metric(
        statistic=lambda rows: mean_of(log_losses(rows.rating, rows.probabilities)),
        library=lambda rows: metrics.log_loss(
            rows.rating,
            np.maximum(rows.probabilities, LEAST_PROBABILITY),
            labels=np.arange(1, rows.levels + 1),
        ),
        low=0,
        high=-math.log(LEAST_PROBABILITY),
        perfect=0,
        of_one_level=0,
        is_nominal=True,
    ),
    "calibration_error": Metric(
        statistic=lambda rows: calibration_error_of(top(rows), rows.probabilities[:, -1], 10),
        value=lambda rows: calibration_error(top(rows), rows.probabilities[:, -1]),
        library=lambda rows: calibration_error(top(rows), rows.probabilities[:, -1]),  # no library has it
        low=0,
        perfect=0,
        of_one_level=0,
        is_blind_to_copies=True,
    ),
}
ABOUT_ONE_END = {"auc", "calibration_error"}  # these look at the top level alone


def worlds(sizes: tuple[int, ...] = (5, 60)) -> Iterator[tuple[str, Rows]]:
    for seed in SEEDS:
        for levels in (2, 3, 5):
            for rows in sizes:
                yield f"seed {seed}, {levels} levels, {rows} rows", some_rows(seed, levels, rows)


def differing(pairs: Iterator[tuple[str, float, float]]) -> list[str]:
    """Say where two values that should be one differ."""
    return [
        f"{where}: {one} and {two}"
        for where, one, two in pairs
        if one != pytest.approx(two, abs=1e-9, nan_ok=True)
    ]


@pytest.mark.parametrize("name", METRICS)
def test_the_order_of_rows_does_not_matter(name: str) -> None:
    metric = METRICS[name]

    def pairs() -> Iterator[tuple[str, float, float]]:
        for where, rows in worlds():
            shuffled = rows.take(np.random.default_rng(1).permutation(len(rows.rating)))
            yield where, metric(rows), metric(shuffled)

    assert not differing(pairs())


@pytest.mark.parametrize("name", sorted(METRICS.keys() - ABOUT_ONE_END))
def test_a_scale_read_from_the_other_end_is_the_same_scale(name: str) -> None:
    metric = METRICS[name]

    def pairs() -> Iterator[tuple[str, float, float]]:
        for where, rows in worlds():
            yield where, metric(rows), metric(rows.relabel(np.arange(rows.levels, 0, -1)))
            if metric.is_nominal:
                names = 1 + np.random.default_rng(2).permutation(rows.levels)
                yield f"{where}, names {names}", metric(rows), metric(rows.relabel(names))

    assert not differing(pairs())


@pytest.mark.slow
@pytest.mark.parametrize("name", METRICS)
def test_counting_a_row_twice_is_having_it_twice(name: str) -> None:
    metric = METRICS[name]

    def pairs() -> Iterator[tuple[str, float, float]]:
        for where, rows in worlds((40,)):
            counts = np.random.default_rng(3).integers(0, 4, size=(4, 40))
            if name == "calibration_error":  # its bins are cut once, over all rows
                counts = np.full((1, 40), 2)
            drawn = metric.statistic(rows)(counts.astype(float))
            for number, row in enumerate(counts):
                yield f"{where}, draw {number}", drawn[number], metric(rows.take(np.arange(40).repeat(row)))
            if metric.is_blind_to_copies:
                yield f"{where}, doubled", metric(rows), metric(rows.take(np.arange(40).repeat(2)))

    assert not differing(pairs())


@pytest.mark.parametrize("name", METRICS)
def test_values_and_draws_are_the_library_s(name: str) -> None:
    metric = METRICS[name]

    def pairs() -> Iterator[tuple[str, float, float]]:
        for where, rows in worlds((60,)):
            theirs = metric.library(rows)
            yield where, metric(rows), theirs
            yield f"{where}, a draw", metric.statistic(rows)(np.ones((1, 60)))[0], theirs

    assert not differing(pairs())


@pytest.mark.parametrize("name", METRICS)
def test_values_are_numbers_within_their_range(name: str) -> None:
    metric = METRICS[name]
    out = {
        where: value
        for where, rows in worlds((60,))
        if not metric.low - 1e-9 <= (value := metric(rows)) <= metric.high + 1e-9
    }
    assert not out


@pytest.mark.parametrize("name", [name for name, metric in METRICS.items() if metric.is_symmetric])
def test_both_parties_count_alike(name: str) -> None:
    def pairs() -> Iterator[tuple[str, float, float]]:
        for where, rows in worlds():
            yield (
                where,
                METRICS[name](rows),
                METRICS[name](replace(rows, rating=rows.label, label=rows.rating)),
            )

    assert not differing(pairs())


@pytest.mark.parametrize("name", METRICS)
def test_with_oneself_one_agrees(name: str) -> None:
    for values in ([1, 3, 2, 2], [1, 3], [1, 1, 1, 3]):
        assert METRICS[name](same(3, values)) == pytest.approx(METRICS[name].perfect), values


@pytest.mark.parametrize("name", METRICS)
def test_with_one_level_or_no_rows_it_is_undefined_and_silent(name: str) -> None:
    metric = METRICS[name]
    assert math.isnan(metric(same(3, [])))
    for values in ([3, 3, 3], [3]):
        assert metric(same(3, values)) == pytest.approx(metric.of_one_level, nan_ok=True), values
    nothing = metric.statistic(same(3, [3, 3]))(np.zeros((1, 2)))
    assert np.isnan(nothing).all(), "a draw without rows"


def test_draws_that_miss_a_class_are_undefined_and_silent() -> None:
    positive, scores = np.array([True, False, False]), np.array([0.9, 0.5, 0.1])
    counts = np.array([[1.0, 1.0, 1.0], [0.0, 2.0, 1.0], [0.0, 3.0, 0.0], [0.0, 0.0, 0.0]])
    assert np.isnan(auc_of(positive, scores)(counts)).tolist() == [False, True, True, True]
    ranked = spearman_of(np.array([3.0, 1.0, 1.0]), scores)(counts)
    assert np.isnan(ranked).tolist() == [False, True, True, True]


def test_degenerate_labels_by_hand() -> None:
    cases = {
        ("qwk", (3, 3, 1), (3, 3, 3)): 0.0,
        ("qwk", (3, 3), (2, 2)): 0.0,
        ("qwk", (1, 3), (3, 1)): -1.0,
        ("balanced_accuracy", (1, 2, 3), (3, 3, 3)): 1 / 3,
        ("balanced_accuracy", (1, 3), (2, 3)): 0.5,
    }
    found = {key: point_value(key[0], np.array(key[1]), np.array(key[2]), 3) for key in cases}
    assert found == pytest.approx(cases)


def test_models_are_ranked_as_scipy_ranks_them() -> None:
    """Tau over models, of many draws at once: the rows' engine cannot be used where values vary by draw."""
    rng = np.random.default_rng(0)
    people, judge = rng.integers(1, 6, size=(2, 30, 7)).astype(float)
    theirs = [stats.kendalltau(one, two).statistic for one, two in zip(people, judge, strict=True)]
    assert kendall(people, judge) == pytest.approx(theirs, nan_ok=True)
    assert np.isnan(kendall(np.ones((1, 1)), np.ones((1, 1)))).all()


def test_calibration_error_by_hand() -> None:
    """Two bins of two: |.15 - 0| and |.8 - .5|. With ties, three .5s go to the bin of their middle."""
    assert calibration_error([0, 0, 1, 0], [0.1, 0.2, 0.7, 0.9], bins=2) == pytest.approx((0.15 + 0.3) / 2)
    tied = calibration_error([0, 1, 1, 1], [0.1, 0.5, 0.5, 0.5], bins=2)
    assert tied == pytest.approx((0.1 + 3 * 0.5) / 4)
    assert calibration_error([1, 1, 0, 0], [0.7] * 4) == pytest.approx(0.2), "a constant judge has one bin"
    rng = np.random.default_rng(3)
    probability = rng.permutation(np.linspace(0.01, 0.99, 200))
    positive = rng.random(200) < probability**2
    gaps = [
        abs(probability[part].mean() - positive[part].mean())
        for part in np.split(np.argsort(probability), 10)
    ]
    assert calibration_error(positive, probability) == pytest.approx(np.mean(gaps))


def test_an_interval_of_mostly_undefined_draws_is_none() -> None:
    assert percentile_interval(np.array([])) is None
    assert percentile_interval(np.array([1.0, np.nan])) is None
    interval = percentile_interval(np.arange(1001.0))
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx((25, 975))


# --- Tables of any number of people, with gaps.

_ = np.nan
# Krippendorff, "Computing Krippendorff's Alpha-Reliability" (2011), section C: four observers, twelve units.
FOUR_OBSERVERS = np.array(
    [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, _, _, _],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, _, 3],
        [_, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, _],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, _],
    ]
)
# Shrout and Fleiss (1979), table 2: six targets, four judges.
SIX_TARGETS = np.array([[9, 6, 8, 7, 10, 6], [2, 1, 4, 1, 5, 2], [5, 3, 6, 2, 6, 4], [8, 2, 8, 6, 9, 7]])


def one_way_icc(table: Any) -> float:
    return float(icc_one(one_way_sums(np.asarray(table, dtype=float)).sum(axis=0)[None])[0])


def test_published_examples() -> None:
    """Krippendorff's sections A to C, Gwet (2008) and his Handbook, Shrout and Fleiss's one-way ICC."""
    binary = np.array([[0, 1, 0, 0, 0, 0, 0, 0, 1, 0], [1, 1, 1, 0, 0, 1, 0, 0, 0, 0]]) + 1
    nominal = [["abcde".index(letter) + 1 for letter in row] for row in ("aabbdcccedda", "babbbccceddd")]
    skewed = [[1] * 118 + [1] * 5 + [2] * 2, [1] * 118 + [2] * 5 + [1] * 2]
    found = {
        "two observers, binary": krippendorff_alpha(binary, "nominal", levels=2),
        "two observers, nominal": krippendorff_alpha(nominal, "nominal", levels=5),
        "four observers, nominal": krippendorff_alpha(FOUR_OBSERVERS, "nominal", levels=5),
        "four observers, ordinal": krippendorff_alpha(FOUR_OBSERVERS, "ordinal", levels=5),
        "four observers, interval": krippendorff_alpha(FOUR_OBSERVERS, "interval", levels=5),
        "AC1 of a skewed table": gwet_ac(skewed, None, levels=2),
        "kappa of a skewed table": cohen_kappa(*skewed, None, levels=2),
        "AC1 of four observers": gwet_ac(FOUR_OBSERVERS, None, levels=5),
        "one-way ICC": one_way_icc(SIX_TARGETS),
    }
    assert {name: round(value, 3) for name, value in found.items()} == {
        "two observers, binary": 0.095,
        "two observers, nominal": 0.692,
        "four observers, nominal": 0.743,
        "four observers, ordinal": 0.815,
        "four observers, interval": 0.849,
        "AC1 of a skewed table": 0.941,
        "kappa of a skewed table": -0.023,
        "AC1 of four observers": 0.775,
        "one-way ICC": 0.166,
    }


def test_alpha_of_many_raters_with_gaps_is_the_library_s() -> None:
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        quality = rng.integers(1, 5, 40)
        table = np.clip(quality + rng.integers(-1, 2, (6, 40)), 1, 4).astype(float)
        table[rng.random(table.shape) < 0.4] = np.nan
        for scaling in SCALINGS:
            theirs = krippendorff.alpha(table, level_of_measurement=scaling, value_domain=[1, 2, 3, 4])
            assert krippendorff_alpha(table, scaling, levels=4) == pytest.approx(theirs, abs=1e-9)


def test_degenerate_tables_are_undefined() -> None:
    tables = [
        np.zeros((2, 0)),
        np.array([[1.0], [np.nan]]),
        np.array([[2.0, 2.0], [2.0, 2.0]]),
        np.array([[1.0, np.nan], [np.nan, 2.0]]),
        np.full((3, 4), np.nan),
    ]
    for table in tables:
        assert all(math.isnan(krippendorff_alpha(table, scaling, levels=2)) for scaling in SCALINGS)
        assert math.isnan(one_way_icc(table))
        is_shared = table.size and (np.isfinite(table).sum(axis=0) > 1).any()
        agreed = gwet_ac(table, None, levels=2)
        assert agreed == (1.0 if is_shared else pytest.approx(math.nan, nan_ok=True))
