"""MLflow: the scorer `Empathy`, a feedback for each reply, and the corrected share as metrics."""

from collections.abc import Mapping
from typing import Any

from mlflow.entities import AssessmentSource, Feedback
from mlflow.genai.scorers import Scorer
from pydantic import PrivateAttr

from empathy_judge.client import ReplyJudgment, context_of, read_messages, shared_judge

PROMPTS = ("prompt", "question", "message", "input", "query")  # keys of `inputs` with the prompt
REPLIED = ("response", "answer", "output", "content", "text")


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
        row = {**_read_inputs(inputs), **context_of(inputs), "response": _read_outputs(outputs)}
        (judgment,) = shared_judge(self.judge, url=self.url).judge_all([row])
        self._judgments.append(judgment)
        source = AssessmentSource(source_type="CODE", source_id=f"empathy-judge/{judgment.judge}")
        about = {"name": self.name, "source": source, "rationale": str(judgment)}
        if judgment.probabilities is None:
            return Feedback(error=f"unscored: {judgment.unscored}", **about)
        said = {label: f"{value:.6f}" for label, value in judgment.probabilities.items()}
        return Feedback(value=judgment.good, metadata={"label": judgment.label, **said}, **about)

    def shares(self) -> dict[str, float]:
        """Return the corrected share of all replies judged until now, for `mlflow.log_metrics`."""
        rows = [{**judgment.row, "model": "all"} for judgment in self._judgments]
        (model,) = shared_judge(self.judge, url=self.url).shares(rows)
        found = {f"{self.name}/judged": float(model.judged), f"{self.name}/unscored": float(model.unscored)}
        if model.good is not None:
            ends = {"good": model.good.value, "good_low": model.good.low, "good_high": model.good.high}
            found |= {f"{self.name}/{key}": value for key, value in ends.items() if value is not None}
        return found


def _read_inputs(inputs: Any) -> dict[str, Any]:
    if isinstance(inputs, str):
        return {"prompt": inputs}
    if not isinstance(inputs, Mapping):
        raise ValueError(f"inputs: expected a text, or a dict with one of {', '.join(PROMPTS)} or messages")
    if isinstance(inputs.get("messages"), list):
        said = [(message["role"], message["content"]) for message in inputs["messages"]]
        return read_messages([*said, ("assistant", "...")])
    for key in PROMPTS:
        if isinstance(inputs.get(key), str):
            return {"prompt": inputs[key]}
    raise ValueError(f"inputs: needs one of {', '.join(PROMPTS)} or messages; has {', '.join(inputs)}")


def _read_outputs(outputs: Any) -> str | None:
    if outputs is None or isinstance(outputs, str):
        return outputs
    if isinstance(outputs, Mapping):
        for key in REPLIED:
            if isinstance(outputs.get(key), str):
                return str(outputs[key])
        if isinstance(outputs.get("choices"), list):
            return _read_outputs(outputs["choices"][0].get("message"))
    raise ValueError(f"outputs: expected a text, or a dict with one of {', '.join(REPLIED)}")
