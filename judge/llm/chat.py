"""Chat completions from servers of which none takes every parameter."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from empathy_judge.judge.llm.endpoint import CallFailed, Endpoint, Reply

Messages = Sequence[Mapping[str, str]]
Schema = Mapping[str, Any]
PATH: Final = "/chat/completions"
TOP_LOGPROBS: Final = 20  # alternatives; the most OpenAI and vLLM give
REJECTED: Final = ("HTTP 400", "HTTP 422", "HTTP 501")
# A parameter: its keys in a request, and the words by which servers name it when they refuse it.
PARAMETERS: Final = {
    "max_tokens": (("max_tokens",), ("max_completion_tokens",)),
    "logprobs": (("logprobs", "top_logprobs"), ("logprob",)),
    "temperature": (("temperature",), ("temperature",)),
    "seed": (("seed",), ("seed",)),
    "schema": (
        ("response_format", "grammar", "structured_outputs", "regex"),
        ("response_format", "json_schema", "schema", "grammar", "structured"),
    ),
}


@dataclass(slots=True, kw_only=True)
class Chat:
    """A model at a server; it learns once and for all which of the `optional` parameters this refuses.

    Refused `max_tokens` becomes `max_completion_tokens`, which newer OpenAI models require; the other
    parameters are left out. `constraint` restricts an answer to a choice of words.
    """

    endpoint: Endpoint
    model: str
    max_tokens: int
    temperature: float
    logprobs: bool
    schema: bool
    optional: frozenset[str]
    top_logprobs: int = TOP_LOGPROBS
    constraint: Mapping[str, Any] = field(default_factory=dict)
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    refused: frozenset[str] = frozenset()

    def ask(self, messages: Messages, *, schema: Schema | None = None, seed: int | None = None) -> Reply:
        """Ask for an answer; raise `CallFailed` without one."""
        first: CallFailed | None = None
        refused = frozenset[str]()
        while True:
            body = self.write_body(messages, schema=schema, seed=seed, refused=refused)
            try:
                reply = self.endpoint.post(PATH, body)
            except CallFailed as failure:
                first = first or failure
                to_drop = self._find_refused(failure, body)
                if to_drop is None:
                    raise first from None
                refused |= {to_drop}
            else:  # only now is it certain that what was left out was refused
                self.refused |= refused
                return reply

    def write_body(
        self,
        messages: Messages,
        *,
        schema: Schema | None = None,
        seed: int | None = None,
        refused: frozenset[str] = frozenset(),
    ) -> dict[str, Any]:
        """Write a request without the `refused` parameters and those known to be refused."""
        body: dict[str, Any] = {"model": self.model, "messages": list(messages)}
        body |= {"max_tokens": self.max_tokens, "temperature": self.temperature, **self.constraint}
        if seed is not None:
            body["seed"] = seed
        if self.logprobs:
            body |= {"logprobs": True, "top_logprobs": self.top_logprobs}
        if self.schema and schema is not None:
            named = {"name": "judgment", "strict": True, "schema": schema}
            body["response_format"] = {"type": "json_schema", "json_schema": named}
        refused |= self.refused
        left_out = {key for name in refused for key in PARAMETERS[name][0]}
        if "max_tokens" in refused:
            body["max_completion_tokens"] = body["max_tokens"]
        return {key: value for key, value in body.items() if key not in left_out} | dict(self.extra_body)

    def _find_refused(self, failure: CallFailed, body: Mapping[str, Any]) -> str | None:
        """Find the parameter to try without: the one the server names, or else the schema."""
        if not failure.reason.startswith(REJECTED):
            return None
        sent = {name for name in self.optional if not body.keys().isdisjoint(PARAMETERS[name][0])}
        complaint = f"{failure.reason} {failure.raw}".lower()
        named = (name for name, (_, words) in PARAMETERS.items() if any(word in complaint for word in words))
        return next((name for name in named if name in sent), "schema" if "schema" in sent else None)
