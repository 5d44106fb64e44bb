"""Records, tables, run folders and importers: what every other room reads and writes."""

from data.errors import UserError
from data.records import LABELS, Exchange, Judgment, Rating
from data.tables import read_exchanges, read_judgments, read_ratings

__all__ = [
    "LABELS",
    "Exchange",
    "Judgment",
    "Rating",
    "UserError",
    "read_exchanges",
    "read_judgments",
    "read_ratings",
]
