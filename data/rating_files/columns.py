"""Which column of a ratings file is which, in any case: id, rater, rating, the texts, and sides of a pair."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from data.errors import UserError
from data.readers.chat_turns import PROMPTS, RESPONSES, plain_name

# The name we know each by first; then what other tools and people call it.
NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "id": ("exchange_id", "response_id", "reply_id", "item_id", "example_id", "sample_id", "item"),
    "rater": (
        *(
            "rater_id",
            "rater_name",
            "annotator",
            "annotator_id",
            "worker_id",
            "worker",
            "labeler",
            "labeller",
        ),
        *("reviewer", "evaluator", "participant", "participant_id", "person", "user_id", "judge"),
    ),
    "rating": (
        *("label", "score", "stars", "star_rating", "thumbs", "thumb", "feedback", "vote", "grade"),
        *("human_rating", "human_label"),
    ),
    "rater_kind": ("rater_type", "annotator_kind", "annotator_type"),
    "batch": (),
    "dimension": (),
    "model": ("system", "model_name"),
    "emotion": (),
    "situation": (),
    "dialogue": (),
    "prompt": PROMPTS,
    "response": RESPONSES,
}
SIDES: Final = ("a", "b")
SIDED: Final = ("id", "model", "response")
WINNER: Final = ("winner", "choice", "preferred", "preference", "better", "chosen_model", "preferred_model")
PREFERENCE: Final = ("chosen", "rejected")


def bare_name(name: str) -> str:
    """A header without case, spaces and marks.

    >>> bare_name(" Rater ID"), bare_name("WorkerId"), bare_name("response_a")
    ('raterid', 'workerid', 'responsea')
    """
    return plain_name(name).replace("_", "")


def find_columns(headers: Iterable[str], stated: Mapping[str, str] | None = None) -> dict[str, str]:
    """Which header holds what; those stated must be there.

    >>> find_columns(["ID", "Annotator", "Rating", "note"])
    {'id': 'ID', 'rater': 'Annotator', 'rating': 'Rating'}
    """
    names = list(headers)
    found = {}
    for field, aliases in NAMES.items():
        if stated and field in stated:
            found[field] = _stated(field, stated[field], names)
        elif (name := _find((field, *aliases), names)) is not None:
            found[field] = name
    return found


def find_sides(headers: Iterable[str], stated: Mapping[str, str] | None = None) -> dict[str, str]:
    """Where a choice between two replies stands: `winner`, and the two sides as `model_a`, `response_b` ...

    Empty where the table holds no choices.

    >>> find_sides(["Model A", "Model B", "Winner"])
    {'winner': 'Winner', 'model_a': 'Model A', 'model_b': 'Model B'}
    """
    names = list(headers)
    preference = [_find((word,), names) for word in PREFERENCE]
    if None not in preference:
        return {"response_a": str(preference[0]), "response_b": str(preference[1])}
    stated_winner = _stated("winner", stated["winner"], names) if stated and "winner" in stated else None
    winner = stated_winner or _find(WINNER, names)
    if winner is None:
        return {}
    sides = {}
    for field in SIDED:
        for side, number in zip(SIDES, ("1", "2"), strict=True):
            words = [field, *(NAMES[field] if field != "id" else ())]
            spelled = [form for word in words for form in (f"{word}_{side}", f"{word}_{number}")]
            if (name := _find(spelled, names)) is not None:
                sides[f"{field}_{side}"] = name
    whole = {
        key: name for key, name in sides.items() if {f"{key[:-1]}{side}" for side in SIDES} <= set(sides)
    }
    return {"winner": winner, **whole} if whole else {}


def parse_stated(texts: Sequence[str]) -> dict[str, str]:
    """Columns as an option states them, each as FIELD=NAME.

    >>> parse_stated(["rating=Overall score"])
    {'rating': 'Overall score'}
    """
    stated = {}
    for text in texts:
        field, _, name = (part.strip() for part in text.partition("="))
        if field not in (*NAMES, "winner") or not name:
            raise UserError(
                f"--column {text}: write it as FIELD=NAME, FIELD one of {', '.join(NAMES)}, winner"
            )
        stated[field] = name
    return stated


def say_missing(what: str, headers: Iterable[str], *, option: str) -> str:
    """What is missing, the columns there are, and the option that helps."""
    names = ", ".join(map(str, headers)) or "none"
    return f"no column for {what}; there are: {names}. Say which it is: --column {option}=NAME"


def known_row(row: Mapping[str, Any], columns: Mapping[str, str]) -> dict[str, Any]:
    """A row under the names we know; other columns keep theirs."""
    named = {name: field for field, name in columns.items()}
    taken = set(columns)
    return {
        named.get(key, key): value
        for key, value in row.items()
        if key in named or key not in taken  # `score`, read as the rating, must not be hidden by another
    }


def _stated(field: str, name: str, names: Sequence[str]) -> str:
    if (found := _find((name,), names)) is None:
        raise UserError(f"--column {field}={name}: no such column; there are: {', '.join(names) or 'none'}")
    return found


def _find(wanted: Sequence[str], names: Sequence[str]) -> str | None:
    """The first of these that is there: as it is written, else in any case."""
    plain: dict[str, str] = {}
    for name in names:
        plain.setdefault(bare_name(name), name)
    for word in wanted:
        if word in names:
            return word
        if bare_name(word) in plain:
            return plain[bare_name(word)]
    return None
