"""Prompts that await a response: read from the same files as exchanges, which may have responses already."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from data.errors import UserError
from data.records import Exchange
from data.tables import MAX_TEXT, BadRow, OnBad, read_rows

SAMPLE_PROMPTS: Final = Path(__file__).parent / "samples" / "prompts.jsonl"  # 160, five for each emotion
ABOUT_ANOTHER_RESPONSE: Final = frozenset({"response", "model", "served"})
KNOWN: Final = ("id", "prompt", "situation", "emotion", "dialogue")


def stop_at_bad_prompt(bad: BadRow) -> None:
    """The default: the first bad row ends the command."""
    raise UserError(f"{bad}\nMend the row, or take it out.")


def read_prompts(path: Path, *, on_bad: OnBad = stop_at_bad_prompt) -> Iterator[Exchange]:
    """Every prompt of a file, in order, as an exchange whose response is still empty.

    A response and its model are left out where a row has them; other unknown keys are kept.
    """
    from pydantic import TypeAdapter, ValidationError

    adapter = TypeAdapter(Exchange)
    first_seen: dict[str, int] = {}
    for line, row in read_rows(path, on_bad=on_bad):
        try:
            prompt = adapter.validate_python(_shape(row, line))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"])) or "row"
            on_bad(BadRow(path, line, f"{place}: {first['msg'][0].lower()}{first['msg'][1:]}", row))
            continue
        earlier = first_seen.setdefault(prompt.id, line)
        if problem := _find_problem(prompt, line, earlier):
            on_bad(BadRow(path, line, problem, row))
        else:
            yield prompt


def _shape(row: dict[str, Any], line: int) -> dict[str, Any]:
    known = {key: row[key] for key in KNOWN if row.get(key) is not None}
    extra = {key: value for key, value in row.items() if key not in {*KNOWN, *ABOUT_ANOTHER_RESPONSE}}
    identity = known.get("id", line)
    named = {"id": str(identity) if isinstance(identity, int) else identity}
    return {"prompt": ""} | known | named | {"response": "", "extra": extra}


def _find_problem(prompt: Exchange, line: int, earlier: int) -> str:
    if not prompt.prompt.strip():
        return "prompt: missing or empty; every row needs it"
    if len(prompt.prompt) > MAX_TEXT:
        return f"prompt: {len(prompt.prompt):,} characters, and at most {MAX_TEXT:,} are allowed"
    if earlier != line:
        return f"id: {prompt.id!r} stands at line {earlier} already; give each prompt its own id, or none"
    return ""
