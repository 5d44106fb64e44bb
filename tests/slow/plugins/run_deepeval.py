"""Test cases of DeepEval under our metric; in an environment with `deepeval`.

run_deepeval.py ROWS.jsonl prints what the evaluation says of each case.
"""

import json
import sys

from deepeval import evaluate
from deepeval.evaluate.configs import AsyncConfig, CacheConfig, DisplayConfig, ErrorConfig
from deepeval.test_case import LLMTestCase

from empathy_judge.deepeval_metric import EmpathyMetric


def main(path: str) -> None:
    with open(path, encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    cases = [
        LLMTestCase(
            name=row["id"],
            input=row["prompt"],
            actual_output=row["response"],
            metadata={"situation": row["situation"], "emotion": row["emotion"]},
        )
        for row in rows
    ]
    result = evaluate(
        cases,
        [EmpathyMetric(threshold=0.5)],
        async_config=AsyncConfig(max_concurrent=4),
        display_config=DisplayConfig(show_indicator=False, print_results=False),
        cache_config=CacheConfig(write_cache=False),
        error_config=ErrorConfig(ignore_errors=False),
    )
    found = {}
    for case in result.test_results:
        (metric,) = case.metrics_data
        found[case.name] = {
            "metric": metric.name,
            "good": metric.score,
            "success": metric.success,
            "error": metric.error,
            "reason": metric.reason,
            "judge": metric.evaluation_model,
        }
    sys.stdout.write("\n" + json.dumps(found) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
