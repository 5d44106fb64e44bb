"""Which shape a table has, by its first rows; one that has none is refused with the columns it has."""

from dataclasses import dataclass
from typing import Final

from data.errors import UserError
from data.readers.chat_turns import CONVERSATIONS, PROMPTS, RESPONSES, turns_in
from data.readers.column_shapes import (
    COLUMN_SHAPES,
    Convert,
    Fit,
    Row,
    Sample,
    prompts_alone,
    questions_asked,
)
from data.readers.tool_exports import TOOL_SHAPES

SHAPES: Final = (*TOOL_SHAPES, *COLUMN_SHAPES)  # the first that fits is taken
FIRST_ROWS: Final = 20  # by which a shape is recognised
MOST_COLUMNS: Final = 12  # named where none fits


@dataclass(frozen=True, slots=True)
class Recognised:
    """How a table is read; `fit` is None for one in our own columns."""

    says: str
    fit: Fit | None = None

    @property
    def convert(self) -> Convert | None:
        return self.fit.convert if self.fit else None


OUR_OWN: Final = Recognised("prompt/response")


def is_ours(row: Row) -> bool:
    """Tell by one row that a table has our own columns, with texts in them."""
    for name in ("prompt", "response"):
        if isinstance(row.get(name, {}), dict | list) or turns_in(row[name]):
            return False
    return True


def recognise(sample: Sample, place: object, *, needs_reply: bool = True) -> Recognised:
    """How a table is read; without `needs_reply` prompts that nobody answered will do."""
    named = sample.named
    for column in (named.prompt, *named.responses, named.model):
        if column is not None and column not in sample.columns and not sample.values(column):
            raise UserError(f"{place}: no column {column!r}; its columns are {_listed(sample.columns)}")
    if not named and {"prompt"} | ({"response"} if needs_reply else set()) <= set(sample.columns):
        firsts = [sample.first("prompt"), sample.first("response") if needs_reply else None]
        if not any(isinstance(value, dict | list) or turns_in(value) for value in firsts):
            return OUR_OWN
    shapes = [shape.recognise for shape in (COLUMN_SHAPES if named else SHAPES)]
    if not needs_reply:  # of a conversation its last question, whether it was answered or not
        shapes = [questions_asked, *shapes, prompts_alone]
    fit = next((fit for recogniser in shapes if (fit := recogniser(sample)) is not None), None)
    if fit is not None:
        return Recognised(fit.says, fit)
    raise UserError(f"{place}: {_missing(sample, needs_reply)}")


def _missing(sample: Sample, needs_reply: bool) -> str:
    """What is not there, what is, and the option that helps."""
    if not sample.columns:
        return "no row in it can be read as a table"
    prompt = sample.named.prompt or sample.find((*PROMPTS, *CONVERSATIONS))
    response = next(iter(sample.named.responses), None) or sample.find(RESPONSES)
    has = f"its columns are {_listed(sample.columns)}"
    if prompt is None and (response is None or not needs_reply):
        lacks = "no column is known as prompt" + (" or reply" if needs_reply else "")
        option = "--prompt-column" + (" and --response-column" if needs_reply else "")
    elif prompt is None:
        lacks, option = (
            f"the reply is under {response!r}, but no column is known as prompt",
            "--prompt-column",
        )
    else:
        lacks = f"the prompt is under {prompt!r}, but no column is known as reply"
        option = "--response-column (once for each model, where each has a column)"
    return f"{lacks}; {has}; say which with {option}"


def _listed(columns: tuple[str, ...]) -> str:
    more = len(columns) - MOST_COLUMNS
    shown = ", ".join(str(column)[:60] for column in columns[:MOST_COLUMNS])
    return shown + (f" and {more} more" if more > 0 else "")
