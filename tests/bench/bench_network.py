"""The classifier's 8-bit file: run our way, and by ONNX Runtime as it comes; and where its time goes."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

from bench_figures import Figure, say, score_rate, write_samples

LEAST = 1.3
# The kernels that ONNX Runtime makes of the file, by what they are for; the rest are sums and shapes.
PARTS = {
    "8-bit maps": {"MatMulNBits", "MatMulIntegerToFloat"},
    "attention": {"Attention", "RotaryEmbedding"},
    "activation": {"QuickGelu"},
    "norms": {"RMSNormalization"},
}


def measure(scratch: Path, *, quick: bool) -> Iterator[Figure]:
    from data.tables import read_exchanges
    from judge.base import load_judge

    rows, rounds = (4, 1) if quick else (24, 7)
    exchanges = list(read_exchanges(write_samples(scratch / "rows.jsonl", rows)))
    judge: Any = load_judge("classifier")
    inputs = [inputs_of(judge, exchange) for exchange in exchanges]  # also loads the judge
    session = open_plain(judge)
    contenders: dict[str, Callable[[int], object]] = {
        "ours": lambda number: score_rate(judge, exchanges, scratch / f"run-{number}"),
        "as it comes": lambda _: [session.run(None, item) for item in inputs],
    }
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for number in range(rounds + 1):
        for name, work in contenders.items():
            say(f"  {name}, round {number} of {rounds}")
            began = perf_counter(), process_time()
            work(number)
            found[name].append((perf_counter() - began[0], process_time() - began[1]))
    for place, clock in enumerate(("clock", "processor")):
        ours, theirs = (median(took[place] for took in found[name][1:]) for name in contenders)
        yield Figure(
            name=f"over ONNX Runtime, {clock}",
            value=theirs / ours,
            unit=" x",
            least=LEAST,
            about=f"{rows / ours:.1f} over {rows / theirs:.1f} replies/s; ours with all that `score` does",
        )
    parts, total = time_parts(judge, inputs, scratch)
    for name, share in parts.items():
        yield Figure(
            name=name, value=100 * share, unit=" %", about=f"of the network's {total:.0f} ms, one thread"
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


def open_plain(judge: Any, options: Any = None) -> Any:
    """A session as somebody opens it who knows no more than the file; it takes one reply at a time."""
    from judge.classifier.judge import MODEL, import_onnxruntime

    path = judge.folder / MODEL
    return import_onnxruntime().InferenceSession(path, options, providers=["CPUExecutionProvider"])


def time_parts(judge: Any, inputs: list[dict[str, Any]], scratch: Path) -> tuple[dict[str, float], float]:
    """Each part's share of the network's time, and all of it in ms, each at its quicker quarter of runs."""
    from judge.classifier.judge import import_onnxruntime

    options = import_onnxruntime().SessionOptions()
    options.intra_op_num_threads, options.enable_profiling = 1, True
    options.profile_file_prefix = str(scratch / "profile")
    session = open_plain(judge, options)
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
