"""promptfoo: a Python assertion that passes replies which people would probably rate Good.

In an assertion: `type: python`, `value: file://empathy.py`, and in empathy.py

    from empathy_judge.promptfoo_assert import get_assert
"""

import json
from collections.abc import Mapping
from typing import Any

from empathy_judge.client import context_of, shared_judge
from empathy_judge.data.readers.chat_turns import PROMPTS, Exchanged, asked_in, find_value


def get_assert(output: Any, context: Mapping[str, Any]) -> dict[str, Any]:
    """Grade an output: the score is the probability of Good, and it passes from `threshold` (0.5) on.

    The assertion's `config` may name the `judge`, a `url` and the `threshold`. The speaker's message is a
    variable of a usual name, such as `message`, or else the whole prompt.
    """
    config = context.get("config") or {}
    response = output if isinstance(output, str) else json.dumps(output)
    variables = context.get("vars") or {}
    given = find_value(variables, ("messages", *PROMPTS)) or context.get("prompt")
    asked = asked_in(given) or Exchanged(str(given), [])
    row = {**asked._asdict(), **context_of(variables), "response": response}
    (judgment,) = shared_judge(config.get("judge"), url=config.get("url")).judge_all([row])
    if judgment.probabilities is None:
        return {"pass": False, "score": 0, "reason": f"empathy: {judgment}, so there is no verdict"}
    good = judgment.probabilities["Good"]
    return {
        "pass": good >= config.get("threshold", 0.5),
        "score": good,
        "reason": f"empathy: {judgment}, by {judgment.judge}",
        "namedScores": {f"empathy_{label.lower()}": value for label, value in judgment.probabilities.items()},
    }
