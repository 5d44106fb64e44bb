"""The messages of a prompted judge: instructions from the rubric, and the form of the answer."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from string import Template
from typing import Any, Final, Literal, get_args

from empathy_judge.data.errors import UserError
from empathy_judge.data.files import digest_json, read_sealed, write_sealed
from empathy_judge.data.records import CONVERSATION, LABELS, REPLY
from empathy_judge.data.rubric import Rubric

PROMPTS: Final = Path(__file__).parents[1] / "prompts"
PLACE: Final = "{exchange}"  # in the last message; the delimited exchange replaces it
REASON: Final = "reason"  # asked for first, so that the shares follow from it
FORMAT: Final = 4  # of the file of an optimized prompt
REMEDY: Final = "run optimize again"
NOTE: Final = (
    "The messages may quote exchanges from the ratings they were optimized on: share this file only with "
    "people who may see them. Do not edit it: a changed file is refused."
)
# The rated unit in the prompts.
RATED: Final = {
    REPLY: {
        "rated": "a listener's reply to a speaker",
        "unit": "exchange",
        "what": "the listener's reply",
    },
    CONVERSATION: {
        "rated": "the listener of a whole conversation",
        "unit": "conversation",
        "what": "the listener, all turns taken together",
    },
}
Mode = Literal["shares", "side-by-side", "label", "analytic"]
SIDE_BY_SIDE: Final = "side-by-side"
MODES: Final[tuple[Mode, ...]] = get_args(Mode)
Message = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptForm:
    """The messages of a judge with `PLACE` for the exchange, and how an answer is read."""

    template: tuple[Message, ...]
    again: str
    schema: Mapping[str, Any] | None = None  # none in mode "label", whose answer is one word
    digest: str = ""  # of the file of optimized messages

    @property
    def is_word(self) -> bool:
        """Whether the answer is one word."""
        return self.schema is None

    def messages(self, text: str) -> list[dict[str, str]]:
        """Return the messages about an exchange that is already delimited."""
        *first, last = (dict(message) for message in self.template)
        return [*first, last | {"content": last["content"].replace(PLACE, text, 1)}]

    def ask_again(self, answer: str, problem: str) -> list[dict[str, str]]:
        """Return the messages that follow an answer that could not be read."""
        request = {"role": "user", "content": Template(self.again).safe_substitute(problem=problem)}
        return [{"role": "assistant", "content": answer}, request] if answer else [request]


def read_wording(mode: Mode, rubric: Rubric) -> dict[str, Any]:
    """Read a mode's texts from `judge/prompts`, about the rubric's unit."""
    text = (PROMPTS / f"{mode}.toml").read_text(encoding="utf-8")
    return tomllib.loads(Template(text).safe_substitute(RATED[rubric.unit]))


def write_instructions(mode: Mode, rubric: Rubric) -> str:
    """Return the shipped instructions, filled in from the rubric."""
    words = {
        "definition": rubric.definition.strip(),
        "question": rubric.question.strip(),
        "components": _as_list(rubric.components),
        "labels": _as_list(rubric.labels),
    }
    # safe_substitute: a user's rubric may hold a dollar sign.
    return Template(read_wording(mode, rubric)["instructions"].strip()).safe_substitute(words)


def describe_outputs(mode: Mode, rubric: Rubric, *, letters: str = "") -> dict[str, str]:
    """Return the fields of an answer in their order, with their descriptions."""
    outputs = read_wording(mode, rubric)["outputs"]
    if mode == SIDE_BY_SIDE:
        return {letter: Template(outputs["grade"]).substitute(letter=letter) for letter in letters}
    if mode == "analytic":
        labels = {name: f"{text} One of {', '.join(LABELS)}." for name, text in rubric.components.items()}
        outputs = {REASON: outputs.pop(REASON), **labels, **outputs}
    return dict(outputs)


def make_form(mode: Mode, rubric: Rubric, *, reason_characters: int = 0, letters: str = "") -> PromptForm:
    """Make the messages of a mode, and the schema of its answer; `letters` name replies side by side."""
    wording, outputs = read_wording(mode, rubric), describe_outputs(mode, rubric, letters=letters)
    system = f"{write_instructions(mode, rubric)}\n\n{wording['inputs']['exchange'].strip()}"
    request, schema = " ".join(outputs.values()), None
    if mode != "label":
        about = f"The answer is a JSON object with these fields, in this order:\n{_as_list(outputs)}"
        request = "Answer with the JSON object alone."
        schema = _make_schema(outputs, rubric, reason_characters)
        if mode == SIDE_BY_SIDE:
            request = f"{about}\n\n{request}"
        else:  # the same for all exchanges, so servers can cache it
            system += f"\n\n{about}"
    messages = [("system", system), ("user", f"{PLACE}\n\n{request}")]
    template = tuple({"role": role, "content": content} for role, content in messages)
    return PromptForm(template=template, again=wording["again"]["message"], schema=schema)


def _make_schema(outputs: Mapping[str, str], rubric: Rubric, reason_characters: int) -> dict[str, Any]:
    """Return the schema of an answer, as OpenAI's strict mode requires it."""
    kinds: dict[str, dict[str, Any]] = {
        REASON: {"type": "string"},
        **{name: {"type": "string", "enum": list(LABELS)} for name in rubric.components},
    }
    number = {"type": "integer", "minimum": 0, "maximum": 100}
    properties: dict[str, Any] = {name: dict(kinds.get(name, number)) for name in outputs}
    if reason_characters:  # only on request: a server that refuses it would lose the whole schema
        properties[REASON]["maxLength"] = reason_characters
    required = {"required": list(properties), "additionalProperties": False}
    return {"type": "object", "properties": properties, **required}


def _as_list(items: Mapping[str, str]) -> str:
    """Return names and their meanings, one per line."""
    return "\n".join(f"- {name}: {' '.join(text.split())}" for name, text in items.items())


def write_prompt(
    path: Path, template: Sequence[Message], *, mode: Mode, rubric: Rubric, about: Mapping[str, Any]
) -> str:
    """Write optimized messages with the record of their optimization; return the file's hash."""
    content = {"format": FORMAT, "note": NOTE, "mode": mode, "rubric": rubric.digest}
    return write_sealed(path, {**content, "messages": list(template), "about": dict(about)})


def read_prompt(path: Path, form: PromptForm, *, mode: Mode, rubric: Rubric) -> PromptForm:
    """Return the form with the messages of an undamaged file that was optimized for this rubric and mode."""
    content = read_sealed(path, what="optimized prompt", version=FORMAT, remedy=REMEDY)
    if not {"mode", "rubric", "messages"} <= set(content):
        raise UserError(f"{path}: not an optimized prompt; run optimize")
    if content["rubric"] != rubric.digest:
        raise UserError(f"{path}: optimized for another rubric than {rubric.name!r}; {REMEDY}")
    if content["mode"] != mode:
        raise UserError(f'{path}: optimized for mode = "{content["mode"]}", not "{mode}"')
    return replace(form, template=tuple(content["messages"]), digest=digest_json(content))
