"""A cheap judge first, and a dear one only where the first leaves more than one label open."""

import json
from collections.abc import Iterable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Final

from data.errors import UserError
from data.records import LABELS, Exchange, Judgment
from judge.members import add_usage, close_all, load_members, split_rationale, stop_all
from judge.sets import Sets, read_sets

DECIDED: Final = "decided by "


class CascadeJudge:
    """Asks `first`, the local classifier unless named; `second` only where the first is not sure enough.

    Sure is a prediction set of one label, made with the thresholds of `calibration` (a `calibration.json`
    fitted for the first judge); without one, a likeliest label with a probability of `ask_below` or more.
    What the first leaves unscored goes to the second, too; what the second leaves unscored stays so: the
    first was asked for its word and had none that could be relied on.
    """

    name = "cascade"
    files = ("first", "second", "calibration")

    def __init__(
        self,
        *,
        first: str = "classifier",
        second: str = "",
        calibration: str = "",
        ask_below: float = 0.6,
    ) -> None:
        if not second:
            raise UserError('second: missing; name the judge to ask when in doubt: second = "prompted.toml"')
        if not 0 <= ask_below <= 1:
            raise UserError(f"ask_below: {ask_below} is no probability")
        self.members = load_members([first, second])
        self.first, self.second = self.members
        self.ask_below = ask_below
        self.rubric = self.first.judge.rubric
        self.concurrency = max(member.judge.concurrency for member in self.members)
        self.sets = self._check(Path(calibration)) if calibration else None
        rule = self.sets.digest if self.sets else ask_below
        versions = [[member.judge.name, member.judge.version] for member in self.members]
        self.version = sha256(json.dumps([self.name, versions, rule]).encode()).hexdigest()[:12]

    @property
    def caveat(self) -> str:
        """What the members warn of."""
        said = [getattr(member.judge, "caveat", "") for member in self.members]
        return " ".join(dict.fromkeys(filter(None, said)))

    def judge(self, exchange: Exchange) -> Judgment:
        quick = self.first.ask(exchange)
        left = self._left_open(quick)
        if len(left) == 1:
            told = _tell(quick, f"{DECIDED}{self.first.name}")
            return replace(quick, set=left if self.sets else None, rationale=told)
        judgment = self.second.ask(exchange)
        said = ", ".join(f"{label} {value:.3f}" for label, value in (quick.probabilities or {}).items())
        why = f"left open by {self.first.name}: {', '.join(left)} ({said})" if said else quick.unscored
        told = _tell(judgment, f"{DECIDED}{self.second.name}; {why}")
        usage = add_usage([quick.usage, judgment.usage])
        # The set still holds the crowd's rating as often as it says, whoever decides among its labels.
        return replace(judgment, set=left if self.sets and said else None, rationale=told, usage=usage)

    def stop(self) -> None:
        """End all waiting of both judges."""
        stop_all(self.members)

    def close(self) -> None:
        """Let go of all connections."""
        close_all(self.members)

    def report(self, judgments: Iterable[Judgment]) -> list[str]:
        """How often the second judge was asked in a run, and what not asking it saved."""
        asked = total = 0
        paid = 0.0
        for judgment in judgments:
            total += 1
            head = split_rationale(judgment.rationale)[1]
            if head.partition("\n")[0].startswith(f"{DECIDED}{self.second.name};"):
                asked += 1
                paid += (judgment.usage or {}).get("cost", 0.0)
        if not total:
            return []
        saved = total - asked
        line = (
            f"asked {self.second.name} for {asked:,} of {total:,}: saved {100 * saved / total:.0f} % of calls"
        )
        return [f"{line}, about USD {saved * paid / asked:.4f}" if paid else line]

    def _left_open(self, quick: Judgment) -> tuple[str, ...]:
        if quick.probabilities is None:
            return LABELS
        if self.sets is not None:
            return self.sets.labels(quick.probabilities)
        likeliest = max(LABELS, key=quick.probabilities.__getitem__)
        return (likeliest,) if quick.probabilities[likeliest] >= self.ask_below else LABELS

    def _check(self, path: Path) -> Sets:
        sets, judge = read_sets(path), self.first.judge
        if (sets.judge, sets.version) != (judge.name, judge.version):
            raise UserError(
                f"{path}: for {sets.judge} {sets.version}, and the first judge is {judge.name} "
                f"{judge.version}; calibrate that one"
            )
        if sets.rubric != judge.rubric.digest:
            raise UserError(f"{path}: for another rubric than the first judge's; calibrate it with this one")
        return sets


def _tell(judgment: Judgment, who: str) -> str:
    """Suspected injections, then who decided and why, then what that judge said."""
    suspicions, rest = split_rationale(judgment.rationale)
    return "\n".join([*suspicions, who, *([rest] if rest else [])])
