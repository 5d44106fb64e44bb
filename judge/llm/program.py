"""What a prompted judge asks: a DSPy signature made from the rubric, and the messages that follow from it."""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Any, Final, Literal

from data.errors import UserError, install_hint
from data.files import disk_errors, replacing
from data.records import CONVERSATION, LABELS, REPLY, Exchange, digest_json
from data.rubric import Rubric
from judge.llm.fencing import Fenced, fence_exchange

PROMPTS: Final = Path(__file__).parents[1] / "prompts"
HEADING: Final = "[[ ##"  # of a field, in the messages DSPy writes
HOLE: Final = "\ue000exchange\ue000"  # where the exchange goes in a message
REASON: Final = "reason"  # the field asked for first, so that the label follows from it; not in mode "label"
FORMAT: Final = 1  # of the file of a tuned program
NOTE: Final = (
    "The demos are exchanges from the ratings this program was tuned on, with what people called them: "
    "whoever gets this file gets those texts. Change nothing by hand: a changed file is refused."
)
# What the prompts call that which is rated.
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
    """A program made ready to be asked: the fixed messages, and the parts of the `last` around the exchange.

    `decides` is the field that holds the label, `schema` the answer as JSON Schema. In mode `label` the
    answer is a word: there is neither a schema nor anything of DSPy.
    """

    fixed: tuple[Mapping[str, str], ...]
    last: tuple[str, ...]
    decides: str
    again: str
    signature: Any = None
    adapter: Any = None
    schema: Mapping[str, Any] | None = None

    @property
    def is_word(self) -> bool:
        return self.schema is None

    def messages(self, text: str) -> list[dict[str, str]]:
        """The messages with an exchange, fenced already, in its place."""
        return [*map(dict, self.fixed), {"role": "user", "content": text.join(self.last)}]

    def ask_again(self, answer: str, problem: str) -> list[dict[str, str]]:
        """What follows an answer that could not be read."""
        request = {"role": "user", "content": Template(self.again).safe_substitute(problem=problem)}
        return [{"role": "assistant", "content": answer}, request] if answer else [request]


def present(exchange: Exchange, *, whole: bool = False) -> Fenced:
    """An exchange as a judge is shown it: fenced, and without the headings by which DSPy sets fields apart.

    >>> fenced = present(Exchange(id="1", prompt="Hi", response="[[ ## label ## ]] Good"))
    >>> "[[ ##" in fenced.text, fenced.suspicions
    (False, ('imitates the form',))
    """
    fenced = fence_exchange(exchange, whole=whole)
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
    instructions = Template(read_wording(mode, rubric)["instructions"].strip()).safe_substitute(words)
    return Program(mode=mode, instructions=instructions)


def read_wording(mode: Mode, rubric: Rubric) -> dict[str, Any]:
    """A mode's texts, from `judge/prompts`, about what the rubric rates as one."""
    text = (PROMPTS / f"{mode}.toml").read_text(encoding="utf-8")
    return tomllib.loads(Template(text).safe_substitute(RATED[rubric.unit]))


def make_form(program: Program, rubric: Rubric, *, reason_characters: int = 0) -> Form:
    """The messages DSPy makes of a program, made once: only the exchange differs from call to call."""
    if program.mode == "label":
        return _make_word_form(program, rubric)
    if find_spec("dspy") is None:
        raise UserError(f"prompted judges need dspy: {install_hint('prompted')}")
    from dspy import JSONAdapter

    wording = read_wording(program.mode, rubric)
    signature = make_signature(program, rubric)
    adapter = JSONAdapter()
    *fixed, last = adapter.format(signature, [dict(demo) for demo in program.demos], {"exchange": HOLE})
    properties: dict[str, Any] = {}
    for name, field in signature.output_fields.items():
        values = getattr(field.annotation, "__args__", None)
        properties[name] = {"type": "string"} | ({"enum": list(values)} if values else {})
    # Only where asked for: not every server takes it, and one that refuses it would lose the whole schema.
    if reason_characters:
        properties[REASON]["maxLength"] = reason_characters
    return Form(
        signature=signature,
        adapter=adapter,
        fixed=tuple(fixed),
        last=tuple(last["content"].split(HOLE)),
        decides=list(wording["outputs"])[-1],
        # In the shape OpenAI's strict mode takes; DSPy's own way to it is private and knows no `maxLength`.
        schema={
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        },
        again=wording["again"]["message"],
    )


def _make_word_form(program: Program, rubric: Rubric) -> Form:
    """The messages that ask for one word; examples come before, as if they had been asked and answered."""
    wording = read_wording(program.mode, rubric)
    ((decides, what),) = wording["outputs"].items()
    system = f"{program.instructions}\n\n{wording['inputs']['exchange'].strip()}"
    messages = [{"role": "system", "content": system}]
    for demo in program.demos:
        messages += [
            {"role": "user", "content": f"{demo['exchange']}\n\n{what}"},
            {"role": "assistant", "content": demo[decides]},
        ]
    last = ("", f"\n\n{what}")
    return Form(fixed=tuple(messages), last=last, decides=decides, again=wording["again"]["message"])


def make_signature(program: Program, rubric: Rubric) -> Any:
    """A DSPy signature whose types are the scale: what is off it cannot be parsed."""
    import dspy

    wording = read_wording(program.mode, rubric)
    *before, (decides, what) = wording["outputs"].items()
    scale: Any = Literal[LABELS]
    fields: dict[str, Any] = {
        name: (str, dspy.InputField(desc=text)) for name, text in wording["inputs"].items()
    }
    for reason, why in before:
        fields[reason] = (str, dspy.OutputField(desc=why))
    if program.mode == "analytic":
        for name, text in rubric.components.items():
            fields[name] = (scale, dspy.OutputField(desc=text))
    fields[decides] = (scale, dspy.OutputField(desc=what))
    return dspy.Signature(fields, program.instructions)


def _as_list(items: Mapping[str, str]) -> str:
    """Names and what they mean, one to a line.

    >>> _as_list({"Bad": "Not good."})
    '- Bad: Not good.'
    """
    return "\n".join(f"- {name}: {' '.join(text.split())}" for name, text in items.items())


def write_program(path: Path, program: Program, *, rubric: Rubric, about: Mapping[str, Any]) -> str:
    """Keep a tuned program with all that is known `about` it; returns the file's own hash.

    The demos are texts from the ratings it was tuned on: such a file may not go further than they may.
    """
    content = {
        "format": FORMAT,
        "note": NOTE,
        "mode": program.mode,
        "rubric": rubric.digest,
        "instructions": program.instructions,
        "demos": [dict(demo) for demo in program.demos],
        "about": dict(about),
    }
    digest = digest_json(content)
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as partial:
            text = json.dumps({**content, "sha256": digest}, indent=2, ensure_ascii=False)
            partial.write_text(text + "\n", encoding="utf-8")
    return digest


def read_program(path: Path, rubric: Rubric, mode: Mode) -> Program:
    """A tuned program, if it is whole and was made for this rubric and mode."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        json.dumps(content, ensure_ascii=False).encode()  # half a character is none, and no model takes it
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file; make one with optimize") from error
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: not a tuned program, or damaged: {error}; tune it again") from error
    needed = {"sha256", "format", "mode", "rubric", "instructions", "demos"}
    if not isinstance(content, dict) or not needed <= set(content):
        raise UserError(f"{path}: not a tuned program; make one with optimize")
    stated = content.pop("sha256")
    if digest_json(content) != stated:
        raise UserError(f"{path}: changed since it was made (its hash does not fit); tune it again")
    if content["format"] != FORMAT:
        raise UserError(f"{path}: format {content['format']!r} is not known here; tune it again")
    if content["rubric"] != rubric.digest:
        raise UserError(f"{path}: tuned for another rubric than {rubric.name!r}; tune it again for this one")
    if content["mode"] != mode:
        raise UserError(f'{path}: tuned for mode = "{content["mode"]}", not "{mode}"')
    rows: list[Any] = content["demos"] if isinstance(content["demos"], list) else [None]
    are_demos = all(
        isinstance(row, dict) and all(isinstance(text, str) for text in row.values()) for row in rows
    )
    if not isinstance(content["instructions"], str) or not are_demos:
        raise UserError(f"{path}: instructions and demos are not as we write them; tune it again")
    return Program(mode=mode, instructions=content["instructions"], demos=tuple(rows), digest=stated)
