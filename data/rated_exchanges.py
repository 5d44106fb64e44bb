"""Exchanges joined with their human ratings, one record for each rating."""

from collections.abc import Iterable
from dataclasses import dataclass

from empathy_judge.data.errors import UserError
from empathy_judge.data.records import LABELS, UNNAMED_MODEL, Exchange, Rating


@dataclass(frozen=True, slots=True, kw_only=True)
class RatedExchange:
    """An exchange with one person's rating, as probabilities of Bad, Okay and Good."""

    exchange: Exchange
    target: tuple[float, ...]
    rater: str = ""
    batch: str = ""
    group: str = ""  # replies to one prompt share it


def join_ratings(exchanges: Iterable[Exchange], ratings: Iterable[Rating]) -> list[RatedExchange]:
    """Return one record for every rating of empathy, from 1 to 3, whose exchange is present.

    Ratings that `rate` collected are joined by content, others by id.
    """
    top, exchanges = len(LABELS), list(exchanges)
    by_id = {exchange.id: exchange for exchange in exchanges}
    by_content = {(exchange.content_digest, exchange.model): exchange for exchange in exchanges}
    rated = []
    for rating in ratings:
        digest, model = (str(rating.extra.get(name)) for name in ("content_digest", "model"))
        exchange = by_content.get((digest, model)) or by_content.get((digest, UNNAMED_MODEL))
        exchange = exchange or by_id.get(rating.id)
        if exchange is None or rating.dimension != "empathy":
            continue
        if not rating.rater:
            raise UserError(f"a rating of {rating.id!r} has no rater; give each rater a unique name")
        if not 1 <= rating.rating <= top:
            raise UserError(f"rating {rating.rating:g} of {rating.id!r} is not on the scale from 1 to {top}")
        target = tuple(float(rating.rating == level) for level in range(1, top + 1))
        if sum(target) != 1:
            raise UserError(f"rating {rating.rating:g} of {rating.id!r} is not one of 1, 2 and 3")
        group = str(exchange.extra.get("dialog_id", exchange.prompt))
        batch = rating.batch or str(exchange.extra.get("batch", rating.rater))
        rated.append(
            RatedExchange(exchange=exchange, target=target, rater=rating.rater, batch=batch, group=group)
        )
    if not rated:
        raise UserError("no rating matches an exchange: the ids of the two files differ")
    return rated
