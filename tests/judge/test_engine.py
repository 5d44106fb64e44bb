"""The engine and the judges it ships with: order, threads, limits, and what happens when a judge fails."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from empathy_judge.data.errors import UserError
from empathy_judge.data.records import LABELS, Exchange, Judgment, judgment_of
from empathy_judge.data.rubric import read_rubric
from empathy_judge.data.runs import RunPlan, open_run
from empathy_judge.judge.base import Judge, load_judge
from empathy_judge.judge.engine import score_exchanges

PLAN = RunPlan(judge="test", version="1", rubric="r", input="i")
EXCHANGES = [Exchange(id=f"e{n}", prompt="p", response=f"response {n}", model="m") for n in range(40)]


class StubJudge(Judge):
    """Remembers whom it was asked for, and how many at once; fails at `fails_at`."""

    name = "stub"
    version = "1"

    def __init__(self, *, concurrency: int = 1, fails_at: str = "") -> None:
        self.rubric, self.concurrency, self.fails_at = read_rubric(), concurrency, fails_at
        self.asked: list[str] = []

    def judge(self, exchange: Exchange) -> Judgment:
        self.asked.append(exchange.id)
        if exchange.id == self.fails_at:
            raise ZeroDivisionError("bug")
        return judgment_of(exchange, {"Bad": 0.0, "Okay": 0.0, "Good": 1.0})


class PairedJudge(StubJudge):
    """Answers the first of each two exchanges only after the second: a run out of order."""

    def __init__(self) -> None:
        super().__init__(concurrency=2)
        self.second_is_done = {n: threading.Event() for n in range(0, 40, 2)}

    def judge(self, exchange: Exchange) -> Judgment:
        number = int(exchange.id[1:])
        if number % 2 == 0:
            assert self.second_is_done[number].wait(timeout=20)
        else:
            self.second_is_done[number - 1].set()
        return super().judge(exchange)


def ids(folder: Path, name: str = "judgments.jsonl") -> list[str]:
    return [json.loads(line)["id"] for line in (folder / name).read_text().splitlines()]


def test_the_order_of_the_input_is_kept_whatever_the_threads_do(tmp_path: Path) -> None:
    with open_run(tmp_path, PLAN) as run:
        score_exchanges(PairedJudge(), EXCHANGES, run)
        assert run.asked == 40
        run.write_judgments()
    assert ids(tmp_path) == [item.id for item in EXCHANGES]


def test_no_more_exchanges_are_in_memory_than_threads(tmp_path: Path) -> None:
    judge, taken, ahead = StubJudge(concurrency=4), list[Exchange](), list[int]()

    def exchanges() -> Iterator[Exchange]:
        for exchange in EXCHANGES:
            taken.append(exchange)
            ahead.append(len(taken) - len(judge.asked))
            yield exchange

    with open_run(tmp_path, PLAN) as run:
        score_exchanges(judge, exchanges(), run)
    assert max(ahead) <= 4


def test_a_bug_in_a_judge_is_raised_and_the_journal_kept(tmp_path: Path) -> None:
    judge = StubJudge(fails_at="e7")
    with pytest.raises(ZeroDivisionError), open_run(tmp_path, PLAN) as run:
        score_exchanges(judge, EXCHANGES, run)
    assert ids(tmp_path, "journal.jsonl") == [item.id for item in EXCHANGES[:7]]
    judge.fails_at = ""
    judge.asked.clear()
    with open_run(tmp_path, PLAN) as run:
        score_exchanges(judge, EXCHANGES, run)
        assert run.asked == 33
    assert judge.asked == [item.id for item in EXCHANGES[7:]]


def test_judgments_under_way_are_kept_when_another_fails(tmp_path: Path) -> None:
    both, failed = threading.Barrier(2, timeout=20), threading.Event()

    class Slow(StubJudge):
        def judge(self, exchange: Exchange) -> Judgment:
            both.wait()
            if exchange.id == "e0":
                failed.set()
                raise ZeroDivisionError
            assert failed.wait(timeout=20)
            return super().judge(exchange)

    with pytest.raises(ZeroDivisionError), open_run(tmp_path, PLAN) as run:
        score_exchanges(Slow(concurrency=2), EXCHANGES[:2], run)
    assert ids(tmp_path, "journal.jsonl") == ["e1"]


def test_the_baselines_give_probabilities() -> None:
    """Those of the majority were summed by hand from the study's table: 2,000 dialogues, six arms."""
    majority, length = (load_judge(name).judge(EXCHANGES[0]).probabilities for name in ("majority", "length"))
    counted = {"Bad": 1267 / 12000, "Okay": 3692 / 12000, "Good": 7041 / 12000}
    assert majority == pytest.approx(counted, abs=1e-6) and list(majority) == list(LABELS)
    assert sum(length.values()) == pytest.approx(1, abs=2e-6)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("kind = 'length'\nrubrik = 'x'", r"rubrik: unknown; known keys: kind, rubric"),
        ("kind = 'length'\nrubric = 5", r"rubric: input should be a valid string, not 5"),
        ("kind = 'lenght'", r"unknown judge 'lenght'; .* did you mean 'length'\?"),
        ("rubric = 'crowd'", r"kind: missing; use one of cascade, classifier"),
        ("kind = ", r"not TOML"),
        (None, "no such file"),
        ("kind = 'length'\nrubric = 'crowd'", ""),
    ],
)
def test_a_judge_file_is_checked(tmp_path: Path, content: str | None, said: str) -> None:
    path = tmp_path / "judge.toml"
    if content:
        path.write_text(content)
    if not said:
        assert load_judge(str(path)).version == load_judge("length").version
        return
    with pytest.raises(UserError, match=rf"judge\.toml: {said}"):
        load_judge(str(path))
