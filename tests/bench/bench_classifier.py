"""The classifier through the engine, against the same network in torch and in two libraries that classify.

All begin at the exchanges and end at probabilities. The rivals' network is the default recipe's in fp32,
before training, since weights do not matter for speed; in the libraries' own classes it has the head that
transformers gives it.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from time import perf_counter
from typing import Any

from bench_figures import Figure, in_turns, medians, say, score_rate, write_samples

LEAST = 1.3  # times as fast as torch in batches
ABOUTS = {
    "torch": "the same network in torch fp32",
    "pipeline": "`transformers.pipeline`, fp32, the same layers",
    "CrossEncoder": "`CrossEncoder` of sentence-transformers, fp32, the same layers",
}


def measure(scratch: Path, *, quick: bool) -> Iterator[Figure]:
    from data.tables import read_exchanges
    from judge.base import load_judge

    rows, rounds = (4, 1) if quick else (96, 5)
    exchanges = list(read_exchanges(write_samples(scratch / "rows.jsonl", rows)))
    judge = load_judge("classifier")
    rivals = {"torch": plain_torch(exchanges)}
    model, tokenizer = sequence_classifier()
    rivals["pipeline"] = transformers_pipeline(exchanges, model, tokenizer)
    if find_spec("sentence_transformers"):
        rivals["CrossEncoder"] = cross_encoder(exchanges, model, tokenizer, scratch / "rival")
    else:
        say("  CrossEncoder is not measured: `make .venv/.sentence-transformers` installs it")
    contenders: dict[str, Callable[[int], float]] = {
        "classifier": lambda number: score_rate(judge, exchanges, scratch / f"run-{number}")
    }
    for name, rate in rivals.items():
        for batch in (32, 1):
            contenders[f"{name}, batch {batch}"] = lambda _, rate=rate, batch=batch: rate(batch)
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
    for name in list(rates)[1:]:
        least = LEAST if name == "torch, batch 32" else None
        yield compare(rates, name, least, ABOUTS[name.partition(",")[0]])


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

    from training.fine_tune import TrainedNetworks
    from training.network import make_network
    from training.recipe import read_recipe

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    network, tokeniser = make_network(read_recipe("default"))
    trained = TrainedNetworks([network], tokeniser)

    def work(batch: int) -> float:
        began = perf_counter()
        trained.predict(exchanges, batch_size=batch)
        return len(exchanges) / (perf_counter() - began)

    return work


def sequence_classifier() -> tuple[Any, Any]:
    """The libraries' own form of the network, of as many layers, and its tokenizer."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer
    from transformers.utils import logging

    from judge.classifier.base_weights import find_base_file
    from training.recipe import read_recipe

    logging.set_verbosity_error()  # it warns that the head is untrained
    recipe = read_recipe("default")
    path = find_base_file(recipe.base)
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    with redirect_stderr(StringIO()):  # a progress bar without a switch
        model = AutoModelForSequenceClassification.from_pretrained(
            path.parent, gguf_file=path.name, num_labels=3, pad_token_id=tokenizer.pad_token_id
        )
    model.model.layers = model.model.layers[: recipe.layers or None]
    # Plain fp32 by now: without the marks of its file it can be written. With its template CrossEncoder would
    # add a chat of 30 tokens to each text.
    model.config.num_hidden_layers = len(model.model.layers)
    model.hf_quantizer = tokenizer.chat_template = None
    del model.config.quantization_config
    return model, tokenizer


def transformers_pipeline(exchanges: list[Any], model: Any, tokenizer: Any) -> Callable[[int], float]:
    """Replies a second by the library's own pipeline, on the same text."""
    from transformers import pipeline

    from judge.classifier.preprocessing import RESPONSE_TOKENS, write_context

    classify = pipeline("text-classification", model=model, tokenizer=tokenizer, device="cpu")

    def work(batch: int) -> float:
        began = perf_counter()
        texts = [f"{write_context(item)}\nListener: {item.response}\nEmpathy:" for item in exchanges]
        said = classify(texts, batch_size=batch, top_k=None, truncation=True, max_length=RESPONSE_TOKENS)
        assert len(said) == len(exchanges) and all(len(item) == 3 for item in said)
        return len(exchanges) / (perf_counter() - began)

    return work


def cross_encoder(exchanges: list[Any], model: Any, tokenizer: Any, folder: Path) -> Callable[[int], float]:
    """Likewise, by the class of sentence-transformers; it takes pairs, here of context and reply."""
    from sentence_transformers import CrossEncoder

    from judge.classifier.preprocessing import RESPONSE_TOKENS, write_context

    with redirect_stderr(StringIO()):  # progress bars once more
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        encoder = CrossEncoder(str(folder), device="cpu", max_length=RESPONSE_TOKENS)

    def work(batch: int) -> float:
        began = perf_counter()
        pairs = [(write_context(item), f"\nListener: {item.response}\nEmpathy:") for item in exchanges]
        said: Any = encoder.predict(pairs, batch_size=batch, apply_softmax=True, show_progress_bar=False)
        assert said.shape == (len(exchanges), 3)
        return len(exchanges) / (perf_counter() - began)

    return work
