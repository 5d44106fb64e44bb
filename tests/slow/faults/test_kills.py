"""Killed at any step, every long command given again ends as if nothing had been."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from batch_servers import BatchServer
from faults import Campaign, Case, Nursery, open_nursery
from histories import write_history
from nightly_world import World
from rating_plans import make_plan
from servers import Answer, Call, ScriptedServer, answer, answer_chat

from empathy_judge.data.records import LABELS
from empathy_judge.emotionbench.questionnaires import read_questionnaire
from empathy_judge.rating.journal import Entry, Journal

LOADED = (
    *(
        "empathy_judge.calibration.comparison.compare_runs",
        "empathy_judge.commands.calibrate",
        "empathy_judge.emotionbench.administer",
    ),
    *(
        "empathy_judge.judge.cascade",
        "empathy_judge.judge.llm.answer_prompts",
        "empathy_judge.judge.llm.batch",
        "empathy_judge.judge.llm.decision",
        "empathy_judge.judge.panel",
    ),
    *(
        "empathy_judge.nightly.dashboard.build",
        "empathy_judge.nightly.night",
        "empathy_judge.rating.collect",
        "empathy_judge.rating.handouts",
    ),
    *(
        "empathy_judge.reports.calibration.calibration_page",
        "empathy_judge.reports.render",
        "empathy_judge.reports.terminal",
    ),
    *(
        "empathy_judge.commands.compare",
        "empathy_judge.commands.nightly",
        "empathy_judge.commands.rate",
        "empathy_judge.commands.score",
    ),
    *("jinja2", "onnxruntime", "scipy.stats", "scipy.optimize", "tokenizers"),
)
COUNT = 24
PANAS = read_questionnaire("PANAS")
RATED = {"ada": (1, 5, 14), "bea": (4, 6, 10), "cyd": (6, 7, 7), "dot": (9, 6, 5)}  # Bad, Okay, Good of 20


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with open_nursery(*LOADED) as running:
        yield running


def write_lines(path: Path, rows: Any) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_toml(path: Path, **options: Any) -> None:
    path.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in options.items()))


def write_responses(folder: Path) -> None:
    rows = (
        {
            "id": f"r{n}",
            "model": f"m{n % 2}",
            "prompt": f"prompt {n // 2}",
            "response": "so sorry " * (1 + n % 5),
        }
        for n in range(COUNT)
    )
    write_lines(folder / "responses.jsonl", rows)


def write_judges(folder: Path, base_url: str) -> None:
    write_responses(folder)
    about = {"kind": "decision", "model": "gpt-6-luna", "base_url": base_url, "retries": 0, "concurrency": 4}
    write_toml(folder / "judge.toml", **about)
    write_toml(folder / "other.toml", **about | {"model": "other"})
    write_toml(folder / "model.toml", model="m", base_url=base_url, concurrency=4)
    write_toml(folder / "panel.toml", kind="panel", judges=["judge.toml", "other.toml", "length"])
    write_toml(folder / "cascade.toml", kind="cascade", first="length", second="judge.toml", ask_below=1.0)


def write_rated(folder: Path) -> None:
    """Four models of known shares, rated twenty at a time, and a tool that says what people say."""
    rows = [
        {
            "id": f"{model}-{batch}-{n}",
            "model": model,
            "rater": f"{model}{batch}",
            "batch": batch,
            "rating": rating,
        }
        for model, counts in RATED.items()
        for batch in range(4)
        for n, rating in enumerate(level + 1 for level in range(3) for _ in range(counts[level]))
    ]
    write_lines(
        folder / "theirs.jsonl", ({key: row[key] for key in ("id", "model", "rating")} for row in rows)
    )
    write_lines(folder / "ratings.jsonl", rows)


def write_study(folder: Path) -> None:
    arms = ("human", "chatgpt_empathy")
    head = ["part_no", "dialog_id", "emotion", "sentiment", "situation", "speaker_uttr"]
    for arm in arms:
        head += [f"{name}_{arm}" for name in ("annotator", "response", "rating", "empathy_propensity")]
        head += [f"empathy_arr_{arm}"]
    lines = [",".join(head)]
    for n in range(12):
        cells = ["7", f"d{n}", "proud", "positive", "My kite won", "It won!"]
        for place, arm in enumerate(arms):
            cells += [f"r{place}", f"Well done {arm}!", str(place + 1), "40", '"[1, -2, 0]"']
        lines.append(",".join(cells))
    (folder / "study.csv").write_text("\n".join(lines) + "\n")


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
        return Case(
            arguments=words,
            results=["run"],
            prepare=lambda folder: write_judges(folder, server.base_url),
            calls=lambda: len(server.calls),
            in_flight=4 * each,
        )

    return make


def batch(stack: ExitStack) -> Case:
    server = stack.enter_context(BatchServer())
    server.is_done = True

    def count() -> int:
        """What is paid for: requests asked directly, and those of every batch."""
        return len(server.live) + sum(item["request_counts"]["total"] for item in server.batches)

    return Case(
        # Of no known price: what is asked directly costs twice as much, and kills change how much that is.
        arguments=["score", "responses.jsonl", "--judge", "other.toml", "--out", "run", "--batch", "--wait"],
        results=["run"],
        prepare=lambda folder: write_judges(folder, server.base_url),
        calls=count,
        in_flight=1,  # the one that is asked directly; a batch is never submitted twice
    )


def night(stack: ExitStack) -> Case:
    world = World(Path())
    server = world.server = stack.enter_context(ScriptedServer(world.reply))

    def prepare(folder: Path) -> None:
        World(folder, server=server).write(head='dashboard = "site"\n')

    return Case(
        arguments=["nightly", "n.toml", "--night", "2026-12-01", "--now", "2026-12-01T02:00:00+00:00"],
        results=["runs", "site", "nights.sqlite"],
        prepare=prepare,
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
            for place, key in enumerate(rater.order):
                label = LABELS[(place + len(rater.name)) % 3]
                journal.record(token, key, 1, Entry(place=place, label=label))
        journal.close()
        return Case(
            arguments=arguments.split(),
            results=results.split(),
            prepare=lambda folder: copytree(template, folder / "plan"),
        )

    return make


def write_nights(folder: Path) -> None:
    write_history(folder / "nights.sqlite", nights=3, responses=2)


def score_length(folder: Path) -> None:
    from click.testing import CliRunner

    from empathy_judge.commands import main as cli

    write_responses(folder)
    words = ["score", str(folder / "responses.jsonl"), "--judge", "length", "--out", str(folder / "run")]
    assert CliRunner().invoke(cli.main, words).exit_code == 0


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


@pytest.mark.parametrize("name", CASES)
def test_killed_or_without_a_disk_a_command_given_again_ends_as_an_undisturbed_one(
    name: str, nursery: Nursery, tmp_path: Path
) -> None:
    make, few = CASES[name]
    with ExitStack() as stack:
        campaign = Campaign(replace(make(stack), name=name), nursery, tmp_path)
        campaign.kill_often(few)
        # A full disk always, another failure by turns; tests/trust/kills.py tries all of them.
        turn = KINDS[1 + list(CASES).index(name) % 3]
        for kind in KINDS[:1] if name in SLOW else (KINDS[0], turn):
            campaign.fail(0, kind)
