"""A judge with its calibration, and its judgments as the rows that `score` writes."""

import re
from collections.abc import Callable, Iterable
from datetime import date
from threading import Lock
from typing import Any

from empathy_judge.calibration.artifact import CalibrationChoice, find_calibration
from empathy_judge.data.errors import StaleCalibration, UserError
from empathy_judge.data.rated_range import OutsideCount, say_outside
from empathy_judge.data.readers.file_formats import Row
from empathy_judge.data.records import LABELS, REPLY, Exchange, Judgment, to_plain
from empathy_judge.data.tables import make_record, to_row
from empathy_judge.judge.base import Judge
from empathy_judge.judge.explanation import count_judgments, explain
from empathy_judge.judge.scoring import summarize

PROBE = Exchange(id="", prompt="I lost my keys.", response="Oh no! Where did you see them last?")


class BadJudgment(UserError):
    """A judgment from a client that no judge gave."""


class ServedJudge:
    """A judge with its calibration, which is looked for again each day, since it expires."""

    def __init__(
        self, judge: Judge, calibration: str | None = None, *, today: Callable[[], date] = date.today
    ) -> None:
        self.judge = judge
        self._wanted, self._today, self._lock = calibration, today, Lock()
        self._day = today()
        self._calibration = find_calibration(judge, calibration, today=self._day)
        if not judge.endpoints:
            judge.judge(PROBE)  # opens a local network now: the first request need not wait for it

    @property
    def calibration(self) -> CalibrationChoice:
        """Return the calibration as of today."""
        with self._lock:
            if (day := self._today()) != self._day:
                self._day = day
                try:
                    self._calibration = find_calibration(self.judge, self._wanted, today=day)
                except StaleCalibration as error:
                    note = f"the calibration was not applied: {error}"
                    self._calibration = CalibrationChoice(calibration=None, note=note)
            return self._calibration

    def about(self, rows: Iterable[Row] = ()) -> dict[str, Any]:
        """Return the fields that accompany judgments, given as rows."""
        found = self.calibration
        outside = OutsideCount(self.judge.rated, found.covers)
        for row in rows:
            outside.add(None if row["unscored"] else row.get("features"))
        return {
            "judge": {"name": self.judge.name, "version": self.judge.version},
            "calibration": found.digest,
            "note": found.note,
            "caveats": [*filter(None, [self.judge.caveat]), *say_outside(outside.as_dict(), self.judge.unit)],
        }

    def count_runs(self, exchange: Exchange, *, is_explained: bool = False) -> int:
        """Return how many runs of a network the row of an exchange takes."""
        times = count_judgments(exchange.response) if is_explained and self.judge.unit == REPLY else 1
        return times * self.judge.count_runs(exchange)

    def row(self, exchange: Exchange, *, is_explained: bool) -> Row:
        """Return the judgment as a row; `is_explained` adds the effect of each part of the reply."""
        judgment = self.judge.judge(exchange)
        if not is_explained:
            return to_row(judgment)
        # One thread: the queue has enough of them.
        explanation = explain(self.judge, exchange, whole=judgment, threads=1)
        return {**to_row(judgment), "parts": explanation.as_row()["parts"]}

    def shares(
        self, judgments: Iterable[Row], *, seed: int = 0, baseline: str | None = None, max_drop: float = 10.0
    ) -> dict[str, Any]:
        """Aggregate judgments, given as rows, into the summary that `score` writes of a run.

        With a `baseline`, each other model is compared with it, as `compare` does.
        """
        read = [_read_judgment(row, f"judgments.{index}") for index, row in enumerate(judgments)]
        summary = summarize(lambda: read, self.judge, self.calibration, seed=seed)[0].as_dict()
        if baseline is None:
            return summary
        from empathy_judge.calibration.comparison.compare_runs import EXIT_CODES, compare_judgments
        from empathy_judge.calibration.comparison.judged_models import ComparisonSettings
        from empathy_judge.reports.comparison.pair_sentences import describe_pair

        margin, names = ComparisonSettings().margin, ("one", "other", "verdict", "probability", "at_least")
        pairs = [
            {
                **to_plain({name: getattr(pair, name) for name in names}),
                "exit_code": EXIT_CODES[pair.verdict],
                "sentence": describe_pair(pair, margin, self.judge.unit),
            }
            for pair in compare_judgments(
                read,
                self.calibration,
                baseline=baseline,
                max_drop=max_drop / 100,
                is_language_model=self.judge.is_language_model,
            )
        ]
        return {**summary, "pairs": pairs}


def _read_judgment(row: Row, place: str) -> Judgment:
    """Read a judgment that a client sent; `BadJudgment` names what is wrong with it."""
    try:
        judgment = make_record(Judgment)(1, row)
    except UserError as error:
        raise BadJudgment(f"{place}: {error}") from None
    if not re.fullmatch("[0-9a-f]{1,64}", judgment.prompt_digest):
        raise BadJudgment(f"{place}: prompt_digest: send the one of the judgment")
    if judgment.probabilities is not None and set(judgment.probabilities) != set(LABELS):
        raise BadJudgment(f"{place}: probabilities: expected one for each of {', '.join(LABELS)}")
    return judgment
