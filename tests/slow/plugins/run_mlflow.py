"""An evaluation of MLflow with a mock application and our scorer; in an environment with `mlflow`.

run_mlflow.py ROWS.jsonl prints the feedback of each trace, the run's metrics and the corrected share.
"""

import json
import sys

import mlflow

from empathy_judge.mlflow_scorer import Empathy


def main(path: str) -> None:
    with open(path, encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    replies = {row["prompt"]: row["response"] for row in rows}
    mlflow.set_tracking_uri("sqlite:///mlflow.db")
    mlflow.set_experiment("empathy")
    empathy = Empathy()
    kept = ("prompt", "situation", "emotion")
    result = mlflow.genai.evaluate(
        data=[{"inputs": {key: row[key] for key in kept}} for row in rows],
        predict_fn=lambda prompt, situation, emotion: replies[prompt],
        scorers=[empathy],
    )
    with mlflow.start_run(run_id=result.run_id):
        mlflow.log_metrics(empathy.shares())
    feedback = {}
    for trace in mlflow.search_traces(run_id=result.run_id, return_type="list"):
        (item,) = (item for item in trace.info.assessments if item.name == "empathy")
        prompt = json.loads(trace.data.request)["prompt"]
        error = item.error.error_message if item.error else None
        feedback[prompt] = {"good": item.value, "error": error, "source": item.source.source_id}
    metrics = mlflow.get_run(result.run_id).data.metrics
    sys.stdout.write("\n" + json.dumps({"feedback": feedback, "metrics": metrics}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
