"""Shapes of tables that people write: which column is the prompt, which the reply, and of which model."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from empathy_judge.data.errors import UserError
from empathy_judge.data.input_limits import LONGEST_COLUMN
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
    """The first rows of a table, and its columns; `named` are those that a person said are which."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    named: Columns

    def find(self, names: Iterable[str]) -> str | None:
        """Return the column with the first of these names, in any spelling."""
        plain = {plain_name(column): column for column in reversed(self.columns)}
        return next((plain[name] for name in names if name in plain), None)

    def values(self, column: str) -> list[Any]:
        """What is given in a column."""
        held = (value_at(row, column) for row in self.rows)
        return [value for value in held if value not in (None, "", [], {})]

    def first(self, column: str) -> Any:
        """The first value that is given in a column."""
        return next(iter(self.values(column)), None)

    @property
    def plain(self) -> frozenset[str]:
        """The columns' names as `plain_name` gives them."""
        return frozenset(map(plain_name, self.columns))


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
    """One shape that files have: its name, an example, and what recognises it by the first rows."""

    name: str
    example: str
    recognize: Callable[[Sample], Fit | None]


def value_at(row: Mapping[str, Any], column: str) -> Any:
    """A column's value; a dot leads into a value that is a table itself.

    >>> value_at({"answer": {"text": "How lovely!"}}, "answer.text")
    'How lovely!'
    """
    if column in row:
        return row[column]
    value: Any = row
    for key in column.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def prompt_row(value: Any, column: str) -> Row:
    """The prompt, and the turns before it, in a column's value."""
    asked = asked_in(value)
    if asked is None:
        raise UserError(f"{column}: no prompt; every row needs one")
    return {"prompt": asked.prompt, **({"dialogue": asked.dialogue} if asked.dialogue else {})}


def reply_row(value: Any, column: str) -> Row:
    """The reply in a column's value."""
    if not (reply := reply_in(value)):
        raise UserError(f"{column}: no reply; every row needs one")
    return {"response": reply}


def _ours(sample: Sample, row: Row, taken: Iterable[str]) -> Row:
    """Our other columns, in whatever case, and all that we do not know, as it is."""
    taken, kept = set(taken), dict[str, Any]()
    for key, value in row.items():
        if key not in taken:
            plain = plain_name(key)
            name = plain if plain in OURS else key
            # What would be taken for our column, and is none, is left out.
            if name in OURS or name not in ("prompt", "response", "model"):
                kept.setdefault(name, str(value) if name == "id" and isinstance(value, float) else value)
    return kept


def _model_column(sample: Sample) -> str | None:
    return sample.named.model or sample.find(MODELS)


def _model_of(row: Row, column: str | None) -> Row:
    value = value_at(row, column) if column else None
    if isinstance(value, Mapping):
        value = value.get("name") or value.get("id")
    return {"model": str(value).strip()} if value not in (None, "") else {}


def _two_columns(sample: Sample) -> Fit | None:
    """One column with the prompt, one with the reply."""
    prompt = sample.named.prompt or sample.find((*PROMPTS, *CONVERSATIONS, "text", "context"))
    replies = sample.named.responses
    response = (
        replies[0] if replies else sample.find(name for name in RESPONSES if name != plain_name(prompt))
    )
    if prompt is None or response is None or len(replies) > 1:
        return None
    if not replies and sum(bool(KNOWN_MODEL.search(name)) for name in _long_texts(sample, prompt)) > 1:
        return None  # the column named answer is the reference
    model = _model_column(sample)
    # Alpaca's rows have an instruction, and what it is about as `input`.
    about = (
        sample.find(["input"]) if plain_name(prompt) == "instruction" and not sample.named.prompt else None
    )
    about = None if about == response else about
    taken = [name for name in (prompt, response, model, about) if name]

    def convert(row: Row) -> list[Row]:
        asked = value_at(row, prompt)
        if about and isinstance(asked, str) and isinstance(more := row.get(about), str):
            asked = f"{asked}\n\n{more}"
        made = prompt_row(asked, prompt) | reply_row(value_at(row, response), response)
        return [_ours(sample, row, taken) | made | _model_of(row, model)]

    others = [
        column
        for column in sample.columns
        if plain_name(column) in RESPONSES and column not in taken and not replies
    ]
    says = f"{prompt}/{response}"
    if others:
        says += f" (not {', '.join(others[:3])}; --response-column chooses)"
    return Fit(says, convert)


def _conversation(sample: Sample) -> Fit | None:
    """One column with all turns: the last reply, and what was said before it as the dialogue."""
    named = sample.named.prompt or next(iter(sample.named.responses), None)
    column = named or sample.find(CONVERSATIONS)
    turns = turns_in(sample.first(column)) if column else []
    if column is None or len(turns) < 2 or len(sample.named.responses) > 1:
        return None
    if turns[-1].role != ASSISTANT and sample.find(RESPONSES):
        return None  # the reply has its own column
    if named and sample.named.prompt and sample.named.responses:
        return None
    model = _model_column(sample)

    def convert(row: Row) -> list[Row]:
        exchanged = exchanged_in(value_at(row, column))
        if exchanged is None:
            raise UserError(f"{column}: no turn of a user with a reply after it")
        made: Row = {"prompt": exchanged.prompt, "response": exchanged.response}
        made |= {"dialogue": exchanged.dialogue} if exchanged.dialogue else {}
        return [_ours(sample, row, [column, *([model] if model else [])]) | made | _model_of(row, model)]

    return Fit(f"{column}{LAST_TURN}", convert, RowKind.CONVERSATIONS)


def _preferences(sample: Sample) -> Fit | None:
    """A reply that was chosen and one that was rejected, after one prompt or each with the whole talk."""
    chosen, rejected = sample.find(["chosen"]), sample.find(["rejected"])
    if chosen is None or rejected is None or sample.named.responses:
        return None
    prompt = sample.named.prompt or sample.find(PROMPTS)
    if prompt is None and len(turns_in(sample.first(chosen))) < 2:
        return None
    columns = [(chosen, "chosen"), (rejected, "rejected")]
    says = f"{prompt or 'conversation'}/chosen/rejected: two models"
    return Fit(says, _side_by_side(sample, prompt, columns))


def _side_by_side(
    sample: Sample,
    prompt: str | None,
    columns: Sequence[tuple[str, str]],
    names: Mapping[str, str] | None = None,
) -> Convert:
    """One row -> a row for each column of replies, with its model; `names` are columns that name it."""
    taken = [prompt or "", *(column for column, _ in columns), *(names or {}).values()]

    def convert(row: Row) -> list[Row]:
        made, rest = [], _ours(sample, row, taken)
        for column, model in columns:
            value = value_at(row, column)
            if value in (None, "", [], {}):
                continue  # not every model answered everything
            asked = exchanged_in(value) if prompt is None else None
            said: Row = {"prompt": asked.prompt, "dialogue": asked.dialogue} if asked else {}
            said |= prompt_row(value_at(row, prompt), prompt) if prompt else {}
            if "prompt" not in said:
                raise UserError(f"{column}: no turn of a user with a reply after it")
            told = (_model_of(row, (names or {}).get(column)) or {}).get("model", model)
            own = {"id": f"{rest['id']}/{told}"} if rest.get("id") is not None else {}
            made.append(rest | said | reply_row(value, column) | {"model": told} | own)
        if not made:
            raise UserError(f"{', '.join(column for column, _ in columns)}: no reply in any of them")
        return made

    return convert


def _column_per_model(sample: Sample) -> Fit | None:
    """One column with the prompt, and one with the replies of each model."""
    prompt = sample.named.prompt or sample.find(PROMPTS)
    named = sample.named.responses
    if len(named) == 1 or (not named and prompt is None and "conversation_a" not in sample.plain):
        return None
    columns = [(column, column) for column in named] or _replies_by_name(sample, prompt)
    if not columns:
        columns = [(column, column) for column in _long_texts(sample, prompt)]
        if len(columns) == 1 and not KNOWN_MODEL.search(columns[0][0]):
            return None
    if not columns:
        return None
    if prompt is None and len(turns_in(sample.first(columns[0][0]))) < 2:
        return None
    tell = {column: sample.find([f"model_{model}"]) for column, model in columns}
    names = {column: name for column, name in tell.items() if name}
    models = list(dict.fromkeys(model for _, model in columns))
    shown = f"{len(models)} models" if len(models) > 4 else ", ".join(models)
    says = f"one column per model ({shown})"
    return Fit(says, _side_by_side(sample, prompt, columns, names))


def _replies_by_name(sample: Sample, prompt: str | None) -> list[tuple[str, str]]:
    """Columns such as response_a and response_b, or gpt-4_answer and claude_answer, with the models."""
    words = "|".join(sorted({*RESPONSES, "conversation"} - {"ai", "bot"}, key=len, reverse=True))
    found = []
    for column in sample.columns:
        if len(column) > LONGEST_COLUMN:
            continue
        told = re.fullmatch(rf"(?:{words})[\W_]+(.+)|(.+?)[\W_]+(?:{words})", column.strip(), re.I)
        told = told or re.fullmatch(rf"(?:{words})(\d+)()", column.strip(), re.I)
        is_other = column == prompt or plain_name(column) in NO_REPLIES
        if told and not is_other and isinstance(sample.first(column), str | list):
            name = (told[1] or told[2]).strip()
            if plain_name(name) not in ("expected", "reference", "id", "tokens", "length", "time", "score"):
                found.append((column, name))
    return found if len(found) > 1 else []


def _long_texts(sample: Sample, prompt: str | None) -> list[str]:
    """Columns that may be replies by their length or a model's name, and by no name that says otherwise."""
    model = _model_column(sample)
    if model is not None:
        return []  # each row has one model
    columns = []
    for column in sample.columns:
        values = sample.values(column)
        is_text = bool(values) and all(isinstance(value, str) for value in values)
        if column != prompt and plain_name(column) not in NO_REPLIES | set(PROMPTS) and is_text:
            words = sum(len(value.split()) for value in values) / len(values)
            may_be = words >= LEAST_WORDS or KNOWN_MODEL.search(column)
            columns += [column] if may_be and not turns_in(values[0]) else []
    return columns


def questions_asked(sample: Sample) -> Fit | None:
    """Conversations to be answered: the user's last turn is the prompt."""
    column = None if sample.named.prompt else sample.find(CONVERSATIONS)
    return _prompts_under(sample, column) if column and turns_in(sample.first(column)) else None


def prompts_alone(sample: Sample) -> Fit | None:
    """Prompts without replies."""
    column = sample.named.prompt or sample.find(PROMPTS)
    return _prompts_under(sample, column) if column else None


def _prompts_under(sample: Sample, column: str) -> Fit:
    def convert(row: Row) -> list[Row]:
        return [_ours(sample, row, [column]) | prompt_row(value_at(row, column), column)]

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
