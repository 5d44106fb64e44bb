"""What a row costs beside the network: reading, journal, summary, and the preparation of a reply.

By processor time, the best of some rounds, so that other work on the machine matters little.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from time import process_time
from typing import Any

from bench_figures import Figure, say, write_samples
from rows import write_many

ROWS, REPLIES, ROUNDS = 20_000, 1_000, 5
LEAST_ROWS, LEAST_REPLIES = 50_000, 10_000  # a second


def measure(scratch: Path, *, quick: bool) -> Iterator[Figure]:
    from calibration.artifact import Found
    from data.tables import read_exchanges, read_judgments, survey_exchanges
    from judge.base import load_judge
    from judge.classifier.judge import TOKENIZER, ClassifierJudge, LargeClassifierJudge
    from judge.classifier.preprocessing import Tokeniser
    from judge.engine import judge_all
    from judge.scored_run import summarise

    rows, replies, rounds = (400, 20, 1) if quick else (ROWS, REPLIES, ROUNDS)
    path, length, run = write_many(scratch / "rows.jsonl", rows), load_judge("length"), scratch / "run"
    judged = judge_all(length, read_exchanges(path))

    def sum_up(count: int) -> None:
        read = partial(read_judgments, run / "judgments.jsonl")
        summarise(lambda: islice(read(), count), length, Found(calibration=None, says=""), seed=0)

    yield figure("reading", rows, best(rounds, lambda: survey_exchanges(path)), "of JSONL, checked strictly")
    yield figure(
        "journal", rows, best(rounds, lambda: keep(judged, run)), "kept one by one, then put in order"
    )
    # What the bootstrap takes is the same for any number of rows, and is left out.
    half = rows // 2
    further = best(rounds, lambda: sum_up(rows)) - best(rounds, lambda: sum_up(half))
    yield figure("summary", rows - half, further, "more, beside what intervals take for any number of rows")
    exchanges = list(read_exchanges(write_samples(scratch / "replies.jsonl", replies)))
    for name, shipped in (("classifier", ClassifierJudge), ("classifier-large", LargeClassifierJudge)):
        path = shipped.shipped / TOKENIZER
        tokeniser = Tokeniser.read(path, is_decoder=b"BertPreTokenizer" not in path.read_bytes())
        took = best(rounds, lambda tokeniser=tokeniser: prepare_all(exchanges, tokeniser))
        yield figure(f"preparation, {name}", replies, took, "all but the network", LEAST_REPLIES)


def figure(name: str, count: int, seconds: float, about: str, least: int = LEAST_ROWS) -> Figure:
    """So many a processor second; a microsecond each is the least that can be told."""
    value = count / max(seconds, 1e-6 * count)
    return Figure(name=name, value=value, unit="/s", least=least, about=f"{about}; {1e6 / value:.0f} µs each")


def best(rounds: int, work: Callable[[], object]) -> float:
    """The least processor time of some rounds."""
    say(f"  {rounds} rounds")
    seconds = []
    for _ in range(rounds):
        began = process_time()
        work()
        seconds.append(process_time() - began)
    return min(seconds)


def keep(judged: list[Any], folder: Path) -> None:
    """All judgments into a run's folder that is empty before."""
    from data.runs import ScorePlan, discard_run, open_run

    if folder.exists():
        discard_run(folder)
    with open_run(folder, ScorePlan(judge="length", version="", rubric="", input="bench")) as run:
        for position, judgment in enumerate(judged):
            run.keep(position, judgment)
        run.write_judgments()


def prepare_all(exchanges: list[Any], tokeniser: Any) -> None:
    """What a classifier does before and after its network, as for a graphics card: many at once."""
    from judge.classifier.judge import judge_prepared, prepare

    prepared = prepare(exchanges, tokeniser)
    for _ in judge_prepared(exchanges, prepared, lambda readable: [[1 / 3] * 3] * len(readable)):
        pass
