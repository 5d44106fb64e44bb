"""The judge that is served, with its calibration: what it says of one exchange, as the row `score` writes."""

from collections.abc import Callable
from dataclasses import asdict
from datetime import date
from threading import Lock
from typing import Any

from calibration.artifact import Found, find_calibration
from data.errors import StaleCalibration
from data.records import Exchange, Judgment
from data.tables import Row, to_row
from judge.base import Judge
from judge.explanation import explain
from judge.llm.endpoint import endpoints_of
from judge.scored_run import add_prediction_set

PROBE = Exchange(id="", prompt="I lost my keys.", response="Oh no! Where did you see them last?")


class ServedJudge:
    """A judge behind a server; the calibration is looked for again each day, since it expires."""

    def __init__(
        self, judge: Judge, calibration: str | None = None, *, today: Callable[[], date] = date.today
    ) -> None:
        self.judge = judge
        self._wanted, self._today, self._lock = calibration, today, Lock()
        self._day = today()
        self._calibration = find_calibration(judge, calibration, today=self._day)
        if not endpoints_of(judge):
            judge.judge(PROBE)  # opens a local network now: the first request need not wait for it

    @property
    def calibration(self) -> Found:
        """The calibration as of today."""
        with self._lock:
            if (day := self._today()) != self._day:
                self._day = day
                try:
                    self._calibration = find_calibration(self.judge, self._wanted, today=day)
                except StaleCalibration as error:
                    self._calibration = Found(calibration=None, says=f"no calibration fits: {error}")
            return self._calibration

    @property
    def about(self) -> dict[str, Any]:
        """What stands beside every judgment."""
        found = self.calibration
        caveat = getattr(self.judge, "caveat", "")
        return {
            "judge": {"name": self.judge.name, "version": self.judge.version},
            "calibration": found.digest,
            "note": found.says,
            "caveats": [caveat] if caveat else [],
        }

    def ask(self, exchange: Exchange) -> Judgment:
        """The judgment with its set, the same as in a run."""
        judgment = self.judge.judge(exchange)
        calibration = self._calibration.calibration
        return add_prediction_set(judgment, calibration) if calibration else judgment

    def row(self, exchange: Exchange, *, is_explained: bool) -> Row:
        """The judgment as a row, on request with what each part of the reply does to the score."""
        judgment = self.ask(exchange)
        if not is_explained:
            return to_row(judgment)
        # One thread: the queue has enough of them.
        explanation = explain(self.judge, exchange, whole=judgment, threads=1)
        return {**to_row(judgment), "parts": [asdict(part) for part in explanation.parts]}

    @property
    def component_names(self) -> tuple[str, ...]:
        """The components it can be asked for."""
        return getattr(self.judge, "component_names", ())
