"""A run and the server as processes: how they end, and what the server says where it cannot begin."""

import json
import resource
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import pytest
from served import LONGEST, exchanges, get, held, post, raw_connection

from empathy_judge.server.process import open_socket

Start = Callable[..., "subprocess.Popen[str]"]


def start_serving(
    start: Start, judge: str = "classifier", **options: Any
) -> tuple["subprocess.Popen[str]", str]:
    process = start("serve", "--port", 0, "--judge", judge, **options)
    assert process.stderr is not None
    line = process.stderr.readline()
    assert line.startswith(f"serving {judge} "), line
    return process, line.partition(" at ")[2].partition(";")[0]


def test_sigterm_finishes_what_was_taken(start: Start) -> None:
    """The classifier takes some ms each: the signal comes while most of the exchanges still wait."""
    process, url = start_serving(start)
    body = json.dumps(exchanges(*(f"r{number}" for number in range(256)))).encode()
    with raw_connection(url) as connection:
        connection.sendall(post("/v1/score", body))
        while held(url) == 0:
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        answer = b""
        while piece := connection.recv(65_536):
            answer += piece
    head, _, content = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert [row["id"] for row in json.loads(content)["judgments"]] == [f"r{number}" for number in range(256)]
    assert process.wait(timeout=LONGEST) == 0
    assert process.stderr is not None
    said = process.stderr.read().splitlines()
    assert said == [f"Next, to try it on a page: open {url}"], "and not a word of any text"
    with pytest.raises(httpx.ConnectError):
        get(f"{url}/health")


def test_a_second_signal_ends_at_once(start: Start) -> None:
    process, url = start_serving(start)
    body = json.dumps(exchanges(*(f"r{number}" for number in range(256)))).encode()
    with raw_connection(url) as connection:
        connection.sendall(post("/v1/score", body))
        while held(url) < 100:
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        while process.poll() is None:  # again and again: two that come together count as one
            process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=LONGEST) == 128 + signal.SIGTERM


def test_a_port_that_is_taken_is_said_to_be(start: Start) -> None:
    with open_socket("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        process = start("serve", "--judge", "length", "--port", port)
        _, printed = process.communicate(timeout=LONGEST)
    assert process.returncode == 5 and f"port {port}: " in printed


def test_more_come_at_once_than_files_may_be_open(start: Start) -> None:
    """All stand at the door before the first is let in."""
    few = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (80, 80))}
    process, url = start_serving(start, "length", **few)
    host, port = url.removeprefix("http://").split(":")
    process.send_signal(signal.SIGSTOP)
    crowd = [socket.socket() for _ in range(200)]
    for connection in crowd:
        connection.setblocking(False)
        connection.connect_ex((host, int(port)))
    process.send_signal(signal.SIGCONT)
    for connection in crowd:
        connection.close()
    assert get(f"{url}/health").status_code == 200
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=LONGEST) == 0
    assert process.stderr is not None
    assert process.stderr.read().splitlines() == [f"Next, to try it on a page: open {url}"], "no traceback"


def test_an_interrupted_run_prints_how_to_resume(
    tmp_path: Path, write_responses: Callable[..., Path], start: Start
) -> None:
    path, journal = write_responses(5000, words=40), tmp_path / "a b" / "journal.jsonl"
    process = start("score", path, "--judge", "length", "--limit", 4900, "--out", "a b")
    deadline = monotonic() + 600  # against hanging only
    while process.poll() is None and not (journal.exists() and journal.stat().st_size > 100_000):
        assert monotonic() < deadline
    process.send_signal(signal.SIGINT)
    _, printed = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "responses.jsonl --judge length --out 'a b' --limit 4900" in printed
    assert "Traceback" not in printed
