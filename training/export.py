"""TrainedNetworks networks as files that score without torch: ONNX in 8 bits, and the tokenizer."""

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
from safetensors.numpy import save_file
from torch import Tensor, nn

from data.errors import UserError
from data.records import LABELS
from judge.classifier.base_weights import (
    HEAD_PREFIX,
    MIX,
    MIXED,
    SCALE,
    TABLE,
    Mixing,
    first_reader,
    inner_part,
    mix,
    mix_inner,
    round_weight,
)
from judge.classifier.judge import MODEL, TOKENIZER, import_onnxruntime
from judge.classifier.preprocessing import Tokeniser
from training.network import JudgeNetwork, LoraLinear

LARGEST_FILE = 50_000_000  # bytes: places that keep repositories complain of larger ones
WEIGHTS = "weights-{}.bin"
FROZEN = ".frozen"  # what the name of a weight has more where a low-rank change is beside it
OPSET = 23  # the first in which ONNX itself knows attention, rotary positions and RMS norms


def write_decoder(
    network: JudgeNetwork,
    tokeniser: Tokeniser,
    folder: Path,
    read_some: Callable[[], object] | None = None,
) -> list[str]:
    """Write a decoder's graph, its weights in few bits and its tokenizer; returns the names of the files.

    `read_some` has the network read some replies, by which its weights are rounded better. Of a network with
    low-rank changes the graph alone is written: `merge` makes its weights when it is loaded.
    """
    is_whole = not any(isinstance(module, LoraLinear) for module in network.modules())
    graph = DecoderGraph(network.eval())
    weights = _round_whole(network, read_some) if is_whole else _name_weights(network)
    files = [bytearray()]
    for name, value in weights.items():
        if is_whole and name.startswith(HEAD_PREFIX):  # where `shift_exported` finds them
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


def mix_states(network: JudgeNetwork) -> None:
    """Write a network in the basis of `Mixing`, where it says the same."""
    base: Any = network.base
    trained = {name: value.cpu().double().numpy() for name, value in network.state_dict().items()}
    mixing = Mixing(trained, base.config.head_dim)
    network.load_state_dict(
        {
            name: torch.from_numpy(mixing.apply(name.replace(FROZEN, ""), value))
            for name, value in trained.items()
        }
    )


def _round_whole(network: JudgeNetwork, read_some: Callable[[], object] | None) -> dict[str, np.ndarray]:
    """All that the graph asks for, by name."""
    mix_states(network)
    products = _sum_states([network], read_some, lambda states: states.T @ states) if read_some else {}
    weights: dict[str, np.ndarray] = {}
    for name, value in network.state_dict().items():
        seen = products.get(first_reader(name))
        if seen is not None and name.endswith(MIXED):
            seen = mix_inner(mix_inner(seen).T)
        weights |= round_weight(name, value.cpu().float().numpy(), seen)
    return weights


def write_means(networks: Sequence[JudgeNetwork], read_some: Callable[[], object], path: Path) -> None:
    """Keep the direction of the mean of what each map reads, by the first that reads it, for `merge`.

    Without the first token, whose states are huge and the same in all texts. The networks are written in
    another basis by it.
    """
    for network in networks:
        mix_states(network)
    sums = _sum_states(networks, read_some, lambda states: states[1:].sum(dim=0))
    means = {name: mix_inner(item[None])[0] if name.endswith(MIXED) else item for name, item in sums.items()}
    save_file({name: (item / np.linalg.norm(item)).astype(np.float16) for name, item in means.items()}, path)


def _sum_states(
    networks: Sequence[JudgeNetwork], read_some: Callable[[], object], take: Callable[[Tensor], Tensor]
) -> dict[str, np.ndarray]:
    """What is taken of the states that maps read, summed over texts, by the first map that reads them."""
    found: dict[str, Any] = {}
    hooks = []
    for network in networks:
        for name, part in network.base.named_modules(prefix="base"):
            weight = f"{name}.weight"
            if name.endswith("_proj") and first_reader(weight) == weight:

                def note(_: nn.Module, states: tuple[Tensor], name: str = weight) -> None:
                    found[name] = found.get(name, 0) + take(states[0].flatten(0, -2).double())

                hooks.append(part.register_forward_pre_hook(note))
    read_some()
    for hook in hooks:
        hook.remove()
    return {name: item.cpu().numpy() for name, item in found.items()}


def _name_weights(network: JudgeNetwork) -> dict[str, np.ndarray]:
    """The same for a network with low-rank changes, of which the graph keeps names and shapes alone."""
    weights: dict[str, np.ndarray] = {}
    for name, value in network.state_dict().items():
        if name.startswith(("base.", HEAD_PREFIX)) and not name.endswith((".up", ".down")):
            empty = np.zeros(tuple(value.shape), dtype=np.float32)
            weights |= round_weight(name.replace(FROZEN, ""), empty)
    return weights


class DecoderGraph:
    """A llama decoder with the logits of a judge, node by node; it reads one text, behind another if given.

    The exporter of torch writes any network, as hundreds of small steps; this is some dozens a layer. States
    are rounded to 8 bits with one scale a token, which no quantiser of ONNX Runtime offers: with one for all
    tokens the first token's, which are huge, would leave the others nothing. So products are of whole
    numbers, about twice as fast as those that have a scale every few numbers.

    `past` holds what was kept of the text before, which may be empty, and `present` is that of both: keys and
    values, [layers, 2, 1, heads, tokens, width]. Of the last layer no more is reckoned than the last token's
    state, since nothing else is read.
    """

    def __init__(self, network: JudgeNetwork) -> None:
        base: Any = network.base
        self.config = base.config
        if self.config.model_type != "llama" or self.config.attention_bias or self.config.mlp_bias:
            raise UserError(f"a base of the kind {self.config.model_type} cannot be exported, only llama's")
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.rounded: dict[str, tuple[str, str]] = {}
        self.kept: list[str] = []
        self.held: dict[tuple[Any, ...], str] = {}
        words = self.add("Cast", self.add("Gather", TABLE, "ids"), to=TensorProto.FLOAT)
        state = self.add("Mul", words, self.add("Gather", TABLE + SCALE, "ids"))
        start, length = (
            self.add("Squeeze", self.add("Shape", name, start=axis, end=axis + 1))
            for name, axis in (("past", 4), ("ids", 1))
        )
        steps = self.add("Range", start, self.add("Add", start, length), self.hold(1))
        steps = self.add("Unsqueeze", self.add("Cast", steps, to=TensorProto.FLOAT), self.hold([0, 2]))
        angles = self.add("Mul", steps, self.hold(base.rotary_emb.inv_freq.cpu().float().numpy()))
        self.turns = [self.add("Cos", angles), self.add("Sin", angles)]
        layers = range(len(base.layers))
        for number in layers:
            state = self.add_layer(state, number, is_last=number == layers[-1])
        state = self.add("Squeeze", self.add_norm(state, "base.norm"), self.hold([1]))
        logits = self.add("Gemm", state, "head.weight", "head.bias", transB=1)
        self.add("Softmax", logits, made="probabilities", axis=-1)
        shape = self.add("Concat", self.hold([len(layers), 2]), self.add("Shape", self.kept[0]), axis=0)
        self.add("Reshape", self.add("Concat", *self.kept, axis=0), shape, made="present")

    def add_layer(self, state: str, number: int, *, is_last: bool) -> str:
        """Attention, then a network of two layers, each added to what was there."""
        name, turns = f"base.layers.{number}", self.turns
        own, shared = self.config.num_attention_heads, self.config.num_key_value_heads
        normed = self.add_norm(state, f"{name}.input_layernorm")
        key, value = (self.add_linear(normed, f"{name}.self_attn.{part}_proj") for part in "kv")
        key = self.add("RotaryEmbedding", key, *turns, num_heads=shared)
        if is_last:  # it sees all, so that nothing is hidden from it
            state, normed, *turns = (self.take_last(item) for item in (state, normed, *turns))
        query = self.add_linear(normed, f"{name}.self_attn.q_proj")
        query = self.add("RotaryEmbedding", query, *turns, num_heads=own)
        past = self.add("Gather", "past", self.hold(number))
        before = [self.add("Gather", past, self.hold(place)) for place in (0, 1)]
        found = self.add(
            "Attention",
            *(query, key, value, "", *before),
            more=(made := [f"{name}.keys", f"{name}.values"]),
            is_causal=int(not is_last),
            q_num_heads=own,
            kv_num_heads=shared,
        )
        self.kept += made
        state = self.add("Add", state, self.add_linear(found, f"{name}.self_attn.o_proj"))
        normed = self.add_norm(state, f"{name}.post_attention_layernorm")
        gate, up = (self.add_linear(normed, f"{name}.mlp.{part}_proj") for part in ("gate", "up"))
        inner = self.add("Mul", self.add("Mul", gate, self.add("Sigmoid", gate)), up)
        return self.add("Add", state, self.add_linear(inner, f"{name}.mlp.down_proj"))

    def take_last(self, item: str) -> str:
        return self.add("Gather", item, self.hold([-1]), axis=1)

    def add_norm(self, state: str, name: str) -> str:
        epsilon = self.config.rms_norm_eps
        return self.add("RMSNormalization", state, f"{name}.weight", axis=-1, epsilon=epsilon)

    def add_linear(self, state: str, name: str) -> str:
        if f"{name}.weight".endswith(MIXED):
            inner = self.config.intermediate_size
            by = mix(inner_part(inner)).astype(np.float32)
            parts = self.add("Reshape", state, self.hold([0, -1, len(by)]))
            state = self.add("MatMul", parts, self.hold(by, MIX))
            state = self.add("Reshape", state, self.hold([0, -1, inner]))
        whole, scale = self.rounded.get(state) or self.add_rounded(state)
        ones, middle = self.hold(np.float32(1)), self.hold(np.uint8(128))
        made = self.add(
            "MatMulIntegerToFloat",
            *(whole, f"{name}.weight", ones, f"{name}.weight{SCALE}", middle),
            domain="com.microsoft",
        )
        return self.add("Mul", made, scale)

    def add_rounded(self, state: str) -> tuple[str, str]:
        """A state as whole numbers around 128, and the scale of each token; once for all that read it."""
        largest = self.add("ReduceMax", self.add("Abs", state), self.hold([-1]))
        scale = self.add("Mul", largest, self.hold(np.float32(1 / 127)))
        by_token = self.add("Squeeze", scale, self.hold([0, 2]))
        middle = self.add("Expand", self.hold(np.uint8(128)), self.add("Shape", by_token))
        whole = self.add("QuantizeLinear", state, by_token, middle, axis=1)
        self.rounded[state] = whole, scale
        return whole, scale

    def add(
        self, operator: str, *inputs: str, made: str = "", more: Sequence[str] = (), **attributes: Any
    ) -> str:
        """A node; returns the name of the first that it makes."""
        made = made or f"{operator}-{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [made, *more], **attributes))
        return made

    def hold(self, value: Any, name: str = "") -> str:
        """A constant, once however often it is asked for."""
        array = np.asarray(value)
        key = array.dtype.str, array.shape, array.tobytes()
        if key not in self.held:
            self.held[key] = name or f"constant-{len(self.held)}"
            self.initializers.append(numpy_helper.from_array(array, self.held[key]))
        return self.held[key]

    def place(self, name: str, value: np.ndarray, *, location: str, offset: int) -> None:
        """Say in which file a weight lies; none need be there where weights are given with the session."""
        kind = helper.np_dtype_to_tensor_dtype(value.dtype)
        tensor = TensorProto(name=name, dims=value.shape, data_type=kind, data_location=TensorProto.EXTERNAL)
        for key, item in (("location", location), ("offset", offset), ("length", value.nbytes)):
            tensor.external_data.add(key=key, value=str(item))
        self.initializers.append(tensor)

    def write(self) -> bytes:
        """The whole, as the content of a file."""
        layers, heads, width = (
            getattr(self.config, name) for name in ("num_hidden_layers", "num_key_value_heads", "head_dim")
        )

        def tell(name: str, kind: int, *shape: int | str) -> Any:
            return helper.make_tensor_value_info(name, kind, shape)

        inputs = [
            tell("ids", TensorProto.INT64, 1, "length"),
            tell("past", TensorProto.FLOAT, layers, 2, 1, heads, "before", width),
        ]
        outputs = [
            tell("probabilities", TensorProto.FLOAT, 1, len(LABELS)),
            tell("present", TensorProto.FLOAT, layers, 2, 1, heads, "after", width),
        ]
        graph = helper.make_graph(self.nodes, "judge", inputs, outputs, self.initializers)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
        return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


class SingleExchangeModel(nn.Module):
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
            SingleExchangeModel([network.cpu().float().eval() for network in networks]).eval(),
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
