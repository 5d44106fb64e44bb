"""A conversation about a dog with a kind listener, and with one that repeats itself."""

from collections.abc import Iterator, Sequence
from typing import Any

from empathy_judge.data.records import Exchange, Turn

HEARD = ["My dog died this morning.", "Eleven years.", "He was gentle."]
KIND = [
    "I'm so sorry. How long were you two together?",
    "Eleven years. It makes sense that this hurts. What was your dog like?",
    "A gentle dog for all those years: that is a lot to lose.",
]
STUCK = ["That's nice! Do you like pizza?"] * 3


def in_turns(heard: Sequence[str], said: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield who speaks and what, the user first."""
    for pair in zip(heard, said, strict=True):
        yield from zip(("user", "assistant"), pair, strict=True)


def talk(heard: Sequence[str], said: Sequence[str], **changes: Any) -> Exchange:
    """Return a conversation as one exchange."""
    *before, prompt, response = (Turn(speaker=who, text=text) for who, text in in_turns(heard, said))
    given = {"id": "t", "prompt": prompt.text, "response": response.text, "dialogue": tuple(before)}
    return Exchange(**(given | changes))


def messages(said: Sequence[str], heard: Sequence[str] = HEARD) -> list[dict[str, str]]:
    """Return a conversation as chat messages."""
    return [{"role": role, "content": text} for role, text in in_turns(heard, said)]
