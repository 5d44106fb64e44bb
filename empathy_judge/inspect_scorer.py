"""Inspect: the scorer `empathy_judge/empathy`, with each sample's probabilities and the corrected share."""

import asyncio
from collections.abc import Sequence
from typing import Any

from inspect_ai.scorer import Metric, SampleScore, Score, Scorer, Target, metric, scorer
from inspect_ai.solver import TaskState

from empathy_judge.client import context_of, shared_judge
from empathy_judge.data.readers.chat_turns import Exchanged, asked_in

METRICS = ("good", "good_low", "good_high", "good_by_judge")


# Unreduced: scores that are averaged over epochs have no probabilities.
@metric(scores="unreduced")  # type: ignore[untyped-decorator]
def good_share() -> Metric:
    """Return the corrected Good share with its 95% interval, the judge's own share and the mean score."""

    def count(scores: Sequence[SampleScore]) -> dict[str, float]:
        if not scores:
            return {"good": float("nan")}
        about = [item.score.metadata or {} for item in scores]
        judge = shared_judge(**about[0]["judge_options"])
        found = judge.pooled_shares(item["judgment"] for item in about)
        mean = sum(item["judgment"]["score"] for item in about) / len(about)
        return {**{name: found[name] for name in METRICS}, "score": mean}

    return count


@scorer(metrics=[good_share()])  # type: ignore[untyped-decorator]
def empathy(judge: str | None = None, url: str | None = None) -> Scorer:
    """Score the last reply from 1 (Bad) to 3 (Good), as people would.

    `judge` is a name or TOML file as in `empathy-judge score --judge`, `url` a server to use instead. A
    sample's metadata may have the speaker's `situation` and `emotion`.
    """

    async def score(state: TaskState, target: Target) -> Score:
        options = {"name": judge, "url": url}
        asked = asked_in([{"role": message.role, "content": message.text} for message in state.messages])
        row = {
            **(asked or Exchanged("", []))._asdict(),
            **context_of(state.metadata),
            "response": state.output.completion,
            "id": str(state.sample_id),
            "model": str(state.model),
        }
        (judgment,) = await asyncio.to_thread(lambda: shared_judge(**options).judge_all([row]))
        metadata = {"judge": judgment.judge, "judge_options": options, "judgment": dict(judgment.row)}
        about: dict[str, Any] = {"answer": judgment.label, "explanation": str(judgment), "metadata": metadata}
        if judgment.score is None:
            return Score.unscored(reason=judgment.unscored, **about)
        return Score(value=judgment.score, **about)

    return score
