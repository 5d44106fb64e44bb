"""MentalAlign: scores of ten systems' replies, published without texts."""

from pathlib import Path

from data.importers.empathetic_exchanges import FIVE
from data.importers.intake import Imported, Intake, find_files, read_header, read_score, read_text
from data.records import Rating


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
