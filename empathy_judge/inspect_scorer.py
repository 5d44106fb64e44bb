"""Inspect: the scorer `empathy_judge/empathy`, with each sample's probabilities and the corrected share."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from inspect_ai.scorer import Metric, SampleScore, Score, Scorer, Target, metric, scorer
from inspect_ai.solver import TaskState

from empathy_judge.client import ReplyScorer, context_of, read_messages, shared_judge

log = logging.getLogger(__name__)
_ASKED: dict[str, ReplyScorer] = {}  # by name and version: the metric uses the judge of the scorer


# Unreduced: scores that are averaged over epochs have no probabilities.
@metric(scores="unreduced")  # type: ignore[untyped-decorator]
def good_share() -> Metric:
    """Return the corrected Good share with its 95% interval, the judge's own share and the mean score."""

    def count(scores: Sequence[SampleScore]) -> dict[str, float]:
        nan = float("nan")
        if not scores:
            return {"good": nan}
        about = [item.score.metadata or {} for item in scores]
        named = about[0]["judge"]
        judge = _ASKED.get(named) or shared_judge(named.partition(" ")[0])
        (model,) = judge.shares([{**item["judgment"], "model": "all"} for item in about])
        if model.refused:
            log.warning("empathy: no corrected share: %s", model.refused)
        good = model.good
        return {
            "good": good.value if good else nan,
            "good_low": good.low if good and good.low is not None else nan,
            "good_high": good.high if good and good.high is not None else nan,
            "good_by_judge": model.shares["Good"].value,
            "score": sum(item["judgment"]["score"] for item in about) / len(about),
        }

    return count


@scorer(metrics=[good_share()])  # type: ignore[untyped-decorator]
def empathy(judge: str | None = None, url: str | None = None) -> Scorer:
    """Score the last reply from 1 (Bad) to 3 (Good), as people would.

    A reply that cannot be judged is unscored. `judge` is a name or TOML file as in `empathy-judge score
    --judge`, `url` a server to use instead. A sample's metadata may have the speaker's `situation` and
    `emotion`.
    """

    async def score(state: TaskState, target: Target) -> Score:
        asked = shared_judge(judge, url=url)
        exchange = read_messages([(message.role, message.text) for message in state.messages])
        identity = {"id": str(state.sample_id), "model": str(state.model)}
        row = {**exchange, **context_of(state.metadata), **identity}
        (judgment,) = await asyncio.to_thread(asked.judge_all, [row])
        _ASKED[judgment.judge] = asked
        metadata: dict[str, Any] = {"judge": judgment.judge, "judgment": dict(judgment.row)}
        about: dict[str, Any] = {"answer": judgment.label, "explanation": str(judgment), "metadata": metadata}
        if judgment.score is None:
            return Score.unscored(reason=judgment.unscored, **about)
        return Score(value=judgment.score, **about)

    return score
