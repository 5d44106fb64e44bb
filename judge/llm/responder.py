"""Replies of a model to a file of prompts, instructed as the models of the crowd study were.

The replies are a folder that `score` reads and that survives interruptions, as `data.runs` describes: for
every prompt a response or the reason why there is none (answers.jsonl), and the responses alone
(responses.jsonl). The manifest has the model, its settings, and how many prompts failed and why.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, Final, Literal

from empathy_judge.data.errors import UserError
from empathy_judge.data.files import LONGEST_TEXT, digest_json, read_toml
from empathy_judge.data.readers.table_rows import read_rows
from empathy_judge.data.records import Exchange
from empathy_judge.data.runs import FinishedRun, OnProgress, Run, RunPlan, run_all
from empathy_judge.data.storage import Source, digest_file, digest_source
from empathy_judge.data.tables import read_prompts, validate, write_rows
from empathy_judge.judge.budget import add_usage
from empathy_judge.judge.engine import ask_all
from empathy_judge.judge.llm.answers import OUT_OF_TOKENS, read_message, strip_thoughts
from empathy_judge.judge.llm.chat import Chat
from empathy_judge.judge.llm.endpoint import CallFailed, Endpoint, EndpointOptions, Reply
from empathy_judge.judge.llm.http_client import shorten

ANSWERS, RESPONSES = "answers", "responses.jsonl"
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
# Only what is a refusal from its first word on: warm replies say "I'm sorry" and "I can't imagine", too.
REFUSAL: Final = re.compile(
    r"\A\W*(?:(?:I['\u2019]m|I am) (?:very |really |so )?sorry,? (?:but )?|sorry,? (?:but )?"
    r"|I apologi[sz]e,? (?:but )?|unfortunately,? )?(?:as an? (?:AI|language model)[^.!?]{0,60}?,? )?"
    r"I (?:can['\u2019]?t|cannot|can not|am unable to|am not able to|won['\u2019]t|must decline to)"
    r" (?:assist|help you|help with|comply|fulfil+|engage|continue|answer|respond|provide|discuss)\b"
    r"[^.!?]{0,60}\b(?:request|that|this|prompt|conversation|question|content|topic)\b[.!]?",
    re.IGNORECASE,
)
PROBE: Final = Exchange(id="", prompt="prompt", response="")  # decides the version of a responder
REFUSAL_WORDS: Final = 60  # a longer text that begins like a refusal has gone on to say something


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """A model, its server and its settings."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    model: str
    name: str = ""  # in the responses; by default `model`
    base_url: str = "https://api.openai.com/v1"
    key_env: str = ""
    style: Style = "empathy"
    temperature: float | None = None  # 0, if the server takes it
    max_tokens: int = 512  # the longest reply takes about 140; the rest is for reasoning
    seed: int = 0
    concurrency: int | None = None
    timeout: float | None = None
    retries: int = 5
    requests_per_minute: float = 0
    tokens_per_minute: float = 0
    prices: dict[str, float] | None = None
    extra_body: dict[str, Any] | None = None


def read_model_config(
    path: Path | None, settings: Mapping[str, Any], *, where: str = "options"
) -> ModelConfig:
    """Read a model's TOML file, if there is one; `settings` that are not None replace its values."""
    changes = {key: value for key, value in settings.items() if value is not None}
    where = str(path or where)
    config = validate(ModelConfig, (read_toml(path) if path else {}) | changes, where)
    if not config.model.strip():
        raise UserError(f"{where}: model: empty; set the name of the model")
    if config.max_tokens < 1:
        raise UserError(f"{where}: max_tokens: must be at least 1, not {config.max_tokens}")
    return config


class AskedModel:
    """One model behind its endpoint; safe to call from any number of threads."""

    def __init__(self, config: ModelConfig, *, max_tokens: int | None = None, schema: bool = False) -> None:
        self.config = config
        self.name = config.name or config.model
        self.endpoint = Endpoint(**{name: getattr(config, name) for name in EndpointOptions.__annotations__})
        # What was not asked for by name may be left out where a server refuses it.
        optional = {"max_tokens", "seed", *(["schema"] if schema else [])}
        optional |= {"temperature"} if config.temperature is None else set()
        self.chat = Chat(
            endpoint=self.endpoint,
            model=config.model,
            max_tokens=max_tokens or config.max_tokens,
            temperature=config.temperature or 0.0,
            logprobs=False,
            schema=schema,
            optional=frozenset(optional),
            extra_body=config.extra_body or {},
        )

    @property
    def decoding(self) -> dict[str, Any]:
        """What the server is asked beside the prompt."""
        return {
            "temperature": self.chat.temperature,
            "max_tokens": self.chat.max_tokens,
            "seed": self.config.seed,
            "extra_body": dict(self.chat.extra_body),
        }

    def describe_reply(self, reply: Reply) -> dict[str, Any]:
        """Return which model answered, and the parameters that its server refused."""
        served = reply.body.get("model")
        about = {"served": served} if isinstance(served, str) and served else {}
        return about | ({"left_out": sorted(self.chat.refused)} if self.chat.refused else {})


class Responder(AskedModel):
    """Asks one model for its reply to each prompt."""

    @cached_property
    def version(self) -> str:
        """A digest of all that decides a response; the server's address does not."""
        messages = write_messages(PROBE, style=self.config.style)
        return digest_json([self.config.model, messages, self.decoding])[:12]

    def plan(self, prompts: Source) -> RunPlan:
        """Make the plan of a run of this model over these prompts."""
        style, digest = self.config.style, digest_source(prompts)
        return RunPlan(model=self.name, version=self.version, style=style, prompts=digest)

    def respond(self, prompt: Exchange) -> dict[str, Any]:
        """Return a row of a run: `response`, or else `failed` with the reason and the `raw` answer."""
        row: dict[str, Any] = {"id": prompt.id, "content_digest": prompt.content_digest}
        try:
            messages = write_messages(prompt, style=self.config.style)
            reply = self.chat.ask(messages, seed=self.config.seed)
        except CallFailed as failure:
            return row | _failed(failure.reason, failure.raw) | {"usage": failure.usage}
        row |= self.describe_reply(reply) | read_response(reply.body)
        return row | {"usage": reply.usage}


def write_messages(prompt: Exchange, *, style: Style = "empathy") -> list[dict[str, str]]:
    """Write what a model is asked; `plain` leaves the definition out and changes nothing else.

    It is one message of the user, since not every model takes a system message. The study did not tell its
    models the emotion.
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
    """Return the `response` in a chat completion without the model's reasoning, or why it `failed`."""
    message = read_message(body)
    if message is None:
        return _failed("no answer: the server sent no message", json.dumps(body))
    content, refusal, finish, thoughts = message
    text = strip_thoughts(content)
    if refusal or finish == "content_filter":
        return _failed("refused: by the server", refusal or content)
    if finish == "length":
        return _failed(f"cut short: {OUT_OF_TOKENS}", content)
    if not text:
        return _failed(f"empty: {'only reasoning' if thoughts else 'no text'}", thoughts)
    if len(text) > LONGEST_TEXT:
        return _failed(f"too long: more than {LONGEST_TEXT:,} characters", text)
    if REFUSAL.search(text) and len(text.split()) <= REFUSAL_WORDS:
        return _failed("refused: by the model", text)
    return {"response": text}


def _failed(reason: str, raw: str) -> dict[str, str]:
    return {"failed": reason} | ({"raw": shorten(raw)} if raw else {})


def respond_to(
    prompts: Source,
    responder: Responder,
    plan: RunPlan,
    folder: Path,
    *,
    limit: int | None = None,
    on_progress: OnProgress = lambda done, total: None,
    on_read: Callable[[Sequence[str]], object] = lambda said: None,
) -> FinishedRun:
    """Have the model answer every prompt that `folder` has no answer to yet, and complete the run."""
    read = read_prompts(prompts)
    count = sum(1 for _ in read)  # all of them: a bad row is found before anything is paid for
    if not count:
        raise UserError(f"{prompts}: the file has no rows")
    on_read(read.notes())

    def is_enough(manifest: Mapping[str, Any]) -> bool:
        """Return whether a complete run has all that is asked for, and its responses are unchanged."""
        path, reached = folder / RESPONSES, manifest["limit"]
        has_all = reached is None or (limit is not None and limit <= reached)
        return has_all and path.exists() and digest_file(path) == manifest["responses"]

    def conclude(run: Run) -> dict[str, Any]:
        answers = {row["id"]: row for _, row in read_rows(run.judgments)}
        write_rows(folder / RESPONSES, _responses(prompts, answers, responder.name))
        reasons = Counter(row["failed"] for row in answers.values() if "failed" in row)
        words = [len(row["response"].split()) for row in answers.values() if "response" in row]
        too_long = sum(count > MOST_WORDS for count in words)
        return {
            "asked_for": responder.config.model,
            "base_url": responder.endpoint.base_url,
            "key_env": responder.config.key_env,
            "decoding": responder.decoding,
            "reasons": dict(sorted(reasons.items())),
            "words": {"mean": round(fmean(words), 2) if words else None, "too_long": too_long},
            **describe_rows(answers.values()),
            "counts": {"prompts": len(answers), "responses": len(words), "failed": reasons.total()},
            "responses": digest_file(folder / RESPONSES),
            "limit": limit,
        }

    return run_all(
        folder,
        plan,
        total=count if limit is None else min(count, limit),
        ask=lambda run: ask_all(
            responder.endpoint, responder.respond, read_prompts(prompts), run, limit=limit
        ),
        conclude=conclude,
        is_enough=is_enough,
        name=ANSWERS,
        on_progress=on_progress,
    )


def say_counts(counts: Mapping[str, int]) -> str:
    """Return reasons, or whatever else was counted, on one line."""
    return ", ".join(f"{reason} ({count:,})" for reason, count in sorted(counts.items()))


def _responses(prompts: Source, answers: Mapping[str, Mapping[str, Any]], model: str) -> Iterator[Exchange]:
    for prompt in read_prompts(prompts):
        answer = answers.get(prompt.id, {})
        if "response" in answer:
            served = {"served": answer["served"]} if "served" in answer else {}
            yield replace(prompt, response=answer["response"], model=model, extra={**prompt.extra, **served})


def describe_rows(rows: Collection[Mapping[str, Any]]) -> dict[str, Any]:
    """Count which models answered, name the parameters that servers refused, and add up the usage."""
    usage = add_usage(row.get("usage") for row in rows)
    return {
        "served": dict(sorted(Counter(row["served"] for row in rows if "served" in row).items())),
        "left_out": sorted({name for row in rows for name in row.get("left_out", ())}),
        "tokens": {key: usage.get(f"{key}_tokens", 0) for key in ("input", "output")},
        "cost": round(usage["cost"], 6) if "cost" in usage else None,
    }
