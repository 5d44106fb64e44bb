"""Choices between two replies: who chose which, whatever the sheet calls the winner and the two sides.

A choice shows which reply is better, not how good either is. So it can measure how far a judge agrees, and
which model is chosen; it cannot calibrate a judge's levels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from empathy_judge.data.errors import UserError
from empathy_judge.data.rating_files.sheet import (
    ONE_RATER,
    SIDES,
    RaterTable,
    Replies,
    SheetOptions,
    bare_name,
    find_columns,
    find_sides,
    name_text,
)
from empathy_judge.data.readers.file_formats import BadRow, Row
from empathy_judge.data.readers.table_rows import read_rows

Winner = Literal["one", "other", "tie"]
SIDE_WORDS: Final = ("{0}", "model{0}", "response{0}", "answer{0}")
TIES: Final = frozenset(
    {"tie", "draw", "equal", "same", "both", "neither", "tiebothbad", "bothbad", "bothgood", "nopreference"}
)
WINNERS: Final[Mapping[Winner, frozenset[str]]] = {
    "one": frozenset({"left", "first", *(word.format(name) for word in SIDE_WORDS for name in "a1")}),
    "other": frozenset({"right", "second", *(word.format(name) for word in SIDE_WORDS for name in "b2")}),
    "tie": TIES,
}
COMMON: Final = ("id", "prompt", "situation", "emotion")  # of both sides
NO_WINNER: Final = "{value!r} is neither reply; write a, b or tie, or the chosen reply's model or id"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One person's choice: the replies by id, where that is known, their models, and which is better."""

    rater: str
    winner: Winner
    ids: tuple[str, str]
    models: tuple[str, str]
    prompt: str


def are_choices(path: Path, columns: Mapping[str, str] | None = None) -> bool:
    """Whether a table holds choices between two replies: by its first row."""
    _, row = next(iter(read_rows(path, on_bad=lambda bad: None)), (0, {}))
    return "rating" not in find_columns(row, columns) and bool(find_sides(row, columns))


def read_choices(
    path: Path, options: SheetOptions | None = None, *, replies: Replies | None = None
) -> tuple[tuple[Choice, ...], tuple[str, ...]]:
    """Return the human choices of a file, and sentences about how it was read.

    With `replies` both sides must be among them, by id, model or texts.
    """
    table = RaterTable(path, options)
    columns, sides = table.columns, find_sides(table.headers, table.options.columns)
    choices: list[tuple[Choice, object]] = []
    for line, row in table.rows:
        try:
            choice = _read_choice(row, columns, sides, line, replies)
            choices.append((choice, row.get(columns.get("rater_kind", ""))))
        except UserError as problem:
            table.on_bad(BadRow(path, line, str(problem), row))
    how = f"of column {sides['winner']!r}" if "winner" in sides else "chosen before rejected"
    table.note(f"choices between two replies, {how}")
    table.note_raters("choice")
    return table.conclude(choices, "choice")


def _read_choice(
    row: Row, columns: Mapping[str, str], sides: Mapping[str, str], line: int, replies: Replies | None
) -> Choice:
    rater = name_text(row.get(columns["rater"])) if "rater" in columns else ONE_RATER
    if not rater:
        raise UserError("rater: missing or empty; every row needs it")
    halves = [
        {key[:-2]: row.get(name) for key, name in sides.items() if key[-2:] == f"_{side}"} for side in SIDES
    ]
    common = {field: row.get(columns[field]) for field in COMMON if field in columns}
    models = [name_text(half.get("model")) for half in halves]
    ids = [_find_reply({**common, **half}, replies) for half in halves]
    known = replies.models if replies is not None else {}
    said = row.get(sides["winner"]) if "winner" in sides else "a"
    prompt = name_text(common.get("prompt") or common.get("id")) or str(line)
    return Choice(
        rater=rater,
        winner=_winner(said, models, [name_text(half.get("id")) for half in halves]),
        ids=(ids[0], ids[1]),
        models=(models[0] or known.get(ids[0], ""), models[1] or known.get(ids[1], "")),
        prompt=prompt,
    )


def _winner(value: Any, models: Sequence[str], ids: Sequence[str]) -> Winner:
    text = name_text(value)
    if not text:
        raise UserError("winner: missing or empty; every row needs it")
    for names in (models, ids):
        named = [name.casefold() == text.casefold() for name in names]
        if sum(named) == 1:
            return "one" if named[0] else "other"
    for winner, words in WINNERS.items():
        if bare_name(text) in words:
            return winner
    raise UserError(f"winner: {NO_WINNER.format(value=text[:40])}")


def _find_reply(half: Mapping[str, Any], replies: Replies | None) -> str:
    identity, model = name_text(half.get("id")), name_text(half.get("model"))
    if replies is None:
        return identity
    if identity:
        found = replies.find_id(identity, model)
        if found in replies.ids and (not model or replies.models[found] == model):
            return found
    if half.get("prompt") is not None and half.get("response") is not None:
        return replies.find_text({**half, "model": model or None})
    of = f" of {model}" if model else ""
    raise UserError(
        f"id: no judged reply{of} has the id {identity!r}; add the columns prompt, response_a and response_b"
    )
