"""Changed inputs to every command and parser: nothing but a message for the user may come of one.

A file goes to the command that reads it, an answer of a model to the parser behind the network.
`tests/slow/fuzz` tries them; an input that breaks a target is stored in `corpus/<target>`.
"""

import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import chdir
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any, Final

from click.testing import CliRunner
from histories import write_history
from repository import ROOT

from empathy_judge.commands.main import main
from empathy_judge.data.errors import UserError
from empathy_judge.data.records import LABELS, Exchange
from empathy_judge.data.rubric import read_rubric
from empathy_judge.data.runs import read_manifest, seal_run
from empathy_judge.data.tables import to_json, to_row, write_rows
from empathy_judge.emotionbench.marks import read_marks
from empathy_judge.emotionbench.questionnaires import questionnaire_names, read_questionnaire
from empathy_judge.judge.base import load_judge
from empathy_judge.judge.llm.decision import DecisionJudge
from empathy_judge.judge.llm.endpoint import Reply
from empathy_judge.judge.llm.http_client import Key, read_answer_body
from empathy_judge.judge.llm.prompted import PromptedJudge
from empathy_judge.judge.llm.responder import Responder, read_model_config
from empathy_judge.nightly.config import read_config
from empathy_judge.training.recipe import read_recipe

CORPUS: Final = ROOT / "tests" / "fuzz" / "corpus"
FIXTURES: Final = ROOT / "tests" / "data" / "fixtures"  # files as other tools wrote them
KEY: Final = "sk-canary-0123456789"  # in server answers; no parser may return it
LONGEST: Final = 1 << 16  # bytes; a longer input finds no more
REPLIES: Final = [
    {"id": f"r{number}", "prompt": "I lost my keys.", "response": text, "model": f"m{number % 2}"}
    for number, text in enumerate(("Oh no!", "Look again.", "Where were you last?", "So what?"))
]
RATED: Final = [{"id": row["id"], "rater": n, "rating": 1 + n} for row in REPLIES for n in range(3)]
SCORED: Final = [row | {"score": 1 + n % 3} for n, row in enumerate(REPLIES)]
VALUES: Final[tuple[Any, ...]] = (
    *(None, True, 0, -1, 3, 1.5, 10**30, -(2**63), 1e308, 1e-320, float("nan"), float("inf"), "", " ", "1"),
    *("nan", "Good", "\x00", "\ud800", "\u202e", "\u0662", "é", "²", "1e999", "a" * 300),
    *([], {}, [None], [[]], {"": None}, [1, "a", {}], {"a": {"b": []}}),
)
TOKENS: Final = (
    *(b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\r\n", b'"', b"'", b",", b";", b"\t", b"\\ud83d"),
    *(b"{", b"}", b"[[", b"]]", b"=", b":", b"NaN", b"1e999", b"9" * 4400, b"[" * 600, b'{"a":' * 400),
    *(b"<think>", b"\xed\xa0\x80", b"\xe2\x80\xa8", b"true", b"null", b"1979-05-27", b"#", b'"""', b".."),
    *(b"@", b"%s", b"{0}", b"(" * 200, b"a" * 5000),
)


def mutate(seeds: Sequence[bytes], chance: Random) -> bytes:
    """Return one seed after one to four changes, which follow from `chance` alone."""
    data = chance.choice(seeds)
    for _ in range(chance.choice((1, 1, 2, 3, 4))):
        data = chance.choice((_edit_bytes, _edit_cell, _edit_json))(data, chance)[:LONGEST]
    return data


def _edit_bytes(data: bytes, chance: Random) -> bytes:
    start, end = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    end = chance.choice((start, start + 1, end))
    repeated = data[start:end] * chance.choice((0, 2, 30))
    return data[:start] + chance.choice((*TOKENS, chance.randbytes(1), repeated)) + data[end:]


def _edit_cell(data: bytes, chance: Random) -> bytes:
    mark = chance.choice((b",", b"\n", b"=", b'"', b" "))
    cells, value = data.split(mark), chance.choice(VALUES)
    text = (value if isinstance(value, str) else json.dumps(value)).encode("utf-8", "surrogatepass")
    cells[chance.randrange(len(cells))] = chance.choice((text, chance.choice(cells), chance.choice(TOKENS)))
    return mark.join(cells)


def _edit_json(data: bytes, chance: Random) -> bytes:
    lines = data.split(b"\n") if b"}\n{" in data else [data]
    at = chance.randrange(len(lines))
    try:
        changed = json.dumps(_change(json.loads(lines[at]), chance), ensure_ascii=chance.random() < 0.8)
    except (ValueError, RecursionError):
        return _edit_bytes(data, chance)
    lines[at] = changed.encode("utf-8", "surrogatepass")
    return b"\n".join(lines)


def _change(value: Any, chance: Random) -> Any:
    """Return the value with one place in it changed, removed or nested deeply."""
    if isinstance(value, dict | list) and value and chance.random() < 0.85:
        at = chance.choice(list(value)) if isinstance(value, dict) else chance.randrange(len(value))
        changed = value.copy()
        if chance.random() < 0.1:
            del changed[at]
        else:
            changed[at] = _change(value[at], chance)
        return changed
    if chance.random() < 0.95:
        return chance.choice(VALUES)
    for _ in range(chance.choice((5, 330, 900))):
        value = [value] if chance.random() < 0.5 else {"a": value}
    return value


# By the name of a target: a command line, in which FILE is the input.
SCORE: Final = "score FILE --judge length --calibration none --skip-invalid"
RATINGS: Final = "calibrate own-scores.jsonl FILE --exchanges replies.jsonl --skip-invalid"
IMPORTED: Final = {
    **{"dataset.csv": "empathy-study", "ratings-without-texts.csv": "empathy-study-ratings"},
    **{"EmpatheticExchanges_5ES.csv": "empathetic-exchanges", "emotional-reactions-reddit.csv": "epitome"},
    **{"scores.csv": "mental-align", "ieval_data.json": "ieval", "FailedESConv.json": "esconv"},
    "dstc9_dep_step2_eval.csv": "dep",
}
COMMANDS: Final[dict[str, str]] = {
    **dict.fromkeys(("exchanges.jsonl", "exchanges.csv", "exchanges.parquet"), SCORE),
    **{f"any.{suffix}": SCORE for suffix in ("jsonl", "json", "csv", "tsv", "parquet", "xlsx")},
    **{f"conversations.{suffix}": f"{SCORE} --unit conversation" for suffix in ("jsonl", "json")},
    **{f"ratings.{suffix}": RATINGS for suffix in ("jsonl", "csv")},
    **{f"rating-sheet.{suffix}": RATINGS for suffix in ("jsonl", "csv", "xlsx")},
    **{f"recorded.{suffix}": "calibrate FILE ratings.jsonl" for suffix in ("jsonl", "csv")},
    "calibration.json": "score replies.jsonl --judge length --calibration FILE",
    "judgments.jsonl": "compare run",
    "journal.jsonl": "score replies.jsonl --judge length --calibration none --out run",
    "sheets.jsonl": "align report FILE",
    "gpt-4-PANAS-testing.csv": "align import FILE --out sheets.jsonl",
    "crowd.xlsx": "align import FILE --out sheets.jsonl",
    "nights.sqlite": "history export --history FILE --out results.csv",
    **{name: f"import {dataset} FILE --out set" for name, dataset in IMPORTED.items()},
    **{f"returned.{end}": "rate collect plan FILE --skip-invalid" for end in ("json", "jsonl", "csv")},
    **dict.fromkeys(("rating-plan.json", "rating-texts.jsonl", "rating-journal.jsonl"), "rate collect plan"),
    "rating-ratings.jsonl": "rate status plan",
}


def try_command(name: str, data: bytes) -> bool:
    """Run the command on the input; return whether it took it. A traceback is raised."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        for table, rows in (("replies", REPLIES), ("ratings", RATED), ("own-scores", SCORED)):
            write_rows(Path(f"{table}.jsonl"), rows)
        path = Path(name)
        if COMMANDS[name].endswith(" run"):
            path = Path(shutil.copytree(_run_folder(), "run"), name)
        elif COMMANDS[name].startswith("rate"):
            shutil.copytree(_plan_folder(), "plan")
            path = Path("plan", name.removeprefix("rating-")) if "FILE" not in COMMANDS[name] else path
        path.write_bytes(data)
        if name == "judgments.jsonl":  # sealed again, or its digest alone would refuse it
            seal_run(path.parent, read_manifest(_run_folder()), (name, "summary.json"))
        result = CliRunner().invoke(main, COMMANDS[name].replace("FILE", str(path)).split())
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert "Traceback" not in result.output
    return result.exit_code in (0, 1, 3)


@cache
def _run_folder() -> Path:
    """Make a run once, of which files are then replaced."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-run-"))
    write_rows(folder / "replies.jsonl", REPLIES)
    words = SCORE.replace("FILE", str(folder / "replies.jsonl")).split()
    CliRunner().invoke(main, [*words, "--out", str(folder / "run")], catch_exceptions=False)
    return folder / "run"


@cache
def _plan_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="fuzz-plan-"))
    for part in ("plan.json", "texts.jsonl", "journal.jsonl"):
        shutil.copy(CORPUS / f"rating-{part}" / "seed", folder / part)
    return folder


def read_file(name: str, read: Callable[[Path], object], data: bytes) -> None:
    """Read a file that no command reads without asking a server."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(data)
        read(path)


@cache
def _judge(kind: str) -> Any:
    options = {"base_url": "http://127.0.0.1:9/v1", "model": "m", "prices": {"input": 1.0, "output": 1.0}}
    return DecisionJudge(**options) if kind == "decision" else PromptedJudge(**options, mode=kind)


def read_answer(kind: str, data: bytes) -> None:
    """Read the bytes as a server's answer: a judgment, or a reason why there is none, without the key."""
    key, text = Key(""), data.decode("utf-8", "replace")
    key._value = KEY
    answer = read_answer_body(200, text, key)
    assert KEY not in answer.text + answer.problem + json.dumps(answer.body)
    if answer.body is None:
        raise UserError(answer.problem)
    exchange = Exchange(id="1", prompt="I lost my keys.", response="Oh no!")
    judgment = _judge(kind).read_replies(exchange, [Reply(answer.body, {})])
    assert (judgment.label is None) == (judgment.unscored is not None)
    assert judgment.label is None or (judgment.label in LABELS and 1 <= (judgment.score or 0) <= 3)
    assert judgment.probabilities is None or abs(sum(judgment.probabilities.values()) - 1) < 1e-4
    assert KEY not in to_json(to_row(judgment))


def read_text(data: bytes) -> None:
    """Read the bytes as what a model says, in each mode."""
    body = {"choices": [{"message": {"content": data.decode("utf-8", "replace")}}]}
    for mode in ("label", "shares", "analytic"):
        read_answer(mode, json.dumps(body).encode())


def read_questionnaire_answer(data: bytes) -> None:
    """Read a model's answer to a questionnaire, which the first byte chooses."""
    names = questionnaire_names()
    key = read_questionnaire(names[(data[0] if data else 0) % len(names)])
    answer = read_marks(data[1:].decode("utf-8", "replace"), key)
    assert all(1 <= item <= key.items and key.low <= mark <= key.high for item, mark in answer.marks.items())


READERS: Final[dict[str, Callable[[Path], object]]] = {
    "rubric.toml": lambda path: read_rubric(str(path)),
    "judge.toml": lambda path: load_judge(str(path)).version,
    "nightly.toml": read_config,
    "recipe.toml": lambda path: read_recipe(str(path)),
    "model.toml": lambda path: Responder(read_model_config(path, {})).version,
}
PARSERS: Final[dict[str, Callable[[bytes], None]]] = {
    **{name: partial(read_file, name, read) for name, read in READERS.items()},
    "answer.txt": read_text,
    "completion.json": partial(read_answer, "label"),
    "decisions.json": partial(read_answer, "decision"),
    "marks.txt": read_questionnaire_answer,
}
TARGETS: Final = (*COMMANDS, *PARSERS)


def try_input(name: str, data: bytes) -> bool:
    """Return whether the target took the input; False where it refused it. Anything else is raised."""
    if name in COMMANDS:
        return try_command(name, data)
    try:
        PARSERS[name](data)
    except UserError:
        return False
    return True


def corpus_of(name: str) -> list[bytes]:
    """Return the seeds of a target, the inputs that once broke it, and files that other tools wrote."""
    paths = sorted((CORPUS / name).glob("*"))
    if name.startswith("any."):
        paths += sorted(FIXTURES.rglob(f"*{name.removeprefix('any')}"))
    if name == "nights.sqlite":
        folder = Path(tempfile.mkdtemp(prefix="fuzz-nights-"))
        paths.append(write_history(folder / name, nights=2, responses=2))
    return [path.read_bytes() for path in paths]
