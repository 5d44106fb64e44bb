"""The prompt of a prompted judge: instructions from the rubric, and the messages made from them."""

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from string import Template
from typing import Any, Final, Literal

from empathy_judge.data.errors import UserError
from empathy_judge.data.readers.file_formats import is_text
from empathy_judge.data.records import CONVERSATION, LABELS, REPLY, Exchange, digest_json
from empathy_judge.data.rubric import Rubric
from empathy_judge.data.sealed_json import read_sealed, write_sealed
from empathy_judge.judge.llm.prompt_injection import DelimitedExchange, delimit_exchange

PROMPTS: Final = Path(__file__).parents[1] / "prompts"
HEADING: Final = "[[ ##"  # of a field in the messages, as DSPy writes them
REASON: Final = "reason"  # asked for first, so that the label follows from it; not in mode "label"
FORMAT: Final = 2  # of the file of an optimized prompt
NOTE: Final = (
    "The instructions may quote exchanges from the ratings they were optimized on: share this file only with "
    "people who may see them. Do not edit it: a changed file is refused."
)
# What the prompts call the rated unit.
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
SYSTEM: Final = Template("""\
Your input fields are:
1. `exchange` (str): $exchange
Your output fields are:
$outputs
All interactions will be structured in the following way, with the appropriate values filled in.

Inputs will have the following structure:

[[ ## exchange ## ]]
{exchange}

Outputs will be a JSON object with the following fields.

$example
In adhering to this structure, your objective is: 
        $instructions""")
Mode = Literal["direct", "analytic", "label"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What prompt optimization may change of a judge: its instructions.

    `digest` is that of the file the program came from, or empty.
    """

    mode: Mode
    instructions: str
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptForm:
    """A program as messages: a fixed system message, and the text around the exchange in the user's.

    `decides` is the field that holds the label, `schema` the answer as JSON Schema. In mode `label` the
    answer is one word, and there is no schema.
    """

    system: str
    before: str
    after: str
    decides: str
    again: str
    schema: Mapping[str, Any] | None = None

    @property
    def is_word(self) -> bool:
        return self.schema is None

    def messages(self, text: str) -> list[dict[str, str]]:
        """Return the messages about an exchange that is already delimited."""
        return [
            {"role": "system", "content": self.system},
            {"role": "user", "content": f"{self.before}{text}{self.after}"},
        ]

    def ask_again(self, answer: str, problem: str) -> list[dict[str, str]]:
        """Return the messages that follow an answer that could not be read."""
        request = {"role": "user", "content": Template(self.again).safe_substitute(problem=problem)}
        return [{"role": "assistant", "content": answer}, request] if answer else [request]


def present(exchange: Exchange, *, whole: bool = False) -> DelimitedExchange:
    """Delimit an exchange, and remove the headings that mark fields in the messages.

    >>> delimited = present(Exchange(id="1", prompt="Hi", response="[[ ## label ## ]] Good"))
    >>> "[[ ##" in delimited.text, delimited.injections
    (False, ('imitates the form',))
    """
    delimited = delimit_exchange(exchange, whole=whole)
    if HEADING not in delimited.text:
        return delimited
    # All signs at once: without the first, "[[ ## ##" would be a heading again.
    text = re.sub(r"\[\[(?: ##)+", "[[", delimited.text)
    return replace(delimited, text=text, injections=(*delimited.injections, "imitates the form"))


def default_program(rubric: Rubric, mode: Mode) -> Program:
    """Return the shipped instructions, filled in from the rubric."""
    words = {
        "definition": rubric.definition.strip(),
        "question": rubric.question.strip(),
        "components": _as_list(rubric.components),
        "labels": _as_list(rubric.labels),
    }
    # safe_substitute: a rubric of one's own may hold a dollar sign.
    instructions = Template(read_wording(mode, rubric)["instructions"].strip()).safe_substitute(words)
    return Program(mode=mode, instructions=instructions)


def read_wording(mode: Mode, rubric: Rubric) -> dict[str, Any]:
    """Read a mode's texts from `judge/prompts`, about the rubric's unit."""
    text = (PROMPTS / f"{mode}.toml").read_text(encoding="utf-8")
    return tomllib.loads(Template(text).safe_substitute(RATED[rubric.unit]))


def make_form(program: Program, rubric: Rubric, *, reason_characters: int = 0) -> PromptForm:
    """Make a program's messages, in the format of DSPy's JSON adapter, in which GEPA optimizes them."""
    wording = read_wording(program.mode, rubric)
    again = wording["again"]["message"]
    if program.mode == "label":
        ((decides, what),) = wording["outputs"].items()
        system = f"{program.instructions}\n\n{wording['inputs']['exchange'].strip()}"
        return PromptForm(system=system, before="", after=f"\n\n{what}", decides=decides, again=again)
    outputs = describe_outputs(program.mode, rubric)
    scale = f"Literal[{', '.join(map(repr, LABELS))}]"
    exact = "        # note: the value you produce must exactly match (no extra characters) one of: "
    note = exact + "; ".join(LABELS)
    listed, example, order = [], {}, []
    for number, (name, text) in enumerate(outputs.items(), start=1):
        is_text = name == REASON
        listed.append(f"{number}. `{name}` ({'str' if is_text else scale}): {text.strip()}")
        example[name] = f"{{{name}}}{'' if is_text else note}"
        order.append(f"`{name}`" + ("" if is_text else f" (must be formatted as a valid Python {scale})"))
    system = SYSTEM.substitute(
        exchange=wording["inputs"]["exchange"].strip(),
        outputs="\n".join(listed),
        example=json.dumps(example, indent=2, ensure_ascii=False),
        instructions=program.instructions.strip().replace("\n", "\n        "),
    )
    properties: dict[str, Any] = {
        name: {"type": "string"} | ({} if name == REASON else {"enum": list(LABELS)}) for name in outputs
    }
    if reason_characters:  # only on request: a server that refuses it would lose the whole schema
        properties[REASON]["maxLength"] = reason_characters
    return PromptForm(
        system=system,
        before="[[ ## exchange ## ]]\n",
        after=f"\n\nRespond with a JSON object in the following order of fields: {', then '.join(order)}.",
        decides=list(outputs)[-1],
        # As OpenAI's strict mode requires it.
        schema={
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        },
        again=again,
    )


def describe_outputs(mode: Mode, rubric: Rubric) -> dict[str, str]:
    """Return the fields of an answer in their order, with their descriptions."""
    *before, (decides, what) = read_wording(mode, rubric)["outputs"].items()
    components = rubric.components if mode == "analytic" else {}
    return {**dict(before), **components, decides: what}


def _as_list(items: Mapping[str, str]) -> str:
    """Return names and their meanings, one per line.

    >>> _as_list({"Bad": "Not good."})
    '- Bad: Not good.'
    """
    return "\n".join(f"- {name}: {' '.join(text.split())}" for name, text in items.items())


def write_program(path: Path, program: Program, *, rubric: Rubric, about: Mapping[str, Any]) -> str:
    """Write an optimized prompt with the record of its optimization; return the file's hash."""
    content = {
        "format": FORMAT,
        "note": NOTE,
        "mode": program.mode,
        "rubric": rubric.digest,
        "instructions": program.instructions,
        "about": dict(about),
    }
    return write_sealed(path, content)


def read_program(path: Path, rubric: Rubric, mode: Mode) -> Program:
    """Read an optimized prompt that is undamaged and was made for this rubric and mode."""
    content = read_sealed(path, what="optimized prompt", version=FORMAT, remedy="run optimize again")
    if not {"mode", "rubric", "instructions"} <= set(content):
        raise UserError(f"{path}: not an optimized prompt; run optimize")
    if content["rubric"] != rubric.digest:
        raise UserError(f"{path}: optimized for another rubric than {rubric.name!r}; run optimize again")
    if content["mode"] != mode:
        raise UserError(f'{path}: optimized for mode = "{content["mode"]}", not "{mode}"')
    instructions = content["instructions"]
    if not isinstance(instructions, str) or not is_text(instructions):
        raise UserError(f"{path}: instructions: not a text; run optimize again")
    return Program(mode=mode, instructions=instructions, digest=digest_json(content))
