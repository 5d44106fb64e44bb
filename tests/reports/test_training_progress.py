"""Progress of a training on stderr."""

import pytest

from empathy_judge.reports.progress import training_steps


def test_progress_estimates_each_network_on_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A teacher and its student in one split: the time of one does not predict the other's."""
    clock = iter([1.0, 1.0, 11.0, 1000.0, 1000.0, 1010.0, 1020.0])
    monkeypatch.setattr("empathy_judge.reports.progress.monotonic", lambda: next(clock))
    on_split, on_step = training_steps()
    on_split("epitome", 0, 7)
    for done, total in ((10, 100), (60, 100), (5, 50), (15, 50), (25, 50)):
        on_step(done, total)
    assert capsys.readouterr().err.splitlines() == [
        "training epitome (1 of 7)",
        "epitome (1 of 7), network 1: 60 of 100, about 8 s left",
        "epitome (1 of 7), network 2: 15 of 50, about 35 s left",
        "epitome (1 of 7), network 2: 25 of 50, about 25 s left",
    ]
