"""How near a graphics card's judgments are to the CPU's, by the shipped judges; no card is needed.

Without one the card's network runs on the CPU, in full precision where a card has brain floats.
"""

from collections.abc import Iterator
from pathlib import Path

from bench_device import COMPARED, agreement, device, find_shipped, load, write_replies
from bench_figures import Figure


def measure(scratch: Path, *, quick: bool) -> Iterator[Figure]:
    from data.tables import read_exchanges
    from judge.classifier.graphics_card import CardEngine
    from judge.classifier.judge import MODEL
    from judge.classifier.torch_decoder import read_networks

    for name, count in COMPARED.items():
        folder = find_shipped(name)
        if folder is None or (quick and name == "large"):
            continue
        path = write_replies(scratch / f"{name}.jsonl", 8 if quick else count)
        judge = load(folder)
        judge.engine = CardEngine(read_networks(folder / MODEL, judge._merge()), device=device())
        yield from agreement(name, judge, folder, list(read_exchanges(path)))
