"""The crowd study: exchanges and ratings from its tables, or its ratings without texts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from data.importers.intake import (
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
from data.records import Exchange, Rating

STUDY_SCALE = (1, 3)
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


def import_empathy_study(path: Path) -> Imported:
    """The crowd study: one CSV, or its folder; an arm that stands in both of its files is taken once."""
    intake = Intake(path)
    for table in find_files(path, "dataset.csv", "dataset_and_ratings.csv"):
        header = read_header(table)
        kinds = ("response_", "rating_", "annotator_")  # an arm is what follows one of them
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
    return intake.finish()


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
