"""A graphics card against itself: from a file to a whole run, beside the network alone and what it could do.

Where a shipped judge's weights are not all there, its shape is measured with weights made by chance: those
decide nothing about speed. Where there is no card nothing is measured; `--quick` then tries everything on
the CPU.
"""

import json
import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Any

from bench_figures import SAMPLES, Figure, say
from repository import ROOT

LAYERS = {"default": 10, "large": 20}
ROWS = {"default": 1_000_000, "large": 150_000}
LEAST = {"default": 20_000, "large": 4_000}  # replies a second, from file to folder
COMPARED = {"default": 384, "large": 128}  # replies that both devices judge
SHARE, MILLION_SECONDS = 0.6, 120
NEAR, NEAR_SHARE, SAME_LABELS = 0.005, 0.99, 0.995
TOKENIZER = ROOT / "judge" / "weights" / "classifier-large" / "tokenizer.json"


def measure(scratch: Path, *, quick: bool) -> Iterator[Figure]:
    import torch

    is_card = torch.cuda.is_available()
    if not is_card and not quick:
        say("  no graphics card here: nothing is measured")
        return
    peak = measure_peak(2048 if quick else 8192) if is_card else 1.0
    if is_card:
        yield Figure(name="matrix products", value=peak / 1e12, unit=" TFLOP/s", about=name_of_card())
    for name, layers in LAYERS.items():
        say(f"  {name}: finding a network and making a file")
        found = None if quick and name == "large" else find_shipped(name)
        folder = found or make_judge(scratch / name, 2 if quick else layers)
        path = write_replies(scratch / f"{name}.jsonl", 40 if quick else ROWS[name])
        yield from measure_judge(name, folder, path, peak, quick=quick)
        path.unlink()


def measure_judge(name: str, folder: Path, path: Path, peak: float, *, quick: bool) -> Iterator[Figure]:
    import numpy as np

    from data.tables import read_exchanges
    from judge.classifier.graphics_card import CardEngine
    from judge.classifier.judge import MODEL, pack, prepare
    from judge.classifier.torch_decoder import read_networks

    judge = load(folder)
    exchanges = [item for item, _ in zip(read_exchanges(path), range(8 if quick else 12_000), strict=False)]
    prepared = prepare(exchanges, judge.tokeniser)
    assert not any(item.reason for item in prepared)
    ids, lengths = pack(prepared)
    networks = read_networks(folder / MODEL, judge._merge())
    began = perf_counter()
    judge.engine = CardEngine(networks, device=device())
    judge.engine.read(ids[: lengths[0]], lengths[:1])
    ready = perf_counter() - began
    yield Figure(
        name=f"{name}: start", value=ready, unit=" s", about="weights onto the card, compiling, recording"
    )
    alone = rate(partial(judge.engine.read, ids, lengths), len(lengths), quick)
    flops = len(networks) * count_flops(networks[0], lengths)
    yield Figure(
        name=f"{name}: network alone",
        value=alone,
        unit="/s",
        about=f"networks: {len(networks)}; replies of {np.mean(lengths):.0f} tokens, prepared before: "
        f"{flops / 1e9:.1f} GFLOP each, "
        f"{alone * flops / 1e12:.0f} TFLOP/s, {100 * alone * flops / peak:.0f} % of matrix products",
    )
    yield from kernels(name, networks, ids, lengths, flops)
    yield from rivals(name, networks, ids, lengths, alone, quick=quick)
    yield from agreement(name, judge, folder, exchanges[: 8 if quick else COMPARED[name]])
    yield from whole_run(name, judge, path, alone, ready, quick=quick)


def whole_run(
    name: str, judge: Any, path: Path, alone: float, ready: float, *, quick: bool
) -> Iterator[Figure]:
    """`score_file`, and where its time goes."""
    import data.runs
    import judge.classifier.graphics_card as graphics_card
    import judge.scored_run as scored_run

    rows = sum(1 for _ in path.open("rb"))
    stages = {
        "survey": (scored_run, "_survey"),
        "judging": (graphics_card, "in_threads"),
        "in order": (data.runs.Run, "write_judgments"),
        "summary": (scored_run, "summarise"),
    }
    graphics_card.CHUNK = 16 if quick else graphics_card.CHUNK  # several chunks, as in a large file
    began = perf_counter()
    with timed(stages) as took:
        scored = scored_run.score_file(path, judge=judge, out=path.with_suffix(".run"))
    seconds = perf_counter() - began
    assert scored.summary["counts"]["judged"] == rows, scored.summary["counts"]
    parts = ", ".join(f"{stage} {value:.1f} s" for stage, value in took.items())
    yield Figure(
        name=f"{name}: file to folder",
        value=rows / seconds,
        unit="/s",
        least=LEAST[name],
        about=f"{rows:,} replies in {seconds:.1f} s: {parts}",
        measured={"rows": rows, "seconds": round(seconds, 2), **took},
    )
    yield Figure(
        name=f"{name}: while judging",
        value=rows / max(took["judging"], 1e-9),
        unit="/s",
        about=f"replies read again, prepared, judged and kept, by {len(os.sched_getaffinity(0))} cores",
    )
    yield Figure(
        name=f"{name}: share of the network",
        value=rows / seconds / alone,
        unit=" x",
        least=SHARE,
        about="file to folder over the network alone",
    )
    yield Figure(
        name=f"{name}: a million",
        value=1e6 * seconds / rows + ready,
        unit=" s",
        most=MILLION_SECONDS if name == "default" else None,
        about=("measured" if rows == 1_000_000 else "scaled up") + ", with the start",
    )


KERNELS = {  # the first that fits counts: attention's names hold those of maps
    "attention": ("flash", "fmha"),
    "maps": ("gemm", "nvjet", "cutlass", "xmma"),
    "between": ("triton",),
}


def kernels(name: str, networks: Any, ids: Any, lengths: Any, flops: float) -> Iterator[Figure]:
    """What the card's time goes into, by the names of what runs there."""
    from torch.profiler import ProfilerActivity, profile

    from judge.classifier.graphics_card import AHEAD, REPLIES, TOKENS
    from judge.classifier.torch_decoder import Card

    if device() == "cpu":
        return
    card = Card(networks, device="cuda", tokens=TOKENS, replies=REPLIES, ahead=AHEAD, compiled=True)
    count = int((lengths.cumsum() <= TOKENS).sum())
    part = ids[: lengths[:count].sum()], lengths[:count], None
    card.launch([part])()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(5):
            card.launch([part])()
    took = {item.key: getattr(item, "self_device_time_total", 0.0) for item in seen.key_averages()}
    total = sum(took.values())
    shares = dict.fromkeys([*KERNELS, "other"], 0.0)
    for key, time in took.items():
        fit = (said for said, marks in KERNELS.items() if any(mark in key.lower() for mark in marks))
        shares[next(fit, "other")] += time
    for said, time in shares.items():
        yield Figure(
            name=f"{name}: {said}",
            value=100 * time / max(total, 1e-9),
            unit=" %",
            about=f"of {total / 5000:.2f} ms for {count} replies"
            + (
                f"; {5 * count * flops / max(time, 1e-9) / 1e6:.0f} TFLOP/s within them"
                if said == "maps"
                else ""
            ),
        )
    for key, time in sorted(took.items(), key=lambda item: -item[1])[:8]:
        say(f"    {100 * time / total:5.1f} %  {key[:90]}")


def rivals(
    name: str, networks: Sequence[Any], ids: Any, lengths: Any, alone: float, *, quick: bool
) -> Iterator[Figure]:
    """The same networks without compiling and recording, and as transformers has each of them, padded."""
    from judge.classifier.graphics_card import CardEngine

    eager = CardEngine(networks, device=device(), compiled=False)
    eager.read(ids[: lengths[0]], lengths[:1])
    cases = {"not compiled": rate(partial(eager.read, ids, lengths), len(lengths), quick)}
    cases |= {
        f"transformers, {said}": rate(partial(run, ids, lengths), len(lengths), quick) / len(networks)
        for said, run in transformers_forward(networks[0], quick=quick).items()
    }
    for said, value in cases.items():
        yield Figure(
            name=f"{name}: over {said}",
            value=alone / value,
            unit=" x",
            about=f"the same tokens: {value:,.0f}/s",
        )


def transformers_forward(weights: Any, *, quick: bool) -> dict[str, Callable[..., None]]:
    """`LlamaModel` as it comes, bf16: replies as they come and sorted by length, 256 a batch."""
    import numpy as np
    import torch

    model = make_llama(weights.layers).to(device(), torch.bfloat16 if device() == "cuda" else torch.float32)

    @torch.inference_mode()
    def run(ids: Any, lengths: Any, *, is_sorted: bool) -> None:
        ends = np.cumsum(lengths)
        order = np.argsort(lengths) if is_sorted else np.arange(len(lengths))
        for start in range(0, len(order), 256):
            part = order[start : start + 256]
            batch = np.zeros((len(part), lengths[part].max()), dtype=np.int64)
            for place, number in enumerate(part):
                batch[place, : lengths[number]] = ids[ends[number] - lengths[number] : ends[number]]
            states = model(input_ids=torch.from_numpy(batch).to(device()), use_cache=False).last_hidden_state
            rows = torch.arange(len(part), device=states.device)
            states[rows, torch.from_numpy(lengths[part] - 1).to(states.device)].float().cpu()

    return {"as it comes": partial(run, is_sorted=False), "sorted": partial(run, is_sorted=True)}


def agreement(name: str, judge: Any, folder: Path, exchanges: Sequence[Any]) -> Iterator[Figure]:
    """The card's probabilities beside the CPU's; those of the CPU rest on states in 8 bits."""
    import numpy as np

    from judge.classifier.judge import ClassifierJudge
    from judge.engine import judge_all

    ours = judge.judge_many(exchanges)
    theirs = judge_all(ClassifierJudge(weights=str(folder), device="cpu"), exchanges)
    one, two = (np.array([list(item.probabilities.values()) for item in judged]) for judged in (ours, theirs))
    apart = np.abs(one - two).max(axis=1)
    yield Figure(
        name=f"{name}: near the CPU",
        value=float(np.mean(apart <= NEAR)),
        least=NEAR_SHARE,
        about=f"of {len(apart)} replies within {NEAR}; mean {apart.mean():.4f}, most {apart.max():.4f}; "
        f"probabilities spread by {two.std(axis=0).max():.3f}",
    )
    yield Figure(
        name=f"{name}: labels of the CPU",
        value=float(np.mean([a.label == b.label for a, b in zip(ours, theirs, strict=True)])),
        least=SAME_LABELS,
        about=f"of {len(apart)} replies",
    )


def rate(work: Callable[[], object], count: int, quick: bool) -> float:
    """So many a second; three rounds, the best."""
    seconds = []
    for _ in range(1 if quick else 3):
        synchronize()
        began = perf_counter()
        work()
        synchronize()
        seconds.append(perf_counter() - began)
    return count / min(seconds)


@contextmanager
def timed(stages: dict[str, tuple[Any, str]]) -> Iterator[dict[str, float]]:
    """How long each of some functions takes in all, by its stage."""
    took = dict.fromkeys(stages, 0.0)
    held = {stage: getattr(*place) for stage, place in stages.items()}

    def wrap(stage: str) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            began = perf_counter()
            try:
                return held[stage](*args, **named)
            finally:
                took[stage] = round(took[stage] + perf_counter() - began, 2)

        return call

    for stage, (place, name) in stages.items():
        setattr(place, name, wrap(stage))
    try:
        yield took
    finally:
        for stage, (place, name) in stages.items():
            setattr(place, name, held[stage])


def device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def synchronize() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def name_of_card() -> str:
    import torch

    return f"bf16, 8192 x 8192 x 8192, random: what {torch.cuda.get_device_name()} does at best"


def measure_peak(size: int) -> float:
    """Operations a second of large matrix products."""
    import torch

    one, two = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        one @ two
    torch.cuda.synchronize()
    began = perf_counter()
    for _ in range(10):
        one @ two
    torch.cuda.synchronize()
    return 20 * size**3 / (perf_counter() - began)


def count_flops(weights: Any, lengths: Any) -> float:
    """Operations that a reply needs: two for each number of a map and token; attention looks back only."""
    import numpy as np

    def numbers(layer: int, *names: str) -> int:
        return sum(weights[f"base.layers.{layer}.{name}.weight"].size for name in names)

    half = "self_attn.k_proj", "self_attn.v_proj"
    whole = (*half, "self_attn.q_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
    layers = weights.layers
    maps = (layers - 1) * numbers(0, *whole) + numbers(0, *half)
    width = weights["base.layers.0.self_attn.q_proj.weight"].shape[0]
    return float(
        2 * maps * np.mean(lengths) + 2 * (layers - 1) * width * np.mean(np.square(lengths, dtype=float))
    )


def load(folder: Path) -> Any:
    """The judge of a folder, as if on a card, whatever there is."""
    from judge.classifier.judge import ClassifierJudge

    judge = ClassifierJudge(weights=str(folder), device="elsewhere")
    judge.start = lambda: None  # its engine is there already
    return judge


def find_shipped(name: str) -> Path | None:
    """The shipped judge, where all of it is there: then figures of agreement are its own."""
    from data.errors import UserError
    from judge.classifier.base_weights import find_base_file
    from judge.classifier.judge import ClassifierJudge, LargeClassifierJudge

    if name == "default":
        return ClassifierJudge.shipped if any(ClassifierJudge.shipped.glob("*.bin")) else None
    try:
        find_base_file("smollm2")
    except UserError:
        return None
    return LargeClassifierJudge.shipped


def make_llama(layers: int) -> Any:
    """SmolLM2's shape, with weights by chance."""
    import torch
    from transformers import LlamaConfig, LlamaModel

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=layers,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        rope_theta=100000.0,
        rms_norm_eps=1e-5,
        initializer_range=0.04,
    )
    return LlamaModel(config).eval()


def make_judge(folder: Path, layers: int) -> Path:
    """A judge's folder as `train` leaves it, as far as it is needed to judge."""
    import torch
    from tokenizers import Tokenizer

    from judge.classifier.preprocessing import Tokeniser
    from training.export import write_decoder
    from training.network import JudgeNetwork

    network = JudgeNetwork(make_llama(layers), is_decoder=True, dropout=0.0)
    torch.nn.init.normal_(network.head.weight, std=0.05)
    tokeniser = Tokeniser(Tokenizer.from_file(str(TOKENIZER)), is_decoder=True)
    names = write_decoder(network, tokeniser, folder)
    files = {name: sha256((folder / name).read_bytes()).hexdigest() for name in names}
    card = {"files": files, "caveat": "Made by chance, to measure speed."}
    (folder / "card.json").write_text(json.dumps(card))
    return folder


def write_replies(path: Path, count: int) -> Path:
    """Prompts and replies of the samples, put together by chance, no two rows alike."""
    step = 20_000
    starts = range(0, count, step)
    with get_context("spawn").Pool(min(8, len(starts))) as pool, path.open("w", encoding="utf-8") as out:
        out.writelines(pool.imap(partial(write_some, step=step, count=count), starts))
    return path


def write_some(start: int, *, step: int, count: int) -> str:
    samples = [json.loads(line) for line in SAMPLES.read_text(encoding="utf-8").splitlines()]
    chance, lines = random.Random(start), []
    for number in range(start, min(start + step, count)):
        prompt, reply = chance.choice(samples), chance.choice(samples)
        row = {**prompt, "id": f"r{number}", "model": reply["model"], "response": reply["response"]}
        if number % 5:
            del row["situation"]  # so that context and reply have about 106 tokens
        lines.append(json.dumps({**row, "prompt": f"{prompt['prompt']} ({number})"}) + "\n")
    return "".join(lines)
