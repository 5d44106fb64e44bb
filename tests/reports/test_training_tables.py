"""What `train` prints of sets that were left out: whole names, figures with intervals, within 80 columns."""

import random

import pytest

from data.records import to_plain
from reports.progress import steps
from reports.training_tables import print_trial
from training.rated_sets import RATED_SETS
from training.set_transfer import SetItem, measure_set


def evaluate(name: str) -> dict[str, object]:
    """Made figures: systems where the set has some, recorded judges and experts where it has those."""
    chance, items = random.Random(0), []
    for number in range(24):
        truth = chance.random()
        others = ("gpt-4o", "claude-3.7-sonnet", "expert-1", "expert-2") if "judging" in name else ()
        items.append(
            SetItem(
                id=str(number),
                set=name,
                system=f"bot-{number % 4}" if name in ("ieval", "dstc9") else "human",
                cluster=str(number),
                rating=round(4 * truth),
                words=20 + chance.random(),
                probabilities=[0.5 - truth / 2, 0.2, 0.3 + truth / 2],
                others={other: truth + chance.random() for other in others},
            )
        )
    plain: dict[str, object] = to_plain(measure_set(items, draws=20))
    return plain


@pytest.mark.parametrize("width", [60, 80, 160])
def test_sets_left_out_are_printed_whole(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    sets = [evaluate(name) for name in RATED_SETS]
    print_trial({"protocol": "sets-apart", "sets": sets})
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    assert max(map(len, lines)) <= max(width, 80)
    assert "…" not in printed
    beginnings = "".join(line.partition(" ")[0] for line in lines)
    assert all(name in beginnings for name in RATED_SETS), "a name breaks at its slash alone"
    for word in ("length", "AUC of", "the worst", "claude-3.7-sonnet", "one expert", "Kendall's tau"):
        assert word in printed
    assert printed.count("[") == 3 * len(sets) + 2 + 3 * 3, "judge, length, worst; order; others"


def test_progress_tells_each_network_on_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A teacher and its pupil in one split: how long the one took says nothing of the other."""
    clock = iter([0.0, 1.0, 11.0, 1000.0, 1010.0, 1020.0])
    monkeypatch.setattr("reports.progress.monotonic", lambda: next(clock))
    with steps() as (on_split, on_step):
        on_split("epitome", 0, 7)
        for done, total in ((10, 100), (60, 100), (5, 50), (15, 50), (25, 50)):
            on_step(done, total)
    assert capsys.readouterr().err.splitlines() == [
        "training epitome (1 of 7)",
        "epitome (1 of 7), network 1: 60 of 100 examples, about 8 s to go",
        "epitome (1 of 7), network 2: 15 of 50 examples, about 35 s to go",
        "epitome (1 of 7), network 2: 25 of 50 examples, about 25 s to go",
    ]
