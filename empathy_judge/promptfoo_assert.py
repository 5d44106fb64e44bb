"""promptfoo: a Python assertion that passes replies which people would probably rate Good.

In an assertion: `type: python`, `value: file://empathy.py`, and in empathy.py

    from empathy_judge.promptfoo_assert import get_assert
"""

import json
from collections.abc import Mapping
from typing import Any

from empathy_judge.client import PROMPTS, context_of, find_prompt, shared_judge
from empathy_judge.data.errors import UserError


def get_assert(output: Any, context: Mapping[str, Any]) -> dict[str, Any]:
    """Grade an output: the score is the probability of Good, and it passes from `threshold` (0.5) on.

    The assertion's `config` may name the `judge`, a `url`, the `threshold`, and with `prompt_var` the
    variable of the speaker's message; else a variable of a usual name is used, or the whole prompt.
    """
    config = context.get("config") or {}
    response = output if isinstance(output, str) else json.dumps(output)
    asked = _find_asked(context, config.get("prompt_var"))
    row = {**asked, **context_of(context.get("vars")), "response": response}
    (judgment,) = shared_judge(config.get("judge"), url=config.get("url")).judge_all([row])
    if judgment.probabilities is None:
        reason = f"empathy: {judgment}, so there is no verdict on the reply"
        return {"pass": False, "score": 0, "reason": reason}
    good = judgment.probabilities["Good"]
    return {
        "pass": good >= config.get("threshold", 0.5),
        "score": good,
        "reason": f"empathy: {judgment}, by {judgment.judge}",
        "namedScores": {f"empathy_{label.lower()}": value for label, value in judgment.probabilities.items()},
    }


def _find_asked(context: Mapping[str, Any], named: str | None) -> dict[str, Any]:
    """Return the prompt and the turns before it."""
    variables = context.get("vars") or {}
    if named is not None and not isinstance(variables.get(named), str):
        raise UserError(f"prompt_var: no variable {named!r} with a text; known: {', '.join(variables)}")
    if found := find_prompt(variables, [named] if named else PROMPTS):
        return found
    prompt = context.get("prompt") or ""
    try:
        return find_prompt({"messages": json.loads(prompt)}) or {"prompt": prompt}
    except (ValueError, TypeError, KeyError):
        return {"prompt": prompt}
