"""A model answers prompts as the models of the crowd study did: told what empathy is, and how long to be."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from data.errors import UserError
from data.files import read_toml
from data.records import Exchange
from data.tables import MAX_TEXT
from judge.answers import OUT_OF_TOKENS, shorten, strip_thoughts, text_of
from judge.chat import Chat
from judge.endpoint import CallFailed, Endpoint

Style = Literal["empathy", "plain"]
USUAL_WORDS, MOST_WORDS = 28, 97  # what the study told its models; taken from people's replies
DEFINITION: Final = (
    "Empathy means taking in what another person feels and letting it reach you. It has three sides. The "
    "cognitive side: you work out what they think, believe and want, and look at things from where they "
    "stand. The affective side: you feel with them, whether it is joy or pain. The compassionate side: what "
    "you have understood and felt moves you to be of help."
)
INSTRUCTION: Final = (
    "You are in a conversation with another person. Give them an empathetic reply to what they say, about "
    f"{USUAL_WORDS} words long and never longer than {MOST_WORDS} words. Write the reply and nothing else."
)
# Only what is a refusal from its first word on: replies full of feeling say "I'm sorry" and "I can't
# imagine", too. A reply that is merely unhelpful is for the judge to call Bad.
REFUSAL: Final = re.compile(
    r"\A\W*(?:(?:I['\u2019]m|I am) (?:very |really |so )?sorry,? (?:but )?|sorry,? (?:but )?"
    r"|I apologi[sz]e,? (?:but )?|unfortunately,? )?(?:as an? (?:AI|language model)[^.!?]{0,60}?,? )?"
    r"I (?:can['\u2019]?t|cannot|can not|am unable to|am not able to|won['\u2019]t|must decline to)"
    r" (?:assist|help you|help with|comply|fulfil+|engage|continue|answer|respond|provide|discuss)\b"
    r"[^.!?]{0,60}\b(?:request|that|this|prompt|conversation|question|content|topic)\b[.!]?",
    re.IGNORECASE,
)
REFUSAL_WORDS: Final = 60  # a longer text that begins like a refusal has gone on to say something


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Which model is asked, where, and how; what `temperature` nobody sets is 0, as far as a server takes it.

    `name` stands in the responses as their model; it is `model` where none is given.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    model: str
    name: str = ""
    base_url: str = "https://api.openai.com/v1"
    key_env: str = ""
    style: Style = "empathy"
    temperature: float | None = None
    max_tokens: int = 512  # the longest reply takes about 140; the rest is for models that think aloud
    seed: int = 0
    concurrency: int = 32
    timeout: float = 60.0
    retries: int = 5
    requests_per_minute: float = 0
    tokens_per_minute: float = 0
    prices: dict[str, float] | None = None
    extra_body: dict[str, Any] | None = None

    def open_endpoint(self) -> Endpoint:
        """Where this model is asked."""
        return Endpoint(
            base_url=self.base_url,
            model=self.model,
            key_env=self.key_env,
            timeout=self.timeout,
            retries=self.retries,
            concurrency=self.concurrency,
            requests_per_minute=self.requests_per_minute,
            tokens_per_minute=self.tokens_per_minute,
            prices=self.prices,
            seed=self.seed,
        )


def read_model_config(path: Path, **instead: Any) -> ModelConfig:
    """A model's TOML file; values in `instead` that are not None stand in place of the file's."""
    return make_model_config(read_toml(path) | _given(instead), place=str(path))


def make_model_config(table: Mapping[str, Any], *, place: str) -> ModelConfig:
    """A model's settings from plain values; unknown keys and other types are refused."""
    from pydantic import TypeAdapter, ValidationError

    try:
        config = TypeAdapter(ModelConfig).validate_python(_given(table))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        if first["type"] == "unexpected_keyword_argument":
            known = ", ".join(item.name for item in fields(ModelConfig))
            raise UserError(f"{place}: {key}: unknown; a model's settings are {known}") from error
        if first["type"] in ("missing", "missing_argument"):
            raise UserError(f"{place}: {key}: missing; name the model to ask") from error
        raise UserError(f"{place}: {key}: {first['msg'][0].lower()}{first['msg'][1:]}") from error
    if not config.model.strip():
        raise UserError(f"{place}: model: empty; name the model to ask")
    if config.max_tokens < 1:
        raise UserError(f"{place}: max_tokens: must be at least 1, not {config.max_tokens}")
    return config


class Responder:
    """Asks one model for its reply to each prompt; safe to call from any number of threads."""

    def __init__(self, config: ModelConfig) -> None:
        self.config = config
        self.name, self.concurrency = config.name or config.model, config.concurrency
        self.endpoint = config.open_endpoint()
        # What nobody asked for by name may be left out where a server refuses it; what was is recorded.
        self.chat = Chat(
            endpoint=self.endpoint,
            model=config.model,
            max_tokens=config.max_tokens,
            temperature=config.temperature or 0.0,
            logprobs=False,
            schema=False,
            optional=frozenset(
                {"max_tokens", "seed"} | ({"temperature"} if config.temperature is None else set())
            ),
            extra_body=config.extra_body or {},
        )

    @property
    def decoding(self) -> dict[str, Any]:
        """What is asked of the server beside the prompt."""
        return {
            "temperature": self.chat.temperature,
            "max_tokens": self.chat.max_tokens,
            "seed": self.config.seed,
            "extra_body": dict(self.chat.extra_body),
        }

    @cached_property
    def version(self) -> str:
        """A digest of all that decides a response; where the server stands does not."""
        probe = write_messages(Exchange(id="", prompt="prompt", response=""), style=self.config.style)
        known = [self.config.model, probe, self.decoding]
        return sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:12]

    def respond(self, prompt: Exchange) -> dict[str, Any]:
        """One row of a run: `response`, or else `failed` with the reason and what was said `raw`."""
        row: dict[str, Any] = {"id": prompt.id, "content": prompt.content}
        try:
            reply = self.chat.ask(write_messages(prompt, style=self.config.style), seed=self.config.seed)
        except CallFailed as failure:
            raw = {"raw": shorten(failure.raw)} if failure.raw else {}
            return row | {"failed": failure.reason, **raw, "usage": failure.usage}
        served = reply.body.get("model")
        row |= {"served": served} if isinstance(served, str) and served else {}
        row |= {"left_out": sorted(self.chat.refused)} if self.chat.refused else {}
        # Without seconds and tries, so that a broken run ends with the same rows as an unbroken one.
        usage = {key: value for key, value in reply.usage.items() if key not in ("seconds", "calls")}
        return row | read_response(reply.body) | {"usage": usage}

    def stop(self) -> None:
        """End all waiting for other tries."""
        self.endpoint.stop()

    def close(self) -> None:
        """Let go of all connections."""
        self.endpoint.close()


def write_messages(prompt: Exchange, *, style: Style = "empathy") -> list[dict[str, str]]:
    """What a model is asked; `plain` leaves the definition out and changes nothing else.

    One message from the user, since not every model takes a system's. The emotion stays with the raters:
    the study did not tell it to its models.

    >>> prompt = Exchange(id="1", prompt="I won!", response="", situation="A chess final.", emotion="proud")
    >>> print(write_messages(prompt, style="plain")[0]["content"].partition("nothing else.")[2].strip())
    Their situation: A chess final.
    <BLANKLINE>
    They say: I won!
    """
    parts = [DEFINITION] if style == "empathy" else []
    parts.append(INSTRUCTION)
    if prompt.situation:
        parts.append(f"Their situation: {prompt.situation}")
    if prompt.dialogue:
        turns = "\n".join(f"{turn.speaker}: {turn.text}" for turn in prompt.dialogue)
        parts.append(f"What was said so far:\n{turns}")
    parts.append(f"They say: {prompt.prompt}")
    return [{"role": "user", "content": "\n\n".join(parts)}]


def read_response(body: Mapping[str, Any]) -> dict[str, str]:
    """The `response` in a chat completion without the model's thoughts, or why it `failed`.

    >>> read_response({"choices": [{"message": {"content": "<think>Hm.</think> How lovely!"}}]})
    {'response': 'How lovely!'}
    >>> read_response({"choices": [{"message": {"content": "How lov"}, "finish_reason": "length"}]})
    {'failed': 'cut short: ran out of tokens; allow more (max_tokens)', 'raw': 'How lov'}
    """
    try:
        choice = body["choices"][0]
        message, finish = choice["message"], choice.get("finish_reason")
        said, refusal = text_of(message.get("content")), text_of(message.get("refusal"))
    except (KeyError, IndexError, TypeError, AttributeError):
        return _failed("no answer: the server sent no message", json.dumps(body))
    text = strip_thoughts(said)
    if refusal or finish == "content_filter":
        return _failed("refused: by the server", refusal or said)
    if finish == "length":
        return _failed(f"cut short: {OUT_OF_TOKENS}", said)
    if not text:
        thoughts = said or text_of(message.get("reasoning_content") or message.get("reasoning"))
        return _failed(f"empty: {'nothing but thoughts' if thoughts else 'no text'}", thoughts)
    if len(text) > MAX_TEXT:
        return _failed(f"too long: more than {MAX_TEXT:,} characters", text)
    if REFUSAL.search(text) and len(text.split()) <= REFUSAL_WORDS:
        return _failed("refused: by the model", text)
    return {"response": text}


def _failed(reason: str, raw: str) -> dict[str, str]:
    return {"failed": reason} | ({"raw": shorten(raw)} if raw else {})


def _given(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if value is not None}
