"""No key comes out: every command that uses one, against servers that quote it back in every way there is."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from batch_servers import BatchServer, answer_line
from click.testing import CliRunner
from repository import ROOT
from rows import make_rows
from servers import Answer, Call, ScriptedServer, answer, answer_chat

from empathy_judge.commands import main as cli
from empathy_judge.data.tables import write_rows

CANARY = "sk-proj-canary7f3a9c51+d2e84b06=QZ"
KEY_ENV = "CANARY_API_KEY"
ESCAPED = "".join(f"\\u{ord(letter):04x}" for letter in CANARY)
QUOTED = quote(CANARY, safe="")
FORMS = (CANARY.encode(), QUOTED.encode(), CANARY.encode("utf-16-le"))


def find_leaks(folder: Path) -> list[str]:
    """Return the files below that hold the key, in their content or name."""
    return [
        str(path.relative_to(folder))
        for path in sorted(folder.rglob("*"))
        if CANARY in path.name or (path.is_file() and any(form in path.read_bytes() for form in FORMS))
    ]


def quote_headers(call: Call) -> str:
    return f"you sent {json.dumps(dict(call.headers))}"


def repeat_key(call: Call) -> Answer:
    """Return the key in an answer that is fine otherwise, and in one that is not."""
    if not call.path.endswith("/chat/completions"):
        fine = answer(call).body
        return Answer(body=fine | {"id": CANARY, "note": QUOTED, "model": CANARY})
    given = {"reason": f"It said {CANARY} and {QUOTED}.", "Bad": 0, "Okay": 0, "Good": 100, "better": "first"}
    text = json.dumps(given) if call.number % 2 else f"I cannot, but here: {CANARY}"
    return Answer(
        body=answer_chat(call, text).body | {"model": CANARY, "id": CANARY, "system_fingerprint": QUOTED}
    )


# How a server gives the key away.
FAULTS: Mapping[str, Callable[[Call], Answer]] = {
    "refused": lambda call: Answer(
        status=401, body={"error": {"message": f"Incorrect API key provided: {CANARY}.", "code": CANARY}}
    ),
    "rejected": lambda call: Answer(
        status=400, body={"error": {"message": quote_headers(call)}, "detail": [CANARY, {CANARY: CANARY}]}
    ),
    "broken": lambda call: Answer(status=500, body=f"<pre>{quote_headers(call)}\nX: {QUOTED}</pre>"),
    "redirected": lambda call: Answer(
        status=307, headers={"Location": f"http://127.0.0.1:9/?key={CANARY}"}, body=quote_headers(call)
    ),
    "escaped": lambda call: Answer(status=422, body=f'{{"error": {{"message": "{ESCAPED}"}}}}'),
    "repeated": repeat_key,
    "garbled": lambda call: Answer(
        body=f"not json {CANARY}", headers={"Retry-After": CANARY, "Date": CANARY}
    ),
}
SCORE = "score rows.jsonl --judge judge.toml --out run"
# The commands that use keys, with options of judge.toml.
COMMANDS: Mapping[str, tuple[str, dict[str, object]]] = {
    "score prompted": (SCORE, {"kind": "prompted", "mode": "analytic", "reask": 1}),
    "score decision": (SCORE, {"kind": "decision"}),
    "score systemone": (SCORE, {"kind": "decision", "protocol": "systemone"}),
    "respond": ("respond rows.jsonl --model-config model.toml --out answers", {}),
    "align run": (
        "align run --model-config model.toml --orders 1 --per-factor 1 --emotion Anger --out a",
        {},
    ),
    "optimize": (
        "optimize rows.jsonl ratings.jsonl --judge judge.toml --out tuned.json --max-calls 60",
        {"kind": "prompted"},
    ),
    "nightly": ("nightly night.toml --night 2026-11-15", {"kind": "decision"}),
}


def write_files(folder: Path, base_url: str, **judge: object) -> None:
    """Write rows, ratings and settings for all commands."""
    calls = {"model": "m", "base_url": base_url, "key_env": KEY_ENV, "retries": 0, "concurrency": 2}
    for name, table in (("judge.toml", calls | judge), ("model.toml", calls | {"name": "ann"})):
        text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items())
        (folder / name).write_text(text, encoding="utf-8")
    write_rows(folder / "rows.jsonl", make_rows(20))
    ratings = ({"id": f"r{i}", "rater": f"a{i % 4}", "rating": 1 + i % 3} for i in range(20))
    write_rows(folder / "ratings.jsonl", ratings)
    text = 'judge = "judge.toml"\nprompts = "rows.jsonl"\nanchors = "none"\nexplain = 0\nlimit = 3\n'
    text += '[[models]]\nconfig = "model.toml"\n[outputs]\njunit = "n.xml"\ngithub = true\n'
    (folder / "night.toml").write_text(text, encoding="utf-8")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, where caches and logs would go, and the key in the environment."""
    folder = tmp_path / "home"
    folder.mkdir()
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(folder))
    monkeypatch.setenv(KEY_ENV, CANARY)
    monkeypatch.chdir(tmp_path)
    return folder


def run(line: str, folder: Path) -> None:
    """Run a command; what it prints, and the traceback of a bug, is saved beside what it writes."""
    done = CliRunner().invoke(cli.main, line.split(), terminal_width=80)
    (folder / "said.txt").write_text(done.output, encoding="utf-8", errors="surrogatepass")
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_writes_or_prints_a_key_that_a_server_quotes(
    tmp_path: Path, home: Path, command: str, fault: str
) -> None:
    line, judge = COMMANDS[command]
    with ScriptedServer(FAULTS[fault]) as server:
        write_files(tmp_path, server.base_url, **judge)
        run(line, tmp_path)
    assert server.calls, "else nothing was tried"
    assert all(call.headers.get("authorization") == f"Bearer {CANARY}" for call in server.calls)
    assert find_leaks(tmp_path) == []


@pytest.mark.parametrize("ending", ["completed", "failed", "refused"])
def test_batches_write_no_key(tmp_path: Path, home: Path, ending: str) -> None:
    def respond(row: dict[str, object]) -> dict[str, object]:
        line = answer_line(row)
        line["note"], line["response"]["body"]["model"] = QUOTED, CANARY
        return line

    with BatchServer(respond) as server:
        server.is_done = True
        server.ends_as = "failed" if ending == "failed" else "completed"
        server.error = f"key {CANARY} is not allowed"
        if ending == "refused":
            server.fail = {"submit": [401]}
        write_files(tmp_path, server.base_url, kind="decision")
        run(f"{SCORE} --batch", tmp_path)
        assert any(call.headers.get("authorization") == f"Bearer {CANARY}" for call in server.calls)
    assert find_leaks(tmp_path) == []


def test_a_bug_and_a_verbose_library_print_no_key(tmp_path: Path, home: Path) -> None:
    """As a process of its own: all that libraries log, and the traceback of a bug with its frames."""
    write_files(tmp_path, "http://127.0.0.1:9/v1", kind="decision")
    code = (
        "import logging, cgitb, sys; logging.basicConfig(level=logging.DEBUG)\n"
        "from empathy_judge.judge.base import load_judge\n"
        "from empathy_judge.data.records import Exchange\n"
        f"judge = load_judge({str(tmp_path / 'judge.toml')!r})\n"
        "print(judge.endpoint, vars(judge.endpoint), judge.__dict__)\n"
        "try:\n"
        "    judge.judge(Exchange(id='1', prompt='a', response='b'))\n"
        "finally:\n"
        "    opened = judge.endpoint._connections\n"
        "    print(opened, vars(opened), vars(opened._client))\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=ROOT,
        capture_output=True,
        env=os.environ | {"HTTPX_LOG_LEVEL": "trace"},
        timeout=120,
    )
    assert done.returncode == 1
    assert b"no connection" in done.stderr
    assert not any(form in done.stdout + done.stderr for form in FORMS)


def test_a_password_in_the_address_of_a_history_is_not_shown(tmp_path: Path, home: Path) -> None:
    place = f"postgresql+psycopg://me:{CANARY}@127.0.0.1:9/nights?connect_timeout=1"
    run(f"history export --history {place}", tmp_path)
    run(f"dashboard {place} --out site", tmp_path)
    assert (tmp_path / "said.txt").read_text().startswith("error: ")
    assert find_leaks(tmp_path) == []


def test_the_server_logs_no_key(
    tmp_path: Path, home: Path, start: Callable[..., "subprocess.Popen[str]"]
) -> None:
    process = start("serve", "--judge", "length", "--port", 0, "--key-env", KEY_ENV)
    assert process.stderr is not None
    first = process.stderr.readline()
    address = next(word for word in first.replace(";", " ").split() if word.startswith("http"))
    ways: list[tuple[str, dict[str, str], bytes | None]] = [
        ("/v1/models", {"Authorization": f"Bearer {CANARY}"}, None),
        (f"/v1/models?key={CANARY}", {}, None),
        (f"/v1/models/{CANARY}", {"Authorization": f"Bearer {CANARY}"}, None),
        ("/v1/models", {"Authorization": f"Basic {QUOTED}"}, None),
        ("/v1/score", {"Authorization": f"Bearer {CANARY}", "Content-Type": "application/json"}, b'{"a": '),
    ]
    bodies = []
    with httpx.Client(base_url=address, timeout=30) as client:
        for path, headers, body in ways:
            found = client.request("POST" if body else "GET", path, content=body, headers=headers).content
            bodies.append(b"" if CANARY in path else found)  # a path that is asked for may be repeated
    process.send_signal(signal.SIGTERM)
    said = first + "".join(process.communicate(timeout=30))
    assert b'"length"' in bodies[0]
    assert not any(form in body for form in FORMS for body in bodies)
    assert not any(form in said.encode() for form in FORMS)
    assert find_leaks(tmp_path) == []
