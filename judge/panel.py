"""Several judges as one: their probabilities combined, and the judgment of each saved beside the result."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, median
from threading import BoundedSemaphore
from typing import ClassVar, Final, Literal

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
    slots: BoundedSemaphore = field(repr=False)

    def ask(self, exchange: Exchange) -> Judgment:
        """Ask for its judgment, in turn with the other threads."""
        with self.slots:
            raise_if_cancelled()
            return self.judge.judge(exchange)


class CompositeJudge(Judge):
    """A judge made of others: by their rubric, from one budget, on as many threads as one of them takes."""

    caveats: ClassVar[tuple[str, ...]] = ()

    def __init__(self, specs: Sequence[str]) -> None:
        self.members: list[Member] = []
        for spec in specs:
            judge, stem = load_judge(spec), Path(spec).stem if spec.endswith(".toml") else spec
            taken = sum(member.name.partition("#")[0] == stem for member in self.members)
            name = f"{stem}#{taken + 1}" if taken else stem
            for other in self.members:
                if other.judge.rubric.digest != judge.rubric.digest:
                    raise UserError(
                        f"{other.name} judges by the rubric {other.judge.rubric.name!r} and {name} by "
                        f"{judge.rubric.name!r}; all members need the same rubric"
                    )
                if (other.judge.name, other.judge.version) == (judge.name, judge.version):
                    raise UserError(f"{other.name} and {name} are the same judge; list each judge once")
            self.members.append(Member(name=name, judge=judge, slots=BoundedSemaphore(judge.concurrency)))
        self.asked_judges = tuple(member.judge for member in self.members)
        self.use_budget(Budget())
        self.rubric = self.asked_judges[0].rubric
        self.concurrency = max(judge.concurrency for judge in self.asked_judges)
        warnings = [*(judge.caveat for judge in self.asked_judges), *self.caveats]
        self.caveat = " ".join(dict.fromkeys(filter(None, warnings)))
        self.rated = next((judge.rated for judge in self.asked_judges if judge.rated), None)

    def digest(self, *rule: object) -> str:
        """Return the version that follows from the members and the rule by which they judge together."""
        versions = [[judge.name, judge.version] for judge in self.asked_judges]
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
        judgments: dict[str, Judgment] = {}
        missing: list[str] = []
        for member in self.members:
            judgment = judgments[member.name] = member.ask(exchange)
            if judgment.probabilities is None:
                missing.append(f"{judgment.unscored or 'no probabilities'} (of {member.name})")
                if not self.allow_missing:
                    break  # the exchange stays unscored: the others need not be paid for
        given = [item.probabilities for item in judgments.values() if item.probabilities is not None]
        if given and (self.allow_missing or not missing):
            panel = judgment_of(exchange, combine(given, self.combine))
        else:
            panel = unscored(exchange, missing[0])
        usage = add_usage(judgment.usage for judgment in judgments.values()) or None
        return replace(panel, rationale=_write_rationale(judgments), usage=usage)


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


def _write_rationale(judgments: Mapping[str, Judgment]) -> str:
    """Return the suspected injections, a line each, then the judgment of every member as compact JSON."""
    flags: dict[str, None] = {}
    rows: dict[str, object] = {}
    for name, judgment in judgments.items():
        injections, rest = split_rationale(judgment.rationale)
        flags |= dict.fromkeys(injections)
        components = {"components": judgment.components} if judgment.components else {}
        said = {"said": rest} if rest else {}
        rows[name] = {**(judgment.probabilities or {"unscored": judgment.unscored}), **components, **said}
    return "\n".join([*flags, json.dumps(rows, ensure_ascii=False, separators=(",", ":"))])
