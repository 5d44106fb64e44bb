"""A cheap judge first, and a dear one only where the first leaves more than one label open."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from calibration.artifact import MAKE_ANEW, Calibration, own_version, read_calibration
from calibration.probabilities.maps import FROM_PROBABILITIES
from data.errors import UserError
from data.records import LABELS, Exchange, Judgment, judgment_of
from judge.base import Judge
from judge.llm.limits import add_usage
from judge.panel import CompositeJudge, split_rationale
from judge.scored_run import add_prediction_set

PROBE = Exchange(id="", prompt="I lost my keys.", response="Oh no!")


class CascadeJudge(CompositeJudge):
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
        super().__init__([first, second])
        self.first, self.second = self.members
        self.ask_below = ask_below
        self.calibration = read_fitting(Path(calibration), self.first.judge) if calibration else None
        self.version = self.digest(self.calibration.digest if self.calibration else ask_below)

    def judge(self, exchange: Exchange) -> Judgment:
        quick = self.first.ask(exchange)
        left = self._left_open(quick)
        if len(left) == 1:
            return replace(
                quick,
                set=left if self.calibration else None,
                rationale=_tell(quick, f"decided by {self.first.name}"),
                decided_by=self.first.name,
            )
        judgment = self.second.ask(exchange)
        why = quick.unscored
        if given := quick.probabilities:
            chances = ", ".join(f"{label} {value:.3f}" for label, value in given.items())
            why = f"left open by {self.first.name}: {', '.join(left)} ({chances})"
        return replace(
            judgment,
            # The set still holds the crowd's rating as often as it says, whoever decides among its labels.
            set=left if self.calibration and given else None,
            rationale=_tell(judgment, f"decided by {self.second.name}; {why}"),
            usage=add_usage([quick.usage, judgment.usage]) or None,
            decided_by=self.second.name,
        )

    def report(self, judgments: Iterable[Judgment]) -> list[str]:
        """How often the second judge was asked in a run, and what not asking it saved."""
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
        line = (
            f"asked {self.second.name} for {asked:,} of {total:,}: saved {100 * saved / total:.0f} % of calls"
        )
        return [f"{line}, about USD {saved * paid / asked:.4f}" if paid else line]

    def _left_open(self, quick: Judgment) -> tuple[str, ...]:
        if quick.probabilities is None:
            return LABELS
        if self.calibration is not None:
            return add_prediction_set(quick, self.calibration).set or LABELS
        likeliest = max(LABELS, key=quick.probabilities.__getitem__)
        return (likeliest,) if quick.probabilities[likeliest] >= self.ask_below else LABELS


def read_fitting(path: Path, judge: Judge) -> Calibration:
    """Read the calibration whose prediction sets decide; refused without any, or for another judge."""
    calibration = read_calibration(path)
    is_ours = calibration.mapping.get("kind") in FROM_PROBABILITIES
    try:  # once before it is needed: a map without its numbers is found now
        add_prediction_set(judgment_of(PROBE, dict.fromkeys(LABELS, 1 / len(LABELS))), calibration)
        is_ours &= tuple(calibration.conformal["labels"]) == LABELS
    except (UserError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        if is_ours:
            raise UserError(
                f"{path}: holds no thresholds for prediction sets ({error!r}); {MAKE_ANEW}"
            ) from error
    if not is_ours:
        raise UserError(
            f"{path}: not for probabilities of {', '.join(LABELS)}; {MAKE_ANEW} on such a judge's"
        )
    own = own_version(calibration.version), own_version(judge.version)
    if calibration.judge != judge.name or own[0] != own[1]:
        raise UserError(
            f"{path}: for {calibration.judge} {calibration.version}, and the first judge is {judge.name} "
            f"{judge.version}; calibrate that one"
        )
    if calibration.rubric != judge.rubric.digest:
        raise UserError(f"{path}: for another rubric than the first judge's; calibrate it with this one")
    return calibration


def _tell(judgment: Judgment, who: str) -> str:
    """Write the rationale: suspected injections, then who decided and why, then what that judge said."""
    suspicions, rest = split_rationale(judgment.rationale)
    return "\n".join([*suspicions, who, *([rest] if rest else [])])
