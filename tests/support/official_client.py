"""OpenAI's own client against our server; for an interpreter with `openai` 3.x, and nothing of ours.

official_client.py BASE_URL MODEL EXCHANGES.jsonl prints, as JSON, what the client read of every answer.
"""

import json
import math
import sys
from typing import Any

import openai

LEVELS = [{"label": "Bad"}, {"label": "Okay"}, {"label": "Good"}]
SCORE = {"type": "score", "name": "empathy", "instructions": "How empathetic is the reply?", "levels": LEVELS}
CHOICE = {
    "type": "choice",
    "instructions": "Which?",
    "choices": [{"value": "Good"}, {"value": "Bad"}, {"value": "Okay"}],
}


def ask(client: Any, model: str, row: dict[str, Any]) -> dict[str, Any]:
    """One exchange: as JSON in a text where it has a context, else as messages."""
    messages = [
        {"role": "system", "content": "You are a kind listener."},
        {"role": "user", "content": [{"type": "input_text", "text": row["prompt"]}]},
        {"role": "assistant", "content": row["response"]},
    ]
    given = json.dumps(row) if row.get("emotion") else messages
    decision = client.decisions.create(model=model, input=given, questions=[SCORE, CHOICE])
    score, choice = decision.answers
    graded = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": json.dumps(row)}], logprobs=True, top_logprobs=3
    ).choices[0]
    (label,) = graded.logprobs.content
    return {
        "id": row["id"],
        "type": type(score).__name__,
        "probabilities": {item.label: item.probability for item in score.probabilities},
        "choice": {item.value: item.probability for item in choice.probabilities},
        "score": score.score,
        "graded": graded.message.content,
        "logprobs": {item.token: math.exp(item.logprob) for item in label.top_logprobs},
        "tokens": decision.usage.total_tokens,
    }


def refusal_of(client: Any, **given: Any) -> list[Any]:
    """How the client understands that a request, or a question of it, is refused."""
    try:
        decision = client.decisions.create(**{"questions": [SCORE], **given})
    except openai.APIStatusError as error:
        return [type(error).__name__, error.status_code, error.code, error.param]
    return [answer.type for answer in decision.answers]


def main(base_url: str, model: str, path: str) -> None:
    client = openai.OpenAI(base_url=base_url, api_key="not-needed", max_retries=0)
    with open(path, encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    weather = {"type": "predicate", "name": "weather", "instructions": "Is it raining?"}
    found = {
        "version": openai.__version__,
        "models": [item.id for item in client.models.list()],
        "answers": [ask(client, model, row) for row in rows],
        "unknown_model": refusal_of(client, model="gpt-6-luna", input="x"),
        "unknown_question": refusal_of(client, model=model, input=json.dumps(rows[0]), questions=[weather]),
        "no_exchange": refusal_of(client, model=model, input="What is empathy?"),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
