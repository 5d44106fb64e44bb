"""Files in the shapes that people and tools have them: each is read by `score`, and says how."""

import csv
import gzip
import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest
from click.testing import Result
from command_line import run
from repository import ROOT

from empathy_judge.data.storage import Columns
from empathy_judge.data.tables import read_prompts, read_responses

FIXTURES = Path(__file__).parent / "fixtures"
CAT, JOB = "I lost my cat today.", "I got the job!"
SORRY, GLAD = "I am so sorry; she was family.", "How wonderful, well done!"
FLAT = [(CAT, SORRY), (JOB, GLAD)]
TALK = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "I sold the boat."},
    {"role": "assistant", "content": "How was that?"},
    {"role": "user", "content": CAT},
    {"role": "assistant", "content": [{"type": "text", "text": SORRY}]},
]


def score(*words: object) -> Result:
    return run("score", "--judge", "length", "--out", "run", *words)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def as_csv(header: list[str], rows: Any, delimiter: str = ",") -> str:
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter).writerows([header, *rows])
    return out.getvalue()


def as_lines(rows: Any) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def named(prompt: str, response: str) -> list[dict[str, str]]:
    return [{prompt: asked, response: said} for asked, said in FLAT]


def write_excel(path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["ID", "Question", "Answer"])
    for number, (asked, said) in enumerate(FLAT, start=7):
        book.active.append([number, asked, said])
    book.create_sheet("notes")
    book.save(path)


def write_parquet(path: Path) -> None:
    turns = [{"from": "human", "value": CAT}, {"from": "gpt", "value": SORRY}]
    parquet.write_table(arrow.table({"conversations": [turns, turns[:1] + turns[1:]]}), path)


AFTER = ", model named after the file"
SEMICOLONS = "; cells separated by semicolons"
WINDOWS = "; text that is not UTF-8 read as Windows-1252"
# File, what it holds, how many rows, how they are read, and the models that are found.
QA = "question/answer" + AFTER
REPLIES = [{"question": asked, "response_a": said, "response_b": "Noted."} for asked, said in FLAT]
ALPACA = [{"instruction": "Reply kindly.", "input": asked, "output": said} for asked, said in FLAT]
ARENA = {"conversation_a": TALK, "model_a": "kind", "winner": "a"}
ARENA |= {"conversation_b": TALK[:4] + TALK[2:3], "model_b": "curt"}
CHOSEN = {"prompt": CAT, "chosen": TALK[3:], "rejected": "Noted."}
TWO = "/chosen/rejected: two models, 2 replies"
SIDES = {
    key: f"\n\nHuman: {CAT}\n\nAssistant: {said}" for key, said in (("chosen", SORRY), ("rejected", "Noted."))
}
NAMED = as_csv(["Prompt", "Response", "Model"], [(*pair, "kind") for pair in FLAT])
BY_MODEL = as_csv(["prompt", "gpt-4o", "claude", "category"], [(*pair, "Noted.", "pets") for pair in FLAT])
MARKED = b"\xef\xbb\xbf" + as_csv(["question", "answer"], FLAT, ";").encode()
CP1252 = "question,answer\nWhy?,It\u2019s na\u00efve \u2026 caf\u00e9\n".encode("cp1252")
WRAPPED = json.dumps({"version": 1, "data": named("query", "reply")}, indent=1)
CONTEXTS = as_csv(["context", "response"], FLAT)
SPLIT = {"columns": ["inputs", "outputs"], "data": FLAT}  # as pandas writes a table
BARS = as_csv(["prompt", "response"], FLAT, "|")
# Two models in one conversation's name, the rows mixed.
TURNS = as_csv(
    ["conversation_id", "turn", "Role", "text", "model"],
    [
        ("c1", number, turn["role"], said, model)
        for number, turn in reversed(list(enumerate(TALK)))
        for model in ("kind", "curt")
        for said in [turn["content"] if isinstance(turn["content"], str) else SORRY]
    ],
)


def node(parent: str, role: str, text: str) -> dict[str, Any]:
    content = {"content_type": "text", "parts": [text]}
    about = {"model_slug": "gpt-4o"} if role == "assistant" else {}
    return {"parent": parent, "message": {"author": {"role": role}, "content": content, "metadata": about}}


NODES = {
    "root": {"message": None, "parent": None, "children": ["0"]},
    "0": node("root", "system", "Be kind."),
    "1": node("0", "user", "I sold the boat."),
    "2": node("1", "assistant", "How was that?"),
    "old": node("2", "user", "Fine."),  # a branch that the user replaced
    "3": node("2", "user", CAT),
    "4": node("3", "assistant", SORRY),
}
EXPORTED: dict[str, Any] = {"id": "c1", "conversation_id": "c1", "default_model_slug": "auto"}
EXPORTED |= {"current_node": "4", "mapping": NODES}
RENAMED = ", repeated ids extended by the model's name"
WHOLE = "messages, whole conversations"
FILES: list[Any] = [
    ("a.csv", as_csv(["question", "answer"], FLAT), 2, QA, "a"),
    ("b.csv", NAMED, 2, "Prompt/Response", "kind"),
    ("c.csv", MARKED, 2, QA + SEMICOLONS, "c"),
    ("d.csv", CP1252, 1, QA + WINDOWS, "d"),
    ("e.csv", BARS, 2, "prompt/response" + AFTER + "; cells separated by bars", "e"),
    ("f.csv", "sep=;\r\n" + as_csv(["question", "answer"], FLAT, ";"), 2, QA + SEMICOLONS, "f"),
    ("g.csv", as_csv(["user", "assistant"], FLAT).encode("utf-16"), 2, "user/assistant" + AFTER, "g"),
    ("h.tsv", as_csv(["user_message", "Output"], FLAT, "\t"), 2, "user_message/Output" + AFTER, "h"),
    ("i.json", json.dumps(named("input", "output")), 2, "input/output" + AFTER, "i"),
    ("j.json", WRAPPED, 2, "query/reply" + AFTER, "j"),
    ("k.json", as_lines(named("question", "answer")), 2, QA + "; one JSON object per line", "k"),
    ("l.jsonl", as_lines(ALPACA), 2, "instruction/output" + AFTER, "l"),
    ("m.jsonl", as_lines([{"messages": TALK, "model": "kind"}]), 1, WHOLE, "kind"),
    ("n.jsonl", as_lines([{"prompt": TALK[:4], "reply": TALK[4:]}]), 1, "prompt/reply" + AFTER, "n"),
    ("o.csv", as_csv(["id", "messages"], [(7, json.dumps(TALK))]), 1, WHOLE + AFTER, "o"),
    ("p.parquet", write_parquet, 2, "conversations, the last turn of each" + AFTER, "p"),
    ("q.xlsx", write_excel, 2, "Question/Answer" + AFTER + "; the first of 2 sheets, 'Sheet'", "q"),
    ("r.csv", BY_MODEL, 2, "one column per model (gpt-4o, claude), 4 replies", "claude gpt-4o"),
    ("s.jsonl", as_lines(REPLIES), 2, "one column per model (a, b), 4 replies", "a b"),
    ("t.jsonl", as_lines([ARENA]), 1, "one column per model (a, b), 2 replies", "curt kind"),
    ("u.jsonl", as_lines([CHOSEN]), 1, f"prompt{TWO}", "chosen rejected"),
    ("v.jsonl", as_lines([SIDES]), 1, f"conversation{TWO}", "chosen rejected"),
    ("w.jsonl.gz", gzip.compress(as_lines(named("text", "reply")).encode()), 2, "text/reply" + AFTER, "w"),
    ("x.csv.gz", gzip.compress(CONTEXTS.encode()), 2, "context/response" + AFTER, "x"),
    ("z.json", json.dumps(SPLIT), 2, "inputs/outputs" + AFTER, "z"),
    ("turns.csv", TURNS, 2, WHOLE + RENAMED + "; one turn per row", "curt kind"),
    ("conversations.json", json.dumps([EXPORTED]), 1, "ChatGPT conversations, whole conversations", "gpt-4o"),
]
TOOLS = [
    (["promptfoo.json"], 6, "promptfoo results", "curt kind-model"),
    (["promptfoo.jsonl"], 6, "promptfoo results", "curt kind-model"),
    (["promptfoo-two-prompts.jsonl"], 2, "promptfoo results", "kind-model@chat kind-model@prompt1"),
    (["promptfoo.csv"], 3, "a promptfoo table, 6 replies", "curt kind-model"),
    (["inspect.json"], 4, "an Inspect log", "mockllm/kind"),
    (["kind-model/samples_talks.jsonl"], 3, "lm-eval samples, model named after the folder", "kind-model"),
    (
        ["openai-batch-output.jsonl", "openai-batch-requests.jsonl"],
        3,
        "the output of an OpenAI batch",
        "kind-model-2025-11-01",
    ),
    (["langfuse-observations.jsonl"], 6, "a Langfuse export, 3 replies", "kind-model"),
    (["langfuse-traces.csv"], 3, "a Langfuse export" + AFTER, "langfuse-traces"),
    (["langsmith.jsonl"], 2, "a LangSmith export", "kind-model"),
]


def judged_models() -> str:
    rows = map(json.loads, Path("run/judgments.jsonl").read_text(encoding="utf-8").splitlines())
    return " ".join(sorted({row["model"] for row in rows}))


@pytest.mark.parametrize(
    ("name", "content", "rows", "line", "models"), FILES, ids=[item[0] for item in FILES]
)
def test_a_file_of_each_shape_is_read_and_says_how(
    here: Path, name: str, content: Any, rows: int, line: str, models: str
) -> None:
    if callable(content):
        content(here / name)
    else:
        (here / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    done = score(name)
    assert done.exit_code == 0, done.output
    assert f"Read {rows} row{'s' * (rows > 1)} of {name} as {line}" in done.stderr.splitlines()
    assert judged_models() == models
    assert score(name).exit_code == 0, "the same command finds its run whole"
    for exchange in read_responses([name]):
        assert not any(
            mark in exchange.prompt + exchange.response for mark in ("{", "\ufffd", "\u00e2\u20ac")
        )


@pytest.mark.parametrize(("files", "rows", "line", "models"), TOOLS, ids=[item[0][0] for item in TOOLS])
def test_files_of_each_tool_are_read(files: list[str], rows: int, line: str, models: str) -> None:
    done = score(*(FIXTURES / name for name in files))
    assert done.exit_code == 0, done.output
    assert f"Read {rows} rows of {Path(files[0]).name} as {line}" in done.stderr.splitlines()
    assert judged_models() == models
    for exchange in read_responses([FIXTURES / name for name in files]):
        assert "{" not in exchange.prompt + exchange.response and "kind." not in exchange.prompt


def test_the_own_format_of_inspect_is_its_json() -> None:
    pytest.importorskip("inspect_ai")
    logs = [list(read_responses([FIXTURES / name])) for name in ("inspect.eval", "inspect.json")]
    assert logs[0] == logs[1] and len(logs[0]) == 4


@pytest.mark.parametrize(
    ("name", "module", "package", "other"),
    [
        ("a.xlsx", "openpyxl", "openpyxl", "CSV"),
        ("a.parquet", "pyarrow", "pyarrow", "CSV"),
        ("a.eval", "inspect_ai.log", "inspect_ai", "inspect log dump a.eval > a.json"),
    ],
)
def test_a_file_whose_package_is_missing_names_its_install_command(
    here: Path, monkeypatch: pytest.MonkeyPatch, name: str, module: str, package: str, other: str
) -> None:
    (here / name).write_bytes(b"")
    monkeypatch.setitem(sys.modules, module, None)
    refused = score(name)
    assert refused.exit_code == 2 and re.search(rf"pip install .*{package}", refused.stderr)
    assert name in refused.stderr and other in refused.stderr


MESSAGES = as_lines([{"messages": TALK, "id": "c1"}])


@pytest.mark.parametrize(
    ("name", "content"), [("t.csv", TURNS), ("c.json", json.dumps([EXPORTED])), ("m.jsonl", MESSAGES)]
)
def test_earlier_turns_are_the_dialogue(here: Path, name: str, content: str) -> None:
    (here / name).write_text(content)
    for exchange in read_responses([name]):
        assert (exchange.id.split("/")[0], exchange.prompt, exchange.response) == ("c1", CAT, SORRY)
        turns = [(turn.speaker, turn.text) for turn in exchange.dialogue]
        assert turns == [("user", "I sold the boat."), ("assistant", "How was that?")]


@pytest.mark.parametrize(
    "content",
    [
        as_lines(named("question", "answer")).encode(),
        json.dumps(named("question", "answer")).replace("}, ", "}\n, ").encode(),
        as_csv(["question", "answer"], FLAT, ";").encode(),
        gzip.compress(as_lines(named("question", "answer")).encode()),
    ],
    ids=["lines", "JSON", "CSV", "gzip"],
)
def test_standard_input_is_read_as_a_file(content: bytes) -> None:
    command = [sys.executable, str(ROOT / "cli.py"), "score", "-", "--judge", "length", "--out", "run"]
    for _ in range(2):  # the second run finds the first one's result
        done = subprocess.run(command, input=content, capture_output=True)
        assert done.returncode == 0, done.stderr
    assert judged_models() == "stdin" and len(Path("run/judgments.jsonl").read_text().splitlines()) == 2


def test_files_of_a_folder_that_are_no_tables_are_skipped(here: Path) -> None:
    (here / "night").mkdir()
    (here / "night/a.jsonl").write_text(as_lines(named("prompt", "response")))
    (here / "night/README.md").write_text("About these files.")
    done = score("night")
    assert done.exit_code == 0 and judged_models() == "night"
    assert [line for line in done.stderr.splitlines() if "Skipped" in line and "README.md" in line]
    (here / "own.jsonl").write_text(as_lines([{"prompt": CAT, "response": SORRY, "model": "kind"}]))
    assert "Read" not in score("own.jsonl", "--out", "own").stderr, "our own columns need no note"


def test_columns_that_a_person_names(here: Path) -> None:
    rows = [{"said": {"text": CAT}, "kind": SORRY, "curt": "Noted.", "who": "me"}]
    (here / "r.jsonl").write_text(as_lines(rows))
    curt = ("--prompt-column", "said.text", "--response-column", "curt")
    for options, code in (
        ((*curt, "--model-column", "who"), 0),
        (("--response-column", "reply"), 2),
        ((*curt, "--response-column", "kind"), 2),  # other columns are another run
    ):
        assert score("r.jsonl", *options).exit_code == code
    assert judged_models() == "me"
    read = list(read_responses(["r.jsonl"], Columns("said.text", ("curt", "kind"))))
    found = [(item.id, item.model, item.response) for item in read]
    assert found == [("1/curt", "curt", "Noted."), ("1/kind", "kind", SORRY)]


def test_several_files_are_a_model_each(here: Path) -> None:
    for name, said in (("kind", SORRY), ("curt", "Noted.")):
        (here / f"{name}.csv").write_text(
            as_csv(["id", "prompt", "response"], [(7, CAT, said), (8, JOB, said)])
        )
    read = [(item.id, item.model) for item in read_responses(["kind.csv", "curt.csv"])]
    assert read == [("7", "kind"), ("8", "kind"), ("7/curt", "curt"), ("8/curt", "curt")]
    (here / "old").mkdir()
    (here / "old/kind.csv").write_text(as_csv(["prompt", "response"], FLAT))
    assert {item.model for item in read_responses(["kind.csv", "old/kind.csv"])} == {"kind", "old/kind"}
    assert "passed twice" in score("kind.csv", "kind.csv").stderr


ARRAY = "[\n" + json.dumps(named("a", "b")) + "\n]\n"
MIXED = as_lines([{"messages": TALK}] * 3 + named("question", "answer"))
NO_REPLY = "messages: no turn of a user with a reply"
WRONG = [
    ("a.csv", "frage,antwort\n1,2\n", "no column for the prompt or the reply found; its columns are"),
    ("b.csv", "question,antwort\nWhy?,So.\n", "the prompt column is 'question', but no reply column"),
    ("c.csv", "frage,answer\nWhy?,So.\n", "the reply column is 'answer', but no prompt column"),
    ("d.jsonl", MIXED, f"d.jsonl:4: {NO_REPLY} after it (the file is read as"),
    ("e.jsonl", as_lines([{"messages": TALK[:2]}]), f"e.jsonl:1: {NO_REPLY}"),
    ("f.jsonl", ARRAY, "one JSON value over many lines is a .json file: rename it"),
    ("g.json", '[{"question": "a", "answer": "b"}, {"que', "g.json: not JSON"),
    ("h.xlsx", "no sheet", "h.xlsx: not an Excel file"),
    ("i.docx", "", "unknown file type"),
    ("j.csv.gz", "prompt,response", "j.csv.gz: not a gzip file"),
    ("k.xlsx.gz", "", "unknown file type"),
    ("l.csv", b"prompt,response\nI,\x81\x8d\n", "l.csv:2: text in neither UTF-8 nor Windows-1252"),
    ("m.jsonl", (FIXTURES / "openai-batch-output.jsonl").read_text(), "pass the file of its requests too"),
    ("n.jsonl", (FIXTURES / "openai-batch-requests.jsonl").read_text(), "pass the batch's output too"),
]


@pytest.mark.parametrize(("name", "content", "problem"), WRONG, ids=[item[0] for item in WRONG])
def test_wrong_and_mixed_files_are_refused_with_the_fix(
    here: Path, name: str, content: str | bytes, problem: str
) -> None:
    (here / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    done = score(name)
    assert done.exit_code == 2, done.output
    assert problem in done.stderr
    assert "column" not in problem or "set --" in done.stderr


def test_prompts_are_read_in_any_shape(here: Path) -> None:
    def prompts(path: Path) -> list[tuple[str, str, int]]:
        return [(item.id, item.prompt, len(item.dialogue)) for item in read_prompts(path)]

    (here / "a.csv").write_text(
        as_csv(["Question", "gpt-4o", "claude"], [(CAT, SORRY, GLAD), (JOB, GLAD, GLAD)])
    )
    assert prompts(here / "a.csv") == [("2", CAT, 0), ("3", JOB, 0)]
    (here / "b.jsonl").write_text(as_lines([{"messages": TALK[:4]}]))
    assert prompts(here / "b.jsonl") == [("1", CAT, 2)]
    assert len(prompts(FIXTURES / "promptfoo.json")) == 3, "asked of two models, and asked once more"
    assert prompts(FIXTURES / "openai-batch-requests.jsonl")[2] == ("talk-3", "Harder than I thought.", 2)
