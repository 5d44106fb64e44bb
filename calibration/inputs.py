"""Inputs of a calibration: judges, human ratings, and the texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Final

from empathy_judge.data.errors import UserError
from empathy_judge.data.judgments import Judged, of_people, pool_runs, read_judged, texts_by_id
from empathy_judge.data.rating_files.sheet import Replies, SheetOptions, read_sheet, say_set_aside
from empathy_judge.data.readers.conversations import write_talk
from empathy_judge.data.readers.file_formats import BadRow
from empathy_judge.data.readers.table_rows import stop_at_bad_row
from empathy_judge.data.records import CONVERSATION, LABELS, REPLY, Exchange, Rating
from empathy_judge.data.tables import read_responses
from empathy_judge.data.text import listed

DRAWS: Final = 2000
DAYS: Final = 90


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationOptions:
    """Settings of a calibration, which expires after `days`."""

    scale: tuple[str, ...] = LABELS
    dimension: str = "empathy"
    days: int = DAYS
    seed: int = 0
    draws: int = DRAWS


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationInputs:
    """Judges, human ratings, texts by id, and notes on how the files were read.

    Runs of one judge are one judge here. `options` have the scale that judges and ratings are on.
    """

    judges: tuple[Judged, ...]
    people: tuple[Rating, ...]
    exchanges: Mapping[str, Exchange]
    options: CalibrationOptions
    notes: tuple[str, ...]


def _unit_of(judged: Sequence[Judged]) -> str:
    units = {item.unit for item in judged if item.version}  # another tool's table does not say
    if len(units) > 1:
        raise UserError(
            "some of these runs have conversations and some have replies; calibrate them separately"
        )
    return units.pop() if units else REPLY


def read_inputs(
    runs: Sequence[Path],
    ratings: Path,
    *,
    exchanges: Sequence[Path],
    judges: Sequence[str],
    options: CalibrationOptions,
    reading: SheetOptions,
) -> CalibrationInputs:
    """Read the inputs of a calibration.

    A run is a folder, or another tool's table; runs of one judge are pooled. `judges` names those to take of
    a table that has several. `ratings` is a table of ratings; `reading` says how to read it. `exchanges` are
    the texts, for length, emotions, examples and ratings without ids.
    """
    reading = replace(reading, dimension=options.dimension)
    if any(path.is_dir() for path in runs):
        options = replace(options, scale=LABELS)  # our judges' own, whatever scale people rated on
    every = [
        item
        for path in runs
        for item in read_judged(
            path, scale=reading.scale or LABELS, judges=judges, dimension=options.dimension
        )
    ]
    judged = pool_runs(every)
    bad: list[BadRow] = []
    on_bad = bad.append if reading.skip_invalid else stop_at_bad_row
    unit = _unit_of(every)
    sources = [read_responses([path], on_bad=on_bad, unit=unit) for path in exchanges]
    texts = texts_by_id(chain.from_iterable(sources), judged)
    if unit == CONVERSATION:
        talks = {name: (item, *write_talk(item)) for name, item in texts.items()}
        texts = {
            name: replace(item, prompt=opening, response=later, dialogue=())
            for name, (item, opening, later) in talks.items()
        }
    read_notes = [line for source in sources for line in source.notes()]
    replies = Replies((item for run in judged for item in run.judgments), texts.values())
    pooled = [
        f"{listed(item.source.split('+'))}: runs of one judge, pooled" for item in judged if item not in every
    ]
    sheet = read_sheet(ratings, reading, replies=replies, target=options.scale)
    return CalibrationInputs(
        judges=tuple(judged),
        people=tuple(of_people(sheet.ratings, judges=[item.name for item in judged])),
        exchanges=texts,
        options=options,
        notes=(*pooled, *read_notes, *sheet.notes, *say_set_aside(bad)),
    )
