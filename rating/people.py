"""The people of a public study: their ids, apart from the answers, and the places that they hold."""

import hmac
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from empathy_judge.data.errors import UserError
from empathy_judge.data.tables import validate
from empathy_judge.rating.plan import Rater, RatingPlan, read_plan

PEOPLE_FILE: Final = "people.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """A person with a secret token of their own, and the token of their place in the plan."""

    id: str
    token: str
    place: str
    at: str  # when they agreed to take part

    @property
    def name(self) -> str:
        """The person's pseudonym in ratings: the HMAC of the id, with the token as its salt."""
        return hmac.digest(self.token.encode(), self.id.encode(), "sha256").hex()[:16]


def read_people(folder: Path) -> list[Person]:
    """Return the people of a plan in the order in which they came, without an unfinished line."""
    path = folder / PEOPLE_FILE
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    try:
        return [validate(Person, json.loads(line), f"{path}:{at}") for at, line in enumerate(lines, start=1)]
    except ValueError as error:
        raise UserError(f"{path}: edited or damaged: {error}") from error


def holders_of(people: list[Person]) -> dict[str, Person]:
    """Return the person who holds each place that was given: the last one."""
    return {person.place: person for person in people}


def seat(plan: RatingPlan, people: list[Person]) -> RatingPlan:
    """Return the plan with each given place under the token and the pseudonym of the person who holds it."""
    seated, holders = dict[str, Rater](), holders_of(people)
    for place, rater in plan.raters.items():
        holder = holders.get(place)
        seated[holder.token if holder else place] = replace(rater, name=holder.name) if holder else rater
    return replace(plan, raters=seated)


def read_seated(folder: Path) -> RatingPlan:
    """Read the plan in a folder, with its people."""
    return seat(read_plan(folder), read_people(folder))
