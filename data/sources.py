"""Public datasets in their published shape, read into exchanges and ratings: one function per dataset."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from data.conversations import LISTENER, SPEAKER, import_ieval, import_judging_empathy
from data.errors import UserError
from data.intake import (
    Imported,
    Intake,
    find_files,
    read_header,
    read_list,
    read_score,
    read_teq,
    read_text,
    require_columns,
)
from data.records import Exchange, Rating, Turn

STUDY_SCALE = (1, 3)
FIVE = (1, 5)
ARMS: Final = {
    "human": "human",
    "chatgpt_empathy": "gpt-4",
    "chatgpt": "gpt-4-plain",
    "llama_empathy": "llama-2-70b-chat",
    "gemini_empathy": "gemini-1.0-pro",
    "mixtral_empathy": "mixtral-8x7b-instruct",
}
# Published as a copy of `miti_chatgpt`, row by row: they are the codes of other replies.
COPIED_CODES: Final = {"miti_chatgpt_empathy": "miti_chatgpt"}
EPITOME_DIMENSIONS: Final = ("emotional_reactions", "explorations", "interpretations")
EPITOME_SCALE = (0, 2)


def import_source(name: str, path: Path) -> Imported:
    """Read a dataset by the name of its source."""
    importer = SOURCES.get(name)
    if importer is None:
        raise UserError(f"unknown source {name!r}; known: {', '.join(sorted(SOURCES))}")
    return importer(path)


def import_empathy_study(path: Path) -> Imported:
    """The crowd study: one CSV, or its folder; an arm that stands in both of its files is taken once."""
    intake = Intake(path)
    for table in find_files(path, "dataset.csv", "dataset_and_ratings.csv"):
        arms = find_arms(table)
        for copy, original in COPIED_CODES.items():
            if copy in read_header(table):
                intake.set_aside(intake.place(table, copy), f"a copy of {original}, left out")
        columns = ["part_no", "dialog_id", "emotion", "sentiment", "situation", "speaker_uttr"]
        needed = [f"{kind}_{arm}" for arm in arms for kind in ("response", "rating", "annotator")]
        for place, row in intake.rows(table, columns + needed):
            for arm in arms:
                with intake.setting_aside(place):
                    intake.add_exchange(_study_exchange(intake, place, row, arm), place)
                with intake.setting_aside(place):
                    intake.add_rating(_study_rating(intake, place, row, arm), place)
    return intake.finish()


def find_arms(table: Path) -> list[str]:
    """The arms a header speaks of, in its order: X of `response_X`, `rating_X` or `annotator_X`."""
    kinds = ("response_", "rating_", "annotator_")
    starts = ((column, kind) for column in read_header(table) for kind in kinds if column.startswith(kind))
    arms = list(dict.fromkeys(column.removeprefix(kind) for column, kind in starts))
    if not arms:
        require_columns(table, ["response_…"])
    return arms


def _study_exchange(intake: Intake, place: str, row: Mapping[str, Any], arm: str) -> Exchange:
    dialog, model = read_text(row, "dialog_id"), ARMS.get(arm, arm)
    extra: dict[str, Any] = {
        "dialog_id": dialog,
        "batch": read_text(row, "part_no"),
        "sentiment": read_text(row, "sentiment"),
    }
    codes = f"miti_{arm}"
    if codes in row and codes not in COPIED_CODES:
        with intake.setting_aside(place):
            extra["miti"] = read_list(row, codes)
    return Exchange(
        id=f"{dialog}/{model}",
        prompt=read_text(row, "speaker_uttr"),
        response=read_text(row, f"response_{arm}"),
        model=model,
        situation=read_text(row, "situation"),
        emotion=read_text(row, "emotion"),
        extra=extra,
    )


def _study_rating(intake: Intake, place: str, row: Mapping[str, Any], arm: str) -> Rating:
    extra: dict[str, Any] = {}
    with intake.setting_aside(place):
        if (column := f"empathy_propensity_{arm}") in row:
            extra["rater_teq"] = read_teq(row, column)
    with intake.setting_aside(place):
        if (column := f"empathy_arr_{arm}") in row:
            extra["rater_teq_items"] = read_list(row, column)
    return Rating(
        id=f"{read_text(row, 'dialog_id')}/{ARMS.get(arm, arm)}",
        rater=read_text(row, f"annotator_{arm}"),
        rating=read_score(row, f"rating_{arm}", STUDY_SCALE, whole=True),
        batch=read_text(row, "part_no"),
        extra=extra,
    )


def import_empathy_study_ratings(path: Path) -> Imported:
    """All ratings of the crowd study without their texts; comparisons of models need no more."""
    (table,) = find_files(path, "ratings-without-texts.csv")
    intake = Intake(path)
    columns = ["dialog_id", "batch", "emotion", "sentiment", "system", "rater", "rater_teq", "rating"]
    for place, row in intake.rows(table, columns):
        extra: dict[str, Any] = {}
        with intake.setting_aside(place):
            extra["rater_teq"] = read_teq(row, "rater_teq")
        with intake.setting_aside(place):
            model = read_text(row, "system")
            extra |= {"model": model, "dialog_id": read_text(row, "dialog_id")}
            rating = Rating(
                id=f"{extra['dialog_id']}/{model}",
                rater=read_text(row, "rater"),
                rating=read_score(row, "rating", STUDY_SCALE, whole=True),
                batch=read_text(row, "batch"),
                extra=extra | {key: read_text(row, key) for key in ("emotion", "sentiment")},
            )
            intake.add_rating(rating, place)
    return intake.finish()


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


def import_epitome(path: Path) -> Imported:
    """EPITOME: levels 0-2 of a reply to a post, one dimension a file, or all three in one wide file."""
    columns = ["sp_id", "rp_id", "seeker_post", "response_post"]
    intake = Intake(path)
    for table in sorted(path.glob("*.csv")) if path.is_dir() else [path]:
        if path.is_dir() and not set(columns) <= set(read_header(table)):
            intake.set_aside(table.name, f"not of EPITOME's shape: no columns {', '.join(columns)}")
            continue
        levels = _find_levels(table)
        for place, row in intake.rows(table, columns):
            with intake.setting_aside(place):
                identity = f"{read_text(row, 'sp_id')}/{read_text(row, 'rp_id')}"
                for column, dimension in levels.items():
                    with intake.setting_aside(place):
                        intake.add_rating(_epitome_rating(row, identity, column, dimension), place)
                exchange = Exchange(
                    id=identity,
                    prompt=read_text(row, "seeker_post"),
                    response=read_text(row, "response_post"),
                    model="human",
                )
                intake.add_exchange(exchange, place)
    return intake.finish()


def _find_levels(table: Path) -> dict[str, str]:
    """The columns with levels, each with its dimension; a lone `level` is named by its file."""
    header = read_header(table)
    if "level" in header:
        stem = table.stem.replace("-", "_")
        return {"level": next((name for name in EPITOME_DIMENSIONS if stem.startswith(name)), "empathy")}
    levels = {column: column.removeprefix("level_") for column in header if column.startswith("level_")}
    if not levels:
        require_columns(table, ["level"])
    return levels


def _epitome_rating(row: Mapping[str, Any], identity: str, column: str, dimension: str) -> Rating:
    level = read_score(row, column, EPITOME_SCALE)
    spans = str(row.get(column.replace("level", "rationales", 1), "")).split("|")
    rationales = [span.strip() for span in spans if span.strip()]
    return Rating(
        id=identity,
        rater="expert",
        rating=level,
        dimension=dimension,
        extra={"rationales": rationales} if rationales else {},
    )


def import_mental_align(path: Path) -> Imported:
    """Scores of ten systems' replies by an expert and four language models; published without texts."""
    (table,) = find_files(path, "scores.csv")
    keys = ["context", "system", "attribute"]
    raters = [column for column in read_header(table) if column not in keys]
    intake = Intake(path)
    for place, row in intake.rows(table, [*keys, *(raters or ["human"])]):
        with intake.setting_aside(place):
            model, dimension = read_text(row, "system"), read_text(row, "attribute").lower()
            identity = f"{read_text(row, 'context')}/{model}"
            for rater in raters:
                with intake.setting_aside(place):
                    rating = Rating(
                        id=identity,
                        rater=rater,
                        rating=read_score(row, rater, FIVE),
                        dimension=dimension,
                        extra={"model": model},
                    )
                    intake.add_rating(rating, place)
    return intake.finish()


SOURCES: Final[Mapping[str, Callable[[Path], Imported]]] = {
    "empathy-study": import_empathy_study,
    "empathy-study-ratings": import_empathy_study_ratings,
    "judging-empathy": import_judging_empathy,
    "empathetic-exchanges": import_empathetic_exchanges,
    "ieval": import_ieval,
    "epitome": import_epitome,
    "mental-align": import_mental_align,
}
