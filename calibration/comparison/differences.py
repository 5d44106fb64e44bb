"""Differences of judged models: corrected where possible, and paired by prompt.

Two models without ratings are compared by the calibrated line: the sign of their difference by the pooled
deviations of the judge from people, its size by draws from the line's posterior. Ratings of either update the
line's levels. Without a calibration the difference is that of the ratings, else the judge's own; a language
model then gives no difference, but the probability of its sign. The choice never depends on the estimates.
Effects of prompts and raters that both models share cancel, and so does the judge's error on equal replies.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Literal

import numpy as np

from empathy_judge.calibration.cluster import NORMAL, UNDEFINED_CONTRAST, Contrast, reach
from empathy_judge.calibration.comparison import verdicts, wide_prior
from empathy_judge.calibration.comparison.judged_models import (
    GOOD,
    ComparedLevel,
    ComparisonSettings,
    How,
    JudgedModel,
    compared_level,
    equal_share,
    judge_contrast,
    logit_contrast,
    order_only,
    score_contrast,
)
from empathy_judge.calibration.comparison.published_models import PublishedModel
from empathy_judge.calibration.comparison.verdicts import Verdict
from empathy_judge.calibration.estimate import UNDEFINED, Bound, Estimate, Floats, Interval
from empathy_judge.calibration.shares import transport
from empathy_judge.calibration.shares.correction import target_of
from empathy_judge.calibration.shares.ppi import RatedEstimate, RatedModel, rated_difference
from empathy_judge.calibration.shares.transport import LEAST_REPLIES, CalibratedModels, TargetModel
from empathy_judge.data.records import LABELS
from empathy_judge.data.text import listed

VARIANT_CORRELATION: Final = 0.25  # assumed, of the judge's errors on variants of one model
MOSTLY_EQUAL: Final = 0.5  # share of equal replies
TOO_FEW_PROMPTS: Final = "too few prompts to estimate how much they differ"
LEAST_EFFECT: Final = 2.3  # of raters of one model, as a plan assumes it
CROSSED: Final = 0.46  # of it is left in the difference where each person rates both models
MOST_RATINGS: Final = 500  # that a plan advises
KNOWN_RATERS: Final = 10  # as many raters show their own design effect
TIE: Final = 0.05  # on the scale from 1 to 3: what the judge finds no further apart is a tie
MOST: Final = 10  # prompts kept of a pair
BY_LINE: Final = frozenset({"line", "both"})
BY_PROBABILITY: Final = BY_LINE | {"prior"}
LEAST_P: Final = 1e-300  # below it no standard error is left


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceEstimate:
    """A difference, the probability that it is positive, and the reason if it is refused."""

    how: How = "refused"
    shares: Mapping[str, Estimate] = field(default_factory=dict)
    probability: float = math.nan
    at_least: tuple[float, float] = (math.nan, math.nan)  # that either is, within the allowed drop
    freedom: float = math.inf  # of the interval; infinite where it comes from a posterior
    reason: str | None = None


def estimate_difference(
    one: JudgedModel, other: JudgedModel, alone: Mapping[str, Contrast], settings: ComparisonSettings
) -> DifferenceEstimate:
    """Estimate a difference by the line with the ratings, else by ratings of both, else by the judge."""
    equal = equal_share(one, other)
    if equal == 1:
        nothing = Estimate(0.0, Interval(0.0, 0.0))
        return DifferenceEstimate(
            how="same", shares=dict.fromkeys(LABELS, nothing), probability=0.5, at_least=(1.0, 1.0)
        )
    if reason := refuse(one, other):
        return DifferenceEstimate(reason=reason)
    gap = rated_difference(one.ppi, other.ppi) if one.ppi is not None and other.ppi is not None else None
    if gap is not None and not np.isfinite(gap.variance).all():  # the ratings do not say how exact they are
        gap = None
    if one.known is not None and other.known is not None:
        return DifferenceEstimate(how="ratings", shares=_gap(one.known, other.known))
    by_line = DifferenceEstimate()
    is_complete = all(item.ppi is not None and item.ppi.is_complete for item in (one, other))
    if settings.calibrated is not None and not (gap is not None and is_complete):
        by_line = _by_line(one, other, gap, alone, equal, settings)
        if by_line.shares:
            return by_line
    if gap is not None:
        return DifferenceEstimate(how="ratings", shares=gap.shares(), freedom=float(gap.freedom[-1]))
    if settings.has_no_level:
        return _by_prior(one, other, equal, settings)
    if reason := by_line.reason or (None if alone[GOOD].is_defined else TOO_FEW_PROMPTS):
        return DifferenceEstimate(reason=reason)
    return DifferenceEstimate(
        how="judge",
        shares={label: item.estimate() for label, item in alone.items()},
        freedom=alone[GOOD].freedom,
    )


def _by_prior(
    one: JudgedModel, other: JudgedModel, equal: float, settings: ComparisonSettings
) -> DifferenceEstimate:
    """Estimate only which is better, by the scores of a language model whose level nobody knows."""
    gap = score_contrast(one, other)
    if not gap.is_defined:
        return DifferenceEstimate(reason=TOO_FEW_PROMPTS)
    return DifferenceEstimate(
        how="prior",
        shares=order_only(gap.effect),
        probability=wide_prior.probability_higher(one, other, correlation=_correlation(equal, settings)),
    )


def _correlation(equal: float, settings: ComparisonSettings) -> float:
    """Return the correlation of the judge's errors, of which it has none where the replies are equal."""
    correlation = VARIANT_CORRELATION if settings.are_variants else 0.0
    return 1 - (1 - correlation) * (1 - equal) ** 2


def refuse(*models: JudgedModel) -> str | None:
    """Return which models have too few scored replies, or replies that do not respond, if any."""
    least = min(models, key=lambda item: len(item.rated.judged))
    if (count := len(least.rated.judged)) < LEAST_REPLIES:
        return f"{least.name}: {count} scored; at least {LEAST_REPLIES} are needed"
    names = [item.name for item in models if item.is_unresponsive]
    return f"the replies of {listed(names)} do not respond to their prompts" if names else None


def _by_line(
    one: JudgedModel,
    other: JudgedModel,
    gap: RatedEstimate | None,
    alone: Mapping[str, Contrast],
    equal: float,
    settings: ComparisonSettings,
) -> DifferenceEstimate:
    """Estimate by the calibrated line, with ratings of either where it has some; shared noise cancels.

    The judge has an error only on the prompts with different replies.
    """
    correlation = _correlation(equal, settings)
    shares, probability, at_least, is_rated = {}, math.nan, (math.nan, math.nan), False
    for column, label in enumerate(LABELS):
        line = settings.lines[column].without(one.known_as, other.known_as)
        targets = [_target(item, column, line) for item in (one, other)]
        if gap is None and all(target.is_rated for target in targets):  # together they say nothing exact
            targets = [target.without_ratings for target in targets]
        for item, target in zip((one, other), targets, strict=True):
            if reason := transport.refusal(line, target):
                return DifferenceEstimate(reason=f"{item.name}: {reason}")
        is_rated = any(target.is_rated for target in targets)
        # Outside the rated range a loss is seen only if most of the replies cannot have lost anything.
        directions = targets, targets[::-1]
        is_seen = [equal >= MOSTLY_EQUAL or transport.shows_loss(line, *pair) for pair in directions]
        # Half of the difference's noise to each: together they have what pairing leaves of it.
        if alone[label].is_defined:
            targets = [replace(target, judge_noise=alone[label].error ** 2 / 2) for target in targets]
        if gap is not None and is_rated:
            targets = [replace(target, noise=float(gap.stated_variance[column]) / 2) for target in targets]
        found = transport.transport_difference(line, *targets, correlation=correlation)
        shares[label] = found.estimate
        if label != GOOD:
            continue
        drop = settings.max_drop
        if is_rated:
            probability, chances = found.exceeds(0.0), (found.exceeds(-drop), 1 - found.exceeds(drop))
        else:
            error = logit_contrast(one.rated, other.rated).error
            if not math.isfinite(error):
                return DifferenceEstimate(reason=TOO_FEW_PROMPTS)
            sign = partial(transport.sign_probability, line, error=error, correlation=correlation)
            probability = sign(*targets)
            chances = sign(*targets, drop=drop), sign(*reversed(targets), drop=drop)
        if not (one.repeats_itself or other.repeats_itself):
            first, second = (
                chance if seen else math.nan for chance, seen in zip(chances, is_seen, strict=True)
            )
            at_least = first, second
    return DifferenceEstimate(
        how="both" if is_rated else "line", shares=shares, probability=probability, at_least=at_least
    )


def _target(item: JudgedModel, column: int, line: CalibratedModels) -> TargetModel:
    """Return a model for the line, with its ratings here or in the calibration."""
    target = target_of(item.rated, item.ppi, column, line)
    share = item.known[LABELS[column]] if item.known is not None else UNDEFINED
    if share.interval is None:
        return target
    error = (share.interval.high - share.interval.low) / 2 / NORMAL
    return replace(target, crowd=share.value, noise=error**2)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptGap:
    """One prompt on which two models differ."""

    scores: tuple[float, float]  # the judge's of each reply, from 1 to 3
    contents: tuple[str, str]  # the digests of the two replies

    @property
    def gap(self) -> float:
        return self.scores[0] - self.scores[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptWins:
    """Shared prompts on which the judge prefers one model or the other; the rest are ties."""

    prompts: int
    wins: int
    losses: int
    most: tuple[PromptGap, ...] = ()  # those with the largest differences

    def reverse(self) -> "PromptWins":
        """Return the same for the models in the other order."""
        most = tuple(PromptGap(scores=gap.scores[::-1], contents=gap.contents[::-1]) for gap in self.most)
        return PromptWins(prompts=self.prompts, wins=self.losses, losses=self.wins, most=most)


NOT_PEOPLE: Final = (
    "the judge's own share is not an estimate of human ratings; use a calibration or --ratings"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The difference one - other of every label's share; p and verdict are about Good."""

    one: str
    other: str
    how: How
    reason: str | None
    shared_prompts: int
    needed: int | None = None  # how many more find this difference, or the margin, with 80% power
    unit: Literal["people", "prompts"]
    verdict: Verdict = "inconclusive"
    is_robust: bool = True  # the verdict holds with all unscored replies counted as Bad
    unscored: tuple[float, float] = (0.0, 0.0)  # the shares of unscored replies of the one and the other
    is_withheld: bool = False  # it is not robust, and the shares of unscored replies are large
    p: float
    p_holm: float = math.nan
    error: float  # the standard error of Good that the interval implies
    shares: Mapping[str, Estimate]
    judge: Estimate  # the judge's own difference
    probability: float = math.nan  # that the share of the one is higher
    at_least: tuple[float, float] = (math.nan, math.nan)  # that either is as good, within `max_drop`
    max_drop: float
    wins: PromptWins | None = None

    @property
    def good(self) -> Estimate:
        return self.shares.get(GOOD, UNDEFINED)

    @property
    def bound(self) -> Bound | None:
        """Which bound the difference is, where a model lies outside the rated range; None within it."""
        return self.good.bound

    @property
    def is_called(self) -> bool:
        """Whether a verdict by its probability says which model is better."""
        return self.how in BY_PROBABILITY and self.verdict.endswith(("better", "worse"))

    def reverse(self) -> "Difference":
        """Return other - one."""
        return replace(
            self,
            one=self.other,
            other=self.one,
            verdict=verdicts.turned(self.verdict, self.at_least[1]),
            at_least=self.at_least[::-1],
            shares={label: -share for label, share in self.shares.items()},
            judge=-self.judge,
            probability=1 - self.probability,
            wins=self.wins.reverse() if self.wins else None,
            unscored=self.unscored[::-1],
        )


def differences(
    pairs: Sequence[tuple[JudgedModel, JudgedModel | PublishedModel]], settings: ComparisonSettings
) -> tuple[Difference, ...]:
    """Return every pair's difference and verdict; p-values with Holm's adjustment over all pairs."""
    judged = {item.name: item for pair in pairs for item in pair if isinstance(item, JudgedModel)}
    levels = {name: compared_level(item, settings) for name, item in judged.items()}
    plain = _adjust([_difference(one, other, levels, settings) for one, other in pairs])
    worst = _adjust([_count_as_bad(item, levels) for item in plain])
    decided = []
    for (one, other), item, as_bad in zip(pairs, plain, worst, strict=True):
        missing = [level.missing if (level := levels.get(name)) else 0.0 for name in (item.one, item.other)]
        verdict, at_worst = (_decide(each, settings.margin) for each in (item, as_bad))
        is_robust = verdict in (at_worst, f"probably {at_worst}", "inconclusive")
        is_withheld = verdicts.is_much_unscored(*missing) and not is_robust
        item = replace(
            item,
            verdict="inconclusive" if is_withheld else verdict,
            unscored=(missing[0], missing[1]),
            is_robust=is_robust,
            is_withheld=is_withheld,
        )
        is_open = item.verdict not in verdicts.SETTLED and not item.is_withheld
        if is_open and (item.how != "judge" or item.verdict == "inconclusive"):
            item = replace(item, needed=people_needed(one, other, item, settings))
        decided.append(item)
    return tuple(decided)


def _adjust(items: Sequence[Difference]) -> list[Difference]:
    """Return the differences with p-values by Holm's adjustment over those that have no probability."""
    adjusted = verdicts.holm([math.nan if item.how in BY_PROBABILITY else item.p for item in items])
    return [replace(item, p_holm=float(p)) for item, p in zip(items, adjusted, strict=True)]


def _count_as_bad(item: Difference, levels: Mapping[str, ComparedLevel]) -> Difference:
    """Return the difference with every unscored reply of both models counted as Bad.

    The share of Good falls by the unscored part of it. The standard error by which the sign was decided
    stays, since the scored replies are the same.
    """
    from scipy.special import ndtr, ndtri

    falls = [
        level.good * level.missing if (level := levels.get(name)) else 0.0 for name in (item.one, item.other)
    ]
    shift = falls[1] - falls[0]
    if not item.shares or not shift or not math.isfinite(shift + item.p):
        return item
    value, z = item.good.order, -float(ndtri(max(item.p, LEAST_P) / 2))
    error = abs(value) / z if z > 0 and value else item.error
    probability = float(ndtr((value + shift) / error)) if error > 0 else float(value + shift > 0)
    return replace(
        item,
        shares={**item.shares, GOOD: item.good + shift},
        judge=item.judge + shift,
        p=2 * min(probability, 1 - probability),
        probability=probability,
    )


def _on_levels(
    basis: DifferenceEstimate, one: Mapping[str, Estimate], other: Mapping[str, Estimate]
) -> dict[str, Estimate]:
    """Return the differences of shares, of the levels themselves where both rest on the line."""
    if basis.how not in BY_LINE:
        return dict(basis.shares)
    return {
        label: share
        if share.bound or one[label].bound or other[label].bound
        else share.at(one[label].value - other[label].value)
        for label, share in basis.shares.items()
    }


def _decide(item: Difference, margin: float) -> Verdict:
    """Return the verdict; a difference within the margin is similar, however certain its sign."""
    if item.how == "judge":
        is_seen = item.p_holm < verdicts.ALPHA and not item.judge.is_within(margin)
        verdict: Verdict = "probably better" if item.judge.value > 0 else "probably worse"
        return verdict if is_seen else "inconclusive"
    if item.how == "same" or item.good.is_within(margin):
        return "similar"
    certain = max(item.probability, 1 - item.probability)
    if item.p_holm < verdicts.ALPHA if item.how == "ratings" else certain >= verdicts.SURE:
        return "better" if item.probability > 0.5 else "worse"
    if certain >= verdicts.LIKELY:
        return "probably better" if item.probability > 0.5 else "probably worse"
    return "at least as good" if item.at_least[0] >= verdicts.SURE_AT_LEAST else "inconclusive"


def _difference(
    one: JudgedModel,
    other: JudgedModel | PublishedModel,
    levels: Mapping[str, ComparedLevel],
    settings: ComparisonSettings,
) -> Difference:
    level, wins = levels[one.name], None
    if isinstance(other, PublishedModel):
        alone = dict.fromkeys(LABELS, UNDEFINED_CONTRAST)
        basis = _from_study(one, level, other, settings)
    else:
        alone = judge_contrast(one.rated, other.rated)
        basis = estimate_difference(one, other, alone, settings)
        wins = prompt_wins(one, other)
    theirs = other.shares if isinstance(other, PublishedModel) else levels[other.name].shares
    good, probability, at_least = basis.shares.get(GOOD, UNDEFINED), basis.probability, basis.at_least
    p, error = verdicts.p_of_interval(good, basis.freedom)
    if basis.how == "ratings":
        probability = verdicts.chance_above(good, 0.0, basis.freedom)
        at_least = (
            verdicts.chance_above(good, -settings.max_drop, basis.freedom),
            verdicts.chance_above(-good, -settings.max_drop, basis.freedom),
        )
    p = 2 * min(probability, 1 - probability) if math.isfinite(probability) else p
    return Difference(
        one=one.name,
        other=other.name,
        how=basis.how,
        reason=basis.reason,
        shares=_on_levels(basis, level.shares, theirs),
        judge=alone[GOOD].estimate(),
        shared_prompts=wins.prompts if wins else 0,
        p=p,
        error=error,
        unit="prompts" if basis.how == "judge" else "people",
        probability=probability,
        at_least=at_least,
        max_drop=settings.max_drop,
        wins=wins,
    )


def _from_study(
    one: JudgedModel, level: ComparedLevel, other: PublishedModel, settings: ComparisonSettings
) -> DifferenceEstimate:
    """Compare a judged model with human ratings of a published one: no raters or prompts are shared."""
    if reason := refuse(one):
        return DifferenceEstimate(reason=reason)
    if level.how in BY_LINE:
        found = {}
        for column, label in enumerate(LABELS):
            line = settings.lines[column].without(one.known_as)
            found[label] = transport.transport_difference(
                line, _target(one, column, line), other.shares[label]
            )
        good = found[GOOD]
        at_least = good.exceeds(-settings.max_drop), 1 - good.exceeds(settings.max_drop)
        return DifferenceEstimate(
            how=level.how,
            shares={label: item.estimate for label, item in found.items()},
            probability=good.exceeds(0.0),
            at_least=at_least if good.estimate.bound is None else (math.nan, math.nan),
        )
    if level.how != "ratings":
        return DifferenceEstimate(reason=level.reason or NOT_PEOPLE)
    return DifferenceEstimate(
        how="ratings",
        shares=_gap(level.shares, other.shares),
        freedom=float(one.ppi.freedom[-1]) if one.ppi is not None else math.inf,
    )


def _gap(one: Mapping[str, Estimate], other: Mapping[str, Estimate]) -> dict[str, Estimate]:
    return {label: one[label] - other[label] for label in LABELS}


def chances_of_best(models: Sequence[JudgedModel], settings: ComparisonSettings) -> dict[str, float]:
    """Return each model's probability of having the highest share of Good; empty where none is known.

    Models that cannot be compared are left out.
    """
    if settings.has_no_level:
        fit = [item for item in models if refuse(item) is None]
        if len(fit) < 2 or any(item.ppi is not None for item in models):
            return {}
        return _shares_of_best([item.name for item in fit], wide_prior.rank_by_scores(fit))
    line = settings.lines[-1].without(*(item.known_as for item in models))
    targets = {item.name: _target(item, -1, line) for item in models if refuse(item) is None}
    targets = {name: item for name, item in targets.items() if transport.refusal(line, item) is None}
    if len(targets) < 2:
        return {}
    return _shares_of_best([*targets], transport.rank_draws(line, [*targets.values()]))


def _shares_of_best(names: Sequence[str], draws: Floats) -> dict[str, float]:
    counts = np.bincount(draws.argmax(axis=0), minlength=len(names))
    return dict(zip(names, (counts / draws.shape[1]).tolist(), strict=True))


def prompt_wins(one: JudgedModel, other: JudgedModel) -> PromptWins | None:
    """Count the shared prompts that each model wins; None where there is none."""
    if one.rated.prompt is None or other.rated.prompt is None:
        return None
    (first, rows), (second, others) = (_by_prompt(item.rated) for item in (one, other))
    gaps = {prompt: score - second[prompt] for prompt, score in first.items() if prompt in second}
    if not gaps:
        return None
    most: tuple[PromptGap, ...] = ()
    if one.contents and other.contents:
        most = tuple(
            PromptGap(
                scores=(first[prompt], second[prompt]),
                contents=(one.contents[rows[prompt]], other.contents[others[prompt]]),
            )
            for prompt in sorted(gaps, key=lambda prompt: (-abs(gaps[prompt]), prompt))[:MOST]
            if abs(gaps[prompt]) > TIE
        )
    return PromptWins(
        prompts=len(gaps),
        wins=sum(gap > TIE for gap in gaps.values()),
        losses=sum(gap < -TIE for gap in gaps.values()),
        most=most,
    )


def _by_prompt(model: RatedModel) -> tuple[dict[str, float], dict[str, int]]:
    """Return the mean score of each prompt's replies, and the row of the first of them."""
    scores: Floats = model.judged @ np.arange(1.0, model.judged.shape[1] + 1)
    prompts, first, number = np.unique(np.asarray(model.prompt), return_index=True, return_inverse=True)
    means = np.bincount(number, scores) / np.bincount(number) if len(scores) else scores
    names = prompts.astype(str).tolist()
    return dict(zip(names, means.tolist(), strict=True)), dict(zip(names, first.tolist(), strict=True))


def people_needed(
    one: JudgedModel, other: JudgedModel | PublishedModel, item: Difference, settings: ComparisonSettings
) -> int | None:
    """Return how many more people find the estimated difference, or the margin, with 80% power.

    Each rates ten unrated replies, half of each model. By the judge alone it is prompts instead.
    None where it is more than `MOST_RATINGS`, or unknown.
    """
    judged = [model for model in (one, other) if isinstance(model, JudgedModel)]
    size = max(settings.margin, abs(np.nan_to_num(item.good.order)))
    if item.how == "judge" and item.p_holm < verdicts.ALPHA:
        return None
    if item.how == "judge":
        have = min(len(model.rated.judged) for model in judged)
        total = _prompts(size, item.error, have)
        return max(1, math.ceil(total - have)) if math.isfinite(total) else None
    if item.how in ("prior", "refused"):
        return None
    have = min(len(model.rated.item) for model in judged)
    shares = [float(model.rated.judged[:, -1].mean()) for model in judged if len(model.rated.judged)]
    share = float(np.mean(shares)) if shares else 0.5
    known, crossed = 0.0, CROSSED
    if isinstance(other, PublishedModel):
        ends = other.shares[GOOD].interval
        known, crossed = ((ends.high - ends.low) / 2 / NORMAL) ** 2 if ends else math.inf, 1.0
    variance = share * (1 - share) * _design_effect(judged, settings) * crossed
    total = verdicts.ratings_of_each(size, variance=variance, sides=len(judged), known=known)
    ratings = len(judged) * (total - have)
    return max(1, math.ceil(ratings / verdicts.RATINGS_EACH)) if ratings <= MOST_RATINGS else None


def _prompts(difference: float, error: float, prompts: int) -> float:
    """Return how many prompts detect a difference, if so many have this standard error."""
    total = float(prompts)
    for _ in range(10):  # the more prompts, the smaller their t
        total = prompts * (error * reach(max(1.0, total - 1)) / difference) ** 2
    return total


def _design_effect(judged: Sequence[JudgedModel], settings: ComparisonSettings) -> float:
    """Return their own raters' design effect where those are many enough, else the calibration's."""
    known = [item.ppi for item in judged if item.ppi is not None and item.ppi.clusters >= KNOWN_RATERS]
    own = [float(ppi.design_effect[-1]) for ppi in known if math.isfinite(ppi.design_effect[-1])]
    return float(np.mean(own)) if own else max(LEAST_EFFECT, settings.design_effect)
