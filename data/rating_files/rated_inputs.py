"""Human ratings with the replies they are of, and the judges to compare with them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from empathy_judge.data.errors import UserError
from empathy_judge.data.judgments import Judged, of_people, pool_runs, read_judged, texts_by_id
from empathy_judge.data.rating_files.sheet import (
    RatingSheet,
    Replies,
    SheetOptions,
    read_sheet,
    say_set_aside,
)
from empathy_judge.data.readers.conversations import write_talk
from empathy_judge.data.readers.file_formats import BadRow
from empathy_judge.data.readers.table_rows import stop_at_bad_row
from empathy_judge.data.records import (
    CONVERSATION,
    EMPATHY,
    LABELS,
    REPLY,
    UNNAMED_MODEL,
    Exchange,
    Judgment,
    Rating,
)
from empathy_judge.data.tables import read_responses
from empathy_judge.data.text import listed


@dataclass(frozen=True, slots=True, kw_only=True)
class RatedJudges:
    """Judges, human ratings, texts by id, and notes on how the files were read.

    Runs of one judge are one judge here. `scale` is the one that judges and ratings are on.
    """

    judges: tuple[Judged, ...]
    people: tuple[Rating, ...]
    exchanges: Mapping[str, Exchange]
    scale: tuple[str, ...]
    notes: tuple[str, ...]


def read_rated_judges(
    runs: Sequence[Path],
    ratings: Path,
    *,
    exchanges: Sequence[Path],
    judges: Sequence[str],
    reading: SheetOptions,
) -> RatedJudges:
    """Read the inputs of a calibration.

    A run is a folder, or another tool's table; runs of one judge are pooled. `judges` names those to take of
    a table that has several. `exchanges` are the texts, for length, emotions, examples and ratings without
    ids.
    """
    scale = reading.scale or LABELS
    every = [
        item
        for path in runs
        for item in read_judged(path, scale=scale, judges=judges, dimension=reading.dimension)
    ]
    if any(path.is_dir() for path in runs):
        scale = LABELS  # our judges' own, whatever scale people rated on
    if joint := next((item.source for item in every if item.is_joint), None):
        raise UserError(
            f"{joint}: graded side by side, so a grade depends on the other replies; score with another mode"
        )
    units = {item.unit for item in every if item.version}  # another tool's table names none
    if len(units) > 1:
        raise UserError(
            "some of these runs have conversations and some have replies; calibrate them separately"
        )
    judged = pool_runs(every)
    texts, notes = _read_texts(exchanges, judged, reading, unit=units.pop() if units else REPLY)
    replies = Replies((item for run in judged for item in run.judgments), texts.values())
    sheet = read_sheet(ratings, reading, replies=replies, target=scale)
    pooled = (
        f"{listed(item.source.split('+'))} were scored by {item.name}" for item in judged if item not in every
    )
    return RatedJudges(
        judges=tuple(judged),
        people=tuple(of_people(sheet.ratings, judges=[item.name for item in judged])),
        exchanges=texts,
        scale=scale,
        notes=(*pooled, *notes, *sheet.notes),
    )


def read_people(
    path: Path,
    reading: SheetOptions | None = None,
    *,
    judgments: Iterable[Judgment] = (),
    exchanges: Sequence[Path] = (),
) -> RatingSheet:
    """Read the human ratings of a file; a row takes model and emotion from its exchange."""
    reading, judgments = reading or SheetOptions(), tuple(judgments)
    texts, notes = _read_texts(exchanges, [Judged(name="", judgments=judgments)], reading)
    replies = Replies(judgments, texts.values()) if judgments or texts else None
    sheet = read_sheet(path, reading, replies=replies)
    if not sheet.ratings:
        raise UserError(f"{path}: no ratings of empathy")
    people = [_with_facts(item, texts.get(item.id)) for item in sheet.ratings]
    return RatingSheet(ratings=tuple(people), notes=(*notes, *sheet.notes))


def _read_texts(
    paths: Sequence[Path], judged: Sequence[Judged], reading: SheetOptions, *, unit: str = REPLY
) -> tuple[dict[str, Exchange], list[str]]:
    """Return the replies of files by id, and notes on how they were read."""
    bad: list[BadRow] = []
    on_bad = bad.append if reading.skip_invalid else stop_at_bad_row
    sources = [read_responses([path], on_bad=on_bad, unit=unit) for path in paths]
    texts = texts_by_id(chain.from_iterable(sources), judged)
    if unit == CONVERSATION:
        for name, item in texts.items():
            opening, later = write_talk(item)
            texts[name] = replace(item, prompt=opening, response=later, dialogue=())
    return texts, [*(line for source in sources for line in source.notes()), *say_set_aside(bad)]


def _with_facts(rating: Rating, exchange: Exchange | None) -> Rating:
    """Return a rating with the model and the emotion of its exchange, where it has none."""
    if exchange is None:
        return rating
    model = "" if exchange.model == UNNAMED_MODEL else exchange.model
    facts = {"emotion": exchange.emotion, "model": model}
    own = {key: value for key, value in rating.extra.items() if value}
    return replace(rating, extra={**{key: value for key, value in facts.items() if value}, **own})


@dataclass(frozen=True, slots=True, kw_only=True)
class RatedExchange:
    """An exchange with one person's rating, as probabilities of Bad, Okay and Good."""

    exchange: Exchange
    target: tuple[float, ...]
    rater: str = ""
    batch: str = ""
    group: str = ""  # replies to one prompt share it
    reason: str = ""  # of the rater


def join_ratings(exchanges: Iterable[Exchange], ratings: Iterable[Rating]) -> list[RatedExchange]:
    """Return one record for every rating of empathy, from 1 to 3, whose exchange is present.

    Ratings that `rate` collected are joined by content, others by id.
    """
    exchanges, levels = list(exchanges), range(1, len(LABELS) + 1)
    by_id = {exchange.id: exchange for exchange in exchanges}
    by_content = {(exchange.content_digest, exchange.model): exchange for exchange in exchanges}
    rated = []
    for rating in ratings:
        digest, model = (str(rating.extra.get(name)) for name in ("content_digest", "model"))
        exchange = by_content.get((digest, model)) or by_content.get((digest, UNNAMED_MODEL))
        exchange = exchange or by_id.get(rating.id)
        if exchange is None or rating.dimension != EMPATHY:
            continue
        if not rating.rater:
            raise UserError(f"a rating of {rating.id!r} has no rater; give each rater a unique name")
        if rating.rating not in levels:
            raise UserError(f"rating {rating.rating:g} of {rating.id!r} is not one of 1, 2 and 3")
        target = tuple(float(rating.rating == level) for level in levels)
        group = str(exchange.extra.get("dialog_id", exchange.prompt))
        batch = rating.batch or str(exchange.extra.get("batch", rating.rater))
        reason = str(rating.extra.get("reason") or "")
        about = {"rater": rating.rater, "batch": batch, "group": group, "reason": reason}
        rated.append(RatedExchange(exchange=exchange, target=target, **about))
    if not rated:
        raise UserError("no rating matches an exchange: the ids of the two files differ")
    return rated
