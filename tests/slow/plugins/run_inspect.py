"""A task of Inspect with a mock model, scored by our scorer; in an environment with `inspect_ai`.

run_inspect.py ROWS.jsonl prints what the log says: each sample's score, and the metrics.
"""

import json
import subprocess
import sys
from typing import Any

from inspect_ai import Task, eval
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.log import read_eval_log
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.solver import generate

from empathy_judge.inspect_scorer import empathy


def main(path: str) -> None:
    with open(path, encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    samples = [
        Sample(
            id=row["id"],
            input=row["prompt"],
            metadata={"situation": row["situation"], "emotion": row["emotion"]},
        )
        for row in rows
    ]
    outputs = [ModelOutput.from_content("mockllm/model", row["response"]) for row in rows]
    for output in outputs:
        output.usage = ModelUsage()  # else tokens are counted, by a vocabulary from the network
    model = get_model("mockllm/model", custom_outputs=outputs)
    task = Task(dataset=MemoryDataset(samples), solver=generate(), scorer=empathy())
    (log,) = eval(task, model=model, max_samples=1, display="none", log_dir="logs")
    # Once more, by the name that the entry point gives it.
    command = [
        "score",
        log.location,
        "--scorer",
        "empathy_judge/empathy",
        "--overwrite",
        "--action",
        "overwrite",
    ]
    subprocess.run([sys.executable, "-m", "inspect_ai", *command], check=True, stdout=sys.stderr)
    print(json.dumps({"eval": summary_of(log), "score": summary_of(read_eval_log(log.location))}))


def summary_of(log: Any) -> dict[str, Any]:
    assert log.status == "success", log.error and log.error.message
    (found,) = log.results.scores
    scores = {sample.id: sample.scores["empathy"] for sample in log.samples}
    metrics = {name: item.value for name, item in found.metrics.items()}
    return {
        "rows": [score.metadata["judgment"] for score in scores.values()],
        "values": {
            name: None if score.value != score.value else score.value for name, score in scores.items()
        },
        "reasons": {name: score.reason for name, score in scores.items() if score.reason},
        "good": [metrics["good"], metrics["good_low"], metrics["good_high"]],
        "own": metrics["good_by_judge"],
        "scored": found.scored_samples,
        "unscored": found.unscored_samples,
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
