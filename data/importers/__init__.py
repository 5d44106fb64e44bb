"""Public datasets in their published shape, read into exchanges and ratings: one function per dataset."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from data.errors import UserError
from data.importers.intake import Imported
from data.importers.rated_conversations import (
    import_dstc9,
    import_esconv,
    import_ieval,
    import_judging_empathy,
)
from data.importers.rated_replies import (
    import_empathetic_exchanges,
    import_empathy_study,
    import_empathy_study_ratings,
    import_epitome,
    import_mental_align,
)


def import_source(name: str, path: Path) -> Imported:
    """Read a dataset by the name of its source."""
    importer = SOURCES.get(name)
    if importer is None:
        raise UserError(f"unknown source {name!r}; known: {', '.join(sorted(SOURCES))}")
    return importer(path)


SOURCES: Final[Mapping[str, Callable[[Path], Imported]]] = {
    "empathy-study": import_empathy_study,
    "empathy-study-ratings": import_empathy_study_ratings,
    "judging-empathy": import_judging_empathy,
    "empathetic-exchanges": import_empathetic_exchanges,
    "ieval": import_ieval,
    "epitome": import_epitome,
    "esconv": import_esconv,
    "dep": import_dstc9,
    "mental-align": import_mental_align,
}
