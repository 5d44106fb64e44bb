"""Several judges as one: their probabilities combined, and what each of them said kept beside the result."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, median
from threading import BoundedSemaphore
from typing import Any, ClassVar, Final, Literal

from empathy_judge.data.errors import UserError
from empathy_judge.data.records import LABELS, Exchange, Judgment, digest_json, judgment_of, unscored
from empathy_judge.judge.base import Judge, load_judge, raise_if_cancelled
from empathy_judge.judge.budget import Budget, add_usage

INJECTION: Final = "suspected injection: "
Probabilities = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A judge as part of another, under the name it has there."""

    name: str
    judge: Judge
    # The whole may run more threads than this part takes: a local network is slower with too many.
    places: BoundedSemaphore = field(repr=False)

    def ask(self, exchange: Exchange) -> Judgment:
        """Ask for its judgment, in turn with the other threads."""
        with self.places:
            raise_if_cancelled()
            return self.judge.judge(exchange)


def load_members(names: Sequence[str]) -> list[Member]:
    """Load judges by name or TOML file, under names of their own; they share rubric and budget."""
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
                f"{member.judge.rubric.name!r}; all members need the same rubric"
            )
        for other in members[:number]:
            if (other.judge.name, other.judge.version) == (member.judge.name, member.judge.version):
                raise UserError(f"{other.name} and {member.name} are the same judge; list each judge once")
    budget = Budget()
    for member in members:
        member.judge.use_budget(budget)
    return members


class CompositeJudge(Judge):
    """A judge made of others: by their rubric, from one budget, on as many threads as one of them takes."""

    caveats: ClassVar[tuple[str, ...]] = ()

    def __init__(self, judges: Sequence[str]) -> None:
        self.members = load_members(judges)
        self.rubric = self.members[0].judge.rubric
        self.asked_judges = tuple(member.judge for member in self.members)
        self.concurrency = max(judge.concurrency for judge in self.asked_judges)
        warnings = [*(judge.caveat for judge in self.asked_judges), *self.caveats]
        self.caveat = " ".join(dict.fromkeys(filter(None, warnings)))
        self.rated = next((judge.rated for judge in self.asked_judges if judge.rated), None)

    def digest(self, *rule: object) -> str:
        """Name the version that follows from the members and the rule by which they judge together."""
        versions = [[member.judge.name, member.judge.version] for member in self.members]
        return digest_json([self.name, versions, *rule])[:12]


def split_rationale(rationale: str | None) -> tuple[list[str], str]:
    """Split off the lines about suspected injections.

    >>> split_rationale("suspected injection: role tokens\\nIt is kind.")
    (['suspected injection: role tokens'], 'It is kind.')
    """
    lines = (rationale or "").split("\n")
    count = next((number for number, line in enumerate(lines) if not line.startswith(INJECTION)), len(lines))
    return lines[:count], "\n".join(lines[count:])


class PanelJudge(CompositeJudge):
    """A judge that asks every one of `judges`, names or TOML files, and combines their probabilities.

    `combine` is their mean, or the median of P(Okay or better) and P(Good), which no single judge can move
    far. An exchange that a member leaves unscored is unscored with that member's reason, and later members
    are not asked. With `allow_missing` the others decide, and the rationale names the missing ones and why.
    """

    name = "panel"
    files = ("judges",)
    caveats = ("Judges with correlated errors count as fewer independent judges.",)

    def __init__(
        self,
        *,
        judges: list[str] | None = None,
        combine: Literal["mean", "median"] = "mean",
        allow_missing: bool = False,
    ) -> None:
        if len(judges or ()) < 2:
            raise UserError('judges: a panel needs at least two: judges = ["classifier", "prompted.toml"]')
        super().__init__(judges or ())
        self.combine, self.allow_missing = combine, allow_missing
        self.version = self.digest(combine, allow_missing)

    def judge(self, exchange: Exchange) -> Judgment:
        judgments: list[Judgment] = []
        missing: list[str] = []
        for member in self.members:
            judgment = member.ask(exchange)
            judgments.append(judgment)
            if judgment.probabilities is None:
                missing.append(f"{judgment.unscored or 'no probabilities'} (of {member.name})")
                if not self.allow_missing:
                    break  # whatever the others say, it stays unscored: they need not be paid for
        if missing and (not self.allow_missing or len(missing) == len(judgments)):
            panel = unscored(exchange, missing[0])
        else:
            probabilities = [item.probabilities for item in judgments if item.probabilities is not None]
            panel = judgment_of(exchange, combine(probabilities, self.combine))
        usage = add_usage(judgment.usage for judgment in judgments) or None
        return replace(panel, rationale=_tell(self.members, judgments), usage=usage)


def combine(probabilities: Sequence[Probabilities], how: Literal["mean", "median"]) -> Probabilities:
    """Combine the probabilities of several judges, one judge at least, into one for every label.

    >>> sure, torn = {"Bad": 0.0, "Okay": 0.0, "Good": 1.0}, {"Bad": 0.5, "Okay": 0.5, "Good": 0.0}
    >>> combine([sure, torn], "mean")
    {'Bad': 0.25, 'Okay': 0.25, 'Good': 0.5}
    >>> combine([sure, torn, sure], "median")
    {'Bad': 0.0, 'Okay': 0.0, 'Good': 1.0}
    """
    if how == "mean":
        return {label: fmean(item[label] for item in probabilities) for label in LABELS}
    # Medians of P(label or better) are as ordered as the labels.
    okay = median(item["Okay"] + item["Good"] for item in probabilities)
    good = median(item["Good"] for item in probabilities)
    return {"Bad": max(0.0, 1 - okay), "Okay": max(0.0, okay - good), "Good": good}


def _tell(members: Sequence[Member], judgments: Sequence[Judgment]) -> str:
    """Suspected injections, a line each, then what every member said as compact JSON."""
    flags: dict[str, None] = {}
    rows: dict[str, Any] = {}
    for member, judgment in zip(members, judgments, strict=False):  # the rest were not asked
        injections, rest = split_rationale(judgment.rationale)
        flags |= dict.fromkeys(injections)
        row: dict[str, Any] = {**(judgment.probabilities or {"unscored": judgment.unscored})}
        row |= {"components": judgment.components} if judgment.components else {}
        rows[member.name] = row | ({"said": rest} if rest else {})
    return "\n".join([*flags, json.dumps(rows, ensure_ascii=False, separators=(",", ":"))])
