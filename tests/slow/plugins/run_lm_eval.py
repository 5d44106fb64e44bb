"""Our task of lm-evaluation-harness with a mock model; in an environment with `lm_eval`.

run_lm_eval.py ROWS.jsonl prints how many prompts the task has, and its results for those of the rows.
"""

import json
import subprocess
import sys
from typing import Any

import lm_eval
from lm_eval.api.model import LM
from lm_eval.tasks import TaskManager


class Mock(LM):
    """Gives each prompt the reply it is to have."""

    def __init__(self, replies: dict[str, str]) -> None:
        super().__init__()
        self.replies, self.asked = replies, list[str]()

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        texts = [request.args[0] for request in requests]
        self.asked += texts
        return [next(reply for prompt, reply in self.replies.items() if prompt in text) for text in texts]

    def loglikelihood(self, requests: list[Any], disable_tqdm: bool = False) -> Any:
        raise NotImplementedError

    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> Any:
        raise NotImplementedError


def main(path: str) -> None:
    with open(path, encoding="utf-8") as lines:
        replies = {row["prompt"]: row["response"] for row in map(json.loads, lines)}
    # The folder as a person would find it.
    where = [sys.executable, "-c", "import empathy_judge; print(*empathy_judge.__path__)"]
    folder = subprocess.run(where, capture_output=True, text=True, check=True).stdout.strip()
    manager = TaskManager(include_path=f"{folder}/lm_eval_task")
    task = manager.load(["empathy_replies"])["tasks"]["empathy_replies"]
    docs = list(task.test_docs())
    chosen = [place for place, doc in enumerate(docs) if doc["prompt"] in replies]
    model = Mock(replies)
    result = lm_eval.simple_evaluate(
        model=model, tasks=["empathy_replies"], task_manager=manager, samples={"empathy_replies": chosen}
    )
    found = {
        "prompts": len(docs),
        "asked": model.asked[0],
        "results": result["results"]["empathy_replies"],
        "rows": [sample["good"] for sample in result["samples"]["empathy_replies"]],
    }
    sys.stdout.write("\n" + json.dumps(found) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
