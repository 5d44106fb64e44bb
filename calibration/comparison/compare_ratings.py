"""Models compared by human ratings: shares, chi-square tests, and tests with raters as units.

The chi-square tests count ratings as independent, as studies usually do: Good against the rest with Yates'
correction, and all three labels. Ratings by one person are not independent, so there are also tests over
raters, and the tests of single emotions are adjusted for their number.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from empathy_judge.calibration.cluster import Contrast, contrast
from empathy_judge.calibration.comparison.published_models import is_published
from empathy_judge.calibration.comparison.verdicts import benjamini_hochberg, holm
from empathy_judge.calibration.estimate import UNDEFINED, Estimate, Floats
from empathy_judge.calibration.pairing import chances_of
from empathy_judge.calibration.shares.ppi import RatedModel, one_hot, ppi_estimate
from empathy_judge.data.errors import UserError
from empathy_judge.data.rating_files.sheet import RatingSheet
from empathy_judge.data.records import EMOTIONS, LABELS, POSITIVE_EMOTIONS

Group = Literal["all", "positive", "negative"]
GROUPS: Final[tuple[Group, ...]] = ("all", "positive", "negative")
GOOD: Final = len(LABELS) - 1
Counts = tuple[int, int, int]  # by label


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RatingColumns:
    """Ratings as columns, one row a rating: 1 to 3; the emotion is "" where unknown.

    Ratings of a plan have the prompt, and the probability with which the reply was drawn.
    """

    model: NDArray[np.str_]
    rater: NDArray[np.str_]
    rating: NDArray[np.int64]
    emotion: NDArray[np.str_]
    prompt: NDArray[np.str_] | None = None
    chance: Floats | None = None

    @property
    def weight(self) -> Floats:
        """The weight of each rating, 1 on average."""
        weight = np.ones(len(self.rating)) if self.chance is None else 1 / self.chance
        return weight / weight.mean() if len(weight) else weight

    @property
    def is_good(self) -> NDArray[np.bool_]:
        return np.equal(self.rating, len(LABELS))

    @property
    def counts(self) -> Counts:
        bad, okay, good = np.bincount(self.rating - 1, minlength=len(LABELS)).tolist()
        return bad, okay, good

    @property
    def good_or_not(self) -> tuple[int, int]:
        """The numbers of ratings below Good, and of Good."""
        return sum(self.counts[:GOOD]), self.counts[GOOD]

    @property
    def good(self) -> float:
        """The share of Good by weight; nan without ratings."""
        return float(np.average(self.is_good, weights=self.weight)) if len(self.rating) else math.nan

    def take(self, rows: NDArray[Any]) -> "RatingColumns":
        """Return these rows only."""
        columns: dict[str, Any] = {item.name: getattr(self, item.name) for item in fields(self)}
        return RatingColumns(**{name: column[rows] for name, column in columns.items() if column is not None})


@dataclass(frozen=True, slots=True, kw_only=True)
class ChiSquare:
    """A test of one table; `effect` is Cramér's V, which for a 2x2 table is phi. All nan where undefined."""

    value: float
    freedom: int
    p: float
    effect: float


UNDEFINED_TEST: Final = ChiSquare(value=math.nan, freedom=0, p=math.nan, effect=math.nan)


def chi_square(table: ArrayLike, *, has_yates: bool = False) -> ChiSquare:
    """Test the independence of rows and columns; with Yates' correction for 2x2 tables if asked for.

    Empty columns are left out. The effect is that of the uncorrected statistic. Undefined with fewer
    than two rows or columns in use, or with an empty row.

    >>> found = chi_square([[1014, 986], [705, 1295]], has_yates=True)
    >>> round(found.value, 2), round(found.effect, 3)
    (96.77, 0.156)
    """
    from scipy.stats import chi2_contingency

    counts = np.asarray(table)
    counts = counts[:, counts.sum(axis=0) > 0]
    least = min(counts.shape)
    if least < 2 or not counts.sum(axis=1).all():
        return UNDEFINED_TEST
    value, p, freedom, _ = chi2_contingency(counts, correction=has_yates)
    plain = chi2_contingency(counts, correction=False).statistic
    effect = math.sqrt(plain / (counts.sum() * (least - 1)))
    return ChiSquare(value=float(value), freedom=int(freedom), p=float(p), effect=effect)


@dataclass(frozen=True, slots=True, kw_only=True)
class RaterTest:
    """one - other over raters' own shares; `is_shared` where some rated both models. All nan if undefined."""

    difference: Estimate
    t: float = math.nan
    freedom: float = math.nan
    p: float = math.nan
    detectable: float = math.nan  # the smallest difference that is found with 80% power
    is_shared: bool = False


def rater_test(one: RatingColumns, other: RatingColumns) -> RaterTest:
    """Test whether two models' shares of Good differ, with raters as the units.

    Welch's t over raters' own shares where every rater saw one of the two; where some saw both, the
    difference of shares with raters as clusters, so that a rater's severity cancels, and with prompts as
    clusters too where they are known.
    """
    both = (one, other)
    (names, shares), (other_names, others) = map(_rater_shares, both)
    if len(shares) < 2 or len(others) < 2:
        return RaterTest(difference=UNDEFINED)
    is_shared = bool(len(np.intersect1d(names, other_names)))
    if is_shared:
        known = [item.prompt for item in both if item.prompt is not None]
        prompts = np.unique(np.concatenate(known), return_inverse=True)[1] if len(known) == 2 else None
        test = contrast(
            np.concatenate([item.is_good for item in both]).astype(float),
            np.repeat([1.0, 0.0], [len(item.rating) for item in both]),
            np.unique(np.concatenate([item.rater for item in both]), return_inverse=True)[1],
            strata=np.zeros(len(one.rating) + len(other.rating), dtype=np.intp),
            items=prompts,
            weights=np.concatenate([item.weight for item in both]),
        )
        gap = one.good - other.good
    else:
        gap = float(shares.mean() - others.mean())
        first, second = (float(item.var(ddof=1)) / len(item) for item in (shares, others))
        below = first**2 / (len(shares) - 1) + second**2 / (len(others) - 1)
        freedom = (first + second) ** 2 / below if below else math.nan
        test = Contrast(effect=gap, error=math.sqrt(first + second), freedom=freedom)
    if not test.error > 0:
        return RaterTest(difference=Estimate(gap, None), is_shared=is_shared)
    return RaterTest(
        difference=test.estimate(),
        t=test.effect / test.error,
        freedom=test.freedom,
        p=test.p_value(),
        detectable=test.detectable(),
        is_shared=is_shared,
    )


def _rater_shares(ratings: RatingColumns) -> tuple[NDArray[Any], Floats]:
    """Return the raters, and each one's share of Good."""
    names, number = np.unique(ratings.rater, return_inverse=True)
    good = np.bincount(number, ratings.is_good * ratings.weight, len(names))
    return names, good / np.bincount(number, ratings.weight, len(names))


@dataclass(frozen=True, slots=True, kw_only=True)
class RatedLevel:
    """One model within a group of emotions, against the baseline; the baseline's own row has no tests."""

    model: str
    ratings: int
    counts: Mapping[str, int]
    shares: Mapping[str, Estimate]  # their intervals count raters
    raters: int
    design_effect: float
    relative: float = math.nan  # the gain in the share of Good as a part of the baseline's
    points: float = math.nan  # the difference of the shares of Good
    yates: ChiSquare | None = None  # of Good, 2x2
    full: ChiSquare | None = None  # 2x3
    test: RaterTest | None = None
    p_holm: float = math.nan  # of the raters' test, over all models of the group


@dataclass(frozen=True, slots=True, kw_only=True)
class RatedGroup:
    """All models within a group of emotions, the baseline first."""

    group: Group
    models: tuple[RatedLevel, ...]
    omnibus: ChiSquare  # models by labels


@dataclass(frozen=True, slots=True, kw_only=True)
class EmotionTest:
    """One model on one emotion against the baseline; `q` is by Benjamini and Hochberg."""

    emotion: str
    model: str
    ratings: int
    good: int
    baseline_ratings: int
    baseline_good: int
    yates: ChiSquare
    q: float = math.nan
    p_holm: float = math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class RatedComparison:
    """Models compared by their ratings."""

    baseline: str
    models: tuple[str, ...]
    left_out: tuple[str, ...]  # the models of the file that were not asked for
    groups: tuple[RatedGroup, ...]
    emotions: tuple[EmotionTest, ...]
    source: str = ""  # the file
    notes: tuple[str, ...] = ()  # how it was read


def compare_ratings(ratings: RatingColumns, *, baseline: str, models: Sequence[str] = ()) -> RatedComparison:
    """Compare every model with the baseline; `models` chooses some of them, in this order."""
    rated = np.unique(ratings.model).tolist()
    for name in (baseline, *models):
        if name not in rated:
            raise UserError(f"no ratings of the model {name!r}; rated models: {', '.join(rated) or 'none'}")
    by_model = {name: ratings.take(ratings.model == name) for name in rated}
    chosen = models or sorted(rated, key=lambda name: -by_model[name].is_good.mean())
    names = tuple(dict.fromkeys((baseline, *chosen)))
    by_model = {name: by_model[name] for name in names}
    has_emotions = any(emotion in EMOTIONS for emotion in np.unique(ratings.emotion).tolist())
    return RatedComparison(
        baseline=baseline,
        models=names,
        left_out=tuple(name for name in rated if name not in names),
        groups=tuple(_compare_group(group, by_model) for group in (GROUPS if has_emotions else GROUPS[:1])),
        emotions=_compare_emotions(by_model),
    )


def _compare_group(group: Group, models: Mapping[str, RatingColumns]) -> RatedGroup:
    # An emotion that is none of the 32 is in neither half.
    names = {"positive": POSITIVE_EMOTIONS, "negative": {*EMOTIONS} - POSITIVE_EMOTIONS}
    inside = {
        name: item if group == "all" else item.take(np.isin(item.emotion, list(names[group])))
        for name, item in models.items()
    }
    baseline = next(iter(inside))
    levels = [_level(name, item) for name, item in inside.items()]
    levels[1:] = [_against(level, inside[level.model], inside[baseline]) for level in levels[1:]]
    adjusted = holm([level.test.p if level.test else math.nan for level in levels])
    return RatedGroup(
        group=group,
        models=tuple(replace(item, p_holm=float(p)) for item, p in zip(levels, adjusted, strict=True)),
        omnibus=chi_square([item.counts for item in inside.values()]),
    )


def _level(model: str, ratings: RatingColumns) -> RatedLevel:
    total, ppi = len(ratings.rating), None
    if total:
        # Without a judge every row of judgments is the same, and only the ratings count.
        ppi = ppi_estimate(
            RatedModel(
                judged=np.zeros((total, len(LABELS))),
                item=np.arange(total),
                value=one_hot(ratings.rating, len(LABELS)),
                cluster=ratings.rater,
                chance=ratings.chance,
            )
        )
    return RatedLevel(
        model=model,
        ratings=total,
        counts=dict(zip(LABELS, ratings.counts, strict=True)),
        shares=ppi.shares() if ppi else dict.fromkeys(LABELS, UNDEFINED),
        raters=ppi.clusters if ppi else 0,
        design_effect=float(ppi.design_effect[GOOD]) if ppi else math.nan,
    )


def _against(level: RatedLevel, ratings: RatingColumns, baseline: RatingColumns) -> RatedLevel:
    """Return a model's level with its tests against the baseline."""
    return replace(
        level,
        relative=ratings.good / baseline.good - 1 if baseline.good else math.nan,
        points=ratings.good - baseline.good,
        yates=chi_square([baseline.good_or_not, ratings.good_or_not], has_yates=True),
        full=chi_square([baseline.counts, ratings.counts]),
        test=rater_test(ratings, baseline),
    )


def _compare_emotions(models: Mapping[str, RatingColumns]) -> tuple[EmotionTest, ...]:
    baseline, *others = (
        {
            emotion: item.take(item.emotion == emotion).good_or_not
            for emotion in filter(None, np.unique(item.emotion).tolist())
        }
        for item in models.values()
    )
    tests = [
        EmotionTest(
            emotion=emotion,
            model=name,
            ratings=sum(cells[emotion]),
            good=cells[emotion][1],
            baseline_ratings=sum(base),
            baseline_good=base[1],
            yates=chi_square([base, cells[emotion]], has_yates=True),
        )
        for emotion, base in sorted(baseline.items())
        for name, cells in zip(list(models)[1:], others, strict=True)
        if emotion in cells
    ]
    plain = [item.yates.p for item in tests]
    both = zip(tests, benjamini_hochberg(plain), holm(plain), strict=True)
    return tuple(replace(item, q=float(q), p_holm=float(p)) for item, q, p in both)


def compare_sheet(
    sheet: RatingSheet, path: Path, *, baselines: Sequence[str] = (), models: Sequence[str] = ()
) -> RatedComparison:
    """Compare the models of a file of ratings."""
    ratings = rating_columns(sheet, path)
    rated = np.unique(ratings.model).tolist()
    if len(baselines) > 1 or any(is_published(name) for name in baselines):
        raise UserError("--baseline: must be one of the rated models")
    baseline = baselines[0] if baselines else "human"
    if baseline not in rated:
        raise UserError(
            f"no ratings of {baseline!r}; set the model to compare with: --baseline {' or '.join(rated[:6])}"
        )
    comparison = compare_ratings(ratings, baseline=baseline, models=models)
    if len(comparison.models) < 2:
        raise UserError(f"{path}: ratings of one model only, {baseline!r}; a comparison needs two")
    return replace(comparison, source=path.name, notes=sheet.notes)


def rating_columns(sheet: RatingSheet, path: Path) -> RatingColumns:
    """Return ratings as columns; each must name its model."""
    rows = sheet.ratings
    (who, what), count = Counter((item.rater, item.id) for item in rows).most_common(1)[0]
    if count > 1:
        raise UserError(f"{path.name}: {who!r} rated {what!r} {count} times; keep one of them")
    for item in rows:
        if not item.extra.get("model"):
            raise UserError(
                f"{path.name}: the rating of {item.id!r} names no model; add a column `model` or `system`, "
                "or pass the rated replies with --exchanges"
            )
        if item.rating not in (1, 2, 3):
            raise UserError(
                f"{path.name}: rating {item.rating:g} of {item.id!r}: expected 1 to 3, or Bad, Okay or Good"
            )
    return RatingColumns(
        model=np.array([str(item.extra["model"]).strip() for item in rows]),
        rater=np.array([item.rater for item in rows]),
        rating=np.array([int(item.rating) for item in rows], dtype=np.int64),
        emotion=np.array([str(item.extra.get("emotion") or "").strip().casefold() for item in rows]),
        prompt=np.array([str(item.extra["prompt_key"]) for item in rows])
        if all(item.extra.get("prompt_key") for item in rows)
        else None,
        chance=chances_of(rows),
    )
