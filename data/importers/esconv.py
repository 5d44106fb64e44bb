"""ESConv: emotional support between two people; the seeker rates the whole talk, and turns with stars."""

import json
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from data.importers.intake import BadCell, Imported, Intake, find_files, read_objects, read_score, read_text
from data.importers.rated_conversations import exchange_of
from data.readers.chat_turns import LISTENER, party_of
from data.records import Rating, Turn

SURVEY: Final = ("empathy", "relevance", "initial_emotion_intensity", "final_emotion_intensity")


def import_esconv(path: Path) -> Imported:
    """Talks that failed the authors' checks and talks they accepted; all scores are the seeker's, 1-5.

    An exchange is a talk (id `<failed|accepted>/<number>`) or the end of a stretch that got stars (id
    `…/turn-<n>`, dimension `turn`). Stars stand at a turn of the seeker's and rate what the listener said
    since the last stars: `rated_replies` counts these replies.
    """
    intake = Intake(path)
    for file in find_files(path, "FailedESConv.json", "q-esconv.json"):
        origin = "failed" if "failed" in file.name.lower() else "accepted"
        for number, talk in enumerate(read_objects(file)):
            place = intake.place(file, number)
            with intake.setting_aside(place):
                _take_talk(intake, place, f"{origin}/{number}", _unwrapped(talk))
    return intake.finish()


def _unwrapped(talk: Mapping[str, Any]) -> Mapping[str, Any]:
    """The talk itself; one file has each of its talks inside a JSON string `text`."""
    if "dialog" in talk:
        return talk
    try:
        inner = json.loads(read_text(talk, "text"))
    except (ValueError, RecursionError):
        inner = None
    if not isinstance(inner, dict):
        raise BadCell("text: not an object written as JSON")
    return inner


def _take_talk(intake: Intake, place: str, identity: str, talk: Mapping[str, Any]) -> None:
    origin = identity.split("/")[0]
    about: dict[str, Any] = {
        "model": "human",
        "situation": str(talk.get("situation") or "").strip() or None,
        "emotion": str(talk.get("emotion_type") or "").strip() or None,
    }
    turns, stars = _read_turns(intake, place, talk.get("dialog"))
    survey = talk.get("survey_score")
    seeker = survey.get("seeker") if isinstance(survey, dict) else None
    for dimension in SURVEY:
        if isinstance(seeker, dict) and dimension in seeker:
            with intake.setting_aside(place):
                score = read_score(seeker, dimension, (1, 5))
                intake.add_rating(
                    Rating(id=identity, rater=f"seeker-{identity}", rating=score, dimension=dimension), place
                )
    extra = {"dialog_id": identity, "file": origin}
    with intake.setting_aside(place):
        intake.add_exchange(exchange_of(identity, turns, **about, extra=extra), place)
    start = 0
    for end, score in stars:
        with intake.setting_aside(place):
            stretch = [turn.speaker for turn in turns[start:end] if turn.text]
            replies = sum(who == LISTENER for who, _ in groupby(stretch))
            start = end
            if not replies:
                raise BadCell(f"feedback: turn {end} rates no word of the listener")
            turn_id = f"{identity}/turn-{end}"
            rating = Rating(id=turn_id, rater=f"seeker-{identity}", rating=score, dimension="turn")
            intake.add_rating(rating, place)
            more = extra | {"rated_replies": replies}
            intake.add_exchange(exchange_of(turn_id, turns[:end], **about, extra=more), place)


def _read_turns(intake: Intake, place: str, dialog: Any) -> tuple[list[Turn], list[tuple[int, float]]]:
    """The turns, and the stars, each with the number of turns before it."""
    if not isinstance(dialog, list) or not all(isinstance(turn, dict) for turn in dialog):
        raise BadCell("dialog: not a list of turns")
    turns: list[Turn] = []
    stars: list[tuple[int, float]] = []
    for turn in dialog:
        party = party_of(str(turn.get("speaker")))
        if party is None:
            raise BadCell(f"speaker: {str(turn.get('speaker'))[:40]!r} is neither of the two parties")
        annotation = turn.get("annotation")
        if isinstance(annotation, dict) and "feedback" in annotation:
            with intake.setting_aside(place):
                stars.append((len(turns), read_score(annotation, "feedback", (1, 5))))
        turns.append(Turn(speaker=party, text=str(turn.get("content", turn.get("text")) or "").strip()))
    return turns, stars
