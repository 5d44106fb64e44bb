"""A tool with its plug-in, in an environment of the tool.

run_tool.py TOOL ROWS.jsonl judges the rows and prints the facts that the tool reports.
"""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ENDS = ("good", "good_low", "good_high")
Rows = list[dict[str, Any]]


def deepeval(rows: Rows) -> dict[str, Any]:
    """Evaluate test cases with the metric."""
    from deepeval import evaluate
    from deepeval.evaluate.configs import CacheConfig, DisplayConfig
    from deepeval.test_case import LLMTestCase

    from empathy_judge.deepeval_metric import EmpathyMetric

    cases = [
        LLMTestCase(name=row["id"], input=row["prompt"], actual_output=row["response"], metadata=row)
        for row in rows
    ]
    quiet = DisplayConfig(show_indicator=False, print_results=False)
    cached = CacheConfig(write_cache=False)
    result = evaluate(cases, [EmpathyMetric(threshold=0.5)], display_config=quiet, cache_config=cached)
    found = {case.name: case.metrics_data[0] for case in result.test_results}
    return {
        "good": {name: item.score for name, item in found.items()},
        "passed": {name: item.success for name, item in found.items()},
        "unscored": sum(bool(item.error) for item in found.values()),
    }


def inspect(rows: Rows) -> dict[str, Any]:
    """Run a task with a mock model, and score its log once more by the name of the entry point."""
    from inspect_ai import Task, eval
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.log import read_eval_log
    from inspect_ai.model import ModelOutput, ModelUsage, get_model
    from inspect_ai.solver import generate

    from empathy_judge.inspect_scorer import empathy

    def facts(log: Any) -> dict[str, Any]:
        (found,) = log.results.scores
        scores = {sample.id: sample.scores["empathy"] for sample in log.samples}
        judgments = {name: score.metadata["judgment"] for name, score in scores.items()}
        metrics = {name: item.value for name, item in found.metrics.items()}
        return {
            "score": {name: None if item.reason else item.value for name, item in scores.items()},
            "good": {name: (row["probabilities"] or {}).get("Good") for name, row in judgments.items()},
            "share": [metrics[name] for name in ENDS],
            "own": metrics["good_by_judge"],
            "unscored": found.unscored_samples,
        }

    samples = [Sample(id=row["id"], input=row["prompt"], metadata=row) for row in rows]
    outputs = [ModelOutput.from_content("mockllm/model", row["response"]) for row in rows]
    for output in outputs:
        output.usage = ModelUsage()  # otherwise tokens are counted, by a vocabulary from the network
    task = Task(dataset=MemoryDataset(samples), solver=generate(), scorer=empathy())
    model = get_model("mockllm/model", custom_outputs=outputs)
    (log,) = eval(task, model=model, max_samples=1, display="none", log_dir="logs")
    words = f"score {log.location} --scorer empathy_judge/empathy --overwrite --action overwrite".split()
    subprocess.run([sys.executable, "-m", "inspect_ai", *words], check=True, stdout=sys.stderr)
    assert facts(read_eval_log(log.location)) == facts(log)
    return facts(log)


def lm_eval(rows: Rows) -> dict[str, Any]:
    """Run the task `empathy_replies` with a mock model on the prompts of the rows."""
    from lm_eval import simple_evaluate
    from lm_eval.api.model import LM
    from lm_eval.tasks import TaskManager

    import empathy_judge

    replies = {row["prompt"]: row["response"] for row in rows}

    class Mock(LM):  # type: ignore[misc]
        """A model that gives each prompt the reply of its row."""

        loglikelihood = loglikelihood_rolling = None

        def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
            texts = [request.args[0] for request in requests]
            return [next(reply for prompt, reply in replies.items() if prompt in text) for text in texts]

    name = "empathy_replies"
    manager = TaskManager(include_path=f"{empathy_judge.__path__[0]}/lm_eval_task")
    docs = list(manager.load([name])["tasks"][name].test_docs())
    chosen = [index for index, doc in enumerate(docs) if doc["prompt"] in replies]
    result = simple_evaluate(model=Mock(), tasks=[name], task_manager=manager, samples={name: chosen})
    metrics = result["results"][name]
    return {
        "share": [metrics[f"{name},none"] for name in ENDS],
        "own": metrics["good_by_judge,none"],
        "unscored": metrics["unscored,none"],
        "prompts": len(docs),
    }


def mlflow(rows: Rows) -> dict[str, Any]:
    """Evaluate a mock application with the scorer, and log the corrected share."""
    import mlflow

    from empathy_judge.mlflow_scorer import Empathy

    replies, ids = ({row["prompt"]: row[name] for row in rows} for name in ("response", "id"))
    mlflow.set_tracking_uri("sqlite:///mlflow.db")
    empathy = Empathy()
    result = mlflow.genai.evaluate(
        data=[{"inputs": {key: row[key] for key in ("prompt", "situation", "emotion")}} for row in rows],
        predict_fn=lambda prompt, situation, emotion: replies[prompt],
        scorers=[empathy],
    )
    with mlflow.start_run(run_id=result.run_id):
        mlflow.log_metrics(empathy.shares())
    good = {}
    for trace in mlflow.search_traces(run_id=result.run_id, return_type="list"):
        (item,) = (item for item in trace.info.assessments if item.name == "empathy")
        good[ids[json.loads(trace.data.request)["prompt"]]] = item.value
    metrics = mlflow.get_run(result.run_id).data.metrics
    return {
        "good": good,
        "share": [metrics[f"empathy/{name}"] for name in ENDS],
        "own": metrics["empathy/good_by_judge"],
        "unscored": metrics["empathy/unscored"],
    }


def promptfoo(rows: Rows) -> dict[str, Any]:
    """Evaluate a mock provider with the assertion."""
    config = {
        "prompts": ["{{prompt}}"],
        "providers": ["file://mock.js"],
        "defaultTest": {"assert": [{"type": "python", "value": "file://empathy.py"}]},
        "tests": [{"description": row["id"], "vars": row} for row in rows],
    }
    call = "async callApi(prompt, context) { return { output: context.vars.response }; }"
    mock = f"module.exports = class {{ id() {{ return 'mock'; }} {call} }};\n"
    Path("promptfooconfig.json").write_text(json.dumps(config), encoding="utf-8")
    Path("mock.js").write_text(mock, encoding="utf-8")
    Path("empathy.py").write_text("from empathy_judge.promptfoo_assert import get_assert\n", encoding="utf-8")
    options = ("-c", "promptfooconfig.json", "-o", "out.json", "--no-cache", "--no-table")
    subprocess.run([os.environ["PROMPTFOO"], "eval", *options], stdout=sys.stderr)  # fails as one case does
    results = json.loads(Path("out.json").read_text(encoding="utf-8"))["results"]["results"]
    graded = {item["testCase"]["description"]: item for item in results}
    return {
        "good": {name: item.get("namedScores", {}).get("empathy_good") for name, item in graded.items()},
        "passed": {name: item["success"] for name, item in graded.items()},
    }


if __name__ == "__main__":
    with open(sys.argv[2], encoding="utf-8") as lines:
        read = [json.loads(line) for line in lines]
    # Packages of the user's project that have the names of ours.
    assert importlib.import_module("data").OWN and importlib.import_module("judge").OWN
    print("\n" + json.dumps(globals()[sys.argv[1]](read)))
