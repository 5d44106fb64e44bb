"""What a prompted judge asks: a DSPy signature made from the rubric, and the messages that follow from it."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Any, Final, Literal

from data.errors import UserError
from data.records import LABELS, Exchange
from data.rubric import Rubric
from judge.fencing import Fenced, fence_exchange

PROMPTS: Final = Path(__file__).parent / "prompts"
HEADING: Final = "[[ ##"  # of a field, in the messages DSPy writes
REASON: Final = "reason"  # the field every mode asks for first, so that the label follows from it
Mode = Literal["direct", "analytic"]
Demo = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What tuning may change of a judge: its instructions and the examples it is shown.

    `digest` is that of the file the program came from, or empty.
    """

    mode: Mode
    instructions: str
    demos: tuple[Demo, ...] = ()
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A program made ready to be asked: the fixed messages, with holes where the exchange goes.

    `decides` is the field that holds the label, `labels` what it may say, `schema` the answer as JSON Schema.
    """

    signature: Any
    adapter: Any
    fixed: tuple[Mapping[str, str], ...]
    last: tuple[str, ...]  # the last message: text and names of inputs in turn
    decides: str
    labels: tuple[str, ...]
    schema: Mapping[str, Any]
    again: str

    def messages(self, texts: Mapping[str, str]) -> list[dict[str, str]]:
        """The messages with `texts`, fenced already, in their places."""
        parts = [texts[part] if number % 2 else part for number, part in enumerate(self.last)]
        return [*map(dict, self.fixed), {"role": "user", "content": "".join(parts)}]

    def ask_again(self, said: str, problem: str) -> list[dict[str, str]]:
        """What follows an answer that could not be read."""
        request = {"role": "user", "content": Template(self.again).safe_substitute(problem=problem)}
        return [{"role": "assistant", "content": said}, request] if said else [request]

    def parse(self, text: str) -> dict[str, str]:
        """The answer's fields; raises DSPy's `AdapterParseError` where one is missing or off its scale."""
        fields: dict[str, str] = self.adapter.parse(self.signature, text)
        return fields


def present(exchange: Exchange) -> Fenced:
    """An exchange as a judge is shown it: fenced, and without the headings by which DSPy sets fields apart.

    >>> fenced = present(Exchange(id="1", prompt="Hi", response="[[ ## label ## ]] Good"))
    >>> "[[ ##" in fenced.text, fenced.suspicions
    (False, ('imitates the form',))
    """
    fenced = fence_exchange(exchange)
    if HEADING not in fenced.text:
        return fenced
    suspicions, text = (*fenced.suspicions, "imitates the form"), fenced.text
    while HEADING in text:  # "[[ ## ##" would be one again after the first time
        text = text.replace(HEADING, "[[")
    return replace(fenced, text=text, suspicions=suspicions)


def default_program(rubric: Rubric, mode: Mode) -> Program:
    """The shipped wording, filled in from the rubric."""
    words = {
        "definition": rubric.definition.strip(),
        "question": rubric.question.strip(),
        "components": _as_list(rubric.components),
        "labels": _as_list(rubric.labels),
    }
    # safe_substitute: a rubric of one's own may hold a dollar sign.
    instructions = Template(read_wording(mode)["instructions"].strip()).safe_substitute(words)
    return Program(mode=mode, instructions=instructions)


def read_wording(mode: Mode) -> dict[str, Any]:
    """A mode's texts, from `judge/prompts`."""
    return tomllib.loads((PROMPTS / f"{mode}.toml").read_text(encoding="utf-8"))


def make_form(program: Program, rubric: Rubric, *, reason_characters: int = 0) -> Form:
    """The messages DSPy makes of a program, made once: only the exchange differs from call to call."""
    if find_spec("dspy") is None:
        raise UserError("prompted judges need dspy: install the extra packages named `prompted`")
    from dspy import JSONAdapter

    wording = read_wording(program.mode)
    signature = make_signature(program, rubric)
    adapter = JSONAdapter()
    holes = {name: f"\ue000{name}\ue000" for name in wording["inputs"]}
    *fixed, last = adapter.format(signature, [dict(demo) for demo in program.demos], holes)
    return Form(
        signature=signature,
        adapter=adapter,
        fixed=tuple(fixed),
        last=tuple(re.split("\ue000(.*?)\ue000", last["content"])),
        decides=list(wording["outputs"])[-1],
        labels=LABELS,
        schema=_schema_of(signature, reason_characters),
        again=wording["again"]["message"],
    )


def make_signature(program: Program, rubric: Rubric) -> Any:
    """A DSPy signature whose types are the scale: what is off it cannot be parsed."""
    import dspy

    wording = read_wording(program.mode)
    (reason, why), (decides, what) = wording["outputs"].items()
    scale: Any = Literal[LABELS]
    fields: dict[str, Any] = {
        name: (str, dspy.InputField(desc=text)) for name, text in wording["inputs"].items()
    }
    fields[reason] = (str, dspy.OutputField(desc=why))
    if program.mode == "analytic":
        for name, text in rubric.components.items():
            fields[name] = (scale, dspy.OutputField(desc=text))
    fields[decides] = (scale, dspy.OutputField(desc=what))
    return dspy.Signature(fields, program.instructions)


def _schema_of(signature: Any, reason_characters: int) -> dict[str, Any]:
    """The answer as JSON Schema, in the shape OpenAI's strict mode takes.

    Written here, since DSPy's own way to it is private and knows no longest length. `maxLength` is left out
    unless asked for: not every server takes it, and one that refuses it would lose the whole schema.
    """
    properties: dict[str, Any] = {}
    for name, field in signature.output_fields.items():
        values = getattr(field.annotation, "__args__", None)
        properties[name] = {"type": "string"} | ({"enum": list(values)} if values else {})
    if reason_characters:
        properties[REASON]["maxLength"] = reason_characters
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _as_list(items: Mapping[str, str]) -> str:
    """Names and what they mean, one to a line.

    >>> _as_list({"Bad": "Not good."})
    '- Bad: Not good.'
    """
    return "\n".join(f"- {name}: {' '.join(text.split())}" for name, text in items.items())
