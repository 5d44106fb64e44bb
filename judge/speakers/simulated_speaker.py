"""A second model plays the speaker. No person spoke: every row and figure made from it says so."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from data.records import SIMULATED, Exchange, digest_json
from judge.llm.answer_prompts import AskedModel, read_response
from judge.llm.answers import shorten
from judge.llm.endpoint import CallFailed
from judge.llm.limits import lasting_usage

PART: Final = (
    "You play a person who writes to someone in a chat. You are not an assistant: you have the feelings and "
    "the trouble or joy described here, and the other one listens. Write your next message as this person "
    "would write it: one to three plain sentences, in the first person. Answer what you are asked, tell a "
    "little more, and let what you say depend on how you are treated: open up where you feel understood, and "
    "draw back where you are brushed off. Do not comfort or advise the other one. Write the message and "
    "nothing else."
)


class SimulatedSpeaker(AskedModel):
    """Asks a model for what the speaker says next."""

    @property
    def kind(self) -> str:
        """What rows and figures call this speaker."""
        return f"{SIMULATED}{self.name}"

    @cached_property
    def version(self) -> str:
        """A digest of all that decides what is said; where the server stands does not."""
        return digest_json([self.config.model, PART, self.decoding])[:12]

    def speak(self, so_far: Exchange) -> dict[str, Any]:
        """One row of a run: what is said after the last reply as `words`, or why nothing `failed`."""
        row: dict[str, Any] = {"id": so_far.id, "content": so_far.content_digest}
        try:
            reply = self.chat.ask(write_part(so_far), seed=self.config.seed)
        except CallFailed as failure:
            raw = {"raw": shorten(failure.raw)} if failure.raw else {}
            return row | {"failed": f"speaker: {failure.reason}", **raw, "usage": failure.usage}
        said = read_response(reply.body)
        if "response" in said:
            said = {"words": said["response"]}
        else:
            said["failed"] = f"speaker: {said['failed']}"
        served = {f"speaker_{name}": value for name, value in self.describe_reply(reply).items()}
        return row | served | said | {"usage": lasting_usage(reply.usage)}


def write_part(so_far: Exchange) -> list[dict[str, str]]:
    """What the speaker's model is asked: its part, then the talk with the roles turned around.

    >>> talk = Exchange(id="1", prompt="I won!", response="Lovely!", emotion="proud")
    >>> [(message["role"], message["content"][-10:]) for message in write_part(talk)]
    [('user', ' you feel.'), ('assistant', 'I won!'), ('user', 'Lovely!')]
    """
    about = [PART]
    if so_far.situation:
        about.append(f"Your situation: {so_far.situation}")
    if so_far.emotion:
        about.append(f"Your feeling: {so_far.emotion}")
    about.append("Begin: say what happened and how you feel.")
    said = [turn.text for turn in so_far.dialogue] + [so_far.prompt, so_far.response]
    return [{"role": "user", "content": "\n\n".join(about)}, *alternate(said, first="assistant")]


def alternate(texts: Sequence[str], *, first: str) -> list[dict[str, str]]:
    """Messages of two who take turns."""
    other: Mapping[str, str] = {"user": "assistant", "assistant": "user"}
    return [
        {"role": other[first] if number % 2 else first, "content": text} for number, text in enumerate(texts)
    ]
