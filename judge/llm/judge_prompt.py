"""The messages of a prompted judge: instructions from the rubric, and the form of the answer."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from string import Template
from typing import Any, Final, Literal

from empathy_judge.data.errors import UserError
from empathy_judge.data.files import digest_json, read_sealed, write_sealed
from empathy_judge.data.records import CONVERSATION, LABELS, REPLY
from empathy_judge.data.rubric import Rubric

PROMPTS: Final = Path(__file__).parents[1] / "prompts"
PLACE: Final = "{exchange}"  # in the last message; the delimited exchange replaces it
REASON: Final = "reason"  # asked for first, so that the label follows from it; not in mode "label"
FORMAT: Final = 3  # of the file of an optimized prompt
REMEDY: Final = "run optimize again"
NOTE: Final = (
    "The messages may quote exchanges from the ratings they were optimized on: share this file only with "
    "people who may see them. Do not edit it: a changed file is refused."
)
# The rated unit in the prompts.
RATED: Final = {
    REPLY: {
        "rated": "the listener's reply in an exchange",
        "unit": "exchange",
        "what": "the listener's reply",
    },
    CONVERSATION: {
        "rated": "the listener in a whole conversation",
        "unit": "conversation",
        "what": "the listener, all turns taken together",
    },
}
Mode = Literal["direct", "analytic", "label"]
Message = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptForm:
    """The messages of a judge with `PLACE` for the exchange, and how an answer is read."""

    template: tuple[Message, ...]
    decides: str  # the field that holds the label
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


def describe_outputs(mode: Mode, rubric: Rubric) -> dict[str, str]:
    """Return the fields of an answer in their order, with their descriptions."""
    *before, (decides, what) = read_wording(mode, rubric)["outputs"].items()
    components = rubric.components if mode == "analytic" else {}
    return {**dict(before), **components, decides: what}


def make_form(mode: Mode, rubric: Rubric, *, reason_characters: int = 0) -> PromptForm:
    """Make the messages of a mode, and the schema of its answer."""
    wording, outputs = read_wording(mode, rubric), describe_outputs(mode, rubric)
    decides = list(outputs)[-1]
    system = f"{write_instructions(mode, rubric)}\n\n{wording['inputs']['exchange'].strip()}"
    if mode == "label":
        request, schema = outputs[decides], None
    else:
        scale = f" One of {', '.join(LABELS)}."
        listed = _as_list({name: text + scale * (name != REASON) for name, text in outputs.items()})
        system += f"\n\nThe answer is a JSON object with these fields, in this order:\n{listed}"
        request, schema = "Answer with the JSON object alone.", _make_schema(outputs, reason_characters)
    messages = [("system", system), ("user", f"{PLACE}\n\n{request}")]
    template = tuple({"role": role, "content": content} for role, content in messages)
    return PromptForm(template=template, decides=decides, again=wording["again"]["message"], schema=schema)


def _make_schema(outputs: Mapping[str, str], reason_characters: int) -> dict[str, Any]:
    """Return the schema of an answer, as OpenAI's strict mode requires it."""
    properties: dict[str, Any] = {
        name: {"type": "string"} | ({} if name == REASON else {"enum": list(LABELS)}) for name in outputs
    }
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
