"""The same endpoint as a DSPy language model, for optimizers that have a model write instructions."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from judge.chat import Chat
from judge.endpoint import CallFailed, Reply
from judge.prompted import Outcome, PromptedJudge
from judge.tryout import Meter

LEAST_TOKENS: Final = 1024  # a set of instructions is longer than a judgment
# Not the model's own name, out of which DSPy would read rules that are for the endpoint to keep.
NAME: Final = "judge/proposals"


def make_proposer(judge: PromptedJudge, meter: Meter) -> Any:
    """A `dspy.LM` that goes through the judge's endpoint, is counted by the meter and caches nothing."""
    import dspy

    chat = replace(
        judge.chat,
        max_tokens=max(LEAST_TOKENS, 2 * judge.chat.max_tokens),
        temperature=1.0,
        logprobs=False,
        optional=frozenset({"max_tokens", "temperature", "seed", "schema"}),
    )

    def post(ask: Callable[[], Reply]) -> Reply:
        replies: list[Reply] = []

        def counted() -> Outcome:
            replies.append(ask())
            return Outcome(usage=dict(replies[0].usage))

        meter.call(counted, most=1)
        return replies[0]

    return dspy.LM(NAME, engine=Engine(chat, post), cache=False, num_retries=0)


class Engine:
    """One request of DSPy's, one call of ours."""

    supports_response_schema = True
    supported_params = ("response_format", "temperature", "max_tokens")

    def __init__(self, chat: Chat, post: Callable[[Callable[[], Reply]], Reply]) -> None:
        self.chat, self.post = chat, post

    def complete(self, request: Any) -> Any:
        from dspy.lm15 import InvalidRequestError, response_from_openai_chat

        messages = [{"role": message.role, "content": message.text or ""} for message in request.messages]
        if request.system is not None:
            system = request.system
            text = system if isinstance(system, str) else "".join(part.text for part in system)
            messages.insert(0, {"role": "system", "content": text})
        schema = (request.config.response_format or {}).get("schema")
        try:
            reply = self.post(lambda: self.chat.ask(messages, schema=schema))
        except CallFailed as failure:
            raise InvalidRequestError(failure.reason) from failure
        return response_from_openai_chat(reply.body, model=request.model)

    def close(self) -> None:
        """The endpoint is the judge's, and stays open."""
