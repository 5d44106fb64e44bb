"""Trained networks as files that score without torch: ONNX in 8 bits, and the tokenizer."""

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from data.errors import UserError
from data.records import LABELS
from judge.classifier.base_weights import BLOCK, FINE_BLOCK, HEADS, SCALE, TABLE, quantise
from judge.classifier.judge import MODEL, TOKENIZER, import_onnxruntime
from judge.classifier.network import JudgeNetwork, LowRank
from judge.classifier.preprocessing import Tokeniser

LARGEST_FILE = 50_000_000  # bytes: places that keep repositories complain of larger ones
WEIGHTS = "weights-{}.bin"
OPSET = 23  # the first in which ONNX itself knows attention, rotary positions and RMS norms


def write_decoder(network: JudgeNetwork, tokeniser: Tokeniser, folder: Path) -> list[str]:
    """Write a decoder's graph, its weights in 8 bits and its tokenizer; returns the names of the files.

    Of a network with low-rank changes the graph alone: `merge` makes its weights when it is loaded.
    """
    is_whole = not any(isinstance(module, LowRank) for module in network.modules())
    block = BLOCK if is_whole else FINE_BLOCK
    graph = DecoderGraph(network.eval(), block)
    files = [bytearray()]
    for name, value in _weights(network, block).items():
        if is_whole and name.startswith(HEADS):  # where `shift_exported` finds them
            graph.initializers.append(numpy_helper.from_array(value, name))
            continue
        if len(files[-1]) + value.nbytes > LARGEST_FILE:
            files.append(bytearray())
        graph.place(name, value, location=WEIGHTS.format(len(files) - 1), offset=len(files[-1]))
        files[-1] += value.tobytes()
    content = {MODEL: graph.write(), TOKENIZER: tokeniser.tokenizer.to_str().encode()}
    if is_whole:
        content |= {WEIGHTS.format(number): bytes(part) for number, part in enumerate(files)}
    for name, part in content.items():
        if len(part) > LARGEST_FILE:
            raise UserError(f"{name} would have more than {LARGEST_FILE:,} bytes: take a smaller base")
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in content.items():
        (folder / name).write_bytes(part)
    return sorted(content)


def even_out(network: JudgeNetwork, read_some: Callable[[], object]) -> None:
    """Move half of what is large in a decoder's states into the maps that read them.

    The network says the same after it, and 8 bits hold the rest of each state better. `read_some` has the
    network read some replies, by which the size of its states is known.
    """
    layers: Any = network.base.layers
    readers = {
        norm: [getattr(part, f"{name}_proj") for name in names]
        for layer in layers
        for norm, part, names in (
            (layer.input_layernorm, layer.self_attn, "qkv"),
            (layer.post_attention_layernorm, layer.mlp, ("gate", "up")),
        )
    }
    squares = {norm: torch.zeros_like(norm.weight) for norm in readers}

    def note(norm: nn.Module, _: Any, state: Tensor) -> None:
        squares[norm] += state.square().sum(dim=(0, 1))

    hooks = [norm.register_forward_hook(note) for norm in readers]
    read_some()
    for hook in hooks:
        hook.remove()
    with torch.no_grad():
        for norm, maps in readers.items():
            size = squares[norm].sqrt().clamp(min=1e-9)
            factor = (size / size.median()).sqrt()
            norm.weight /= factor
            for reader in maps:
                reader.weight *= factor


def _weights(network: JudgeNetwork, block: int) -> dict[str, np.ndarray]:
    """All that the graph asks for, by name."""
    weights: dict[str, np.ndarray] = {}
    for name, value in network.state_dict().items():
        if name.startswith(("base.", *HEADS)) and not name.endswith((".up", ".down")):
            weights |= quantise(name.replace(".frozen", ""), value.cpu().float().numpy(), block=block)
    return weights


class DecoderGraph:
    """A llama decoder with the logits of a judge, node by node.

    The exporter of torch writes any network, as hundreds of small steps; this is a dozen a layer. Replies of
    unlike length may come together, padded at the end: a token sees only those before it. Of the last layer
    no more is reckoned than the last token's state, since nothing else is read.
    """

    def __init__(self, network: JudgeNetwork, block: int) -> None:
        base: Any = network.base
        self.network, self.config, self.block = network, base.config, block
        if self.config.model_type != "llama" or self.config.attention_bias or self.config.mlp_bias:
            raise UserError(f"a base of the kind {self.config.model_type} cannot be exported, only llama's")
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        words = self.add("Cast", self.add("Gather", TABLE, "ids"), to=TensorProto.FLOAT)
        state = self.add("Mul", words, self.add("Gather", TABLE + SCALE, "ids"))
        self.positions = self.add("Sub", self.add("CumSum", "mask", self.hold(1)), self.hold(1))
        self.last = self.add("ReduceMax", self.positions, self.hold([1]))
        self.seen = self.add("Unsqueeze", self.add("Cast", "mask", to=TensorProto.BOOL), self.hold([1, 2]))
        length = self.add("Squeeze", self.add("Shape", "ids", start=1))
        steps = self.add("Cast", self.add("Range", self.hold(0), length, self.hold(1)), to=TensorProto.FLOAT)
        speeds = base.rotary_emb.inv_freq.cpu().float().numpy()
        angles = self.add("Mul", self.add("Unsqueeze", steps, self.hold([1])), self.hold(speeds))
        self.turns = (self.add("Cos", angles), self.add("Sin", angles))
        layers = range(len(base.layers))
        for number in layers:
            state = self.add_layer(state, f"base.layers.{number}", is_last=number == layers[-1])
        state = self.add("Squeeze", self.add_norm(state, "base.norm"), self.hold([1]))
        logits = self.add("Gemm", state, "head.weight", "head.bias", transB=1)
        self.add("Softmax", logits, axis=-1)

    def add_layer(self, state: str, name: str, *, is_last: bool) -> str:
        """Attention, then a network of two layers, each added to what was there."""
        own, shared = self.config.num_attention_heads, self.config.num_key_value_heads
        normed, positions = self.add_norm(state, f"{name}.input_layernorm"), self.positions
        key, value = (self.add_linear(normed, f"{name}.self_attn.{part}_proj") for part in "kv")
        key = self.add("RotaryEmbedding", key, *self.turns, positions, num_heads=shared)
        if is_last:
            where, positions = self.add("Unsqueeze", self.last, self.hold([2])), self.last
            state, normed = (self.add("GatherND", item, where, batch_dims=1) for item in (state, normed))
        query = self.add_linear(normed, f"{name}.self_attn.q_proj")
        query = self.add("RotaryEmbedding", query, *self.turns, positions, num_heads=own)
        found = self.add(
            "Attention",
            *(query, key, value, *([self.seen] if is_last else [])),
            is_causal=int(not is_last),
            q_num_heads=own,
            kv_num_heads=shared,
        )
        state = self.add("Add", state, self.add_linear(found, f"{name}.self_attn.o_proj"))
        normed = self.add_norm(state, f"{name}.post_attention_layernorm")
        gate, up = (self.add_linear(normed, f"{name}.mlp.{part}_proj") for part in ("gate", "up"))
        inner = self.add("Mul", self.add("Mul", gate, self.add("Sigmoid", gate)), up)
        return self.add("Add", state, self.add_linear(inner, f"{name}.mlp.down_proj"))

    def add_norm(self, state: str, name: str) -> str:
        epsilon = self.config.rms_norm_eps
        return self.add("RMSNormalization", state, f"{name}.weight", axis=-1, epsilon=epsilon)

    def add_linear(self, state: str, name: str) -> str:
        found: Any = self.network.get_submodule(name)
        rows, columns = getattr(found, "frozen", found).weight.shape
        return self.add(
            "MatMulNBits",
            *(state, f"{name}.weight", f"{name}.weight{SCALE}"),
            domain="com.microsoft",
            accuracy_level=4,  # states in 8 bits as well, with scales of their own
            bits=8,
            block_size=self.block,
            K=columns,
            N=rows,
        )

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """A node; returns the name of what it makes."""
        made = f"{operator}-{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [made], **attributes))
        return made

    def hold(self, value: Any) -> str:
        """A constant."""
        name = f"constant-{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def place(self, name: str, value: np.ndarray, *, location: str, offset: int) -> None:
        """Say in which file a weight lies; none need be there where weights are given with the session."""
        kind = helper.np_dtype_to_tensor_dtype(value.dtype)
        tensor = TensorProto(name=name, dims=value.shape, data_type=kind, data_location=TensorProto.EXTERNAL)
        for key, item in (("location", location), ("offset", offset), ("length", value.nbytes)):
            tensor.external_data.add(key=key, value=str(item))
        self.initializers.append(tensor)

    def write(self) -> bytes:
        """The whole, as the content of a file."""
        inputs = [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"])
            for name in ("ids", "mask")
        ]
        self.nodes[-1].output[:] = ["probabilities"]
        output = helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", len(LABELS)])
        graph = helper.make_graph(self.nodes, "judge", inputs, [output], self.initializers)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
        return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


class Alone(nn.Module):
    """One exchange at a time needs no padding, hence no mask: a smaller graph and a faster one."""

    def __init__(self, networks: Sequence[JudgeNetwork]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, ids: Tensor, segments: Tensor) -> Tensor:
        mask = torch.ones_like(ids)
        each = [network(ids, mask, segments).softmax(dim=-1) for network in self.networks]
        return torch.stack(each).mean(dim=0)


def quantize_onnx(path: Path) -> None:
    """Put an int8 model in the place of an exact one."""
    import_onnxruntime()
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with TemporaryDirectory() as scratch:
        quantize_dynamic(
            path,
            Path(scratch) / MODEL,
            per_channel=True,
            reduce_range=True,  # seven bits never overflow: the same result on CPUs with and without VNNI
            weight_type=QuantType.QInt8,
            op_types_to_quantize=["MatMul", "Gemm", "Gather"],
        )
        path.write_bytes((Path(scratch) / MODEL).read_bytes())


def export_onnx(networks: Sequence[JudgeNetwork], tokeniser: Tokeniser, folder: Path) -> Path:
    """Write `model.onnx`, in full precision, and `tokenizer.json` into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    length = torch.export.Dim("length", min=4, max=512)
    example: tuple[Any, ...] = (
        torch.ones((1, 16), dtype=torch.long),
        torch.zeros((1, 16), dtype=torch.long),
    )
    with _quiet():
        program = torch.onnx.export(
            Alone([network.cpu().float().eval() for network in networks]).eval(),
            example,
            input_names=["ids", "segments"],
            output_names=["probabilities"],
            dynamic_shapes={"ids": {1: length}, "segments": {1: length}},
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    assert program is not None
    model = program.model_proto
    # The exporter's notes on inner shapes contradict what quantisation infers; it needs none of them.
    del model.graph.value_info[:]
    for part in (*model.graph.node, *model.graph.initializer, *model.graph.input, *model.graph.output):
        del part.metadata_props[:]  # where in whose source tree each node came from: nobody's business
        part.doc_string = ""
    # The exporter has optimised the graph; without this mark quantisation asks on stderr to do it again.
    model.metadata_props.add(key="onnx.quant.pre_process", value="onnxruntime.quant")
    (folder / MODEL).write_bytes(model.SerializeToString())
    tokeniser.tokenizer.save(str(folder / TOKENIZER), pretty=False)
    return folder / MODEL


def shift_exported(path: Path, bias: np.ndarray) -> None:
    """Move the logits of every reply alike, in a file: quicker than exporting the networks again."""
    model = onnx.load(path, load_external_data=False)
    heads = [tensor for tensor in model.graph.initializer if tensor.name.endswith("head.bias")]
    if not heads:
        raise RuntimeError("the exporter has renamed the head's bias: its level cannot be set")
    for tensor in heads:
        moved = numpy_helper.to_array(tensor) + bias.astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(moved, tensor.name))
    onnx.save(model, path)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps from the user what the exporter says of its own insides."""
    registration = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = registration.level
    registration.setLevel(logging.ERROR)  # torchvision, which nothing here needs, is not installed
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", r"`isinstance\(treespec, LeafSpec\)` is deprecated", FutureWarning
            )
            warnings.filterwarnings("ignore", "# The axis name: length will not be used", UserWarning)
            yield
    finally:
        registration.setLevel(level)
