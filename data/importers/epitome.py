"""EPITOME: replies to posts in peer support, with levels 0 to 2 on three dimensions, and their sum."""

from collections import Counter, defaultdict
from pathlib import Path
from typing import Final

from data.importers.intake import Imported, Intake, read_header, read_score, read_text, require_columns
from data.records import Exchange, Rating

EPITOME_DIMENSIONS: Final = ("emotional_reactions", "explorations", "interpretations")


def import_epitome(path: Path) -> Imported:
    """EPITOME: levels 0-2 of a reply to a post, one dimension a file, or all three in one wide file.

    A reply that stands in a file twice was annotated twice: the raters are `expert`, `expert-2` and so on.
    `empathy` is the sum of an annotator's three levels, 0-6. The files differ in the white space of some
    texts: the first file's stands.
    """
    columns = ["sp_id", "rp_id", "seeker_post", "response_post"]
    intake = Intake(path)
    found: defaultdict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    words: dict[str, list[str]] = {}
    for table in sorted(path.glob("*.csv")) if path.is_dir() else [path]:
        if path.is_dir() and not set(columns) <= set(read_header(table)):
            intake.set_aside(table.name, f"not of EPITOME's shape: no columns {', '.join(columns)}")
            continue
        levels = _find_levels(table)
        times: Counter[tuple[str, str]] = Counter()
        for place, row in intake.rows(table, columns):
            with intake.setting_aside(place):
                identity = f"{read_text(row, 'sp_id')}/{read_text(row, 'rp_id')}"
                for column, dimension in levels.items():
                    with intake.setting_aside(place):
                        level = read_score(row, column, (0, 2))
                        times[identity, dimension] += 1
                        time = times[identity, dimension]
                        rater = "expert" if time == 1 else f"expert-{time}"
                        spans = str(row.get(column.replace("level", "rationales", 1), "")).split("|")
                        rationales = [span.strip() for span in spans if span.strip()]
                        extra = {"rationales": rationales} if rationales else {}
                        rating = Rating(
                            id=identity, rater=rater, rating=level, dimension=dimension, extra=extra
                        )
                        intake.add_rating(rating, place)
                        found[identity, rater][dimension] = level
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
    for (identity, rater), given in found.items():
        if set(EPITOME_DIMENSIONS) <= set(given):
            total = sum(given[name] for name in EPITOME_DIMENSIONS)
            intake.add_rating(Rating(id=identity, rater=rater, rating=total), identity)
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
