"""DSTC9: talks of people with eleven chatbots, rated as a whole; overall quality, not empathy alone."""

from pathlib import Path
from typing import Final

from data.importers.intake import Imported, Intake, Scale, find_files, read_score, read_text
from data.importers.rated_conversations import exchange_of, parse_transcript
from data.records import Rating

PEOPLE: Final[dict[str, Scale]] = {
    "human (overall)": (1, 5),
    "consistent": (0, 1),
    "likeable": (1, 3),
    "diverse": (1, 3),
    "informative": (1, 3),
    "coherent": (1, 3),
    "understanding": (1, 3),
    "flexible": (1, 3),
    "topic depth": (1, 3),
    "error recovery": (1, 3),
    "inquisitive": (1, 3),
}
GPT_SCORE: Final[Scale] = (0, 4)


def import_dstc9(path: Path) -> Imported:
    """DSTC9 (DEP's table): the means of people's ratings of a talk, and a GPT's word on it.

    Some turns are empty in the published file, of both parties. They are left out, so that what one party
    says before and after becomes one turn; a bot's opening that follows nobody's words stays in `dialogue`.
    The GPT's score 0-4 is moved to the 1-5 that people's `overall` has.
    """
    (table,) = find_files(path, "dstc9_dep_step2_eval.csv")
    intake = Intake(path)
    for number, (place, row) in enumerate(intake.rows(table, ["context", "model", *PEOPLE])):
        with intake.setting_aside(place):
            bot = read_text(row, "model").removesuffix(".json")
            identity, model = f"{bot}/{number}", f"dstc9-{bot}"
            for column, scale in PEOPLE.items():
                with intake.setting_aside(place):
                    dimension = "overall" if column == "human (overall)" else column
                    score = read_score(row, column, scale)
                    rating = Rating(
                        id=identity, rater="crowd", rating=score, dimension=dimension, extra={"model": model}
                    )
                    intake.add_rating(rating, place)
            if "openai_score" in row:
                with intake.setting_aside(place):
                    score = read_score(row, "openai_score", GPT_SCORE) + 1
                    rating = Rating(
                        id=identity, rater="gpt", rating=score, dimension="overall", extra={"model": model}
                    )
                    intake.add_rating(rating, place)
            turns = parse_transcript(read_text(row, "context"), "context")
            intake.add_exchange(exchange_of(identity, turns, model=model, extra={}), place)
    return intake.finish()
