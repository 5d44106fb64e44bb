"""EmpatheticExchanges: human replies of EmpatheticDialogues, rated 1 to 5."""

from pathlib import Path
from typing import Any

from data.importers.intake import Imported, Intake, find_files, read_score, read_text
from data.readers.chat_turns import LISTENER, SPEAKER
from data.records import Exchange, Rating, Turn

FIVE = (1, 5)


def import_empathetic_exchanges(path: Path) -> Imported:
    """Human replies rated 1-5; the earlier exchanges of a conversation are its dialogue."""
    (table,) = find_files(path, "EmpatheticExchanges_5ES.csv")
    columns = ["conv_id", "exchange_number", "context", "prompt", "empathy"]
    intake = Intake(path)
    conversations: dict[str, list[tuple[int, str, dict[str, Any]]]] = {}
    for place, row in intake.rows(table, [*columns, "speaker_utterance", "listener_utterance"]):
        with intake.setting_aside(place):
            number = int(read_score(row, "exchange_number", (1, 1000), whole=True))
            conversations.setdefault(read_text(row, "conv_id"), []).append((number, place, row))
    for dialog, rows in conversations.items():
        dialogue: list[Turn] = []
        for number, place, row in sorted(rows, key=lambda item: item[0]):
            identity = f"{dialog}/{number}"
            with intake.setting_aside(place):
                rating = read_score(row, "empathy", FIVE)
                intake.add_rating(Rating(id=identity, rater="crowd", rating=rating), place)
            with intake.setting_aside(place):
                exchange = Exchange(
                    id=identity,
                    prompt=read_text(row, "speaker_utterance"),
                    response=read_text(row, "listener_utterance"),
                    model="human",
                    situation=read_text(row, "prompt"),
                    emotion=read_text(row, "context"),
                    dialogue=tuple(dialogue),
                    extra={"dialog_id": dialog, "exchange_number": number},
                )
                intake.add_exchange(exchange, place)
                dialogue.append(Turn(speaker=SPEAKER, text=exchange.prompt))
                dialogue.append(Turn(speaker=LISTENER, text=exchange.response))
    return intake.finish()
