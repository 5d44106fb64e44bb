"""Datasets of single replies: the crowd study, EmpatheticExchanges, EPITOME, MentalAlign, RESORT and EmPO.

No judge is trained on RESORT and EmPO.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from empathy_judge.data.importers.intake import (
    BadCell,
    Intake,
    read_header,
    read_objects,
    read_score,
    read_text,
    require_columns,
)
from empathy_judge.data.importers.rated_conversations import exchange_of
from empathy_judge.data.readers.chat_turns import LISTENER, SPEAKER
from empathy_judge.data.records import Exchange, Rating, Turn

STUDY_SCALE = (1, 3)
EMPO_SCALES = ("Dim1", "Dim2", "Dim3", "Dim4")
EPITOME_DIMENSIONS: Final = ("emotional_reactions", "explorations", "interpretations")
ARMS: Final = {
    "human": "human",
    "chatgpt_empathy": "gpt-4",
    "chatgpt": "gpt-4-plain",
    "llama_empathy": "llama-2-70b-chat",
    "gemini_empathy": "gemini-1.0-pro",
    "mixtral_empathy": "mixtral-8x7b-instruct",
}


def import_empathy_study(intake: Intake) -> None:
    """Read the crowd study: one CSV, or its folder; a model that is in both of its files is read once."""
    for table in intake.find_files("dataset.csv", "dataset_and_ratings.csv"):
        kinds = ("response_", "rating_", "annotator_")  # the model's name follows one of them
        starts = (
            (column, kind) for column in read_header(table) for kind in kinds if column.startswith(kind)
        )
        arms = list(dict.fromkeys(column.removeprefix(kind) for column, kind in starts))
        if not arms:
            require_columns(table, ["response_…"])
        columns = ["part_no", "dialog_id", "emotion", "sentiment", "situation", "speaker_uttr"]
        needed = [f"{kind}_{arm}" for arm in arms for kind in ("response", "rating", "annotator")]
        for row in intake.rows(table, columns + needed):
            for arm in arms:
                with intake.setting_aside():
                    intake.add_exchange(_study_exchange(row, arm))
                with intake.setting_aside():
                    identity, rater = _study_id(row, arm), read_text(row, f"annotator_{arm}")
                    score = read_score(row, f"rating_{arm}", STUDY_SCALE, whole=True)
                    batch = read_text(row, "part_no")
                    rating = Rating(id=identity, rater=rater, rating=score, batch=batch)
                    intake.add_rating(rating)


def _study_id(row: Mapping[str, Any], arm: str) -> str:
    return f"{read_text(row, 'dialog_id')}/{ARMS.get(arm, arm)}"


def _study_exchange(row: Mapping[str, Any], arm: str) -> Exchange:
    extra = {"dialog_id": "dialog_id", "batch": "part_no", "sentiment": "sentiment"}
    return Exchange(
        id=_study_id(row, arm),
        prompt=read_text(row, "speaker_uttr"),
        response=read_text(row, f"response_{arm}"),
        model=ARMS.get(arm, arm),
        situation=read_text(row, "situation"),
        emotion=read_text(row, "emotion"),
        extra={name: read_text(row, column) for name, column in extra.items()},
    )


def import_empathy_study_ratings(intake: Intake) -> None:
    """Read all ratings of the crowd study without their texts; comparisons of models need no more."""
    (table,) = intake.find_files("ratings-without-texts.csv")
    columns = ["dialog_id", "batch", "emotion", "sentiment", "system", "rater", "rating"]
    for row in intake.rows(table, columns):
        with intake.setting_aside():
            model, dialog = read_text(row, "system"), read_text(row, "dialog_id")
            about = {key: read_text(row, key) for key in ("dialog_id", "emotion", "sentiment")}
            rating = Rating(
                id=f"{dialog}/{model}",
                rater=read_text(row, "rater"),
                rating=read_score(row, "rating", STUDY_SCALE, whole=True),
                batch=read_text(row, "batch"),
                extra={"model": model} | about,
            )
            intake.add_rating(rating)


def import_empathetic_exchanges(intake: Intake) -> None:
    """Read human replies rated 1-5; the earlier exchanges of a conversation are its dialogue."""
    (table,) = intake.find_files("EmpatheticExchanges_5ES.csv")
    columns = ["conv_id", "exchange_number", "context", "prompt", "empathy"]
    conversations: dict[str, list[tuple[int, str, dict[str, Any]]]] = {}
    for row in intake.rows(table, [*columns, "speaker_utterance", "listener_utterance"]):
        with intake.setting_aside():
            number = int(read_score(row, "exchange_number", (1, 1000), whole=True))
            conversations.setdefault(read_text(row, "conv_id"), []).append((number, intake.location, row))
    for dialog, rows in conversations.items():
        dialogue: list[Turn] = []
        for number, location, row in sorted(rows, key=lambda item: item[0]):
            intake.location = location
            identity = f"{dialog}/{number}"
            intake.rate(row, "empathy", (1, 5), id=identity, rater="crowd")
            with intake.setting_aside():
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
                intake.add_exchange(exchange)
                dialogue.append(Turn(speaker=SPEAKER, text=exchange.prompt))
                dialogue.append(Turn(speaker=LISTENER, text=exchange.response))


def import_epitome(intake: Intake) -> None:
    """Read EPITOME: levels 0-2 of a reply to a post, one dimension a file, or all three in one wide file.

    A reply that is in a file twice was annotated twice: the raters are `expert`, `expert-2` and so on.
    `empathy` is the sum of an annotator's three levels, 0-6. The files differ in the white space of some
    texts: the first file's is used.
    """
    columns = ["sp_id", "rp_id", "seeker_post", "response_post"]
    given: defaultdict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    words: dict[str, list[str]] = {}
    path = intake.path
    for table in sorted(path.glob("*.csv")) if path.is_dir() else [path]:
        if path.is_dir() and not set(columns) <= set(read_header(table)):
            intake.set_aside(f"not EPITOME's format: no columns {', '.join(columns)}", table.name)
            continue
        levels = _find_levels(table)
        times: Counter[tuple[str, str]] = Counter()
        for row in intake.rows(table, columns):
            with intake.setting_aside():
                identity = f"{read_text(row, 'sp_id')}/{read_text(row, 'rp_id')}"
                for column, dimension in levels.items():
                    time = times[identity, dimension] + 1
                    rater = "expert" if time == 1 else f"expert-{time}"
                    about = {"id": identity, "rater": rater, "dimension": dimension}
                    if (level := intake.rate(row, column, (0, 2), **about)) is not None:
                        times[identity, dimension] = time
                        given[identity, rater][dimension] = level
                prompt, response = read_text(row, "seeker_post"), read_text(row, "response_post")
                said = [*prompt.split(), "", *response.split()]
                if words.get(identity) != said:
                    exchange = Exchange(id=identity, prompt=prompt, response=response, model="human")
                    intake.add_exchange(exchange)
                words.setdefault(identity, said)
    for (identity, rater), of_rater in given.items():
        if set(EPITOME_DIMENSIONS) <= set(of_rater):
            total = sum(of_rater[name] for name in EPITOME_DIMENSIONS)
            intake.location = identity
            intake.add_rating(Rating(id=identity, rater=rater, rating=total))


def _find_levels(table: Path) -> dict[str, str]:
    """Return the columns with levels, each with its dimension; a lone `level` is named by its file."""
    header = read_header(table)
    if "level" in header:
        stem = table.stem.replace("-", "_")
        return {"level": next((name for name in EPITOME_DIMENSIONS if stem.startswith(name)), "empathy")}
    levels = {column: column.removeprefix("level_") for column in header if column.startswith("level_")}
    if not levels:
        require_columns(table, ["level"])
    return levels


def import_mental_align(intake: Intake) -> None:
    """Read scores of ten systems' replies by an expert and four language models; published without texts."""
    (table,) = intake.find_files("scores.csv")
    keys = ["context", "system", "attribute"]
    raters = [column for column in read_header(table) if column not in keys]
    for row in intake.rows(table, [*keys, *(raters or ["human"])]):
        with intake.setting_aside():
            model, dimension = read_text(row, "system"), read_text(row, "attribute").lower()
            identity = f"{read_text(row, 'context')}/{model}"
            for rater in raters:
                about = {"id": identity, "rater": rater, "dimension": dimension}
                extra = {"model": model} | ({"rater_kind": "ai"} if rater != "human" else {})
                intake.rate(row, rater, (1, 5), **about, extra=extra)


def import_resort(intake: Intake) -> None:
    """Read RESORT: long replies to Reddit posts, the empathy of each rated 1-5 by two psychologists."""
    (file,) = intake.find_files("resort.json")
    for number, row in enumerate(read_objects(file)):
        intake.go_to(file, number)
        with intake.setting_aside():
            columns = [row.get(f"human_eval_annotation_{rater}") for rater in (1, 2)]
            annotations = [value for value in columns if isinstance(value, dict)]
            if len(annotations) < 2:
                raise BadCell("human_eval_annotation_1, human_eval_annotation_2: expected two objects")
            post = read_text(row, "Reddit ID")
            identity = f"{post}/{read_text(annotations[0], 'id')}"  # a source may reply to a post twice
            for annotation in annotations:
                rater = f"expert-{read_text(annotation, 'annotator')}"
                intake.rate(annotation, "empathy", (1, 5), id=identity, rater=rater)
            exchange = Exchange(
                id=identity,
                prompt=read_text(row, "Reddit Post"),
                response=read_text(row, "reappraisal_response"),
                model=read_text(row, "model"),
                extra={"dialog_id": post},
            )
            intake.add_exchange(exchange)


def import_empo(intake: Intake) -> None:
    """Read EmPO: replies of five systems, each rated by three people on four scales of 0-100, as a mean.

    Texts are read from `chat_cut` and `gens`: `tidy_chat` of `human_targets` repeats the reply of
    `zephyr_dpo`.
    """
    (table,) = intake.find_files("empo.csv")
    columns = ["ED_index", "model", "annotator", "emotions", "chat_cut", "gens"]
    for row in intake.rows(table, [*columns, *EMPO_SCALES]):
        with intake.setting_aside():
            dialog, model = read_text(row, "ED_index"), read_text(row, "model")
            identity = f"{dialog}/{model}"
            score = fmean(read_score(row, scale, (0, 100)) for scale in EMPO_SCALES)
            rating = Rating(id=identity, rater=read_text(row, "annotator"), rating=score)
            intake.add_rating(rating)
            if intake.has_exchange(identity):
                continue
            texts = [*read_text(row, "chat_cut").split("\n"), read_text(row, "gens")]
            if len(texts) % 2:
                raise BadCell("chat_cut: an even number of turns: the speaker's would not be the last")
            turns = [
                Turn(speaker=(SPEAKER, LISTENER)[turn % 2], text=text.strip())
                for turn, text in enumerate(texts)
            ]
            emotion, extra = read_text(row, "emotions"), {"dialog_id": dialog}
            exchange = exchange_of(identity, turns, model=model, emotion=emotion, extra=extra)
            intake.add_exchange(exchange)
