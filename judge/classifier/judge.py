"""The fine-tuned judge, from its ONNX file: no torch, no key, no network."""

import json
import os
from dataclasses import replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any

from data.errors import UserError
from data.records import LABELS, Exchange, Judgment, judgment_of
from data.rubric import read_rubric
from judge.classifier.preprocessing import (
    RESPONSE_TOKENS,
    Tokeniser,
    Tokens,
    normalise,
    style_features,
    windows,
    write_context,
)
from judge.llm.fencing import suspect

WEIGHTS = Path(__file__).parents[1] / "weights" / "classifier"
TEXT_VERSION = 2  # part of the version: raise when normalising or tokenising changes
LONG = f"longer than {RESPONSE_TOKENS} tokens: judged by its start, no later part being Bad"
SPOILT = f"longer than {RESPONSE_TOKENS} tokens: judged by its worst part"
MODEL, TOKENIZER, CARD = "model.onnx", "tokenizer.json", "card.json"


class ClassifierJudge:
    """Every exchange goes through the network alone.

    int8 activations are scaled by the largest value in a batch, so in company a reply's probabilities would
    depend on its neighbours; alone they are the same in every run, order and number of threads. Two cores are
    used by judging two replies at once.
    """

    name = "classifier"
    shipped = WEIGHTS
    judged_by = MODEL  # the file that makes a folder this kind of judge

    def __init__(self, *, weights: str = "", rubric: str = "crowd") -> None:
        self.folder = Path(weights) if weights else self.shipped
        self.rubric = read_rubric(rubric)
        self.card = read_card(self.folder)
        if self.judged_by not in self.card["files"]:
            raise UserError(f"{self.folder}: no {self.judged_by} on its card, so it is no {self.name}")
        self.weights = check_files(self.folder, self.card["files"])
        self.version = version_of(self.weights)
        self.caveat = self.card["caveat"]
        self.concurrency = _count_cores()
        self.loading = Lock()

    @cached_property
    def merged(self) -> Path:
        """Where the files that judge lie."""
        return self.folder

    @cached_property
    def tokeniser(self) -> Tokeniser:
        return Tokeniser.read(self.merged / TOKENIZER, is_decoder=self.card.get("is_decoder", False))

    @cached_property
    def session(self) -> Any:
        onnxruntime = import_onnxruntime()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        return onnxruntime.InferenceSession(self.merged / MODEL, options, providers=["CPUExecutionProvider"])

    def judge(self, exchange: Exchange) -> Judgment:
        seen = normalise(exchange.response)
        probabilities, note = self._read(exchange, seen)
        judgment = judgment_of(exchange, dict(zip(LABELS, probabilities, strict=True)))
        suspicions = sorted(set(suspect(exchange.response, seen)))
        notes = [*(f"suspected injection: {item}" for item in suspicions), *([note] if note else [])]
        return replace(judgment, rationale="\n".join(notes)) if notes else judgment

    def predict(self, exchange: Exchange) -> list[float]:
        """Probabilities of Bad, Okay and Good."""
        return self._read(exchange, normalise(exchange.response))[0]

    def _read(self, exchange: Exchange, seen: str) -> tuple[list[float], str]:
        """Probabilities, and a word where the reply is longer than the network reads at once.

        Nobody rated replies that long. Their start stands for them; but a Bad part counts wherever it stands,
        else enough kind words in front of it would hide it.
        """
        with self.loading:  # once, however many threads come first
            tokeniser, _ = self.tokeniser, self.session
        context = write_context(exchange)
        tokens = tokeniser.encode(context, seen)
        first = self._run(tokens, seen)
        if not tokens.cut:
            return first, ""
        parts = [first, *(self._run(tokeniser.encode(context, part), part) for part in windows(seen))]
        worst = max(parts, key=lambda part: part[0])
        return (worst, SPOILT) if worst[0] == max(worst) else (first, LONG)

    def _run(self, tokens: Tokens, text: str) -> list[float]:
        import numpy as np

        inputs = {
            "ids": np.array([tokens.ids], dtype=np.int64),
            "segments": np.array([tokens.segments], dtype=np.int64),
            "style": np.array([style_features(text)], dtype=np.float32),
        }
        (probabilities,) = self.session.run(None, inputs)
        return [float(part) for part in probabilities[0]]


def import_onnxruntime() -> Any:
    """ONNX Runtime, which otherwise reports its use over the network and keeps a device id: not from here."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime

    return onnxruntime


def version_of(weights: str) -> str:
    """A judge's version from the hash of its weights: what they say also depends on how a reply is read."""
    return sha256(f"{TEXT_VERSION} {weights}".encode()).hexdigest()[:12]


def read_card(folder: Path) -> dict[str, Any]:
    """What is known of a trained judge; without it nothing is judged."""
    try:
        card: dict[str, Any] = json.loads((folder / CARD).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"{folder}: no trained judge here ({CARD} is missing)") from error
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{folder / CARD}: cannot be read: {error}; install or train again") from error
    missing = {"files", "caveat"} - set(card if isinstance(card, dict) else ())
    if missing:
        raise UserError(f"{folder / CARD}: lacks {', '.join(sorted(missing))}; install or train again")
    if not isinstance(card["files"], dict) or not card["files"]:
        raise UserError(f"{folder / CARD}: files: names and hashes expected, not {card['files']!r}")
    return card


def check_files(folder: Path, stated: dict[str, str]) -> str:
    """Refuse weights that are not the ones on the card; returns one hash of them all."""
    digest = sha256()
    for name, expected in sorted(stated.items()):
        try:
            actual = sha256((folder / name).read_bytes()).hexdigest()
        except OSError as error:
            raise UserError(f"{folder / name}: cannot be read: {error.strerror}; install again") from error
        except ValueError as error:  # a name that no file can have
            raise UserError(f"{folder / CARD}: files: {name!r}: {error}; install again") from error
        if actual != expected:
            raise UserError(f"{folder / name}: damaged or changed (not the file on its card); install again")
        digest.update(actual.encode())
    return digest.hexdigest()


def _count_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))  # those this process may use
    return os.cpu_count() or 1
