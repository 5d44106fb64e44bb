"""Changed inputs to every command and parser: nothing but a message for the user may come of one.

    python tests/fuzz/fuzz.py --inputs 200000 --seed 0 > fuzz.json
    python tests/fuzz/fuzz.py --minutes 10 --seed 35 > fuzz.json

A file goes to the command that reads it, a request to the server, an answer of a model to the parser behind
the network. The same seed gives the same inputs, of which a slow machine tries fewer in the same time. An
input that breaks a target is stored in `corpus/<target>/crash-...`, where the tests try it from then on; the
exit code is then 1.
"""

import argparse
import json
import multiprocessing
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import chdir
from functools import cache
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
CORPUS: Final = Path(__file__).parent / "corpus"
FIXTURES: Final = ROOT / "tests" / "data" / "fixtures"  # files as other tools wrote them
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

KEY: Final = "sk-canary-0123456789"  # in server answers; no parser may return it
SECONDS: Final = 20  # an input that takes longer hangs
MEMORY: Final = 6 << 30  # bytes of address space; an input that needs more is a bomb
MOST_INPUTS: Final = 10**9  # as good as no limit
MOST_CRASHES: Final = 5  # stored per target: one fault shows in many ways
LONGEST: Final = 1 << 16  # bytes; a longer input finds no more
REPLIES: Final = tuple(
    {"id": f"r{number}", "prompt": "I lost my keys.", "response": text, "model": f"m{number % 2}"}
    for number, text in enumerate(("Oh no!", "Look again.", "Where were you last?", "So what?"))
)

# Changes of an input.

VALUES: Final[tuple[Any, ...]] = (
    *(None, True, 0, -1, 3, 1.5, 10**30, -(2**63), 1e308, 1e-320, float("nan"), float("inf"), "", " ", "1"),
    *("nan", "Good", "\x00", "\ud800", "\u202e", "\u0662", "é", "²", "1e999", "a" * 300),
    *([], {}, [None], [[]], {"": None}, [1, "a", {}], {"a": {"b": []}}),
)
TOKENS: Final = (
    *(b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\r\n", b'"', b"'", b",", b";", b"\t", b"\\ud83d"),
    *(b"{", b"}", b"[[", b"]]", b"=", b":", b"NaN", b"1e999", b"9" * 4400, b"[" * 600, b'{"a":' * 400),
    *(
        b"<think>",
        b"\xed\xa0\x80",
        b"\xe2\x80\xa8",
        b"true",
        b"null",
        b"1979-05-27",
        b"#",
        b'"""',
        b"..",
        b"@",
    ),
    *(b"%s", b"{0}", b"(" * 200, b"a" * 5000),
)


def mutate(seeds: Sequence[bytes], chance: Random) -> bytes:
    """Return one seed after one to four changes, which follow from `chance` alone."""
    data = chance.choice(seeds)
    for _ in range(chance.choice((1, 1, 2, 3, 4))):
        data = chance.choice((_edit_bytes, _edit_stretch, _edit_cell, _edit_json))(data, seeds, chance)[
            :LONGEST
        ]
    return data


def _edit_bytes(data: bytes, seeds: Sequence[bytes], chance: Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    token = chance.choice((*TOKENS, chance.randbytes(1)))
    return data[:at] + token + data[at + chance.choice((0, 1, len(token))) :]


def _edit_stretch(data: bytes, seeds: Sequence[bytes], chance: Random) -> bytes:
    start, end = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    other = chance.choice(seeds)
    repeated = data[start:end] * chance.choice((2, 30))
    return data[:start] + chance.choice((b"", repeated, other[start:])) + data[end:]


def _edit_cell(data: bytes, seeds: Sequence[bytes], chance: Random) -> bytes:
    mark = chance.choice((b",", b"\n", b"=", b'"', b" "))
    cells = data.split(mark)
    value = chance.choice(VALUES)
    text = (value if isinstance(value, str) else json.dumps(value)).encode("utf-8", "surrogatepass")
    cells[chance.randrange(len(cells))] = chance.choice((text, chance.choice(cells), chance.choice(TOKENS)))
    return mark.join(cells)


def _edit_json(data: bytes, seeds: Sequence[bytes], chance: Random) -> bytes:
    lines = data.split(b"\n") if b"}\n{" in data else [data]
    at = chance.randrange(len(lines))
    try:
        changed = json.dumps(_change(json.loads(lines[at]), chance), ensure_ascii=chance.random() < 0.8)
    except (ValueError, RecursionError):
        return _edit_bytes(data, seeds, chance)
    lines[at] = changed.encode("utf-8", "surrogatepass")
    return b"\n".join(lines)


def _change(value: Any, chance: Random) -> Any:
    """Return the value with one place in it changed, removed or nested deeply."""
    if isinstance(value, dict) and value and chance.random() < 0.85:
        key = chance.choice(list(value))
        if chance.random() < 0.1:
            return {name: item for name, item in value.items() if name != key}
        return value | {key: _change(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.85:
        at = chance.randrange(len(value))
        return [*value[:at], *([_change(value[at], chance)] * chance.choice((0, 1, 1, 2))), *value[at + 1 :]]
    if chance.random() < 0.05:
        for _ in range(chance.choice((5, 330, 900))):
            value = [value] if chance.random() < 0.5 else {"a": value}
        return value
    return chance.choice(VALUES)


# Targets: files to commands.

FILE: Final = "FILE"
SCORE: Final = ("score", FILE, "--judge", "length", "--calibration", "none", "--skip-invalid")
RATINGS: Final = ("calibrate", "own-scores.jsonl", FILE, "--exchanges", "replies.jsonl", "--skip-invalid")
OWN_SCORES: Final = ("calibrate", FILE, "ratings.jsonl")
COMMANDS: Final[dict[str, tuple[object, ...]]] = {
    **dict.fromkeys(("exchanges.jsonl", "exchanges.csv", "exchanges.parquet"), SCORE),
    **{f"any.{suffix}": SCORE for suffix in ("jsonl", "json", "csv", "tsv", "parquet", "xlsx")},
    **{f"conversations.{suffix}": (*SCORE, "--unit", "conversation") for suffix in ("jsonl", "json")},
    **{f"ratings.{suffix}": RATINGS for suffix in ("jsonl", "csv")},
    **{f"rating-sheet.{suffix}": RATINGS for suffix in ("jsonl", "csv", "xlsx")},
    **{f"choices.{suffix}": RATINGS for suffix in ("jsonl", "csv")},
    **{f"recorded.{suffix}": OWN_SCORES for suffix in ("jsonl", "csv")},
    "calibration.json": ("score", "replies.jsonl", "--judge", "length", "--calibration", FILE),
    "judgments.jsonl": ("compare", "run"),
    "journal.jsonl": ("score", "replies.jsonl", "--judge", "length", "--calibration", "none", "--out", "run"),
    "sheets.jsonl": ("align", "report", FILE),
    "gpt-4-PANAS-testing.csv": ("align", "import", FILE, "--out", "sheets.jsonl"),
    "crowd.xlsx": ("align", "import", FILE, "--out", "sheets.jsonl"),
    "nights.sqlite": ("history", "export", "--history", FILE, "--out", "results.csv"),
    "dataset.csv": ("import", "empathy-study", FILE, "--out", "set"),
    "ratings-without-texts.csv": ("import", "empathy-study-ratings", FILE, "--out", "set"),
    "EmpatheticExchanges_5ES.csv": ("import", "empathetic-exchanges", FILE, "--out", "set"),
    "emotional-reactions-reddit.csv": ("import", "epitome", FILE, "--out", "set"),
    "scores.csv": ("import", "mental-align", FILE, "--out", "set"),
    "ieval_data.json": ("import", "ieval", FILE, "--out", "set"),
    "FailedESConv.json": ("import", "esconv", FILE, "--out", "set"),
    "dstc9_dep_step2_eval.csv": ("import", "dep", FILE, "--out", "set"),
}
COLLECT: Final = ("rate", "collect", "plan", FILE, "--skip-invalid")
COMMANDS |= {
    **{f"returned.{suffix}": COLLECT for suffix in ("json", "jsonl", "csv")},
    **{
        f"rating-{name}": ("rate", "collect", "plan")
        for name in ("plan.json", "texts.jsonl", "journal.jsonl")
    },
    "rating-ratings.jsonl": ("rate", "status", "plan"),
}
IN_RUN: Final = {"judgments.jsonl", "journal.jsonl"}  # files of a run folder
IN_PLAN: Final = {
    name for name in COMMANDS if COMMANDS[name][0] == "rate" and not name.startswith("returned")
}


def try_command(name: str, data: bytes) -> bool:
    """Run the command on the input; return whether it took it. A traceback is raised."""
    from click.testing import CliRunner

    from cli import main
    from empathy_judge.data.runs import read_manifest, seal_run

    with tempfile.TemporaryDirectory(dir=_memory()) as folder, chdir(folder):
        Path("replies.jsonl").write_text("".join(json.dumps(row) + "\n" for row in REPLIES))
        ratings = [{"id": row["id"], "rater": f"p{n}", "rating": 1 + n} for row in REPLIES for n in range(3)]
        Path("ratings.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ratings))
        scores = [
            {"id": row["id"], "model": row["model"], "score": 1 + n % 3} for n, row in enumerate(REPLIES)
        ]
        Path("own-scores.jsonl").write_text("".join(json.dumps(row) + "\n" for row in scores))
        path = Path("run", name) if name in IN_RUN else Path(name)
        if name in IN_RUN:
            shutil.copytree(_run_folder(), "run")
        if COMMANDS[name][0] == "rate":
            Path("plan").mkdir()
            for part in ("plan.json", "texts.jsonl", "journal.jsonl"):
                shutil.copy(CORPUS / f"rating-{part}" / "seed", Path("plan", part))
            path = Path("plan", name.removeprefix("rating-")) if name in IN_PLAN else path
        path.write_bytes(data)
        if name == "judgments.jsonl":  # sealed again, or its digest alone would refuse it
            seal_run(path.parent, read_manifest(_run_folder()), (name, "summary.json"))
        words = [str(path) if word is FILE else str(word) for word in COMMANDS[name]]
        result = CliRunner().invoke(main, words)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert "Traceback" not in result.output
    return result.exit_code in (0, 1, 3)


@cache
def _run_folder() -> Path:
    """Make a run once, of which files are then replaced."""
    from click.testing import CliRunner

    from cli import main

    folder = Path(tempfile.mkdtemp(prefix="fuzz-run-"))
    (folder / "replies.jsonl").write_text("".join(json.dumps(row) + "\n" for row in REPLIES))
    words = ["score", str(folder / "replies.jsonl"), "--judge", "length", "--calibration", "none", "--out"]
    CliRunner().invoke(main, [*words, str(folder / "run")], catch_exceptions=False)
    return folder / "run"


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


# Targets: requests to the server.

PATHS: Final = {
    "score.request": "/v1/score",
    "chat.request": "/v1/chat/completions",
    "rating.request": "/r/{token}/ratings",
}


@cache
def _client(name: str) -> Any:
    """Make a client of the server in this process; an error of the server is raised."""
    from starlette.testclient import TestClient

    from empathy_judge.judge.base import load_judge
    from empathy_judge.rating.rating_app import make_rating_app
    from empathy_judge.server.app import make_app
    from empathy_judge.server.served_judge import ServedJudge

    if name != "rating.request":
        client = TestClient(make_app(ServedJudge(load_judge("length"), None)), base_url="http://127.0.0.1")
    else:
        folder = Path(tempfile.mkdtemp(prefix="fuzz-plan-"))
        for part in ("plan.json", "texts.jsonl"):
            shutil.copy(CORPUS / f"rating-{part}" / "seed", folder / part)
        client = TestClient(make_rating_app(folder, hosts=None), base_url="http://127.0.0.1")
    client.__enter__()  # until the process ends
    return client


def send_request(name: str, data: bytes) -> bool:
    """Send a request; return whether the server took it. An error of the server is raised."""
    token = next(iter(json.loads((CORPUS / "rating-plan.json" / "seed").read_bytes())["raters"]))
    headers = {"Content-Type": "application/json"}
    answer = _client(name).post(PATHS[name].format(token=token), content=data, headers=headers)
    assert answer.status_code in (200, 400, 404, 409, 413, 422, 503), answer.text
    answer.json()
    return bool(answer.status_code == 200)


# Targets: settings, and answers of models and servers, to the parsers that read them.


def read_setting(name: str, data: bytes) -> None:
    """Read a settings file as the command that takes it does, but ask no server."""
    from empathy_judge.data.rubric import read_rubric
    from empathy_judge.judge.base import load_judge
    from empathy_judge.judge.llm.answer_prompts import Responder, read_model_config
    from empathy_judge.nightly.config import read_config
    from empathy_judge.training.recipe import read_recipe

    readers: dict[str, Callable[[Path], object]] = {
        "rubric.toml": lambda path: read_rubric(str(path)),
        "judge.toml": lambda path: load_judge(str(path)).version,
        "nightly.toml": read_config,
        "recipe.toml": lambda path: read_recipe(str(path)),
        "model.toml": lambda path: Responder(read_model_config(path, {})).version,
    }
    with tempfile.TemporaryDirectory(dir=_memory()) as folder:
        path = Path(folder, name)
        path.write_bytes(data)
        readers[name](path)


@cache
def _judge(kind: str) -> Any:
    from empathy_judge.judge.llm.decision import DecisionJudge
    from empathy_judge.judge.llm.prompted import PromptedJudge

    options = {"base_url": "http://127.0.0.1:9/v1", "model": "m", "prices": {"input": 1.0, "output": 1.0}}
    return PromptedJudge(**options) if kind == "prompted" else DecisionJudge(**options)


def read_answer(kind: str, data: bytes) -> None:
    """Read the bytes as a server's answer: a judgment, or a reason why there is none, without the key."""
    from empathy_judge.data.errors import UserError
    from empathy_judge.data.records import LABELS, Exchange
    from empathy_judge.data.tables import to_json, to_row
    from empathy_judge.judge.llm.endpoint import Reply
    from empathy_judge.judge.llm.http_client import Key, read_answer_body

    key = Key("")
    key._value = KEY
    text = data.decode("utf-8", "replace")
    if kind == "text":
        text, kind = json.dumps({"choices": [{"message": {"content": text}}]}), "prompted"
    answer = read_answer_body(200, text, key)
    assert KEY not in answer.text + answer.problem + json.dumps(answer.body)
    if answer.body is None:
        raise UserError(answer.problem)
    exchange = Exchange(id="1", prompt="I lost my keys.", response="Oh no!")
    judgment = _judge(kind).read_replies(exchange, [Reply(answer.body, {})])
    assert (judgment.label is None) == (judgment.unscored is not None)
    if judgment.label is not None:
        assert judgment.label in LABELS and judgment.score is not None and 1 <= judgment.score <= 3
    if judgment.probabilities is not None:
        assert abs(sum(judgment.probabilities.values()) - 1) < 1e-4
    assert KEY not in to_json(to_row(judgment))


def write_prompt(_: str, data: bytes) -> None:
    """Write requests about a reply with any text; it may not contain the delimiters of the prompt."""
    from empathy_judge.data.records import Exchange
    from empathy_judge.judge.llm.judge_prompt import present

    text = data.decode("utf-8", "replace")
    if text.strip():
        exchange = Exchange(id="1", prompt=text, response=text)
        assert "[[ ##" not in present(exchange).text
        for kind in ("prompted", "decision"):
            json.dumps(_judge(kind).write_requests(exchange)).encode()


def read_marks(_: str, data: bytes) -> None:
    """Read a model's answer to a questionnaire, which the first byte chooses."""
    from empathy_judge.emotionbench.marks import read_marks
    from empathy_judge.emotionbench.questionnaires import questionnaire_names, read_questionnaire

    names = questionnaire_names()
    key = read_questionnaire(names[(data[0] if data else 0) % len(names)])
    answer = read_marks(data[1:].decode("utf-8", "replace"), key)
    assert all(1 <= item <= key.items and key.low <= mark <= key.high for item, mark in answer.marks.items())


def read_consistency(_: str, data: bytes) -> None:
    """Count what was rated, as `rate open` does when it starts."""
    from empathy_judge.rating.collect import count_rated
    from empathy_judge.rating.plan import read_plan

    with tempfile.TemporaryDirectory(dir=_memory()) as folder:
        shutil.copy(CORPUS / "rating-plan.json" / "seed", Path(folder, "plan.json"))
        Path(folder, "consistency.json").write_bytes(data)
        count_rated(Path(folder), read_plan(Path(folder)))


PARSERS: Final[dict[str, Callable[[bytes], None]]] = {
    **{
        name: lambda data, name=name: read_setting(name, data)
        for name in ("rubric.toml", "judge.toml", "nightly.toml", "recipe.toml", "model.toml")
    },
    "answer.txt": lambda data: read_answer("text", data),
    "completion.json": lambda data: read_answer("prompted", data),
    "decisions.json": lambda data: read_answer("decision", data),
    "reply.txt": lambda data: write_prompt("", data),
    "marks.txt": lambda data: read_marks("", data),
    "rating-consistency.json": lambda data: read_consistency("", data),
}
TARGETS: Final = (*COMMANDS, *PATHS, *PARSERS)


def try_input(name: str, data: bytes) -> bool:
    """Return whether the target took the input; False where it refused it. Anything else is raised."""
    from empathy_judge.data.errors import UserError

    if name in COMMANDS:
        return try_command(name, data)
    if name in PATHS:
        return send_request(name, data)
    try:
        PARSERS[name](data)
    except UserError:
        return False
    return True


def corpus_of(name: str) -> list[bytes]:
    """Return the seeds of a target, the inputs that once broke it, and files that other tools wrote."""
    tools = FIXTURES.rglob(f"*{name.removeprefix('any')}") if name.startswith("any.") else ()
    return [path.read_bytes() for path in [*sorted((CORPUS / name).glob("*")), *sorted(tools)]]


def fuzz(name: str, count: int, seconds: float, seed: int, store: Path) -> dict[str, Any]:
    """Try changed inputs on one target, so many or so long; return the counts and where it broke."""
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGALRM, _hang)
    end = time.monotonic() + seconds
    seeds, chance = corpus_of(name), Random(f"{seed} {name}")
    counts: dict[str, Any] = {"inputs": 0, "read": 0, "refused": 0, "crashes": 0}
    problems: dict[str, bytes] = {}
    for number in range(max(count, len(seeds))):
        if number >= len(seeds) and time.monotonic() > end:
            break
        data = seeds[number] if number < len(seeds) else mutate(seeds, chance)
        counts["inputs"] += 1
        signal.alarm(SECONDS if number >= len(seeds) else 0)  # the first inputs also import modules
        try:
            counts["read" if try_input(name, data) else "refused"] += 1
        except Exception as error:
            counts["crashes"] += 1
            frames = [
                frame for frame in traceback.extract_tb(error.__traceback__) if str(ROOT) in frame.filename
            ]
            frames = frames or traceback.extract_tb(error.__traceback__)
            place = (
                f"{type(error).__name__} at {os.path.relpath(frames[-1].filename, ROOT)}:{frames[-1].lineno}"
            )
            problems.setdefault(place, data)
        finally:
            signal.alarm(0)
    for data in list(problems.values())[:MOST_CRASHES]:
        (store / name).mkdir(parents=True, exist_ok=True)
        (store / name / f"crash-{sha256(data).hexdigest()[:10]}").write_bytes(data)
    return counts | {"problems": list(problems)}


def _hang(*_: object) -> None:
    raise TimeoutError(f"more than {SECONDS} s")


def main() -> int:
    parser = argparse.ArgumentParser(description="Try changed inputs on every command and parser.")
    parser.add_argument("--inputs", type=int, default=200_000, help="over all targets")
    parser.add_argument("--minutes", type=float, help="in all, instead of a number of inputs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", action="append", choices=sorted(TARGETS), help="only these")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--store", type=Path, default=CORPUS, help="where inputs that break a target go")
    options = parser.parse_args()
    names = options.target or list(TARGETS)
    each, seconds = -(-options.inputs // len(names)), float("inf")
    if options.minutes is not None:
        each, seconds = MOST_INPUTS, 60 * options.minutes * options.processes / len(names)
    with multiprocessing.get_context("spawn").Pool(options.processes, maxtasksperchild=1) as pool:
        jobs = {
            name: pool.apply_async(fuzz, (name, each, seconds, options.seed, options.store)) for name in names
        }
        targets = {name: job.get(timeout=7200) for name, job in jobs.items()}
    keys = ("inputs", "read", "refused", "crashes")
    total = {key: sum(row[key] for row in targets.values()) for key in keys}
    print(json.dumps({"seed": options.seed, **total, "targets": targets}, indent=1))
    return int(total["crashes"] > 0)


if __name__ == "__main__":
    sys.exit(main())
