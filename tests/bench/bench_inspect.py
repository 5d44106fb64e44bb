"""Inspect on the benchmark's server; run by `bench_engine.py` with an interpreter that has inspect_ai.

    bench_inspect.py BASE_URL MODEL AT_ONCE PROMPTS.json LOG_FOLDER

Prints samples a second and how many were scored, as JSON.
"""

import json
import sys
from pathlib import Path
from time import perf_counter
from typing import Any


def main(base_url: str, model: str, at_once: str, prompts: str, logs: str) -> None:
    from inspect_ai import Task, eval
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.model import get_model
    from inspect_ai.scorer import includes
    from inspect_ai.solver import generate

    texts = json.loads(Path(prompts).read_text(encoding="utf-8"))
    asked: Any = get_model(f"openai/{model}", base_url=base_url, api_key="none", responses_api=False)

    def run(part: list[str]) -> tuple[float, int]:
        samples = [Sample(id=number, input=text, target="Good") for number, text in enumerate(part)]
        task = Task(dataset=MemoryDataset(samples), solver=generate(), scorer=includes())
        start = perf_counter()
        (log,) = eval(
            task,
            model=asked,
            max_connections=int(at_once),
            max_samples=int(at_once),
            display="none",
            log_realtime=False,
            log_dir=logs,
        )
        seconds = perf_counter() - start
        assert log.status == "success" and log.results is not None, log.error
        return len(part) / seconds, log.results.completed_samples

    run(texts[: int(at_once)])  # connections, imports
    rate, scored = run(texts)
    print(json.dumps({"rate": rate, "scored": scored}))


if __name__ == "__main__":
    main(*sys.argv[1:])
