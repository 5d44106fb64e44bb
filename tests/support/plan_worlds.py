"""How often what a plan promises to find with 80 % is found, on made data whose true gap is known.

Two models are compared, `compare` says how many ratings or prompts would tell a gap of so many points, so
many are then made, and they are compared again. Raters are severe or mild, give ten ratings each and rate one
of the two models; each rating is of a new reply. Where the first comparison told already there is no plan.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import judged_worlds
import numpy as np
from judged_worlds import BLUR, MIDDLE, PROMPT, REPLY, SEVERITY, SLIP, TASTE, calibrated, truth, two_models
from scipy.optimize import brentq

from calibration.comparison.differences import differences
from calibration.comparison.judged_models import ComparisonSettings, JudgedModel
from calibration.shares.ppi import RatedModel

NONE = np.zeros(0, dtype=np.intp)
RATINGS_EACH = 10


@dataclass(frozen=True, kw_only=True)
class PlanWorld:
    """What is planned: from `replies` of each model, of which `raters` people rated each one, or nobody."""

    what: str
    gap: float
    draws: int
    replies: int
    raters: int = 0
    has_line: bool = False


PLANS = (
    PlanWorld(what="ratings, none but people's", gap=0.2, draws=200, replies=120, raters=12),
    PlanWorld(what="ratings, none but people's", gap=0.1, draws=120, replies=120, raters=12),
    PlanWorld(what="ratings, beside a calibrated judge", gap=0.2, draws=500, replies=64, has_line=True),
    PlanWorld(what="ratings, beside a calibrated judge", gap=0.1, draws=250, replies=64, has_line=True),
    PlanWorld(what="prompts, for the judge alone", gap=0.1, draws=400, replies=12),
    PlanWorld(what="prompts, for the judge alone", gap=0.05, draws=400, replies=24),
)


def _seen_by_judge(level: float) -> float:
    """The judge's own share of Good, where it does not stray."""
    spread = math.hypot(0.7 * PROMPT, 0.7 * REPLY, BLUR, SEVERITY, TASTE, SLIP)
    return float(judged_worlds.shares(level, spread)[2])


def _parted(gap: float, *, by_judge: bool) -> float:
    """How far apart two models must lie for their shares of Good to differ by the gap."""

    def good(level: float) -> float:
        return _seen_by_judge(level) if by_judge else float(truth(level)[2])

    return float(brentq(lambda x: good(MIDDLE + x / 2) - good(MIDDLE - x / 2) - gap, 0, 3))


def _models(
    raters: int,
    replies: int,
    apart: float,
    strays: Sequence[float],
    rng: np.random.Generator,
    *,
    more: int = 0,
    is_rated: bool = True,
) -> list[JudgedModel]:
    """Two models on which the judge strays by so much, now and later; `more` replies only it reads."""
    models = []
    pair = two_models(max(4, raters), replies, rng, gap=apart, design="apart", unrated=more, stray=0.0)
    for model, stray in zip(pair, strays, strict=True):
        old = model.rated.judged
        good = np.clip(old[:, 2] + stray, 0.01, 0.99)
        rest = old[:, :2] * ((1 - good) / (1 - old[:, 2]))[:, None]
        rated = replace(model.rated, judged=np.column_stack([rest, good]))
        if not is_rated:
            rated = RatedModel(
                judged=rated.judged, item=NONE, value=np.zeros((0, 3)), cluster=NONE, prompt=rated.prompt
            )
        models.append(JudgedModel(name=model.name, rated=rated))
    return models


def tried(plan: PlanWorld, *, seed: int = 5) -> tuple[list[bool], list[int]]:
    """Of each plan that was made, whether it found the gap, and how much it asked for."""
    rng = np.random.default_rng(seed)
    by_judge = not plan.raters and not plan.has_line
    apart = _parted(plan.gap, by_judge=by_judge)
    effect = 1.0
    if plan.has_line:
        known = [two_models(40, 400, rng, design="apart")[0].ppi for _ in range(20)]
        effect = float(np.mean([ppi.design_effect[-1] for ppi in known if ppi is not None]))
    found, asked = [], []
    for _ in range(plan.draws):
        settings, strays = ComparisonSettings(margin=plan.gap), [0.0, 0.0]
        if plan.has_line:
            settings = replace(calibrated(rng), design_effect=effect, margin=plan.gap)
            strays = rng.normal(0, judged_worlds.STRAY, 2).tolist()
        one, other = _models(plan.raters, plan.replies, apart, strays, rng, is_rated=plan.raters > 0)
        (before,) = differences([(one, other)], settings)
        if before.needed is None:
            continue
        have = 0 if plan.has_line else plan.replies
        total = have + before.needed
        raters = max(4, round(total / RATINGS_EACH))
        unread = plan.replies if plan.has_line else 0
        one, other = _models(raters, total, apart, strays, rng, more=unread, is_rated=not by_judge)
        (after,) = differences([(one, other)], settings)
        found.append(after.verdict == ("probably better" if by_judge else "better"))
        asked.append(total)
    return found, asked
