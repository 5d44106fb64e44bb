"""Differences of judged models: corrected where possible, and paired by prompt.

Two models without ratings are compared by the calibrated line: the sign of their difference by the pooled
deviations of the judge from people, its size by draws from the line's posterior. Ratings of either update the
line's levels. Without a calibration the difference is that of the ratings, else the judge's own. The choice
never depends on the estimates. Effects of prompts and raters that both models share cancel.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

import numpy as np

from empathy_judge.calibration.cluster import NORMAL, UNDEFINED_CONTRAST, Contrast, reach
from empathy_judge.calibration.comparison import verdicts
from empathy_judge.calibration.comparison.judged_models import (
    GOOD,
    ComparedLevel,
    ComparisonSettings,
    How,
    JudgedModel,
    compared_level,
    judge_contrast,
    logit_contrast,
)
from empathy_judge.calibration.comparison.published_models import PublishedModel
from empathy_judge.calibration.comparison.verdicts import Verdict
from empathy_judge.calibration.estimate import UNDEFINED, Estimate, Floats, Interval
from empathy_judge.calibration.shares import transport
from empathy_judge.calibration.shares.correction import target_of
from empathy_judge.calibration.shares.ppi import RatedEstimate, RatedModel, rated_difference
from empathy_judge.calibration.shares.transport import LEAST_REPLIES, CalibratedModels, TargetModel
from empathy_judge.data.records import LABELS
from empathy_judge.data.text import listed

VARIANT_CORRELATION: Final = 0.5  # assumed, of the judge's errors on variants of one model
TOO_FEW_PROMPTS: Final = "too few prompts to estimate how much they differ"
KNOWN_RATERS: Final = 10  # as many raters show their own design effect
TIE: Final = 0.05  # on the scale from 1 to 3: what the judge finds no further apart is a tie
MOST: Final = 10  # prompts kept of a pair
LEAST_P: Final = 1e-300  # below it no standard error is left


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceEstimate:
    """A difference, the probability that it is positive, and the reason if it is refused."""

    how: How = "refused"
    shares: Mapping[str, Estimate] = field(default_factory=dict)
    probability: float = math.nan
    freedom: float = math.inf  # of the interval; infinite where it comes from a posterior
    reason: str | None = None
    correlation: float = 0.0


def estimate_difference(
    one: JudgedModel, other: JudgedModel, alone: Mapping[str, Contrast], settings: ComparisonSettings
) -> DifferenceEstimate:
    """Estimate a difference by the line with the ratings, else by ratings of both, else by the judge."""
    if reason := refuse(one, other):
        return DifferenceEstimate(reason=reason)
    gap = rated_difference(one.ppi, other.ppi) if one.ppi is not None and other.ppi is not None else None
    if gap is not None and not np.isfinite(gap.variance).all():  # the ratings do not say how exact they are
        gap = None
    if one.known is not None and other.known is not None:
        return DifferenceEstimate(how="ratings", shares=_gap(one.known, other.known))
    by_line = DifferenceEstimate()
    if settings.calibrated is not None:
        by_line = _by_line(one, other, gap, alone, settings)
        if by_line.shares:
            return by_line
    if gap is not None:
        return DifferenceEstimate(how="ratings", shares=gap.shares(), freedom=float(gap.freedom[-1]))
    if reason := by_line.reason or (None if alone[GOOD].is_defined else TOO_FEW_PROMPTS):
        return DifferenceEstimate(reason=reason)
    return DifferenceEstimate(
        how="judge",
        shares={label: item.estimate() for label, item in alone.items()},
        freedom=alone[GOOD].freedom,
    )


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
    settings: ComparisonSettings,
) -> DifferenceEstimate:
    """Estimate by the calibrated line, with ratings of either where it has some; shared noise cancels."""
    correlation = VARIANT_CORRELATION if settings.are_variants else 0.0
    shares, probability, is_rated = {}, math.nan, False
    for column, label in enumerate(LABELS):
        line = settings.lines[column].without(one.known_as, other.known_as)
        targets = [_target(item, column, line) for item in (one, other)]
        if gap is None and all(target.is_rated for target in targets):  # together they say nothing exact
            targets = [target.without_ratings for target in targets]
        for item, target in zip((one, other), targets, strict=True):
            if reason := transport.refusal(line, target):
                return DifferenceEstimate(reason=f"{item.name}: {reason}")
        is_rated = any(target.is_rated for target in targets)
        is_open = any(not target.is_rated and transport.side_beyond(line, target) for target in targets)
        # Half of the difference's noise to each: together they have what pairing leaves of it.
        if alone[label].is_defined:
            targets = [replace(target, judge_noise=alone[label].error ** 2 / 2) for target in targets]
        if gap is not None and is_rated:
            targets = [replace(target, noise=float(gap.stated_variance[column]) / 2) for target in targets]
        shares[label], probability = transport.transport_difference(
            line, *targets, correlation=correlation, is_open=is_open
        )
        if label == GOOD and not is_rated:
            error = logit_contrast(one.rated, other.rated).error
            if not math.isfinite(error):
                return DifferenceEstimate(reason=TOO_FEW_PROMPTS)
            probability = transport.sign_probability(
                line, targets[0], targets[1], error, correlation=correlation
            )
            shares[label] = _with_sign(shares[label], probability)
    conflicts = {_conflict(item, settings) for item in (one, other)} - {None}
    if gap is not None and is_rated and conflicts:
        by_ratings, freedom = gap.shares(), float(gap.freedom[-1])
        if conflicts == {"ratings"}:
            return DifferenceEstimate(how="ratings", shares=by_ratings, freedom=freedom)
        # The difference must hold by the ratings alone, too.
        p = verdicts.p_of_interval(by_ratings[GOOD], freedom)[0]
        sign = 1 if probability > 0.5 else -1
        certain = 1 - p / 2 if sign * by_ratings[GOOD].value > 0 else p / 2
        probability = 0.5 + sign * max(0.0, min(abs(probability - 0.5), certain - 0.5))
        shares = {label: item.hull(shares[label]) for label, item in by_ratings.items()}
    how: How = "both" if is_rated else "line"
    return DifferenceEstimate(how=how, shares=shares, probability=probability, correlation=correlation)


def _target(item: JudgedModel, column: int, line: CalibratedModels) -> TargetModel:
    """Return a model for the line, with its ratings here or in the calibration."""
    target = target_of(item.rated, item.ppi, column, line)
    share = item.known[LABELS[column]] if item.known is not None else UNDEFINED
    if share.interval is None:
        return target
    error = (share.interval.high - share.interval.low) / 2 / NORMAL
    return replace(target, crowd=share.value, noise=error**2)


def _with_sign(estimate: Estimate, probability: float) -> Estimate:
    """Return the interval of the size, ended at 0 exactly where the sign is significant."""
    ends = estimate.interval
    if ends is None:
        return estimate
    if probability < 0.5:
        return -_with_sign(-estimate, 1 - probability)
    sides = 1 if ends.high >= 1 else 2  # an open interval has its whole error at one end
    is_significant = sides * min(probability, 1 - probability) < verdicts.ALPHA
    low = max(ends.low, 0.0) if is_significant else min(ends.low, 0.0)
    return Estimate(estimate.value, Interval(low, ends.high))


def _conflict(item: JudgedModel, settings: ComparisonSettings) -> transport.Conflict | None:
    line = settings.lines[-1].without(item.known_as)
    return transport.find_conflict(line, target_of(item.rated, item.ppi, len(LABELS) - 1, line))


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
    needed: int | None = None  # how many more find a difference as large as the margin with 80% power
    unit: Literal["ratings", "prompts"]
    verdict: Verdict = "inconclusive"
    is_robust: bool = True  # the verdict holds with all unscored replies counted as Bad
    unscored: tuple[float, float] = (0.0, 0.0)  # the shares of unscored replies of the one and the other
    is_withheld: bool = False  # it is not robust, and the shares of unscored replies are large
    p: float
    p_holm: float = math.nan
    error: float  # the standard error of Good that the interval implies
    shares: Mapping[str, Estimate]
    judge: Estimate  # the judge's own difference
    probability: float = math.nan  # that people prefer the one to the other
    correlation: float = 0.0  # assumed of the judge's errors on variants of one model
    wins: PromptWins | None = None

    @property
    def good(self) -> Estimate:
        return self.shares.get(GOOD, UNDEFINED)

    @property
    def bound(self) -> Literal["at least", "at most"] | None:
        """The bound that the difference is, where a model lies beyond the rated range; None within it."""
        if (ends := self.good.interval) is None or (ends.low > -1.0 and ends.high < 1.0):
            return None
        return "at least" if ends.high >= 1.0 else "at most"

    def reverse(self) -> "Difference":
        """Return other - one."""
        return replace(
            self,
            one=self.other,
            other=self.one,
            verdict=verdicts.REVERSED[self.verdict],
            shares={label: -share for label, share in self.shares.items()},
            judge=-self.judge,
            probability=1 - self.probability,
            wins=self.wins.reverse() if self.wins else None,
            unscored=self.unscored[::-1],
        )


def differences(
    pairs: Sequence[tuple[JudgedModel, JudgedModel | PublishedModel]], settings: ComparisonSettings
) -> tuple[Difference, ...]:
    """Return every pair's difference and verdict, with Holm's adjustment over all pairs."""
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
            item = replace(item, needed=needed_ratings(one, other, item, settings))
        decided.append(item)
    return tuple(decided)


def _adjust(items: Sequence[Difference]) -> list[Difference]:
    """Return the differences with p-values by Holm's adjustment over all of them."""
    adjusted = verdicts.holm([item.p for item in items])
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
    value, z = item.good.value, -float(ndtri(max(item.p, LEAST_P) / 2))
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
    if basis.how not in ("line", "both"):
        return dict(basis.shares)
    return {label: share.at(one[label].value - other[label].value) for label, share in basis.shares.items()}


def _decide(item: Difference, margin: float) -> Verdict:
    """Return the verdict; a difference within the margin is similar, however certain its sign."""
    if item.how == "judge":
        is_seen = item.p_holm < verdicts.ALPHA and not item.judge.is_within(margin)
        return _probably(item.judge.value) if is_seen else "inconclusive"
    if item.good.is_within(margin):
        return "similar"
    if item.p_holm < verdicts.ALPHA:
        return "better" if item.probability > 0.5 else "worse"
    is_likely = max(item.probability, 1 - item.probability) >= verdicts.LIKELY
    return _probably(item.probability - 0.5) if is_likely else "inconclusive"


def _probably(value: float) -> Verdict:
    return "probably better" if value > 0 else "probably worse"


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
    good, probability = basis.shares.get(GOOD, UNDEFINED), basis.probability
    p, error = verdicts.p_of_interval(good, basis.freedom)
    if basis.how != "judge" and math.isnan(probability):  # by ratings alone
        probability = 1 - p / 2 if good.value > 0 else p / 2
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
        unit="prompts" if basis.how == "judge" else "ratings",
        probability=probability,
        correlation=basis.correlation,
        wins=wins,
    )


def _from_study(
    one: JudgedModel, level: ComparedLevel, other: PublishedModel, settings: ComparisonSettings
) -> DifferenceEstimate:
    """Compare a judged model with human ratings of a published one: no raters or prompts are shared."""
    if reason := refuse(one):
        return DifferenceEstimate(reason=reason)
    if level.how in ("line", "both"):
        shares, probability = {}, math.nan
        for column, label in enumerate(LABELS):
            line = settings.lines[column].without(one.known_as)
            target = _target(one, column, line)
            is_open = not target.is_rated and transport.side_beyond(line, target) is not None
            shares[label], probability = transport.transport_difference(
                line, target, other.shares[label], is_open=is_open
            )
        return DifferenceEstimate(how=level.how, shares=shares, probability=probability)
    if level.how != "ratings":
        return DifferenceEstimate(reason=level.reason or NOT_PEOPLE)
    return DifferenceEstimate(
        how="ratings",
        shares=_gap(level.shares, other.shares),
        freedom=float(one.ppi.freedom[-1]) if one.ppi is not None else math.inf,
    )


def _gap(one: Mapping[str, Estimate], other: Mapping[str, Estimate]) -> dict[str, Estimate]:
    return {label: one[label] - other[label] for label in LABELS}


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


def needed_ratings(
    one: JudgedModel, other: JudgedModel | PublishedModel, item: Difference, settings: ComparisonSettings
) -> int | None:
    """Return how many more ratings of each model detect a true difference of the margin with 80% power.

    Each rating is of a new reply. By the judge alone it is more prompts instead. None where no number does,
    or none is known.
    """
    judged = [model for model in (one, other) if isinstance(model, JudgedModel)]
    if item.how == "judge":
        have = min(len(model.rated.judged) for model in judged)
        total = _prompts(settings.margin, item.error, have)
    elif item.how == "refused" and settings.calibrated is None:
        return None
    else:
        have = min(len(model.rated.item) for model in judged)
        shares = [float(model.rated.judged[:, -1].mean()) for model in judged if len(model.rated.judged)]
        share = float(np.mean(shares)) if shares else 0.5
        known = 0.0
        if isinstance(other, PublishedModel):
            ends = other.shares[GOOD].interval
            known = ((ends.high - ends.low) / 2 / NORMAL) ** 2 if ends else math.inf
        variance = share * (1 - share) * _design_effect(judged, settings)
        total = verdicts.ratings_of_each(settings.margin, variance=variance, sides=len(judged), known=known)
    return max(1, math.ceil(total - have)) if math.isfinite(total) else None


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
    return max(1.0, float(np.mean(own)) if own else settings.design_effect)
