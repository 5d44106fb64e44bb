"""Texts and turns in what chat APIs and tools write: messages, completions, transcripts."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, NamedTuple

from empathy_judge.data.files import DEEPEST_MESSAGES

USER, ASSISTANT, SYSTEM = "user", "assistant", "system"
SPEAKER, LISTENER = "speaker", "listener"  # the same parties, as studies of conversations call them
ROLES: Final = {
    **dict.fromkeys(("user", "human", "prompter", "customer", "client", "seeker", SPEAKER, "usr"), USER),
    **dict.fromkeys(("assistant", "gpt", "ai", "bot", "chatbot", "chatgpt", "model"), ASSISTANT),
    **dict.fromkeys((LISTENER, "supporter", "therapist", "sys"), ASSISTANT),
    **dict.fromkeys(("system", "developer", "tool", "function", "observation", "function_call"), SYSTEM),
}
ANSWERING: Final = frozenset(name for name, role in ROLES.items() if role == ASSISTANT) | {"system"}
# Column names of prompts and replies, the most specific first; compared as `plain_name` gives them.
PROMPTS: Final = (
    *("prompt", "question", "user_prompt", "user_message", "user_input", "user_query", "user", "human"),
    *("query", "instruction", "input", "message", "utterance", "request", "post", "problem", "inputs"),
)
RESPONSES: Final = (
    *("response", "reply", "completion", "generation", "model_response", "model_output", "model_answer"),
    *("actual_output", "output_text", "predictions"),
    *("assistant_response", "assistant_message", "assistant", "generated_text", "generated", "bot_response"),
    *("bot_message", "bot_reply", "ai_message"),
    *("ai_response", "llm_response", "llm_output", "chatbot_response", "output", "answer", "prediction"),
    *("bot", "ai", "outputs"),
)
CONVERSATIONS: Final = (
    *("messages", "conversations", "conversation", "chat", "chat_history", "dialog", "turns"),
)


def party_of(name: str) -> str | None:
    """Return the party of a conversation that a name denotes, SPEAKER or LISTENER; None for others."""
    return {USER: SPEAKER, ASSISTANT: LISTENER}.get(ROLES.get(plain_name(name), ""))


def is_answering(speaker: str) -> bool:
    """Return whether a turn is by the party that is judged.

    In a `dialogue` "system" is a dialogue system: instructions to a model are no turn of it.

    >>> [name for name in ("Supporter", "user", "system", "Ann", "ChatGPT") if is_answering(name)]
    ['Supporter', 'system', 'ChatGPT']
    """
    return speaker.strip().casefold() in ANSWERING


class ChatTurn(NamedTuple):
    """One turn: its role, and its text."""

    role: str
    text: str


class Exchanged(NamedTuple):
    """A prompt with the turns before it, and the reply to it."""

    prompt: str
    dialogue: list[dict[str, str]]
    response: str = ""


@lru_cache(maxsize=4096)
def plain_name(name: object) -> str:
    """Return a column's name in one spelling."""
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", str(name).strip())
    return re.sub(r"[\W_]+", "_", text.casefold()).strip("_")


def find_value(table: Mapping[str, Any], names: Iterable[str]) -> Any:
    """Return the first value that is given under one of these names."""
    plain = {plain_name(key): value for key, value in table.items() if value not in (None, "", [], {})}
    return next((plain[name] for name in names if name in plain), None)


def only_text(table: Mapping[str, Any]) -> str | None:
    """Return the text of a table that holds one; None where it holds none or several."""
    texts = [value for value in table.values() if isinstance(value, str) and value.strip()]
    return texts[0] if len(texts) == 1 else None


def parsed(value: Any) -> Any:
    """Return the value of a text that is JSON of a list or of a table; any other value as it is."""
    if isinstance(value, str) and (text := value.strip())[:1] in ("[", "{") and text[-1:] in ("]", "}"):
        with suppress(ValueError, RecursionError):
            return json.loads(text)
    return value


def text_in(content: Any) -> str:
    """Return the text of a message's content: a text, or parts of which some are text."""
    if isinstance(content, str):
        return content.strip()
    if isinstance(content, int | float) and not isinstance(content, bool):
        return str(content)
    if isinstance(content, Mapping):
        kind = content.get("type", "text")
        held = content.get("text") or content.get("content") or content.get("parts")
        return text_in(held) if isinstance(kind, str) and kind.endswith("text") else ""
    if isinstance(content, list | tuple):
        return " ".join(text for text in map(text_in, content) if text)
    return ""


def turns_in(value: Any, depth: int = 0) -> list[ChatTurn]:
    """Return the turns of a conversation in any of the forms that tools write; none in another value."""
    value = parsed(value)
    if depth > DEEPEST_MESSAGES:
        return []
    if isinstance(value, str):
        return _transcript(value)
    if isinstance(value, Mapping):
        if (turn := _turn(value)) is not None:
            return [turn]
        held = find_value(value, CONVERSATIONS)
        return turns_in(held, depth + 1) if held is not None else []
    items = list(value) if isinstance(value, list | tuple) else []
    if len(items) == 1 and isinstance(items[0], list | tuple):
        return turns_in(items[0], depth + 1)
    is_talk = all(isinstance(item, Mapping) for item in items)
    return [turn for turn in map(_turn, items) if turn] if is_talk else []


def _turn(message: Mapping[str, Any]) -> ChatTurn | None:
    """Return one message; LangChain writes its class's name or its type in place of a role."""
    if isinstance(message.get("kwargs"), Mapping) and isinstance(message.get("id"), list):
        name = str(message["id"][-1]) if message["id"] else ""
        message = {"role": re.sub(r"Message(Chunk)?$", "", name), **message["kwargs"]}
    elif isinstance(message.get("data"), Mapping) and "content" in message["data"]:
        message = {"role": message.get("type"), "content": message["data"]["content"]}
    keys = ("role", "from", "speaker", "author", "type")
    who = next((message[key] for key in keys if message.get(key)), None)
    who = who.get("role") if isinstance(who, Mapping) else who
    held = [message[key] for key in ("content", "value", "text", "message") if key in message]
    role = ROLES.get(who) or ROLES.get(plain_name(who)) if isinstance(who, str) else None
    return ChatTurn(role, text_in(held[0])) if role and held else None


def _transcript(text: str) -> list[ChatTurn]:
    """Return the turns of a text that marks them with "Human:" and "Assistant:" after empty lines."""
    if not re.match(r"\s*(?:Human|User): ", text) or "\n\nAssistant:" not in text:
        return []
    parts = re.split(r"(?:^\s*|\n\n)(Human|User|Assistant):", text)
    pairs = zip(parts[1::2], parts[2::2], strict=True)
    return [ChatTurn(ROLES[who.lower()], said.strip()) for who, said in pairs]


def asked_in(value: Any) -> Exchanged | None:
    """Return what a model was asked: a plain text, or the user's last turn with the turns before it."""
    value = parsed(value)
    if turns := [turn for turn in turns_in(value) if turn.role != SYSTEM and turn.text]:
        return _last_question(turns)
    if isinstance(value, Mapping):
        held = find_value(value, PROMPTS) or only_text(value)
        return asked_in(held) if held is not None else None
    if isinstance(value, list) and len(value) == 1:
        return asked_in(value[0])
    text = "" if isinstance(value, list) else text_in(value)
    return Exchanged(text, []) if text else None


def exchanged_in(value: Any) -> Exchanged | None:
    """Return the last reply of a conversation that has a text, with its prompt."""
    turns = [turn for turn in turns_in(value) if turn.role != SYSTEM and turn.text]
    reply = max((index for index, turn in enumerate(turns) if turn.role == ASSISTANT), default=0)
    asked = _last_question(turns[:reply])
    return asked._replace(response=turns[reply].text) if asked else None


def _last_question(turns: Sequence[ChatTurn]) -> Exchanged | None:
    last = max((index for index, turn in enumerate(turns) if turn.role == USER), default=-1)
    dialogue = [{"speaker": turn.role, "text": turn.text} for turn in turns[: max(last, 0)]]
    return Exchanged(turns[last].text, dialogue) if last >= 0 else None


def reply_in(value: Any, depth: int = 0) -> str:
    """Return the text of a reply: a plain one, a message's, a conversation's last, or a completion's."""
    if depth > DEEPEST_MESSAGES:
        return ""
    if turns := turns_in(value):
        return next((turn.text for turn in reversed(turns) if turn.role == ASSISTANT and turn.text), "")
    inner = parsed(value)
    if isinstance(value, str) and not _is_wrapped(inner):
        return value.strip()  # a reply that happens to be JSON stays as it is
    if isinstance(inner, Mapping):
        for key in ("choices", "generations", "message", "content", "text", "completion", "kwargs", "value"):
            if inner.get(key):
                return reply_in(inner[key], depth + 1)
        held = find_value(inner, (*RESPONSES, *CONVERSATIONS)) or only_text(inner)
        return reply_in(held, depth + 1) if held is not None else ""
    if isinstance(inner, list | tuple):
        return next((text for item in inner if (text := reply_in(item, depth + 1))), "")
    return text_in(inner)


def _is_wrapped(value: Any) -> bool:
    """Return whether JSON is a message or a completion, and not a reply whose text is JSON."""
    known = {"choices", "generations", "content", "role", "completion"} | set(RESPONSES) | set(CONVERSATIONS)
    if isinstance(value, list):
        return bool(value) and all(isinstance(item, Mapping) for item in value) and _is_wrapped(value[0])
    return isinstance(value, Mapping) and bool(known & {plain_name(key) for key in value})
