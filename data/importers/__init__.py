"""Public datasets in their published shape, read into exchanges and ratings: one function per dataset."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from empathy_judge.data.errors import UserError
from empathy_judge.data.importers import rated_conversations, rated_replies
from empathy_judge.data.importers.intake import Imported, Intake

Importer = Callable[[Intake], None]


def import_source(name: str, *paths: Path) -> Imported:
    """Read a dataset by the name of its source; several paths hold parts of it that are read as one."""
    importer = SOURCES.get(name)
    if importer is None:
        raise UserError(f"unknown source {name!r}; known: {', '.join(sorted(SOURCES))}")
    if len(paths) == 1:
        return _read(importer, paths[0])
    intake = Intake(Path())
    for path in paths:
        part, folder = _read(importer, path), path if path.is_dir() else path.parent
        for number, exchange in enumerate(part.exchanges):
            intake.location = f"{path}:{number}"
            intake.add_exchange(exchange)
        for number, rating in enumerate(part.ratings):
            intake.location = f"{path}:{number}"
            intake.add_rating(rating)
        for location, reason in part.set_aside:
            intake.set_aside(reason, str(folder / location))
    return intake.finish()


def _read(importer: Importer, path: Path) -> Imported:
    intake = Intake(path)
    importer(intake)
    return intake.finish()


SOURCES: Final[Mapping[str, Importer]] = {
    "empathy-study": rated_replies.import_empathy_study,
    "empathy-study-ratings": rated_replies.import_empathy_study_ratings,
    "judging-empathy": rated_conversations.import_judging_empathy,
    "empathetic-exchanges": rated_replies.import_empathetic_exchanges,
    "ieval": rated_conversations.import_ieval,
    "epitome": rated_replies.import_epitome,
    "esconv": rated_conversations.import_esconv,
    "dep": rated_conversations.import_dstc9,
    "mental-align": rated_replies.import_mental_align,
    "resort": rated_replies.import_resort,
    "empo": rated_replies.import_empo,
}
