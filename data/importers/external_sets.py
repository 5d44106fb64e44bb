"""Test sets that no judge is trained on: RESORT and EmPO."""

from statistics import fmean

from empathy_judge.data.importers.intake import BadCell, Intake, read_objects, read_score, read_text
from empathy_judge.data.importers.rated_conversations import exchange_of
from empathy_judge.data.readers.chat_turns import LISTENER, SPEAKER
from empathy_judge.data.records import Exchange, Rating, Turn

EMPO_SCALES = ("Dim1", "Dim2", "Dim3", "Dim4")


def import_resort(intake: Intake) -> None:
    """RESORT: long replies to Reddit posts, the empathy of each rated 1-5 by two psychologists."""
    (file,) = intake.find_files("resort.json")
    for number, row in enumerate(read_objects(file)):
        place = intake.place(file, number)
        with intake.setting_aside(place):
            columns = [row.get(f"human_eval_annotation_{rater}") for rater in (1, 2)]
            annotations = [value for value in columns if isinstance(value, dict)]
            if len(annotations) < 2:
                raise BadCell("human_eval_annotation_1, human_eval_annotation_2: expected two objects")
            post = read_text(row, "Reddit ID")
            identity = f"{post}/{read_text(annotations[0], 'id')}"  # a source may reply to a post twice
            for annotation in annotations:
                rater = f"expert-{read_text(annotation, 'annotator')}"
                intake.rate(place, annotation, "empathy", (1, 5), id=identity, rater=rater)
            exchange = Exchange(
                id=identity,
                prompt=read_text(row, "Reddit Post"),
                response=read_text(row, "reappraisal_response"),
                model=read_text(row, "model"),
                extra={"dialog_id": post},
            )
            intake.add_exchange(exchange, place)


def import_empo(intake: Intake) -> None:
    """EmPO: replies of five systems, each rated by three people on four scales of 0-100, here their mean.

    Texts are read from `chat_cut` and `gens`: `tidy_chat` of `human_targets` repeats the reply of
    `zephyr_dpo`.
    """
    (table,) = intake.find_files("empo.csv")
    columns = ["ED_index", "model", "annotator", "emotions", "chat_cut", "gens"]
    for place, row in intake.rows(table, [*columns, *EMPO_SCALES]):
        with intake.setting_aside(place):
            dialog, model = read_text(row, "ED_index"), read_text(row, "model")
            identity = f"{dialog}/{model}"
            score = fmean(read_score(row, scale, (0, 100)) for scale in EMPO_SCALES)
            rating = Rating(id=identity, rater=read_text(row, "annotator"), rating=score)
            intake.add_rating(rating, place)
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
            intake.add_exchange(exchange, place)
