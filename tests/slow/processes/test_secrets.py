"""No key comes out: every command that uses one, against servers that quote it back in every way there is."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import quote

import pytest
from batch_servers import BatchServer, answer_line
from click.testing import CliRunner
from repository import ROOT
from servers import Answer, Call, ScriptedServer, answer, answer_chat

from empathy_judge.commands import main as cli

CANARY = "sk-proj-canary7f3a9c51+d2e84b06=QZ"
KEY_ENV = "CANARY_API_KEY"
ESCAPED = "".join(f"\\u{ord(letter):04x}" for letter in CANARY)
QUOTED = quote(CANARY, safe="")
FORMS = (CANARY.encode(), QUOTED.encode(), CANARY.encode("utf-16-le"))


def find_leaks(folder: Path) -> list[str]:
    """Every file below that holds the key, in its content or in its name."""
    return [
        str(path.relative_to(folder))
        for path in sorted(folder.rglob("*"))
        if CANARY in path.name or (path.is_file() and any(form in path.read_bytes() for form in FORMS))
    ]


# How a server gives the key away


def _quote(call: Call) -> str:
    return f"you sent {json.dumps(dict(call.headers))}"


def refuse(call: Call) -> Answer:
    return Answer(
        status=401, body={"error": {"message": f"Incorrect API key provided: {CANARY}.", "code": CANARY}}
    )


def reject(call: Call) -> Answer:
    return Answer(status=400, body={"error": {"message": _quote(call)}, "detail": [CANARY, {CANARY: CANARY}]})


def break_down(call: Call) -> Answer:
    return Answer(status=500, body=f"<html><pre>{_quote(call)}\nX: {QUOTED}</pre></html>")


def redirect(call: Call) -> Answer:
    return Answer(status=307, headers={"Location": f"http://127.0.0.1:9/?key={CANARY}"}, body=_quote(call))


def escape(call: Call) -> Answer:
    return Answer(status=422, body=f'{{"error": {{"message": "{ESCAPED}", "x": ["{ESCAPED}"]}}}}')


def say(call: Call) -> Answer:
    """A model that repeats it in an answer that is fine otherwise, and in one that is not."""
    if not call.path.endswith("/chat/completions"):
        fine = answer(call).body
        return Answer(body=fine | {"id": CANARY, "note": QUOTED, "model": CANARY})
    labels = {"reason": f"It said {CANARY} and {QUOTED}.", "label": "Good", "better": "first"}
    text = json.dumps(labels) if call.number % 2 else f"I cannot, but here: {CANARY}"
    fine = answer_chat(call, text).body
    return Answer(body=fine | {"model": CANARY, "id": CANARY, "system_fingerprint": QUOTED})


def mutter(call: Call) -> Answer:
    return Answer(body=f"not json {CANARY}", headers={"Retry-After": CANARY, "Date": CANARY})


FAULTS = (refuse, reject, break_down, redirect, escape, say, mutter)


# The commands that use keys


def write_toml(path: Path, base_url: str, **more: object) -> Path:
    table = {"model": "m", "base_url": base_url, "key_env": KEY_ENV, "retries": 0, "concurrency": 2, **more}
    path.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items()))
    return path


def write_rows(path: Path, count: int = 6) -> Path:
    rows = (
        {"id": f"r{i}", "model": f"m{i % 2}", "prompt": f"prompt {i // 2}", "response": f"so sorry {i}"}
        for i in range(count)
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def score(kind: str, **more: object) -> Callable[[Path, str], list[object]]:
    def command(folder: Path, base_url: str) -> list[object]:
        judge = write_toml(folder / "judge.toml", base_url, kind=kind, **more)
        return ["score", write_rows(folder / "responses.jsonl"), "--judge", judge, "--out", folder / "run"]

    return command


def respond(folder: Path, base_url: str) -> list[object]:
    model = write_toml(folder / "model.toml", base_url)
    prompts = write_rows(folder / "prompts.jsonl")
    return ["respond", prompts, "--model-config", model, "--out", folder / "answers"]


def align(folder: Path, base_url: str) -> list[object]:
    model = write_toml(folder / "model.toml", base_url)
    words = ["--orders", 1, "--per-factor", 1, "--emotion", "Anger", "--defaults", 2]
    return ["align", "run", "--model-config", model, *words, "--out", folder / "align"]


def optimize(folder: Path, base_url: str) -> list[object]:
    judge = write_toml(folder / "judge.toml", base_url, kind="prompted")
    rows = write_rows(folder / "exchanges.jsonl", 20)
    ratings = folder / "ratings.jsonl"
    given = ({"id": f"r{i}", "rater": f"a{i % 4}", "rating": 1 + i % 3} for i in range(20))
    ratings.write_text("".join(json.dumps(row) + "\n" for row in given))
    return ["optimize", rows, ratings, "--judge", judge, "--out", folder / "tuned.json", "--max-calls", 30]


def nightly(folder: Path, base_url: str) -> list[object]:
    write_toml(folder / "model.toml", base_url, name="ann")
    write_toml(folder / "judge.toml", base_url, kind="decision")
    write_rows(folder / "prompts.jsonl")
    text = 'judge = "judge.toml"\nprompts = "prompts.jsonl"\nanchors = "none"\nexplain = 0\nlimit = 3\n'
    text += '[[models]]\nconfig = "model.toml"\n[outputs]\njunit = "n.xml"\ngithub = true\n'
    (folder / "night.toml").write_text(text)
    return ["nightly", folder / "night.toml", "--night", "2026-11-15"]


COMMANDS: Mapping[str, Callable[[Path, str], list[object]]] = {
    "score prompted": score("prompted", reask=1),
    "score decision": score("decision"),
    "score systemone": score("decision", protocol="systemone"),
    "respond": respond,
    "align run": align,
    "optimize": optimize,
    "nightly": nightly,
}


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


def run(words: list[object], folder: Path) -> None:
    """Through the door; what is printed, and the traceback of a bug, are kept beside what was written."""
    done = CliRunner().invoke(cli.main, [str(word) for word in words], terminal_width=80)
    (folder / "said.txt").write_text(done.output, encoding="utf-8", errors="surrogatepass")
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_writes_or_prints_a_key_that_a_server_quotes(
    tmp_path: Path, home: Path, command: str, fault: Callable[[Call], Answer]
) -> None:
    with ScriptedServer(fault) as server:
        run(COMMANDS[command](tmp_path, server.base_url), tmp_path)
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
        server.errors = [f"key {CANARY} is not allowed"]
        if ending == "refused":
            server.fail = {"submit": [401]}
        run([*score("decision")(tmp_path, server.base_url), "--batch"], tmp_path)
        assert any(headers.get("authorization") == f"Bearer {CANARY}" for headers in server.headers)
    assert find_leaks(tmp_path) == []


def test_a_bug_and_a_verbose_library_print_no_key(tmp_path: Path, home: Path) -> None:
    """As a process of its own: all that libraries log, and the traceback of a bug with its frames."""
    judge = write_toml(tmp_path / "judge.toml", "http://127.0.0.1:9/v1", kind="decision")
    code = (
        "import logging, cgitb, sys; logging.basicConfig(level=logging.DEBUG)\n"
        "from empathy_judge.judge.base import load_judge\n"
        "from empathy_judge.data.records import Exchange\n"
        f"judge = load_judge({str(judge)!r})\n"
        "print(judge.endpoint, vars(judge.endpoint), judge.__dict__)\n"
        "try:\n"
        "    judge.judge(Exchange(id='1', prompt='a', response='b'))\n"
        "finally:\n"
        "    opened = judge.endpoint._connections\n"
        "    print(opened, vars(opened), vars(opened._client))\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=Path(str(ROOT / "cli.py")).parent,
        capture_output=True,
        env=os.environ | {"HTTPX_LOG_LEVEL": "trace"},
        timeout=120,
    )
    assert done.returncode == 1
    assert b"no connection" in done.stderr
    assert not any(form in done.stdout + done.stderr for form in FORMS)


def test_a_password_in_the_address_of_a_history_is_not_shown(tmp_path: Path, home: Path) -> None:
    place = f"postgresql+psycopg://me:{CANARY}@127.0.0.1:9/nights?connect_timeout=1"
    run(["history", "export", "--history", place], tmp_path)
    run(["dashboard", place, "--out", tmp_path / "site"], tmp_path)
    assert (tmp_path / "said.txt").read_text().startswith("error: ")
    assert find_leaks(tmp_path) == []


@pytest.mark.parametrize("where", ["base_url", "key_env"])
def test_a_key_in_the_wrong_place_is_refused_without_being_repeated(
    tmp_path: Path, home: Path, where: str
) -> None:
    wrong = {"base_url": f"https://me:{CANARY}@example.org/v1", "key_env": CANARY}[where]
    options = {"--base-url": "http://127.0.0.1:9/v1", "--key-env": KEY_ENV}
    options[f"--{where.replace('_', '-')}"] = wrong
    words = [word for pair in options.items() for word in pair]
    run(
        ["respond", write_rows(tmp_path / "p.jsonl"), "--model", "m", *words, "--out", tmp_path / "out"],
        tmp_path,
    )
    assert "error: " in (tmp_path / "said.txt").read_text()
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
    for path, headers, body in ways:
        request = urllib.request.Request(address.rstrip("/") + path, data=body, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                bodies.append(response.read())
        except urllib.error.HTTPError as refused:
            # A path that is asked for may be repeated.
            bodies.append(b"" if CANARY in path else refused.read())
    process.send_signal(signal.SIGTERM)
    said = first + "".join(process.communicate(timeout=30))
    assert b'"length"' in bodies[0]
    assert not any(form in body for form in FORMS for body in bodies)
    assert not any(form in said.encode() for form in FORMS)
    assert find_leaks(tmp_path) == []
