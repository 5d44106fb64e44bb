"""Judges made of other judges: a panel, a cascade, and the mean over the replies of a conversation."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from statistics import fmean, median
from threading import BoundedSemaphore
from typing import ClassVar, Final, Literal

from empathy_judge.data.errors import UserError
from empathy_judge.data.files import digest_json
from empathy_judge.data.readers.conversations import opening_digest, split_conversation
from empathy_judge.data.records import CONVERSATION, LABELS, Exchange, Judgment, judgment_of, unscored
from empathy_judge.data.rubric import read_rubric
from empathy_judge.judge.base import DEFAULT, Judge, load_judge, raise_if_cancelled
from empathy_judge.judge.budget import Budget, GuessedCall, add_usage

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

    def identity(self, exchange: Exchange) -> str:
        names = {judge.identity(exchange) for judge in self.asked_judges}
        return names.pop() if len(names) == 1 else exchange.content_digest

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

    An exchange that a member leaves unscored is unscored with that member's reason, and later members are not
    asked. With `allow_missing` the others decide, and the rationale names the missing ones and why.
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


class CascadeJudge(CompositeJudge):
    """Asks `first`; and `second` where its likeliest label is less probable than `ask_below`, or unscored."""

    name = "cascade"
    files = ("first", "second")

    def __init__(self, *, first: str = "classifier", second: str = "", ask_below: float = 0.6) -> None:
        if not second:
            raise UserError('second: missing; set the judge for uncertain replies: second = "prompted.toml"')
        if not 0 <= ask_below <= 1:
            raise UserError(f"ask_below: {ask_below} is not a probability")
        super().__init__([first, second])
        self.first, self.second = self.members
        self.ask_below = ask_below
        self.version = self.digest(ask_below)

    def judge(self, exchange: Exchange) -> Judgment:
        quick = judgment = self.first.ask(exchange)
        decided, why = self.first.name, ""
        if quick.probabilities is None or max(quick.probabilities.values()) < self.ask_below:
            judgment, decided = self.second.ask(exchange), self.second.name
            why = f"; {quick.unscored}"
            if given := quick.probabilities:
                chances = ", ".join(f"{label} {value:.3f}" for label, value in given.items())
                why = f"; {self.first.name} was uncertain ({chances})"
        injections, rest = split_rationale(judgment.rationale)
        return replace(
            judgment,
            rationale="\n".join(filter(None, [*injections, f"decided by {decided}{why}", rest])),
            usage=quick.usage if judgment is quick else add_usage([quick.usage, judgment.usage]) or None,
            decided_by=decided,
        )

    def report(self, judgments: Iterable[Judgment]) -> list[str]:
        """Report how often the second judge was asked in a run, and what not asking it saved."""
        asked = total = 0
        paid = 0.0
        for judgment in judgments:
            total += 1
            if judgment.decided_by == self.second.name:
                asked += 1
                paid += (judgment.usage or {}).get("cost", 0.0)
        if not total:
            return []
        saved = total - asked
        line = f"{self.second.name} decided {asked:,} of {total:,}: {100 * saved / total:.0f}% of calls saved"
        return [f"{line}, about USD {saved * paid / asked:.4f}" if paid else line]


class ReplyMean(Judge):
    """Judges conversations by the mean probabilities of their replies, which the judge `replies` gives."""

    unit = CONVERSATION
    files = ("replies",)
    caveat = (
        "The score of a conversation is the mean over its replies; repetition and lost threads do not count. "
        "A language model as judge reads the whole conversation."
    )

    def __init__(self, *, replies: str = DEFAULT) -> None:
        self.replies = load_judge(replies)
        if self.replies.unit == CONVERSATION:
            raise UserError(f"replies: {replies} judges whole conversations; set a judge of replies")
        self.asked_judges = (self.replies,)
        self.name = f"{CONVERSATION}:{replies}"
        self.rubric = self.replies.rubric if self.replies.rubric.is_part else read_rubric(CONVERSATION)
        self.concurrency = self.replies.concurrency
        self.version = digest_json([self.replies.version, "mean", 1])[:12]

    def judge(self, exchange: Exchange) -> Judgment:
        judged = [self.replies.judge(reply) for reply in split_conversation(exchange)]
        given = [item.probabilities for item in judged if item.probabilities is not None]
        if given:
            mean = {label: sum(item[label] for item in given) / len(given) for label in LABELS}
            judgment = replace(judgment_of(exchange, mean), curve=tuple(item.score for item in judged))
        else:
            judgment = unscored(exchange, judged[0].unscored or "no reply has a score")
        return replace(judgment, prompt_digest=opening_digest(exchange), reply_digest=exchange.content_digest)

    def count_runs(self, exchange: Exchange) -> int:
        return sum(map(self.replies.count_runs, split_conversation(exchange)))

    def guess_calls(self, *group: Exchange) -> list[GuessedCall]:
        replies = chain.from_iterable(map(split_conversation, group))
        return [call for reply in replies for call in self.replies.guess_calls(reply)]
