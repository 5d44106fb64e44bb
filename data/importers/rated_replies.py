"""Datasets of single replies: the crowd study, EmpatheticExchanges, EPITOME and MentalAlign."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from empathy_judge.data.importers.intake import (
    Intake,
    read_header,
    read_list,
    read_score,
    read_teq,
    read_text,
    require_columns,
)
from empathy_judge.data.readers.chat_turns import LISTENER, SPEAKER
from empathy_judge.data.records import Exchange, Rating, Turn

STUDY_SCALE = (1, 3)
EPITOME_DIMENSIONS: Final = ("emotional_reactions", "explorations", "interpretations")
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


def import_empathy_study(intake: Intake) -> None:
    """The crowd study: one CSV, or its folder; a model that is in both of its files is read once."""
    for table in intake.find_files("dataset.csv", "dataset_and_ratings.csv"):
        header = read_header(table)
        kinds = ("response_", "rating_", "annotator_")  # the model's name follows one of them
        starts = ((column, kind) for column in header for kind in kinds if column.startswith(kind))
        arms = list(dict.fromkeys(column.removeprefix(kind) for column, kind in starts))
        if not arms:
            require_columns(table, ["response_…"])
        for copy, original in COPIED_CODES.items():
            if copy in header:
                intake.set_aside(intake.place(table, copy), f"a copy of {original}, left out")
        columns = ["part_no", "dialog_id", "emotion", "sentiment", "situation", "speaker_uttr"]
        needed = [f"{kind}_{arm}" for arm in arms for kind in ("response", "rating", "annotator")]
        for place, row in intake.rows(table, columns + needed):
            for arm in arms:
                with intake.setting_aside(place):
                    intake.add_exchange(_study_exchange(intake, place, row, arm), place)
                with intake.setting_aside(place):
                    intake.add_rating(_study_rating(intake, place, row, arm), place)


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
    optional = {"rater_teq": ("empathy_propensity", read_teq), "rater_teq_items": ("empathy_arr", read_list)}
    for name, (kind, read) in optional.items():
        if (column := f"{kind}_{arm}") in row:
            with intake.setting_aside(place):
                extra[name] = read(row, column)
    return Rating(
        id=f"{read_text(row, 'dialog_id')}/{ARMS.get(arm, arm)}",
        rater=read_text(row, f"annotator_{arm}"),
        rating=read_score(row, f"rating_{arm}", STUDY_SCALE, whole=True),
        batch=read_text(row, "part_no"),
        extra=extra,
    )


def import_empathy_study_ratings(intake: Intake) -> None:
    """All ratings of the crowd study without their texts; comparisons of models need no more."""
    (table,) = intake.find_files("ratings-without-texts.csv")
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


def import_empathetic_exchanges(intake: Intake) -> None:
    """Human replies rated 1-5; the earlier exchanges of a conversation are its dialogue."""
    (table,) = intake.find_files("EmpatheticExchanges_5ES.csv")
    columns = ["conv_id", "exchange_number", "context", "prompt", "empathy"]
    conversations: dict[str, list[tuple[int, str, dict[str, Any]]]] = {}
    for place, row in intake.rows(table, [*columns, "speaker_utterance", "listener_utterance"]):
        with intake.setting_aside(place):
            number = int(read_score(row, "exchange_number", (1, 1000), whole=True))
            conversations.setdefault(read_text(row, "conv_id"), []).append((number, place, row))
    for dialog, rows in conversations.items():
        dialogue: list[Turn] = []
        for number, place, row in sorted(rows, key=lambda item: item[0]):
            identity = f"{dialog}/{number}"
            intake.rate(place, row, "empathy", (1, 5), id=identity, rater="crowd")
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


def import_epitome(intake: Intake) -> None:
    """EPITOME: levels 0-2 of a reply to a post, one dimension a file, or all three in one wide file.

    A reply that is in a file twice was annotated twice: the raters are `expert`, `expert-2` and so on.
    `empathy` is the sum of an annotator's three levels, 0-6. The files differ in the white space of some
    texts: the first file's is used.
    """
    columns = ["sp_id", "rp_id", "seeker_post", "response_post"]
    levels_given: defaultdict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    words: dict[str, list[str]] = {}
    path = intake.path
    for table in sorted(path.glob("*.csv")) if path.is_dir() else [path]:
        if path.is_dir() and not set(columns) <= set(read_header(table)):
            intake.set_aside(table.name, f"not EPITOME's format: no columns {', '.join(columns)}")
            continue
        levels = _find_levels(table)
        times: Counter[tuple[str, str]] = Counter()
        for place, row in intake.rows(table, columns):
            with intake.setting_aside(place):
                identity = f"{read_text(row, 'sp_id')}/{read_text(row, 'rp_id')}"
                for column, dimension in levels.items():
                    time = times[identity, dimension] + 1
                    rater = "expert" if time == 1 else f"expert-{time}"
                    spans = str(row.get(column.replace("level", "rationales", 1), "")).split("|")
                    rationales = [span.strip() for span in spans if span.strip()]
                    about = {"id": identity, "rater": rater, "dimension": dimension}
                    extra = {"rationales": rationales} if rationales else {}
                    if (level := intake.rate(place, row, column, (0, 2), **about, extra=extra)) is not None:
                        times[identity, dimension] = time
                        levels_given[identity, rater][dimension] = level
                exchange = Exchange(
                    id=identity,
                    prompt=read_text(row, "seeker_post"),
                    response=read_text(row, "response_post"),
                    model="human",
                )
                said = [*exchange.prompt.split(), "", *exchange.response.split()]
                if words.get(identity) != said:
                    intake.add_exchange(exchange, place)
                words.setdefault(identity, said)
    for (identity, rater), given in levels_given.items():
        if set(EPITOME_DIMENSIONS) <= set(given):
            total = sum(given[name] for name in EPITOME_DIMENSIONS)
            intake.add_rating(Rating(id=identity, rater=rater, rating=total), identity)


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


def import_mental_align(intake: Intake) -> None:
    """Scores of ten systems' replies by an expert and four language models; published without texts."""
    (table,) = intake.find_files("scores.csv")
    keys = ["context", "system", "attribute"]
    raters = [column for column in read_header(table) if column not in keys]
    for place, row in intake.rows(table, [*keys, *(raters or ["human"])]):
        with intake.setting_aside(place):
            model, dimension = read_text(row, "system"), read_text(row, "attribute").lower()
            identity = f"{read_text(row, 'context')}/{model}"
            for rater in raters:
                about = {"id": identity, "rater": rater, "dimension": dimension}
                extra = {"model": model} | ({"rater_kind": "ai"} if rater != "human" else {})
                intake.rate(place, row, rater, (1, 5), **about, extra=extra)
