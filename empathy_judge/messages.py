"""Chat messages as an exchange: the last reply, its prompt, and the turns before."""

from collections.abc import Iterable
from itertools import groupby
from typing import Any

SPEAKERS = {"user": "speaker", "human": "speaker", "assistant": "listener", "ai": "listener"}


def read_messages(messages: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Read an exchange from roles and texts; system and tool messages are left out.

    The messages of one side in a row are one turn. Messages that end with the user have an empty response.

    >>> read_messages([("system", "Be kind."), ("user", "I won!"), ("assistant", "Lovely!")])
    {'prompt': 'I won!', 'response': 'Lovely!', 'dialogue': []}
    """
    spoken = [(SPEAKERS[role], text) for role, text in messages if role in SPEAKERS and text.strip()]
    turns = [
        {"speaker": who, "text": "\n".join(text for _, text in run)}
        for who, run in groupby(spoken, key=lambda turn: turn[0])
    ]
    response = turns.pop()["text"] if turns and turns[-1]["speaker"] == "listener" else ""
    prompt = turns.pop()["text"] if turns else ""
    return {"prompt": prompt, "response": response, "dialogue": turns}


def context_of(fields: Any) -> dict[str, str]:
    """Return `situation` and `emotion` of the speaker from a tool's own fields."""
    if not isinstance(fields, dict):
        return {}
    return {key: fields[key] for key in ("situation", "emotion") if isinstance(fields.get(key), str)}
