"""The judge that is served, with its calibration: what it says of one exchange, as the row `score` writes."""

import re
from collections.abc import Callable, Iterable
from datetime import date
from threading import Lock
from typing import Any

from empathy_judge.calibration.artifact import CalibrationChoice, find_calibration
from empathy_judge.data.errors import StaleCalibration, UserError
from empathy_judge.data.rated_range import OutsideCount, say_outside
from empathy_judge.data.records import CONVERSATION, LABELS, NOUNS, REPLY, Exchange, Judgment
from empathy_judge.data.tables import Row, make_record, to_row
from empathy_judge.judge.base import Judge
from empathy_judge.judge.explanation import count_judgments, explain
from empathy_judge.judge.scoring import summarize

PROBE = Exchange(id="", prompt="I lost my keys.", response="Oh no! Where did you see them last?")


class BadJudgment(UserError):
    """A judgment that came back is none that was given."""


class ServedJudge:
    """A judge behind a server; the calibration is looked for again each day, since it expires.

    `conversations` is the judge that a request for whole conversations goes to: by its `unit`, or by naming
    that judge as its model.
    """

    def __init__(
        self,
        judge: Judge,
        calibration: str | None = None,
        *,
        today: Callable[[], date] = date.today,
        conversations: Judge | None = None,
    ) -> None:
        self.judge, self.units, self.models = judge, {judge.unit: self}, {judge.name: self}
        if conversations is not None and conversations is not judge:
            # A calibration that was named is one of replies.
            whole = ServedJudge(conversations, "none" if calibration == "none" else None, today=today)
            self.units[CONVERSATION] = whole
            self.models[CONVERSATION] = whole
        self._wanted, self._today, self._lock = calibration, today, Lock()
        self._day = today()
        self._calibration = find_calibration(judge, calibration, today=self._day)
        if not judge.endpoints:
            judge.judge(PROBE)  # opens a local network now: the first request need not wait for it

    def of_unit(self, unit: str | None) -> "ServedJudge":
        """The judge of replies or of conversations; by default the one of --judge."""
        if unit and str(unit) not in self.units:
            raise UserError(f"unit: {self.judge.name!r} judges {NOUNS[self.judge.unit]} only")
        return self.units[unit] if unit else self

    def close(self) -> None:
        """Close the judges."""
        for served in self.units.values():
            served.judge.close()

    @property
    def calibration(self) -> CalibrationChoice:
        """The calibration as of today."""
        with self._lock:
            if (day := self._today()) != self._day:
                self._day = day
                try:
                    self._calibration = find_calibration(self.judge, self._wanted, today=day)
                except StaleCalibration as error:
                    self._calibration = CalibrationChoice(
                        calibration=None, note=f"the calibration was not applied: {error}"
                    )
            return self._calibration

    def about(self, rows: Iterable[Row] = ()) -> dict[str, Any]:
        """Return the fields that accompany judgments, given as rows."""
        found = self.calibration
        caveat = self.judge.caveat
        outside = OutsideCount(self.judge.rated, found.covers)
        for row in rows:
            outside.add(None if row["unscored"] else row.get("features"))
        return {
            "judge": {"name": self.judge.name, "version": self.judge.version},
            "calibration": found.digest,
            "note": found.note,
            "caveats": [*([caveat] if caveat else []), *say_outside(outside.as_dict(), self.judge.unit)],
        }

    def count_runs(self, exchange: Exchange, *, is_explained: bool = False) -> int:
        """How many runs of a network the row of an exchange takes."""
        times = count_judgments(exchange.response) if is_explained and self.judge.unit == REPLY else 1
        return times * self.judge.count_runs(exchange)

    def row(self, exchange: Exchange, *, is_explained: bool) -> Row:
        """The judgment as a row, on request with what each part of the reply does to the score."""
        judgment = self.judge.judge(exchange)
        if not is_explained:
            return to_row(judgment)
        # One thread: the queue has enough of them.
        explanation = explain(self.judge, exchange, whole=judgment, threads=1)
        return {**to_row(judgment), "parts": explanation.as_row()["parts"]}

    def shares(self, rows: Iterable[Row], *, seed: int = 0) -> dict[str, Any]:
        """What judgments, given as rows, say of each model: the summary that `score` writes of a run."""
        judgments = [_read_judgment(row, f"judgments.{place}") for place, row in enumerate(rows)]
        return summarize(lambda: judgments, self.judge, self.calibration, seed=seed)[0].as_dict()


def _read_judgment(row: Row, place: str) -> Judgment:
    """A judgment that came back from a client; `UserError` names what is wrong with it."""
    try:
        judgment = make_record(Judgment)(1, row)
    except UserError as error:
        raise BadJudgment(f"{place}: {error}") from None
    if not re.fullmatch("[0-9a-f]{1,64}", judgment.prompt_digest):
        raise BadJudgment(f"{place}: prompt_digest: send the one of the judgment")
    if judgment.probabilities is not None and set(judgment.probabilities) != set(LABELS):
        raise BadJudgment(f"{place}: probabilities: expected one for each of {', '.join(LABELS)}")
    return judgment
