"""Shapes of tables that people write: which column is the prompt, which the reply, and of which model."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from empathy_judge.data.errors import UserError
from empathy_judge.data.files import LONGEST_COLUMN
from empathy_judge.data.readers.chat_turns import (
    ASSISTANT,
    CONVERSATIONS,
    PROMPTS,
    RESPONSES,
    asked_in,
    exchanged_in,
    plain_name,
    reply_in,
    turns_in,
)
from empathy_judge.data.storage import Columns

Row = dict[str, Any]
Convert = Callable[[Row], list[Row]]  # a row as it was found -> rows in our own columns
MODELS: Final = ("model", "model_name", "model_id", "llm", "llm_model", "engine", "generator", "provider")
OURS: Final = ("id", "situation", "emotion", "dialogue")  # known in any case, beside prompt, response, model
# Long texts that are no model's reply.
NO_REPLIES: Final = frozenset(
    "reference references expected expected_output expected_answer target gold gold_answer ground_truth"  # noqa: SIM905
    " context situation emotion dialogue system system_prompt notes note comment comments reason rationale"
    " explanation metadata tags category topic source url date timestamp created_at rating label winner title"
    " description".split()
)
LAST_TURN: Final = ", the last turn of each"
LEAST_WORDS: Final = 2.5  # on average: what has fewer is a name or a number, not a reply
KNOWN_MODEL: Final = re.compile(
    r"gpt|claude|llama|gemini|gemma|mistral|mixtral|qwen|deepseek|phi-?\d|command-?r|grok|palm|falcon"
    r"|^model|^system_?\w$|human",
    re.I,
)


@dataclass(frozen=True, slots=True)
class Sample:
    """The first rows of a table, and its columns; `named` are those that the user named."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    named: Columns

    def find(self, names: Iterable[str]) -> str | None:
        """Return the column with the first of these names, in any spelling."""
        plain = {plain_name(column): column for column in reversed(self.columns)}
        return next((plain[name] for name in names if name in plain), None)

    def values(self, column: str) -> list[Any]:
        """Return the values that are given in a column."""
        held = (value_at(row, column) for row in self.rows)
        return [value for value in held if value not in (None, "", [], {})]

    def first(self, column: str) -> Any:
        """Return the first value that is given in a column."""
        return next(iter(self.values(column)), None)

    @property
    def plain(self) -> frozenset[str]:
        """The columns' names as `plain_name` gives them."""
        return frozenset(map(plain_name, self.columns))

    @property
    def model(self) -> str | None:
        """The column with the model's name."""
        return self.named.model or self.find(MODELS)


class RowKind(Enum):
    """What the rows of a table hold."""

    REPLIES = "replies"
    BY_FOLDER = "replies of the model that the folder is named after"
    CONVERSATIONS = "whole conversations"
    REQUESTS = "prompts to the replies of another file"
    REPLIES_TO_REQUESTS = "replies to the prompts of another file"


@dataclass(frozen=True, slots=True)
class Fit:
    """A recognized shape: its description, the conversion of a row, and the kind of its rows."""

    description: str
    convert: Convert
    kind: RowKind = RowKind.REPLIES


@dataclass(frozen=True, slots=True)
class Shape:
    """One shape that files have: its name, an example, and what recognizes it by the first rows."""

    name: str
    example: str
    recognize: Callable[[Sample], Fit | None]


def value_at(row: Mapping[str, Any], column: str) -> Any:
    """Return a column's value; a dot leads into a value that is a table itself."""
    if column in row:
        return row[column]
    value: Any = row
    for key in column.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def prompt_row(value: Any, column: str) -> Row:
    """Return the prompt, and the turns before it, in a column's value."""
    if (asked := asked_in(value)) is None:
        raise UserError(f"{column}: no prompt; every row needs one")
    return {"prompt": asked.prompt, **({"dialogue": asked.dialogue} if asked.dialogue else {})}


def reply_row(value: Any, column: str) -> Row:
    """Return the reply in a column's value."""
    if not (reply := reply_in(value)):
        raise UserError(f"{column}: no reply; every row needs one")
    return {"response": reply}


def _talk_row(value: Any, column: str) -> Row:
    """Return the last reply of a conversation, its prompt, and the turns before it."""
    if (talk := exchanged_in(value)) is None:
        raise UserError(f"{column}: no turn of a user with a reply after it")
    made: Row = {"prompt": talk.prompt, "response": talk.response}
    return made | ({"dialogue": talk.dialogue} if talk.dialogue else {})


def _others(row: Row, taken: Iterable[str | None]) -> Row:
    """Return our other columns, in whatever case, and all that we do not know, as it is."""
    others, skipped = dict[str, Any](), {*taken, "prompt", "response", "model"}  # what only looks like ours
    for key, value in row.items():
        if key not in skipped:
            name = plain_name(key) if plain_name(key) in OURS else key
            others.setdefault(name, str(value) if name == "id" and isinstance(value, float) else value)
    return others


def _model_of(row: Row, column: str | None) -> Row:
    value = value_at(row, column) if column else None
    if isinstance(value, Mapping):
        value = value.get("name") or value.get("id")
    return {"model": str(value).strip()} if value not in (None, "") else {}


def _two_columns(sample: Sample) -> Fit | None:
    """Recognize one column with the prompt, and one with the reply."""
    named = sample.named
    prompt = named.prompt or sample.find((*PROMPTS, *CONVERSATIONS, "text", "context"))
    response = next(iter(named.responses), None)
    response = response or sample.find(name for name in RESPONSES if name != plain_name(prompt))
    if prompt is None or response is None or len(named.responses) > 1:
        return None
    by_model = [name for name in _long_texts(sample, prompt) if KNOWN_MODEL.search(name)]
    if not named.responses and len(by_model) > 1:
        return None  # the column named answer is the reference
    about = None  # Alpaca's rows have an instruction, and what it is about as `input`
    if plain_name(prompt) == "instruction" and not named.prompt:
        about = sample.find(["input"])
        about = None if about == response else about
    model = sample.model
    taken = (prompt, response, model, about)

    def convert(row: Row) -> list[Row]:
        asked = value_at(row, prompt)
        if about and isinstance(asked, str) and isinstance(more := row.get(about), str):
            asked = f"{asked}\n\n{more}"
        made = prompt_row(asked, prompt) | reply_row(value_at(row, response), response)
        return [_others(row, taken) | made | _model_of(row, model)]

    others = [name for name in sample.columns if plain_name(name) in RESPONSES and name not in taken]
    description = f"{prompt}/{response}"
    if others and not named.responses:
        description += f" (not {', '.join(others[:3])}; --response-column chooses)"
    return Fit(description, convert)


def _conversation(sample: Sample) -> Fit | None:
    """Recognize one column with all turns: the last reply, with the turns before it as the dialogue."""
    named = [name for name in (sample.named.prompt, *sample.named.responses) if name]
    column = named[0] if named else sample.find(CONVERSATIONS)
    turns = turns_in(sample.first(column)) if column else []
    if column is None or len(turns) < 2 or len(named) > 1:
        return None
    if turns[-1].role != ASSISTANT and sample.find(RESPONSES):
        return None  # the reply has its own column
    model = sample.model
    taken = (column, model)

    def convert(row: Row) -> list[Row]:
        made = _talk_row(value_at(row, column), column)
        return [_others(row, taken) | made | _model_of(row, model)]

    return Fit(f"{column}{LAST_TURN}", convert, RowKind.CONVERSATIONS)


def _preferences(sample: Sample) -> Fit | None:
    """Recognize a chosen and a rejected reply, after one prompt or each with the whole talk."""
    chosen, rejected = sample.find(["chosen"]), sample.find(["rejected"])
    if chosen is None or rejected is None or sample.named.responses:
        return None
    prompt = sample.named.prompt or sample.find(PROMPTS)
    if prompt is None and len(turns_in(sample.first(chosen))) < 2:
        return None
    convert = side_by_side(prompt, {chosen: "chosen", rejected: "rejected"})
    return Fit(f"{prompt or 'conversation'}/chosen/rejected: two models", convert)


def side_by_side(
    prompt: str | None, models: Mapping[str, str], names: Mapping[str, str] | None = None
) -> Convert:
    """Return what makes a row of each column of replies; `names` are columns with the model's name."""
    names = names or {}
    taken = (prompt, *models, *names.values())

    def convert(row: Row) -> list[Row]:
        made, others = [], _others(row, taken)
        for column, model in models.items():
            if (value := value_at(row, column)) in (None, "", [], {}):
                continue  # not every model answered everything
            texts = _talk_row(value, column) if prompt is None else prompt_row(value_at(row, prompt), prompt)
            model = _model_of(row, names.get(column)).get("model", model)
            own = {"id": f"{others['id']}/{model}"} if others.get("id") is not None else {}
            made.append(others | texts | reply_row(value, column) | {"model": model} | own)
        if not made:
            raise UserError(f"{', '.join(models)}: no reply in any of them")
        return made

    return convert


def _column_per_model(sample: Sample) -> Fit | None:
    """Recognize one column with the prompt, and one with the replies of each model."""
    prompt, named = sample.named.prompt or sample.find(PROMPTS), sample.named.responses
    if len(named) == 1 or (not named and prompt is None and "conversation_a" not in sample.plain):
        return None
    models = {column: column for column in named} or _replies_by_name(sample, prompt)
    if not models:
        models = {column: column for column in _long_texts(sample, prompt)}
        if not models or (len(models) == 1 and not KNOWN_MODEL.search(next(iter(models)))):
            return None
    if prompt is None and len(turns_in(sample.first(next(iter(models))))) < 2:
        return None
    names = {column: name for column, model in models.items() if (name := sample.find([f"model_{model}"]))}
    distinct = list(dict.fromkeys(models.values()))
    shown = f"{len(distinct)} models" if len(distinct) > 4 else ", ".join(distinct)
    return Fit(f"one column per model ({shown})", side_by_side(prompt, models, names))


def _replies_by_name(sample: Sample, prompt: str | None) -> dict[str, str]:
    """Return the models of columns such as response_a and response_b, or gpt-4_answer and claude_answer."""
    words = "|".join(sorted({*RESPONSES, "conversation"} - {"ai", "bot"}, key=len, reverse=True))
    pattern = re.compile(rf"(?:{words})(?:[\W_]+(.+)|(\d+))|(.+?)[\W_]+(?:{words})", re.I)
    found = {}
    for column in sample.columns:
        matched = pattern.fullmatch(column.strip()) if len(column) <= LONGEST_COLUMN else None
        is_other = column == prompt or plain_name(column) in NO_REPLIES
        if matched and not is_other and isinstance(sample.first(column), str | list):
            name = next(filter(None, matched.groups())).strip()
            if plain_name(name) not in ("expected", "reference", "id", "tokens", "length", "time", "score"):
                found[column] = name
    return found if len(found) > 1 else {}


def _long_texts(sample: Sample, prompt: str | None) -> list[str]:
    """Return columns that may be replies by their length or a model's name; none if rows name a model."""
    columns = []
    for column in sample.columns if sample.model is None else ():
        values = sample.values(column)
        is_text = bool(values) and all(isinstance(value, str) for value in values)
        if is_text and column != prompt and plain_name(column) not in NO_REPLIES | set(PROMPTS):
            words = sum(len(value.split()) for value in values) / len(values)
            may_be = words >= LEAST_WORDS or KNOWN_MODEL.search(column)
            columns += [column] if may_be and not turns_in(values[0]) else []
    return columns


def prompts_under(sample: Sample, names: Iterable[str]) -> Fit | None:
    """Recognize prompts without replies; of a conversation, the user's last turn is the prompt."""
    column = sample.named.prompt or sample.find(names)
    if column is None or (names is CONVERSATIONS and not turns_in(sample.first(column))):
        return None

    def convert(row: Row) -> list[Row]:
        return [_others(row, [column]) | prompt_row(value_at(row, column), column)]

    return Fit(f"prompts under {column}", convert)


COLUMN_SHAPES: Final = (
    Shape("chosen and rejected", "`prompt`, `chosen`, `rejected`", _preferences),
    Shape(
        "conversations",
        "`messages` (OpenAI), `conversations` (Hugging Face): scored as a whole if they have several replies;"
        " with `--unit reply`, the last reply with the earlier turns as dialogue; or one turn per row: "
        "`conversation_id`, `role`, `text`",
        _conversation,
    ),
    Shape(
        "prompt and reply",
        "`question`, `answer`; `input`, `output`; `instruction`, `output`; `user`, `assistant`; "
        "`prompt`, `completion`; `user_message`, `bot_message`; `text`, `reply`; `context`, `response`, "
        "in any case",
        _two_columns,
    ),
    Shape(
        "one column a model",
        "`prompt`, `gpt-4o`, `claude`; `question`, `response_a`, `response_b`",
        _column_per_model,
    ),
)
