"""DeepEval: `EmpathyMetric`, the probability that people would rate the actual output Good."""

import asyncio
from typing import Any

from deepeval.metrics import BaseMetric
from deepeval.test_case import LLMTestCase

from empathy_judge.client import ReplyJudgment, context_of, shared_judge


class EmpathyMetric(BaseMetric):  # type: ignore[misc]
    """The score of a test case's output as a reply to its input; it passes from `threshold` on.

    The case's `metadata` may have the speaker's `situation` and `emotion`. A reply that cannot be judged has
    no score: the reason is the metric's error.
    `judgment` is the whole judgment; `JudgeClient.shares` corrects the share of many of them.
    """

    def __init__(self, threshold: float = 0.5, *, judge: str | None = None, url: str | None = None) -> None:
        self.threshold = threshold
        # Names, not a client: DeepEval copies metrics.
        self._judge, self._url = judge, url
        self.judgment: ReplyJudgment | None = None

    def measure(self, test_case: LLMTestCase, *args: Any, **kwargs: Any) -> float:
        """Judge the case."""
        judge = shared_judge(self._judge, url=self._url)
        context = context_of(test_case.metadata)
        self.judgment = judge.judge(test_case.input, test_case.actual_output, **context)
        self.reason, self.evaluation_model = str(self.judgment), self.judgment.judge
        self.score, self.score_breakdown = self.judgment.good, dict(self.judgment.probabilities or {})
        self.error = self.reason if self.score is None else None
        self.success = self.score is not None and self.score >= self.threshold
        return self.score  # type: ignore[return-value]

    async def a_measure(self, test_case: LLMTestCase, *args: Any, **kwargs: Any) -> float:
        """Judge the case on another thread."""
        return await asyncio.to_thread(self.measure, test_case)

    def is_successful(self) -> bool:
        """Return whether the case passed."""
        return bool(self.success)

    @property
    def __name__(self) -> str:
        return "Empathy"
