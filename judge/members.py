"""What judges made of other judges share: how these are found, named, asked, paid for and stopped."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import BoundedSemaphore

from data.errors import UserError
from data.records import Exchange, Judgment
from judge.base import Judge, load_judge
from judge.endpoint import Endpoint
from judge.limits import Budget

INJECTION = "suspected injection: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A judge as part of another, under the name it has there."""

    name: str
    judge: Judge
    # The whole may run more threads than this part takes: a local network is slower with too many.
    places: BoundedSemaphore = field(repr=False)

    def ask(self, exchange: Exchange) -> Judgment:
        """Its judgment, in turn with the other threads."""
        with self.places:
            return self.judge.judge(exchange)


def load_members(names: Sequence[str]) -> list[Member]:
    """Judges by name or TOML file, under names of their own, who share rubric and budget."""
    members: list[Member] = []
    for given in names:
        judge = load_judge(given)
        stem = Path(given).stem if given.endswith(".toml") else given
        taken = sum(member.name.partition("#")[0] == stem for member in members)
        name = f"{stem}#{taken + 1}" if taken else stem
        members.append(Member(name=name, judge=judge, places=BoundedSemaphore(judge.concurrency)))
    first = members[0]
    for number, member in enumerate(members[1:], start=1):
        if member.judge.rubric.digest != first.judge.rubric.digest:
            raise UserError(
                f"{first.name} judges by the rubric {first.judge.rubric.name!r} and {member.name} by "
                f"{member.judge.rubric.name!r}; give all members the same"
            )
        if twin := next((other for other in members[:number] if _is_same(other.judge, member.judge)), None):
            raise UserError(f"{twin.name} and {member.name} are the same judge; name each of them once")
    share_budget(member.judge for member in members)
    return members


def endpoints_of(judge: Judge) -> list[Endpoint]:
    """Every endpoint a judge asks, its own and those of its members."""
    own = getattr(judge, "endpoint", None)
    members = getattr(judge, "members", ())
    return [*([own] if own else []), *(found for item in members for found in endpoints_of(item.judge))]


def share_budget(judges: Iterable[Judge]) -> None:
    """Let all endpoints of these judges spend from one purse."""
    budget = Budget()
    for judge in judges:
        for endpoint in endpoints_of(judge):
            endpoint.budget = budget


def limit_cost(judge: Judge, max_cost: float | None) -> None:
    """Let a judge spend no more than so many USD in this process; one that asks no server spends nothing."""
    for endpoint in endpoints_of(judge):
        endpoint.max_cost = max_cost


def spent_by(judge: Judge) -> float:
    """USD so far, in this process; members that share a purse are counted once."""
    budgets = {id(endpoint.budget): endpoint.budget for endpoint in endpoints_of(judge)}
    return sum(budget.spent for budget in budgets.values())


def stop_all(members: Iterable[Member]) -> None:
    """Forward `stop`."""
    _call_all(members, "stop")


def close_all(members: Iterable[Member]) -> None:
    """Forward `close`."""
    _call_all(members, "close")


def add_usage(used: Iterable[Mapping[str, float] | None]) -> dict[str, float] | None:
    """What several judgments took together.

    >>> add_usage([{"cost": 1.0}, None, {"cost": 0.5, "input_tokens": 7.0}])
    {'cost': 1.5, 'input_tokens': 7.0}
    """
    total: dict[str, float] = {}
    for usage in used:
        for name, amount in (usage or {}).items():
            total[name] = round(total.get(name, 0.0) + amount, 9)
    return total or None


def split_rationale(rationale: str | None) -> tuple[list[str], str]:
    """The lines about suspected injections, and the rest.

    >>> split_rationale("suspected injection: role tokens\\nIt is kind.")
    (['suspected injection: role tokens'], 'It is kind.')
    """
    lines = (rationale or "").split("\n")
    count = next((number for number, line in enumerate(lines) if not line.startswith(INJECTION)), len(lines))
    return lines[:count], "\n".join(lines[count:])


def _is_same(one: Judge, other: Judge) -> bool:
    return (one.name, one.version) == (other.name, other.version)


def _call_all(members: Iterable[Member], name: str) -> None:
    for member in members:
        method = getattr(member.judge, name, None)  # which not every judge has
        if method is not None:
            method()
