"""The classifier through the engine, against the same network in plain torch and in a transformers pipeline.

All begin at the exchanges and end at probabilities. The rivals' network is the default recipe's in fp32,
before training, since weights do not matter for speed; the pipeline's is the same with the head that
transformers gives it.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from time import perf_counter
from typing import Any

from bench_figures import Figure, in_turns, medians, score_rate, write_samples


def measure(scratch: Path, *, quick: bool) -> Iterator[Figure]:
    from data.tables import read_exchanges
    from judge.base import load_judge

    rows, rounds = (4, 1) if quick else (96, 5)
    exchanges = list(read_exchanges(write_samples(scratch / "rows.jsonl", rows)))
    judge = load_judge("classifier")
    torch_rate, pipeline_rate = plain_torch(exchanges), transformers_pipeline(exchanges)
    contenders: dict[str, Callable[[int], float]] = {
        "classifier": lambda number: score_rate(judge, exchanges, scratch / f"run-{number}"),
        "torch, batch 32": lambda _: torch_rate(32),
        "torch, batch 1": lambda _: torch_rate(1),
        "pipeline, batch 32": lambda _: pipeline_rate(32),
        "pipeline, batch 1": lambda _: pipeline_rate(1),
    }
    if not quick:  # once untimed: a first call is slower
        in_turns({name: lambda _, work=work: work(-1) for name, work in contenders.items()}, 1)
    found = in_turns(contenders, rounds)
    rates = medians(found)
    yield Figure(
        name="classifier",
        value=rates["classifier"],
        unit="/s",
        about=f"the shipped samples' replies through the engine, {rates['classifier'] * 3600:,.0f} an hour; "
        f"median of {rounds} rounds of {rows}",
        measured=found,
    )
    for name, least in (("torch, batch 32", 1.3), ("torch, batch 1", None)):
        yield compare(rates, name, least, "the same network in torch fp32")
    for name in ("pipeline, batch 32", "pipeline, batch 1"):
        yield compare(rates, name, None, "`transformers.pipeline`, fp32, the same layers")


def compare(rates: dict[str, float], name: str, least: float | None, about: str) -> Figure:
    """How many times as fast the classifier is."""
    return Figure(
        name=f"over {name}",
        value=rates["classifier"] / rates[name],
        unit=" x",
        least=least,
        about=f"{about}: {rates[name]:.1f}/s",
    )


def plain_torch(exchanges: list[Any]) -> Callable[[int], float]:
    """Replies a second in batches of so many, on every core."""
    import torch

    from judge.classifier.network import make_network
    from judge.classifier.recipe import read_recipe
    from judge.classifier.training import Trained

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    network, tokeniser = make_network(read_recipe("default"))
    trained = Trained([network], tokeniser)

    def work(batch: int) -> float:
        began = perf_counter()
        trained.predict(exchanges, batch_size=batch)
        return len(exchanges) / (perf_counter() - began)

    return work


def transformers_pipeline(exchanges: list[Any]) -> Callable[[int], float]:
    """Likewise, by the library's own pipeline, of as many layers and on the same text."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline
    from transformers.utils import logging

    from judge.classifier.base_weights import find_base_file
    from judge.classifier.preprocessing import RESPONSE_TOKENS, write_context
    from judge.classifier.recipe import read_recipe

    logging.set_verbosity_error()  # it warns that the head is untrained
    recipe = read_recipe("default")
    path = find_base_file(recipe.base)
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    with redirect_stderr(StringIO()):  # a progress bar without a switch
        model = AutoModelForSequenceClassification.from_pretrained(
            path.parent, gguf_file=path.name, num_labels=3, pad_token_id=tokenizer.pad_token_id
        )
    model.model.layers = model.model.layers[: recipe.layers or None]
    classify = pipeline("text-classification", model=model, tokenizer=tokenizer, device="cpu")

    def work(batch: int) -> float:
        began = perf_counter()
        texts = [f"{write_context(item)}\nListener: {item.response}\nEmpathy:" for item in exchanges]
        said = classify(texts, batch_size=batch, top_k=None, truncation=True, max_length=RESPONSE_TOKENS)
        assert len(said) == len(exchanges) and all(len(item) == 3 for item in said)
        return len(exchanges) / (perf_counter() - began)

    return work
