"""Killed at any step, every long command given again ends as if nothing had been."""

import json
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from random import Random
from shutil import copy, copytree
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import pytest
from batch_servers import BatchServer
from command_line import run_checked
from faults import SEEDS, Campaign, Case, Nursery, seeds
from histories import write_history
from nightly_world import World
from rating_plans import make_plan
from repository import TESTS
from rows import make_rows
from servers import Answer, Call, ScriptedServer, answer, answer_chat

from empathy_judge.data.records import LABELS
from empathy_judge.data.tables import write_rows
from empathy_judge.rating.journal import JOURNAL_FILE, Entry, Journal

LOADED = (
    "calibration.comparison.compare_runs commands.calibrate commands.compare commands.nightly commands.rate "
    "commands.score emotionbench.administer judge.composite judge.llm.responder judge.llm.batch "
    "judge.llm.decision nightly.dashboard.build nightly.night rating.collect rating.handouts "
    "rating.rating_app reports.calibration.calibration_page reports.render server.middleware server.process"
)
LIBRARIES = ("jinja2", "onnxruntime", "scipy.stats", "scipy.optimize", "tokenizers")
RATED = {"ada": (1, 5, 14), "bea": (4, 6, 10), "cyd": (6, 7, 7), "dot": (9, 6, 5)}  # Bad, Okay, Good of 20


@pytest.fixture(scope="module")
def nurseries() -> Iterator[tuple[Nursery, Nursery]]:
    modules = (*(f"empathy_judge.{name}" for name in LOADED.split()), *LIBRARIES)
    with Nursery(*modules) as first, Nursery(*modules) as second:
        yield first, second


def write_toml(path: Path, **options: Any) -> None:
    path.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in options.items()))


def write_responses(folder: Path) -> None:
    write_rows(folder / "responses.jsonl", make_rows(24))


def write_judges(folder: Path, base_url: str) -> None:
    write_responses(folder)
    about = {"kind": "decision", "model": "gpt-6-luna", "base_url": base_url, "retries": 0, "concurrency": 4}
    write_toml(folder / "judge.toml", **about)
    write_toml(folder / "other.toml", **about | {"model": "other"})
    write_toml(folder / "model.toml", model="m", base_url=base_url, concurrency=4)
    write_toml(folder / "panel.toml", kind="panel", judges=["judge.toml", "other.toml", "length"])
    write_toml(folder / "cascade.toml", kind="cascade", first="length", second="judge.toml", ask_below=1.0)


def write_rated(folder: Path) -> None:
    """Write ratings of four models, twenty at a time, and scores of a tool that agree with them."""
    rows = [
        {"id": f"{model}-{batch}-{n}", "model": model, "rating": rating}
        for model, counts in RATED.items()
        for batch in "abcd"
        for n, rating in enumerate(level + 1 for level in range(3) for _ in range(counts[level]))
    ]
    write_rows(folder / "theirs.jsonl", rows)
    ratings = ({**row, "rater": row["id"].rpartition("-")[0], "batch": row["id"][4]} for row in rows)
    write_rows(folder / "ratings.jsonl", ratings)


def write_study(folder: Path) -> None:
    copy(TESTS / "fuzz" / "corpus" / "dataset.csv" / "seed", folder / "study.csv")


def fill_in(call: Call) -> Answer:
    lines = call.text.split("\n\n")[-2].splitlines()
    return answer_chat(call, json.dumps({n: 3 for n, _ in enumerate(lines, 1)}))


Make = Callable[[ExitStack], Case]


def simple(arguments: str, results: str, prepare: Callable[[Path], object]) -> Make:
    return lambda stack: Case(arguments=arguments.split(), results=results.split(), prepare=prepare)


def asking(arguments: str, *, each: int = 1, script: Callable[[Call], Answer] = answer) -> Make:
    """A command that asks a server, four at a time; a judgment takes `each` calls."""

    def make(stack: ExitStack) -> Case:
        server = stack.enter_context(ScriptedServer(script))
        words = arguments.replace("URL", server.base_url).split()
        prepare = partial(write_judges, base_url=server.base_url)
        about = {"results": ["run"], "prepare": prepare, "in_flight": 4 * each}
        return Case(arguments=words, calls=lambda: len(server.calls), **about)

    return make


def batch(stack: ExitStack) -> Case:
    server = stack.enter_context(BatchServer())
    server.is_done = True
    return Case(
        # Of no known price: what is asked directly costs twice as much, and kills change how much that is.
        arguments=["score", "responses.jsonl", "--judge", "other.toml", "--out", "run", "--batch", "--wait"],
        results=["run"],
        prepare=partial(write_judges, base_url=server.base_url),
        calls=lambda: server.steps["ask"] + sum(item["request_counts"]["total"] for item in server.batches),
        in_flight=1,  # the one that is asked directly; a batch is never submitted twice
    )


def night(stack: ExitStack) -> Case:
    world = World(Path())
    server = world.server = stack.enter_context(ScriptedServer(world.reply))
    return Case(
        arguments=["nightly", "n.toml", "--night", "2026-12-01", "--now", "2026-12-01T02:00:00+00:00"],
        results=["runs", "site", "nights.sqlite"],
        prepare=lambda folder: World(folder, server=server).write(head='dashboard = "site"\n'),
        calls=lambda: len(server.calls),
        in_flight=4,
        read={"nights.sqlite": world.export},
    )


def rating(arguments: str, results: str) -> Make:
    """A command on a plan that people have rated; the plan's tokens are by chance, so one plan is copied."""

    def make(stack: ExitStack) -> Case:
        template = Path(stack.enter_context(TemporaryDirectory())) / "plan"
        plan = make_plan(template, people=3, each=12)
        journal = Journal(template, plan)
        for token, rater in plan.raters.items():
            for index, key in enumerate(rater.order):
                journal.record(token, key, 1, Entry(index=index, label=LABELS[index % 3]))
        journal.close()
        return simple(arguments, results, lambda folder: copytree(template, folder / "plan"))(stack)

    return make


def write_nights(folder: Path) -> None:
    write_history(folder / "nights.sqlite", nights=3, responses=2)


def score_length(folder: Path) -> None:
    write_responses(folder)
    run_checked("score", folder / "responses.jsonl", "--judge", "length", "--out", folder / "run")


SCORE = "score responses.jsonl --out run --judge"
ALIGN = (
    "align run --model m --base-url URL --concurrency 4 --emotion Anger --per-factor 1 --orders 1 --out run"
)
CASES: dict[str, tuple[Make, int]] = {  # and how many kills in `make check`
    "score": (simple(f"{SCORE} length", "run", write_responses), 3),
    "score, asking": (asking(f"{SCORE} judge.toml"), 3),
    "score, panel": (asking(f"{SCORE} panel.toml", each=2), 2),
    "score, cascade": (asking(f"{SCORE} cascade.toml"), 2),
    "score --batch": (batch, 4),
    "respond": (asking("respond responses.jsonl --model-config model.toml --out run"), 2),
    "align run": (asking(ALIGN, script=fill_in), 2),
    "nightly": (night, 1),
    "calibrate": (simple("calibrate theirs.jsonl ratings.jsonl --out out", "out", write_rated), 1),
    "compare": (simple("compare run --calibration none --out out", "out", score_length), 1),
    "rate collect": (rating("rate collect plan", "plan/ratings.jsonl plan/consistency.json"), 1),
    "rate export": (rating("rate export plan --html pages --csv sheets", "pages sheets"), 1),
    "import": (simple("import empathy-study study.csv --out out", "out", write_study), 2),
    "history export": (simple("history export --out out.csv", "out.csv", write_nights), 1),
    "dashboard": (simple("dashboard nights.sqlite --out site", "site", write_nights), 1),
}


KINDS = ("ENOSPC", "EROFS", "EACCES", "EIO")
SLOW = ("calibrate", "nightly")
RACED = ("score", "score, asking", "nightly", "rate collect")


@pytest.mark.parametrize("name", CASES)
def test_killed_or_without_a_disk_a_command_given_again_ends_as_an_undisturbed_one(
    name: str, nurseries: tuple[Nursery, Nursery], tmp_path: Path
) -> None:
    """The disk is full, and then fails otherwise; in `make trust`, in every way. Some run twice at once."""
    make, few = CASES[name]
    with ExitStack() as stack:
        campaign = Campaign(replace(make(stack), name=name), nurseries[0], tmp_path)
        campaign.kill_often(few)
        others = () if name in SLOW else (KINDS[1 + list(CASES).index(name) % 3],)
        for seed in seeds(1):
            for kind in KINDS if SEEDS else (KINDS[0], *others):
                campaign.fail(seed, kind)
        if SEEDS or name in RACED:
            campaign.race(nurseries[1])


def test_every_acknowledged_rating_is_in_the_journal_once_though_the_page_is_killed(
    nurseries: tuple[Nursery, Nursery], tmp_path: Path
) -> None:
    """A rating without an answer is sent again."""
    plan, chance, kills = make_plan(tmp_path / "plan", people=8, each=12), Random(0), len(seeds(3))
    acts = [
        (token, {"index": number, "key": key, "n": 1, "label": chance.choice(LABELS)})
        for token, rater in plan.raters.items()
        for number, key in enumerate(rater.order)
    ]
    chance.shuffle(acts)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    parts = [acts[len(acts) * n // kills : len(acts) * (n + 1) // kills] for n in range(kills)]
    patient = httpx.HTTPTransport(retries=9)  # until the server listens
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, transport=patient) as client:
        for part, after in zip_longest(parts, parts[1:], fillvalue=[]):
            with nurseries[0].started(tmp_path, "rate", "open", "plan", "--port", port):
                for token, act in part:
                    client.post(f"/r/{token}/ratings", json=act).raise_for_status()
                for token, act in after[:1]:  # killed while it works on a rating that nobody waits for
                    with suppress(httpx.HTTPError):
                        client.post(f"/r/{token}/ratings", json=act, timeout=chance.random() * 0.01 + 1e-4)
    lines = (tmp_path / "plan" / JOURNAL_FILE).read_text(encoding="utf-8").splitlines()
    found = Counter((each["token"], each["key"], each["label"]) for each in map(json.loads, lines))
    assert found == Counter((token, act["key"], act["label"]) for token, act in acts)
