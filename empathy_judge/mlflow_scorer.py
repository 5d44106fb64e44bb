"""MLflow: the scorer `Empathy`, a feedback for each reply, and the corrected share as metrics."""

from math import isnan
from typing import Any

from mlflow.entities import AssessmentSource, Feedback
from mlflow.genai.scorers import Scorer
from pydantic import PrivateAttr

from empathy_judge.client import ReplyJudgment, context_of, shared_judge
from empathy_judge.data.readers.chat_turns import asked_in, reply_in


class Empathy(Scorer):  # type: ignore[misc]
    """The probability that people would rate a reply Good; a reply that cannot be judged is an error.

    `judge` is a name or TOML file as in `empathy-judge score --judge`, `url` a server to use instead.
    `inputs` are messages, or have a prompt and, if known, the speaker's `situation` and `emotion`.
    """

    name: str = "empathy"
    judge: str | None = None
    url: str | None = None
    _judgments: list[ReplyJudgment] = PrivateAttr(default_factory=list)

    def __call__(self, *, inputs: Any = None, outputs: Any = None) -> Feedback:
        """Judge one reply."""
        asked = asked_in(inputs)
        if asked is None:
            raise ValueError("inputs: expected a text, or a dict with a prompt, a question or messages")
        row = {**asked._asdict(), **context_of(inputs), "response": reply_in(outputs)}
        (judgment,) = shared_judge(self.judge, url=self.url).judge_all([row])
        self._judgments.append(judgment)
        source = AssessmentSource(source_type="CODE", source_id=f"empathy-judge/{judgment.judge}")
        about = {"name": self.name, "source": source, "rationale": str(judgment)}
        if judgment.probabilities is None:
            return Feedback(error=f"unscored: {judgment.unscored}", **about)
        metadata = {label: f"{value:.6f}" for label, value in judgment.probabilities.items()}
        return Feedback(value=judgment.good, metadata={"label": judgment.label, **metadata}, **about)

    def shares(self) -> dict[str, float]:
        """Return the corrected share of all replies judged until now, for `mlflow.log_metrics`."""
        found = shared_judge(self.judge, url=self.url).pooled_shares(item.row for item in self._judgments)
        return {f"{self.name}/{key}": value for key, value in found.items() if not isnan(value)}
