"""Targets for files as other people and tools write them: responses in any shape, ratings, choices."""

import json
from itertools import product
from pathlib import Path
from typing import Any, Final
from zipfile import ZipFile

from door import written
from read_tables import workbook_parts

from data.errors import UserError
from data.records import LABELS, Exchange, judgment_of

FIXTURES: Final = Path(__file__).resolve().parents[1] / "data" / "fixtures"  # as the tools wrote them
REPLIES: Final = tuple(
    Exchange(id=f"r{number}", prompt="I lost my keys.", response=text, model=f"m{number % 2}")
    for number, text in enumerate(("Oh no!", "Look again.", "Where were you last?", "So what?"))
)


def read_any(path: Path) -> Any:
    """Responses in whatever shape: with every bad row set aside, and what is said of the reading."""
    from data.tables import read_responses, to_json, to_row

    bad: list[Any] = []
    found = read_responses([path], on_bad=bad.append)
    for exchange in found:
        assert exchange.prompt.strip() and exchange.response.strip() and exchange.content_digest
        to_json(to_row(exchange)).encode()
    for item in bad:
        str(item), to_json({"line": item.line, "problem": item.problem, "raw": item.raw})
    return found.said()


def read_conversations(path: Path) -> None:
    """Whole conversations: rows put together, every id once, taken apart again and counted."""
    from data.readers.conversations import opening_digest, split_conversation
    from data.records import CONVERSATION
    from data.storage import find_sources
    from data.tables import Exchanges
    from judge.conversations.conversation_features import conversation_features

    talks = list(Exchanges(find_sources([path]), on_bad=lambda bad: None, unit=CONVERSATION))
    assert len({talk.id for talk in talks}) == len(talks)
    for talk in talks:
        replies = split_conversation(talk)
        assert replies and replies[-1].response.endswith(talk.response)
        opening_digest(talk), conversation_features(replies, [2.0] * len(replies))


def read_scripts(path: Path) -> None:
    """Situations of scripted speakers, each spoken to its end."""
    from judge.speakers.scripted_speaker import next_words, read_situations

    for situation in read_situations(path):
        for turns in range(situation.most_turns - 1):
            assert next_words(situation, ["Why was that?"] * turns).strip()


def read_any_sheet(data: bytes) -> None:
    """Responses in a workbook."""
    read_any(_as_workbook(data))


def read_rating_sheet(path: Path) -> None:
    """Ratings alone, or about replies that are known; on a scale that is stated, or found out."""
    from data.rating_files.rating_sheet import Replies, SheetOptions, read_sheet

    known = Replies((judgment_of(item, dict.fromkeys(LABELS, 1 / 3)) for item in REPLIES), REPLIES)
    was_read = False
    for replies, scale in product((None, known), (None, tuple("12345"))):
        try:
            sheet = read_sheet(path, SheetOptions(scale=scale, skip_invalid=True), replies=replies)
        except UserError:
            continue
        was_read = True
        assert all(1 <= item.rating <= 3 for item in (*sheet.people, *sheet.by_ai))
        "\n".join(sheet.notes).encode()
    if not was_read:
        raise UserError("no ratings in any way")


def read_rating_workbook(data: bytes) -> None:
    """Ratings in a workbook."""
    read_rating_sheet(_as_workbook(data))


def read_pairs(path: Path) -> None:
    """Choices between two replies."""
    from data.rating_files.pairwise_choices import are_choices, people_first, read_choices
    from data.rating_files.rating_sheet import Replies, SheetOptions

    if not are_choices(path):
        raise UserError("no choices")
    for replies in (None, Replies((), REPLIES)):
        sheet = people_first(read_choices(path, SheetOptions(skip_invalid=True), replies=replies))
        "\n".join(sheet.notes).encode()


def read_rating_words(data: bytes) -> None:
    """A rating a line: which scale they are on, and which label each is."""
    from data.rating_files.ai_raters import is_ai
    from data.rating_files.rating_words import as_label, cut_of, find_scale

    values = data.decode("utf-8", "replace").splitlines()
    for value in values:
        as_label(value), is_ai(value)
    for column, declared in product(("rating", "stars"), (None, tuple("1234567"))):
        scale = find_scale(values, column=column, declared=declared)
        cut = cut_of(scale)
        cut.say()
        for value in values:
            if (position := scale.position(value)) is not None:
                assert cut.rating(position) in (1, 2, 3)


def read_chat(data: bytes) -> None:
    """Turns of a chat, however they are nested."""
    from data.readers import chat_turns

    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = data.decode("utf-8", "replace")
    chat_turns.text_in(value), chat_turns.turns_in(value), chat_turns.asked_in(value)
    chat_turns.exchanged_in(value), chat_turns.reply_in(value)


def _as_workbook(data: bytes) -> Path:
    """The bytes as the only sheet of a workbook: a changed archive would hardly ever open."""
    path = written(data, "any.xlsx")
    if not data.startswith(b"PK"):
        with ZipFile(path, "w") as archive:
            for name, text in workbook_parts().items():
                archive.writestr(name, text)
            archive.writestr("s.xml", data)
    return path
