"""The fine-tuned judges, from their ONNX files: no key, no server, and no torch but for a graphics card."""

import json
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from hashlib import file_digest, sha256
from importlib.metadata import version as version_of_package
from itertools import chain
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

from data.coverage import Coverage
from data.errors import UserError
from data.records import LABELS, Exchange, Judgment, judgment_of, unscored
from data.rubric import read_rubric
from data.storage import digest_file
from data.tables import validate
from judge.base import WEIGHTS, check_wanted
from judge.classifier.graphics_card import CUDA, CardEngine, choose_device, score_on_card, version_on_card
from judge.classifier.preprocessing import Tokeniser, Tokens, normalise, style_features, write_context
from judge.engine import count_cores
from judge.guards import why_unreadable
from judge.llm.fencing import suspect

if TYPE_CHECKING:
    import numpy as np

# Part of the version, to which calibrations are bound: raise when normalising, tokenising, what is left
# unscored or how a label is found changes.
RULES_VERSION = 5
LONG = "longer than {}: only its start was read"
MODEL, TOKENIZER, CARD = "model.onnx", "tokenizer.json", "card.json"
NETWORK, MEANS = "network-{}.safetensors", "means.safetensors"
MOST_TOKENS = 1024  # kept of contexts: a dozen or two; replies to one prompt mostly stand together
WAITING = 64  # threads on a graphics card: what waits together is read together
# The crowd study's replies: what a judge learned from whose card does not tell.
STUDY = Coverage(replies=8000, words=(19, 62, 84), long=77, late=0, situation=1.0, markdown=0.0)


class KeptContexts:
    """What a decoder keeps of the contexts that it read last, since several replies often answer one.

    Keys and values by the ids of a context, one array a network; the one unused longest goes first.
    """

    def __init__(self, most: int = MOST_TOKENS) -> None:
        self.most, self.size = most, 0
        self._kept: OrderedDict[tuple[int, ...], Sequence[np.ndarray]] = OrderedDict()
        self._lock = Lock()

    def find(self, ids: tuple[int, ...]) -> "Sequence[np.ndarray] | None":
        with self._lock:
            if ids in self._kept:
                self._kept.move_to_end(ids)
            return self._kept.get(ids)

    def keep(self, ids: tuple[int, ...], states: "Sequence[np.ndarray]") -> None:
        with self._lock:
            if ids in self._kept:
                return  # two threads read it at once, and both found the same
            self._kept[ids] = states
            self.size += len(ids)
            while self.size > self.most:
                dropped, _ = self._kept.popitem(last=False)
                self.size -= len(dropped)


class ClassifierJudge:
    """Every exchange goes through the network alone; it learned from English, and is asked for nothing else.

    Alone, so that a judgment is the same whatever else is judged: an encoder's int8 states share one scale
    with all that is read together. A decoder reads a context once for several replies. Two cores are used by
    judging two replies at once. On a graphics card many are read together, in numbers that do not share
    anything.
    """

    name = "classifier"
    shipped = WEIGHTS / "classifier"

    def __init__(self, *, weights: str = "", rubric: str = "crowd", device: str = "") -> None:
        self.folder = Path(weights) if weights else self.shipped
        self.rubric = read_rubric(rubric)
        self.card = read_card(self.folder)
        if MODEL not in self.card["files"]:
            raise UserError(f"{self.folder}: no {MODEL} on its card, so it is no {self.name}")
        self.version = version_of(check_files(self.folder, self.card["files"]))
        self.caveat = self.card["caveat"]
        self.rated = read_coverage(self.card["rated"], self.folder) if "rated" in self.card else STUDY
        # An encoder's file holds all of it; a decoder's weights lie beside the graph.
        is_decoder = any(name.endswith((".bin", ".safetensors")) for name in self.card["files"])
        self.device = choose_device(device, self.name, is_decoder=is_decoder)
        self.concurrency = count_cores()
        if self.device == CUDA:
            self.version = version_on_card(self.version)
            self.concurrency = WAITING
        self.loading = Lock()
        self.contexts = KeptContexts()

    @cached_property
    def tokeniser(self) -> Tokeniser:
        is_decoder = self.device == CUDA or "segments" not in self.inputs
        return Tokeniser.read(self.folder / TOKENIZER, is_decoder=is_decoder)

    @cached_property
    def sessions(self) -> list[Any]:
        """The networks, whose probabilities are averaged: one in files, or several as changes to a base."""
        path, merged = self.folder / MODEL, self._merge()
        if not merged:
            return [open_session(path)]
        try:
            return [open_session(path, weights) for weights in merged]
        except Exception as error:  # ONNX Runtime's own kinds have nothing in common
            raise UserError(
                f"{path}: does not take weights as they are made now; train again with this version"
            ) from error

    @cached_property
    def engine(self) -> CardEngine:
        """The same networks on a graphics card."""
        from judge.classifier.torch_decoder import read_networks

        return CardEngine(read_networks(self.folder / MODEL, self._merge()), device=self.device)

    def _merge(self) -> "list[dict[str, np.ndarray]]":
        """The weights that no file of ours holds; none where all are."""
        count = sum(name.startswith(NETWORK.partition("{")[0]) for name in self.card["files"])
        if not count:
            return []
        from judge.classifier.base_weights import find_base_file, merge

        try:
            ((name, digest),) = self.card["base"].items()
        except (KeyError, AttributeError, ValueError) as error:
            raise UserError(
                f"{self.folder / CARD}: base: a name and a hash expected; install again"
            ) from error
        base = find_base_file(name)
        if digest_file(base) != digest:
            raise UserError(
                f"{base}: not the file on the card of {self.folder}; install the version it names"
            )
        means = self.folder / MEANS if MEANS in self.card["files"] else None
        return merge(base, [self.folder / NETWORK.format(number) for number in range(count)], means)

    @cached_property
    def inputs(self) -> list[str]:
        """What the networks read; segments only where they are encoders."""
        return [item.name for item in self.sessions[0].get_inputs()]

    def start(self) -> None:
        """Load what takes long, while others still read the input; on the CPU the first reply does it."""
        if self.device == CUDA:
            Thread(target=self._load, daemon=True).start()

    def _load(self) -> None:
        with self.loading, suppress(Exception):  # who needs it next meets the same error, and tells it
            _ = self.tokeniser, self.engine

    @property
    def in_bulk(self) -> Callable[..., int] | None:
        """What scores a whole input at once, where one reply at a time would leave a graphics card idle."""
        return partial(score_on_card, self) if self.device == CUDA else None

    def judge(self, exchange: Exchange) -> Judgment:
        return self.judge_many([exchange])[0]

    def judge_many(self, exchanges: Sequence[Exchange]) -> list[Judgment]:
        """Judgments in the order given."""
        with self.loading:  # once, however many threads come first
            tokeniser, run = self.tokeniser, self._run_on_card if self.device == CUDA else self._run
        return list(judge_prepared(exchanges, prepare(exchanges, tokeniser), run))

    def predict(self, exchange: Exchange) -> list[float]:
        """Probabilities of Bad, Okay and Good."""
        seen = normalise(exchange.response)
        with self.loading:
            tokeniser, run = self.tokeniser, self._run_on_card if self.device == CUDA else self._run
        tokens = tokeniser.encode(write_context(exchange), seen)
        return run([Prepared(seen, None, tokens, ())])[0]

    def _run(self, prepared: "Sequence[Prepared]") -> list[list[float]]:
        """Probabilities by ONNX Runtime."""
        import numpy as np

        with self.loading:
            sessions, names = self.sessions, self.inputs
        every = []
        for item in prepared:
            assert item.tokens is not None
            known: dict[str, Any] = {}
            if "style" in names:
                known["style"] = np.array([style_features(item.seen)], dtype=np.float32)
            if "past" in names:
                found = self._read_apart(item.tokens, known)
            else:
                known["ids"] = np.array([item.tokens.ids], dtype=np.int64)
                known["segments"] = np.array([item.tokens.segments], dtype=np.int64)
                known["mask"] = np.ones_like(known["ids"])
                wanted = {name: known[name] for name in names}
                found = [self._read(session, "probabilities", wanted)[0] for session in sessions]
            every.append([float(part) for part in np.mean(found, axis=0)])
        return every

    def _read_apart(self, tokens: Tokens, known: "dict[str, np.ndarray]") -> "list[np.ndarray]":
        """What each network says of a reply behind its context, which is read first, or was read before.

        Never both at once, even if the context is new: the order of sums, and so the last bits, would differ.
        """
        import numpy as np

        before, reply = tokens.ids[: tokens.before], np.array([tokens.ids[tokens.before :]], dtype=np.int64)
        past = self.contexts.find(before)
        if past is None:
            shape = self.sessions[0].get_inputs()[self.inputs.index("past")].shape
            nothing = np.zeros([side if isinstance(side, int) else 0 for side in shape], dtype=np.float32)
            past = [nothing] * len(self.sessions)
            if before:
                given = {**known, "ids": np.array([before], dtype=np.int64), "past": nothing}
                past = [self._read(session, "present", given) for session in self.sessions]
                self.contexts.keep(before, past)
        return [
            self._read(session, "probabilities", {**known, "ids": reply, "past": kept})[0]
            for session, kept in zip(self.sessions, past, strict=True)
        ]

    @staticmethod
    def _read(session: Any, wanted: str, given: "Mapping[str, np.ndarray]") -> Any:
        check_wanted()
        return session.run([wanted], given)[0]

    def _run_on_card(self, prepared: "Sequence[Prepared]") -> list[list[float]]:
        with self.loading:
            engine = self.engine
        check_wanted()
        found = engine.read(*pack(prepared))
        return [[float(part) for part in row] for row in found]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A reply before the network: as it is seen, why it gets none, its tokens, and what to note of it."""

    seen: str
    reason: str | None
    tokens: Tokens | None
    notes: tuple[str, ...]


def prepare(exchanges: Sequence[Exchange], tokeniser: Tokeniser) -> list[Prepared]:
    """All that is done with replies before a network reads them."""
    seen = [normalise(exchange.response) for exchange in exchanges]
    reasons = [why_unreadable(text) for text in seen]
    pairs = [
        (write_context(exchange), text)
        for exchange, text, reason in zip(exchanges, seen, reasons, strict=True)
        if not reason
    ]
    coming = iter(tokeniser.encode_all(pairs))
    prepared = []
    for exchange, text, reason in zip(exchanges, seen, reasons, strict=True):
        if reason:
            prepared.append(Prepared(text, reason, None, ()))
            continue
        tokens = next(coming)
        notes = [f"suspected injection: {item}" for item in sorted(suspect(exchange.response, text))]
        if tokens.cut:
            notes.append(LONG.format(tokeniser.limit))
        prepared.append(Prepared(text, None, tokens, tuple(notes)))
    return prepared


def pack(prepared: Sequence[Prepared]) -> "tuple[np.ndarray, np.ndarray]":
    """The tokens of all replies one behind another, and how many each has."""
    import numpy as np

    tokens = [item.tokens.ids for item in prepared if item.tokens is not None]
    lengths = np.fromiter(map(len, tokens), dtype=np.int32, count=len(tokens))
    ids = np.fromiter(chain.from_iterable(tokens), dtype=np.int32, count=int(lengths.sum()))
    return ids, lengths


def judge_prepared(
    exchanges: Sequence[Exchange],
    prepared: Sequence[Prepared],
    run: Callable[[Sequence[Prepared]], Sequence[Sequence[float]]],
) -> Iterator[Judgment]:
    """The judgments that follow from what the network says of those that it can read."""
    found = iter(run([item for item in prepared if not item.reason]))
    for exchange, item in zip(exchanges, prepared, strict=True):
        if item.reason:
            yield unscored(exchange, item.reason)
            continue
        judgment = judgment_of(exchange, dict(zip(LABELS, next(found), strict=True)))
        yield replace(judgment, rationale="\n".join(item.notes)) if item.notes else judgment


class SmallClassifierJudge(ClassifierJudge):
    """The fast judge, an encoder that learned from the crowd study's ratings alone: short replies."""

    name = "classifier-small"
    shipped = WEIGHTS / "classifier-small"


class LargeClassifierJudge(ClassifierJudge):
    """The larger and slower judge: changes to a base that comes from its package."""

    name = "classifier-large"
    shipped = WEIGHTS / "classifier-large"


def open_session(path: Path, weights: "Mapping[str, np.ndarray] | None" = None) -> Any:
    """A network that runs; `weights` are those that its graph names and no file holds."""
    onnxruntime = import_onnxruntime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    if weights:
        values = [onnxruntime.OrtValue.ortvalue_from_numpy(value) for value in weights.values()]
        options.add_external_initializers(list(weights), values)
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    session.weights = weights  # read where they are, so that they have to be there as long as the session
    return session


def import_onnxruntime() -> Any:
    """ONNX Runtime, which otherwise reports its use over the network and keeps a device id: not from here."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime

    return onnxruntime


def version_of(weights: str) -> str:
    """A judge's version from the hash of its weights, how it reads and labels, and what runs the network."""
    runtime = ".".join(version_of_package("onnxruntime").split(".")[:2])
    return sha256(f"{RULES_VERSION} {runtime} {weights}".encode()).hexdigest()[:12]


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


def read_coverage(told: Any, folder: Path) -> Coverage:
    """What a card tells of the replies that a judge learned from."""
    return validate(Coverage, told, f"{folder / CARD}: rated")


def check_files(folder: Path, stated: dict[str, str]) -> str:
    """Refuse weights that are not the ones on the card; returns one hash of them all."""
    digest = sha256()
    for name, expected in sorted(stated.items()):
        try:
            with (folder / name).open("rb") as stream:
                actual = file_digest(stream, "sha256").hexdigest()
        except OSError as error:
            raise UserError(f"{folder / name}: cannot be read: {error.strerror}; install again") from error
        except ValueError as error:  # a name that no file can have
            raise UserError(f"{folder / CARD}: files: {name!r}: {error}; install again") from error
        if actual != expected:
            raise UserError(f"{folder / name}: damaged or changed (not the file on its card); install again")
        digest.update(actual.encode())
    return digest.hexdigest()
