"""Differences of judged models: corrected where possible, and paired by prompt.

A difference is estimated by the calibrated line, with each model's deviation from it, and by ratings of the
two, weighted by their precision. Outside the line's range it is estimated by ratings of both alone, or by the
end of the range: a model that the judge places below all rated ones is no better than one at that end.
Without a calibration and ratings it is the judge's own. The choice never depends on the estimates. Effects of
prompts and raters that both models share cancel.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

import numpy as np

from calibration.cluster import (
    NORMAL,
    UNDEFINED_CONTRAST,
    Contrast,
    reach,
    t_quantile,
)
from calibration.comparison.judged_models import (
    GOOD,
    NO_LINES,
    ComparedLevel,
    ComparisonSettings,
    How,
    JudgedModel,
    compared_level,
    judge_contrast,
)
from calibration.comparison.published_models import PublishedModel
from calibration.comparison.rated_differences import RatedDifference, rated_difference
from calibration.comparison.verdicts import (
    ALPHA,
    LIKELY,
    REVERSED,
    SETTLED,
    Verdict,
    direction,
    p_of_interval,
)
from calibration.estimate import (
    CONFIDENCE,
    UNDEFINED,
    Estimate,
    Floats,
    Interval,
    estimate_of,
    independent_difference,
    is_same_within,
)
from calibration.multiple_testing import holm
from calibration.pairing import LEAST_RATERS
from calibration.shares.correction import target_of
from calibration.shares.planning import ratings_of_each
from calibration.shares.ppi import RatedModel
from calibration.shares.transport import (
    CalibratedModels,
    Side,
    TargetModel,
    no_line,
    side_beyond,
    transport,
    transport_difference,
)
from data.records import LABELS

VARIANT_CORRELATION: Final = 0.5  # assumed, of the judge's errors on variants of one model
LEAST_REPLIES: Final = 10  # of each model: fewer do not tell how much its replies differ
TOO_FEW_PROMPTS: Final = "too few prompts to tell how much they differ"
KNOWN_RATERS: Final = 10  # as many raters show their own design effect
TIE: Final = 0.05  # on the scale from 1 to 3: what the judge finds no further apart is a tie
MOST: Final = 10  # prompts kept of a pair

Bound = Literal["at least", "at most"]
OPPOSITE: Final[Mapping[Bound, Bound]] = {"at least": "at most", "at most": "at least"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceEstimate:
    """A difference with its degrees of freedom, and the reason if it is refused.

    `beyond` are models that the judge places outside the rated range; where there are some, `shares` are a
    lower or upper `bound`, and `extended` are by the line extrapolated to them.
    """

    how: How = "refused"
    shares: Mapping[str, Estimate] = field(default_factory=dict)
    freedom: float = math.nan
    reason: str | None = None
    beyond: Mapping[str, Side] = field(default_factory=dict)
    bound: Bound | None = None
    extended: Mapping[str, Estimate] = field(default_factory=dict)
    correlation: float = 0.0


def estimate_difference(
    one: JudgedModel, other: JudgedModel, alone: Mapping[str, Contrast], settings: ComparisonSettings
) -> DifferenceEstimate:
    """Estimate a difference by the line with the ratings; outside its range by ratings or by the judge.

    The choice never depends on the estimates: to take whichever has the shorter interval is to take what is
    short by chance.
    """
    if few_replies := too_few_replies(one, other):
        return DifferenceEstimate(reason=few_replies)
    few = few_raters(one, other)
    gap = rated_difference(one.ppi, other.ppi) if one.ppi is not None and other.ppi is not None else None
    if gap is not None and not np.isfinite(gap.variance).all():  # the ratings do not say how exact they are
        gap = None
    by_line = DifferenceEstimate()
    if settings.calibrated is not None:
        by_line = _by_line(one, other, gap, alone, settings)
        if by_line.shares and not by_line.beyond:
            return by_line
    if gap is not None and few is None:
        shares = dict(zip(LABELS, map(estimate_of, gap.value, gap.low, gap.high), strict=True))
        return DifferenceEstimate(how="ratings", shares=shares, freedom=float(gap.freedom[-1]))
    if by_line.beyond:
        return by_line
    refused = by_line.reason
    reason = "; ".join(filter(None, (refused, few)))
    if not reason and not alone[GOOD].is_defined:
        reason = TOO_FEW_PROMPTS
    if reason:
        return DifferenceEstimate(reason=reason)
    return DifferenceEstimate(
        how="judge",
        shares={label: item.estimate() for label, item in alone.items()},
        freedom=alone[GOOD].freedom,
    )


def few_raters(*models: JudgedModel) -> str | None:
    """Say why ratings cannot decide although all these have some; None where they can."""
    raters = [len(np.unique(item.rated.cluster)) for item in models]
    least = min(raters)
    if not least or least >= LEAST_RATERS:
        return None
    who = "1 rater is" if least == 1 else f"{least} raters are"
    more = f"{LEAST_RATERS - least} more would do"
    return f"{who} too few: how much people differ cannot be seen in so few; {more}"


def too_few_replies(*models: JudgedModel) -> str | None:
    """Say which model has too few scored replies or conversations, if one has."""
    name, least = min(((item.name, len(item.rated.judged)) for item in models), key=lambda item: item[1])
    return None if least >= LEAST_REPLIES else f"{name}: {least} scored; at least {LEAST_REPLIES} are needed"


def _by_line(
    one: JudgedModel,
    other: JudgedModel,
    gap: RatedDifference | None,
    alone: Mapping[str, Contrast],
    settings: ComparisonSettings,
) -> DifferenceEstimate:
    """Estimate by the calibrated line, with ratings of either where it has some; shared noise cancels."""
    correlation = VARIANT_CORRELATION if settings.are_variants else 0.0
    shares, extended = {}, {}
    beyond: dict[str, Side] = {}
    for column, label in enumerate(LABELS):
        line = (settings.calibrated or NO_LINES)[column].without(one.known_as, other.known_as)
        targets = [target_of(item.rated, item.ppi, column, line) for item in (one, other)]
        if gap is None and all(target.is_rated for target in targets):  # together they say nothing exact
            targets = [replace(target, crowd=math.nan, noise=math.inf) for target in targets]
        for item, target in zip((one, other), targets, strict=True):
            if reason := no_line(line, target):
                return DifferenceEstimate(reason=f"{item.name}: {reason}")
        sides = [side_beyond(line, target) for target in targets]
        # Half of the difference's noise to each: together they have what pairing leaves of it.
        if alone[label].is_defined:
            targets = [replace(target, judge_noise=alone[label].error ** 2 / 2) for target in targets]
        if gap is not None:
            targets = [replace(target, noise=float(gap.stated_variance[column]) / 2) for target in targets]
        extended[label] = transport_difference(line, *targets, correlation=correlation)
        shares[label] = extended[label]
        if any(sides):
            targets = [_unrated(target, item) for target, item in zip(targets, (one, other), strict=True)]
            extended[label] = transport_difference(line, *targets, correlation=correlation)
            at_ends = [_at_end(target, side, line) for target, side in zip(targets, sides, strict=True)]
            shares[label] = transport_difference(line, *at_ends, correlation=correlation)
        if label == GOOD:
            beyond = {item.name: side for item, side in zip((one, other), sides, strict=True) if side}
    freedom = settings.freedom(one.known_as, other.known_as)
    if beyond:
        return _beyond_rated(one, other, beyond, shares, extended, freedom, correlation)
    ends = shares[GOOD].interval
    if gap is not None and ends is not None and (variance := float(gap.stated_variance[-1])):
        # Those of line and ratings together lie between the two, as each weighs.
        weight = min(1.0, ((ends.high - ends.low) / 2 / NORMAL) ** 2 / variance)
        freedom = weight * float(gap.freedom[-1]) + (1 - weight) * freedom
    is_rated = gap is not None or (one.ppi is None) != (other.ppi is None)
    return DifferenceEstimate(
        how="both" if is_rated else "line",
        shares=shares,
        freedom=freedom,
        extended=extended,
        correlation=correlation,
    )


def _at_end(target: TargetModel, side: Side | None, line: CalibratedModels) -> TargetModel:
    """Return the model at the end of the calibrated range that it lies beyond."""
    return target if side is None else replace(target, judge=line.range[side == "above"])


def _unrated(target: TargetModel, item: JudgedModel) -> TargetModel:
    """Return the model without its ratings, where too few people gave them."""
    return replace(target, crowd=math.nan, noise=math.inf) if few_raters(item) else target


def _beyond_rated(
    one: JudgedModel,
    other: JudgedModel,
    beyond: Mapping[str, Side],
    shares: Mapping[str, Estimate],
    extended: Mapping[str, Estimate],
    freedom: float,
    correlation: float,
) -> DifferenceEstimate:
    """Return a bound: a model outside the rated range is no better, or no worse, than one at its end."""
    rises = {beyond.get(one.name) == "above", beyond.get(other.name) == "below"}
    falls = {beyond.get(one.name) == "below", beyond.get(other.name) == "above"}
    bound: Bound | None = None
    if any(rises) != any(falls):
        bound = "at least" if any(rises) else "at most"
    return DifferenceEstimate(
        how="line" if bound else "refused",
        shares=shares if bound else {},
        freedom=freedom,
        reason=describe_beyond(beyond),
        beyond=beyond,
        bound=bound,
        extended=extended,
        correlation=correlation,
    )


def describe_beyond(sides: Mapping[str, Side]) -> str:
    """Say on which side of the rated models the judge places each of these.

    >>> describe_beyond({"a": "above", "b": "below"})
    'the judge places a above and b below every model that people rated'
    >>> describe_beyond({"a": "below", "b": "below"})
    'the judge places a and b below every model that people rated'
    """
    by_side: dict[Side, list[str]] = {}
    for name, side in sides.items():
        by_side.setdefault(side, []).append(name)
    places = " and ".join(f"{' and '.join(names)} {side}" for side, names in by_side.items())
    return f"the judge places {places} every model that people rated"


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptGap:
    """One prompt on which two models differ: the judge's score of each, from 1 to 3.

    `contents` are the digests of the two replies.
    """

    scores: tuple[float, float]
    contents: tuple[str, str]

    @property
    def gap(self) -> float:
        return self.scores[0] - self.scores[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptWins:
    """Shared prompts on which the judge prefers one model or the other; the rest are ties.

    `most` are those with the largest differences.
    """

    prompts: int
    wins: int
    losses: int
    most: tuple[PromptGap, ...] = ()

    def reverse(self) -> "PromptWins":
        """Return the same for the models in the other order."""
        most = tuple(PromptGap(scores=gap.scores[::-1], contents=gap.contents[::-1]) for gap in self.most)
        return PromptWins(prompts=self.prompts, wins=self.losses, losses=self.wins, most=most)


Unit = Literal["ratings", "prompts"]
NOT_PEOPLE: Final = "the judge's own share is not a crowd's; a calibration or ratings would make it one"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The difference one - other of every label's share; p and verdict are about Good.

    `judge` is the judge's own difference, and `wins` counts prompts. Where a model is `beyond` the rated
    range, the difference is a lower or upper `bound`, and one end of its interval is known.
    `points` is 1 or -1 where the human shares of Good and of Bad both point to the one or to the other, and
    `doubt` the probability that they do not. `judge_p` is nan where the two share no prompts.
    `correlation` is that assumed of the judge's errors on variants of one model, else 0. `extremes` is where
    the interval of Good could end if all unscored responses of the one were Bad and of the other Good, or the
    reverse. `detects` is the smallest difference that is found with 80% power; `needed` is how many more
    `unit`s find one as large as the margin.
    """

    one: str
    other: str
    how: How
    reason: str | None
    shared_prompts: int
    needed: int | None = None
    unit: Unit
    verdict: Verdict = "inconclusive"
    is_robust: bool = True  # the verdict holds whatever the unscored responses were
    p: float
    p_holm: float = math.nan
    error: float  # the standard error of Good that the interval implies
    detects: float
    shares: Mapping[str, Estimate]
    judge: Estimate
    extremes: tuple[float, float] | None = None
    beyond: Mapping[str, Side] = field(default_factory=dict)
    bound: Bound | None = None
    correlation: float = 0.0
    points: int = 0
    doubt: float = math.nan
    judge_p: float = math.nan
    wins: PromptWins | None = None

    @property
    def good(self) -> Estimate:
        return self.shares.get(GOOD, UNDEFINED)

    def reverse(self) -> "Difference":
        """Return other - one."""
        return replace(
            self,
            one=self.other,
            other=self.one,
            verdict=REVERSED[self.verdict],
            shares={label: -share for label, share in self.shares.items()},
            judge=-self.judge,
            points=-self.points,
            wins=self.wins.reverse() if self.wins else None,
            bound=OPPOSITE[self.bound] if self.bound else None,
            extremes=self.extremes and (-self.extremes[1], -self.extremes[0]),
        )


def differences(
    pairs: Sequence[tuple[JudgedModel, JudgedModel | PublishedModel]], settings: ComparisonSettings
) -> tuple[Difference, ...]:
    """Return every pair's difference and verdict, with Holm's adjustment over all pairs."""
    judged = {item.name: item for pair in pairs for item in pair if isinstance(item, JudgedModel)}
    levels = {name: compared_level(item, settings) for name, item in judged.items()}
    plain = [_difference(one, other, levels[one.name], settings) for one, other in pairs]
    decided = []
    for (one, other), item, p in zip(pairs, plain, holm([item.p for item in plain]), strict=True):
        item = replace(item, p_holm=float(p), extremes=_extremes(item, levels))
        verdict = _decide(item, settings.margin)
        ends, holds = item.extremes, True
        is_lost = any(levels[model.name].unscored for model in (one, other) if model.name in levels)
        is_shown = verdict in ("better", "worse") or (item.how == "judge" and verdict != "inconclusive")
        if is_lost and is_shown and ends is not None:
            holds = ends[0] > 0 if verdict.endswith("better") else ends[1] < 0
        item = replace(item, verdict=verdict, is_robust=holds)
        if verdict == "inconclusive" or (item.how != "judge" and verdict not in SETTLED):
            how = "refused" if item.beyond else item.how
            item = replace(item, needed=needed_ratings(one, other, how, item.error, settings))
        decided.append(item)
    return tuple(decided)


def _decide(item: Difference, margin: float) -> Verdict:
    """Return the verdict; a difference within the margin is similar, however certain its sign."""
    if item.how == "judge":
        is_seen = item.p_holm < ALPHA and not is_same_within(item.judge, margin)
        return _probably(item.judge.value) if is_seen else "inconclusive"
    if item.bound is None and is_same_within(item.good, margin):
        return "similar"
    if item.p_holm < ALPHA:
        return "better" if item.good.value > 0 else "worse"
    if math.isnan(item.judge_p):  # no shared prompts: the human shares alone must be more certain
        is_likely = item.doubt < LIKELY / 2
    else:
        is_significant = item.judge_p < ALPHA and item.points * item.judge.value > 0
        is_likely = is_significant and item.doubt < LIKELY
    return _probably(item.points) if is_likely and item.points else "inconclusive"


def _probably(value: float) -> Verdict:
    return "probably better" if value > 0 else "probably worse"


def _difference(
    one: JudgedModel, other: JudgedModel | PublishedModel, level: ComparedLevel, settings: ComparisonSettings
) -> Difference:
    shared, wins = 0, None
    if isinstance(other, PublishedModel):
        alone = dict.fromkeys(LABELS, UNDEFINED_CONTRAST)
        basis = _from_study(one, level, other, settings)
    else:
        alone = judge_contrast(one.rated, other.rated)
        basis = estimate_difference(one, other, alone, settings)
        wins = prompt_wins(one.rated, other.rated, (one.contents, other.contents))
        shared = wins.prompts if wins else 0
    good = basis.shares.get(GOOD, UNDEFINED)
    p, error = p_of_interval(good, basis.freedom)
    shares = basis.shares
    if basis.bound:
        p, limits = _one_sided(good, p, error, basis)
        shares = {**shares, GOOD: limits}
    seen = basis.extended or basis.shares
    points, doubt = direction(seen[GOOD], seen[LABELS[0]], basis.freedom) if GOOD in seen else (0, math.nan)
    return Difference(
        one=one.name,
        other=other.name,
        how=basis.how,
        reason=basis.reason,
        shares=shares,
        judge=alone[GOOD].estimate(),
        judge_p=p_of_interval(alone[GOOD].estimate(), alone[GOOD].freedom)[0],
        shared_prompts=shared,
        p=p,
        error=error,
        detects=error * reach(basis.freedom) if math.isfinite(error) else math.nan,
        unit="prompts" if basis.how == "judge" else "ratings",
        beyond=basis.beyond,
        bound=basis.bound,
        correlation=basis.correlation,
        points=points,
        doubt=doubt,
        wins=wins,
    )


def _one_sided(good: Estimate, p: float, error: float, basis: DifferenceEstimate) -> tuple[float, Estimate]:
    """Return p and the interval of Good outside the rated range.

    Just outside it a difference must be as significant as just inside: by the line extrapolated, two-sided.
    And it must hold for a model at the end of the range, one-sided. The interval excludes 0 where both do;
    its other end is the line's.
    """
    drawn_on = basis.extended[GOOD]
    if good.interval is None or drawn_on.interval is None or not math.isfinite(p):
        return p, good
    sign = 1.0 if basis.bound == "at least" else -1.0
    if sign * good.value <= 0:
        return 1.0, good
    limit = good.value - sign * float(t_quantile(basis.freedom, 2 * CONFIDENCE - 1)) * error
    if sign > 0:
        ends = Interval(min(limit, drawn_on.interval.low), drawn_on.interval.high)
    else:
        ends = Interval(drawn_on.interval.low, max(limit, drawn_on.interval.high))
    return max(p / 2, p_of_interval(drawn_on, basis.freedom)[0]), replace(good, interval=ends)


def _from_study(
    one: JudgedModel, level: ComparedLevel, other: PublishedModel, settings: ComparisonSettings
) -> DifferenceEstimate:
    """Compare a judged model with human ratings of a published one: no raters or prompts are shared."""
    few = too_few_replies(one) or (few_raters(one) if level.how == "ratings" else None)
    freedom = settings.freedom(one.known_as)
    if not few and level.how == "judge" and settings.calibrated is not None:
        return _beyond_study(one, other, settings, freedom)
    if level.how in ("judge", "refused") or few:
        return DifferenceEstimate(reason="; ".join(filter(None, (level.reason, few))) or NOT_PEOPLE)
    return DifferenceEstimate(
        how=level.how,
        shares={label: independent_difference(level.shares[label], other.shares[label]) for label in LABELS},
        freedom=float(one.ppi.freedom[-1]) if level.how == "ratings" and one.ppi else freedom,
    )


def _beyond_study(
    one: JudgedModel, other: PublishedModel, settings: ComparisonSettings, freedom: float
) -> DifferenceEstimate:
    """Compare a model outside the rated range with a published one: by the range's end and extrapolated."""
    shares, extended, side = {}, {}, None
    for column, label in enumerate(LABELS):
        line = (settings.calibrated or NO_LINES)[column].without(one.known_as)
        target = target_of(one.rated, None, column)
        if reason := no_line(line, target):
            return DifferenceEstimate(reason=reason)
        side = side_beyond(line, target)
        at_end = transport(line, _at_end(target, side, line))
        shares[label] = independent_difference(at_end, other.shares[label])
        extended[label] = independent_difference(transport(line, target), other.shares[label])
    if side is None:  # Good lies within: what was refused is another label's level
        return DifferenceEstimate(how="line", shares=shares, freedom=freedom)
    return DifferenceEstimate(
        how="line",
        shares=shares,
        freedom=freedom,
        reason=describe_beyond({one.name: side}),
        beyond={one.name: side},
        bound="at least" if side == "above" else "at most",
        extended=extended,
    )


def _extremes(item: Difference, levels: Mapping[str, ComparedLevel]) -> tuple[float, float] | None:
    """Return the interval of Good, widened at either end by the most that unscored rows could change."""
    ends = item.good.interval
    if ends is None:
        return None
    low, high = ends.low, ends.high
    # A share of Good could fall by its part of the unscored responses, or rise by the rest of them.
    if level := levels.get(item.one):
        low, high = low - level.good * level.missing, high + (1 - level.good) * level.missing
    if level := levels.get(item.other):
        low, high = low - (1 - level.good) * level.missing, high + level.good * level.missing
    return max(-1.0, low), min(1.0, high)


def prompt_wins(one: RatedModel, other: RatedModel, contents: Sequence[Sequence[str]]) -> PromptWins | None:
    """Count the shared prompts that each model wins; None where there is none."""
    if one.prompt is None or other.prompt is None:
        return None
    (first, rows), (second, others) = (_by_prompt(item) for item in (one, other))
    shared = [prompt for prompt in first if prompt in second]
    if not shared:
        return None
    gaps = {prompt: first[prompt] - second[prompt] for prompt in shared}
    most: tuple[PromptGap, ...] = ()
    if all(contents):
        order = sorted(shared, key=lambda prompt: (-abs(gaps[prompt]), prompt))
        most = tuple(
            PromptGap(
                scores=(first[prompt], second[prompt]),
                contents=(contents[0][rows[prompt]], contents[1][others[prompt]]),
            )
            for prompt in order[:MOST]
            if abs(gaps[prompt]) > TIE
        )
    return PromptWins(
        prompts=len(shared),
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
    one: JudgedModel,
    other: JudgedModel | PublishedModel,
    how: How,
    error: float,
    settings: ComparisonSettings,
) -> int | None:
    """Return how many more ratings of each model detect a true difference of the margin with 80% power.

    Each rating is of a new reply. By the judge alone it is more prompts instead. None where no number does,
    or none is known.
    """
    judged = [item for item in (one, other) if isinstance(item, JudgedModel)]
    if how == "judge":
        have = min(len(item.rated.judged) for item in judged)
        total = _prompts(settings.margin, error, have)
    elif how == "refused" and settings.calibrated is None:
        return None
    else:
        have = min(len(item.rated.item) for item in judged)
        shares = [float(item.rated.judged[:, -1].mean()) for item in judged if len(item.rated.judged)]
        share = float(np.mean(shares)) if shares else 0.5
        known = 0.0
        if isinstance(other, PublishedModel):
            ends = other.shares[GOOD].interval
            known = ((ends.high - ends.low) / 2 / NORMAL) ** 2 if ends else math.inf
        variance = share * (1 - share) * _design_effect(judged, settings)
        total = ratings_of_each(settings.margin, variance=variance, sides=len(judged), known=known)
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
