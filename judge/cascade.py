"""A cheap judge first, and an expensive one only where the first is not certain enough."""

from collections.abc import Iterable
from dataclasses import replace

from empathy_judge.data.errors import UserError
from empathy_judge.data.records import Exchange, Judgment
from empathy_judge.judge.budget import add_usage
from empathy_judge.judge.panel import CompositeJudge, split_rationale


class CascadeJudge(CompositeJudge):
    """Asks `first`, the local classifier unless named; `second` only where the first is not certain enough.

    The first is certain where its likeliest label has a probability of `ask_below` or more. What it leaves
    unscored goes to the second, too; what the second leaves unscored stays so.
    """

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
        quick = self.first.ask(exchange)
        if quick.probabilities is not None and max(quick.probabilities.values()) >= self.ask_below:
            return replace(
                quick,
                rationale=_tell(quick, f"decided by {self.first.name}"),
                decided_by=self.first.name,
            )
        judgment = self.second.ask(exchange)
        why = quick.unscored
        if given := quick.probabilities:
            chances = ", ".join(f"{label} {value:.3f}" for label, value in given.items())
            why = f"{self.first.name} was uncertain ({chances})"
        return replace(
            judgment,
            rationale=_tell(judgment, f"decided by {self.second.name}; {why}"),
            usage=add_usage([quick.usage, judgment.usage]) or None,
            decided_by=self.second.name,
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


def _tell(judgment: Judgment, who: str) -> str:
    """Write the rationale: suspected injections, then who decided and why, then what that judge said."""
    injections, rest = split_rationale(judgment.rationale)
    return "\n".join([*injections, who, *([rest] if rest else [])])
