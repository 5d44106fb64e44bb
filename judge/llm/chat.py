"""One chat completion after the other, from servers of which none takes every parameter."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final

from empathy_judge.judge.llm.endpoint import CallFailed, Endpoint, Reply

PATH: Final = "/chat/completions"
TOP_LOGPROBS: Final = 20  # alternatives; the most OpenAI and vLLM give
REJECTED: Final = ("HTTP 400", "HTTP 422", "HTTP 501")
# A parameter, and the words by which servers name it when they refuse it.
NAMED_BY: Final = {
    "max_tokens": ("max_completion_tokens",),
    "logprobs": ("logprob",),
    "temperature": ("temperature",),
    "seed": ("seed",),
    "schema": ("response_format", "json_schema", "schema", "grammar", "structured"),
}


@dataclass(slots=True, kw_only=True)
class Chat:
    """Asks a server, and learns once and for all which of the `optional` parameters it refuses.

    Refused `max_tokens` becomes `max_completion_tokens`, which newer OpenAI models insist on; the other
    parameters are left out.
    """

    endpoint: Endpoint
    model: str
    max_tokens: int
    temperature: float
    logprobs: bool
    schema: bool
    optional: frozenset[str]
    top_logprobs: int = TOP_LOGPROBS
    constraint: Mapping[str, Any] = field(default_factory=dict)  # what holds the answer to a choice of words
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    refused: frozenset[str] = frozenset()
    lock: Lock = field(default_factory=Lock)

    def ask(
        self,
        messages: Sequence[Mapping[str, str]],
        *,
        schema: Mapping[str, Any] | None = None,
        seed: int | None = None,
        times: int = 1,
    ) -> Reply:
        """Ask for an answer of at most `times` the usual length; raises `CallFailed` without one."""
        first: CallFailed | None = None
        refused = self.refused
        while True:
            body = self.write_body(messages, schema=schema, seed=seed, times=times, refused=refused)
            try:
                reply = self.endpoint.post(PATH, body)
            except CallFailed as failure:
                first = first or failure
                to_drop = self._find_refused(failure, body)
                if to_drop is None:
                    raise first from None
                refused |= {to_drop}
            else:
                # Only now is it sure that what was left out was what the server minded.
                if not refused <= self.refused:
                    with self.lock:
                        self.refused |= refused
                return reply

    def write_body(
        self,
        messages: Sequence[Mapping[str, str]],
        *,
        schema: Mapping[str, Any] | None = None,
        seed: int | None = None,
        times: int = 1,
        refused: frozenset[str] | None = None,
    ) -> dict[str, Any]:
        """Write a request as `ask` sends it, without what the server refuses as far as we know."""
        refused = self.refused if refused is None else refused
        length = "max_completion_tokens" if "max_tokens" in refused else "max_tokens"
        body: dict[str, Any] = {
            "model": self.model,
            "messages": list(messages),
            length: times * self.max_tokens,
        }
        if "temperature" not in refused:
            body["temperature"] = self.temperature
        if seed is not None and "seed" not in refused:
            body["seed"] = seed
        if self.logprobs and "logprobs" not in refused:
            body |= {"logprobs": True, "top_logprobs": self.top_logprobs}
        if self.schema and schema is not None and "schema" not in refused:
            named = {"name": "judgment", "strict": True, "schema": schema}
            body["response_format"] = {"type": "json_schema", "json_schema": named}
        return body | ({} if "schema" in refused else dict(self.constraint)) | dict(self.extra_body)

    def _find_refused(self, failure: CallFailed, body: Mapping[str, Any]) -> str | None:
        """Find the parameter to try without: the one the server names, or else the schema."""
        if not failure.reason.startswith(REJECTED):
            return None
        sent = {name for name in self.optional if ("response_format" if name == "schema" else name) in body}
        complaint = f"{failure.reason} {failure.raw}".lower()
        for name, words in NAMED_BY.items():
            if name in sent and any(word in complaint for word in words):
                return name
        return "schema" if "schema" in sent else None
