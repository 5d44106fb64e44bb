"""A decoder's network in torch, for a graphics card: the weights that the CPU runs, and packed batches.

Written by hand, since transformers' own model has no packed batches: replies stand one behind another without
padding, so that one shape of batch does for all lengths, and a judgment does not depend on its neighbours.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import linear, scaled_dot_product_attention, silu, softmax

from data.errors import UserError
from judge.classifier.base_weights import MIXED, SCALE, TABLE, mix_inner

LONGEST: Final = 1024  # tokens; a context and a reply are cut to fewer
# The most tokens of a reply in a batch, for which attention is laid out; most batches have none beyond 256.
REACHES: Final = (256, 512, LONGEST)


@dataclass(frozen=True, slots=True)
class Weights:
    """A network as its files hold it, in full precision: the same numbers that 8 bits stand for."""

    values: Mapping[str, np.ndarray]
    layers: int
    heads: int
    shared_heads: int
    epsilon: float
    speeds: np.ndarray

    def __getitem__(self, name: str) -> np.ndarray:
        return self.values[name]


def read_networks(model: Path, merged: Sequence[Mapping[str, np.ndarray]] = ()) -> list[Weights]:
    """The networks of a judge: of its file, or as many as `merged` has, which the file's graph names.

    Refused where the graph is no decoder of `DecoderGraph`.
    """
    try:
        import onnx
        from onnx import numpy_helper
    except ImportError as error:
        raise UserError("--device cuda needs the package onnx: pip install onnx") from error

    graph = onnx.load(model, load_external_data=not merged).graph
    kinds = [node.op_type for node in graph.node]
    held = {item.name: item for item in graph.initializer}
    if "RotaryEmbedding" not in kinds or TABLE not in held:
        raise UserError(f"{model.parent}: a network of another kind than those that run on a graphics card")

    def attribute(kind: str, name: str) -> float:
        node = graph.node[kinds.index(kind)]
        return float(next(item.i or item.f for item in node.attribute if item.name == name))

    shape: Any = {
        "layers": kinds.count("Attention"),
        "heads": int(attribute("Attention", "q_num_heads")),
        "shared_heads": int(attribute("Attention", "kv_num_heads")),
        "epsilon": attribute("RMSNormalization", "epsilon"),
    }
    turned = graph.node[kinds.index("Cos")].input[0]
    made_by = next(node for node in graph.node if turned in node.output)
    speeds = next(numpy_helper.to_array(held[name]) for name in made_by.input if name in held)
    networks = merged or [{name: numpy_helper.to_array(item) for name, item in held.items()}]
    return [Weights(_exact(values), speeds=speeds, **shape) for values in networks]


def _exact(rounded: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What 8 bits and their scales stand for; see `round_weight`."""
    exact = {}
    for name, value in rounded.items():
        scale = rounded.get(name + SCALE)
        if scale is None:
            exact[name] = value
            continue
        exact[name] = value.astype(np.float32) * scale
        if name != TABLE:
            exact[name] = exact[name].T
        if name.endswith(MIXED):
            exact[name] = mix_inner(exact[name])
    return exact


Part = tuple[np.ndarray, np.ndarray]  # tokens and lengths of some replies


@dataclass(frozen=True, slots=True)
class Batch:
    """Replies one behind another: tokens, the place of each in its reply, and where replies start.

    `starts` has one place more than there are replies, and all that are left over stand at the end.
    """

    ids: Tensor
    places: Tensor
    starts: Tensor


class Decoder:
    """The network on a device: probabilities of Bad, Okay and Good for the replies of a batch.

    Of the last layer no more is reckoned than each reply's last token, since nothing else is read.
    """

    def __init__(self, weights: Weights, *, device: str, kind: torch.dtype, steps: "Steps") -> None:
        def put(value: np.ndarray) -> Tensor:
            return torch.tensor(value, dtype=kind, device=device)

        def join(layer: int, *names: str) -> Tensor:
            return put(np.concatenate([weights[f"base.layers.{layer}.{name}.weight"] for name in names]))

        self.steps, self.layers = steps, range(weights.layers)
        self.about = weights.heads, weights.shared_heads, weights.epsilon
        self.table = put(weights[TABLE])
        self.readers = [
            (join(layer, "input_layernorm"), join(layer, *(f"self_attn.{part}_proj" for part in "qkv")))
            for layer in self.layers
        ]
        self.thinkers = [
            (
                join(layer, "self_attn.o_proj"),
                join(layer, "post_attention_layernorm"),
                join(layer, "mlp.gate_proj", "mlp.up_proj"),
                join(layer, "mlp.down_proj"),
            )
            for layer in self.layers
        ]
        self.norm, self.head, self.bias = (
            put(weights[name]).float() for name in ("base.norm.weight", "head.weight", "head.bias")
        )
        angles = torch.arange(LONGEST)[:, None] * torch.from_numpy(np.array(weights.speeds))
        self.turns = torch.cat([angles.cos(), angles.sin()], dim=-1).to(device)

    def __call__(self, batch: Batch, reach: int) -> Tensor:
        """Probabilities: [replies, 3]; `reach` is the most tokens that a reply may have."""
        steps, about, starts = self.steps, self.about, batch.starts
        state, turns = self.table[batch.ids], self.turns[batch.places]
        query, key, value = steps.look(state, turns, *self.readers[0], *about)
        for layer in self.layers[:-1]:
            found = steps.attend(query, key, value, starts, starts, reach, reach)
            state, query, key, value = steps.go_on(
                state, found, turns, *self.thinkers[layer], *self.readers[layer + 1], *about
            )
        last = (starts[1:] - 1).clamp(min=0)
        one_each = torch.arange(len(starts), dtype=starts.dtype, device=starts.device)
        found = steps.attend(query[last], key, value, one_each, starts, 1, reach)
        state = _think(state[last], found, *self.thinkers[-1], about[-1])
        logits = linear(_normed(state.float(), self.norm, about[-1]), self.head, self.bias)
        return softmax(logits, dim=-1)


@dataclass(slots=True)
class Steps:
    """What a layer consists of; compiled, two pieces do for all layers and take seconds, not minutes."""

    look: Callable[..., Any]
    go_on: Callable[..., Any]
    attend: Callable[..., Tensor]

    @classmethod
    def make(cls, *, device: str, compiled: bool) -> "Steps":
        is_flash = device.startswith("cuda") and torch.cuda.get_device_capability() >= (8, 0)
        make: Callable[..., Any] = torch.compile(dynamic=False) if compiled else lambda piece: piece
        return cls(make(_look), make(_go_on), _attend_flash if is_flash else _attend_each)


class Card:
    """The networks of a judge on a device, which take batches of one shape and give means of probabilities.

    On a card the steps are recorded once for each reach and then started as one, and copies to and from it
    go on while it works; the buffers for that go round.
    """

    def __init__(
        self,
        networks: Sequence[Weights],
        *,
        device: str,
        tokens: int,
        replies: int,
        ahead: int,
        compiled: bool,
    ) -> None:
        self.is_cuda, self.tokens, self.replies = device.startswith("cuda"), tokens, replies
        self.steps = Steps.make(device=device, compiled=compiled)
        # Brain floats hold any state; half precision was not tried on a card in the basis of these weights.
        kind = torch.bfloat16 if self.is_cuda else torch.float32
        self.decoders = [Decoder(item, device=device, kind=kind, steps=self.steps) for item in networks]
        if self.is_cuda:
            self.graphs: dict[int, tuple[Any, Tensor]] = {}
            self.on_card = _empty_batch(tokens, replies, device=device)
            self.slots = [
                (
                    _empty_batch(tokens, replies, pin_memory=True),
                    torch.empty((replies, 3), pin_memory=True),
                    torch.cuda.Event(),  # type: ignore[no-untyped-call]
                )
                for _ in range(ahead + 2)
            ]

    @torch.no_grad()
    def launch(self, parts: Sequence[Part]) -> Callable[[], np.ndarray]:
        """Start on some replies; what is returned waits for their probabilities and gives them."""
        lengths = np.concatenate([part[1] for part in parts])
        count, total = len(lengths), int(lengths.sum())
        if self.is_cuda:
            slot = self.slots[0]
            self.slots.append(self.slots.pop(0))
            batch, found, event = slot
        else:
            batch = _empty_batch(total, count)
        ends = np.cumsum(lengths)
        np.concatenate([part[0] for part in parts], out=batch.ids.numpy()[:total])
        np.subtract(np.arange(total), np.repeat(ends - lengths, lengths), out=batch.places.numpy()[:total])
        batch.starts.numpy()[0], batch.starts.numpy()[1 : count + 1] = 0, ends
        batch.starts.numpy()[count + 1 :] = total
        reach = next(reach for reach in REACHES if reach >= lengths.max())
        if not self.is_cuda:
            said = self._read(batch, reach).numpy()
            return lambda: said
        for name in Batch.__slots__:
            getattr(self.on_card, name).copy_(getattr(batch, name), non_blocking=True)
        graph, probabilities = self.graphs.get(reach) or self._record(reach)
        graph.replay()
        found.copy_(probabilities, non_blocking=True)
        event.record()

        def wait() -> np.ndarray:
            event.synchronize()
            return np.array(found[:count])

        return wait

    def _read(self, batch: Batch, reach: int) -> Tensor:
        return torch.stack([decoder(batch, reach) for decoder in self.decoders]).mean(dim=0)

    def _record(self, reach: int) -> tuple[Any, Tensor]:
        try:
            self._read(self.on_card, reach)  # compiles, which cannot be recorded
        except Exception:  # whatever keeps a machine from compiling: it works without, slower
            self.steps.look, self.steps.go_on = _look, _go_on
            self._read(self.on_card, reach)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            probabilities = self._read(self.on_card, reach)
        self.graphs[reach] = graph, probabilities
        return self.graphs[reach]


def _empty_batch(tokens: int, replies: int, **where: Any) -> Batch:
    return Batch(
        torch.zeros(tokens, dtype=torch.int32, **where),
        torch.zeros(tokens, dtype=torch.int32, **where),
        torch.zeros(replies + 1, dtype=torch.int32, **where),
    )


def _normed(state: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    exact = state.float()
    return (exact * torch.rsqrt(exact.square().mean(-1, keepdim=True) + epsilon) * weight).to(state.dtype)


def _look(
    state: Tensor, turns: Tensor, norm: Tensor, maps: Tensor, own: int, shared: int, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value of every token, each head apart, the first two turned by the token's place."""
    every = linear(_normed(state, norm, epsilon), maps).view(len(state), own + 2 * shared, -1)
    turned, value = every[:, : own + shared].float(), every[:, own + shared :]
    left, right = turned.chunk(2, dim=-1)
    cosine, sine = turns[:, None].chunk(2, dim=-1)
    turned = torch.cat([left * cosine - right * sine, right * cosine + left * sine], dim=-1).to(state.dtype)
    return turned[:, :own], turned[:, own:], value


def _think(
    state: Tensor, found: Tensor, out: Tensor, norm: Tensor, inner: Tensor, down: Tensor, epsilon: float
) -> Tensor:
    """What attention found, and then a network of two layers, each added to what was there."""
    state = torch.addmm(state, found.reshape(len(state), -1), out.t())
    gate, up = linear(_normed(state, norm, epsilon), inner).chunk(2, dim=-1)
    return torch.addmm(state, silu(gate) * up, down.t())


def _go_on(
    state: Tensor,
    found: Tensor,
    turns: Tensor,
    *weights_and_heads: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """From the attention of one layer to that of the next: what lies between can then be joined."""
    out, norm, inner, down, *reader = weights_and_heads
    state = _think(state, found, out, norm, inner, down, reader[-1])
    return state, *_look(state, turns, *reader)


def _attend_flash(
    query: Tensor, key: Tensor, value: Tensor, starts: Tensor, seen: Tensor, reach: int, seen_reach: int
) -> Tensor:
    """Attention within each reply, by the one kernel that takes replies of unlike length together."""
    found = torch.ops.aten._flash_attention_forward(
        query, key, value, starts, seen, reach, seen_reach, 0.0, reach > 1, return_debug_mask=False
    )
    return torch.as_tensor(found[0])


def _attend_each(
    query: Tensor, key: Tensor, value: Tensor, starts: Tensor, seen: Tensor, reach: int, seen_reach: int
) -> Tensor:
    """The same, reply by reply, for a processor or a card that has no such kernel."""
    found = torch.zeros_like(query)
    ends, seen_ends = starts.tolist(), seen.tolist()
    for place in range(len(ends) - 1):
        own, its = slice(ends[place], ends[place + 1]), slice(seen_ends[place], seen_ends[place + 1])
        if its.start < its.stop:
            each = (query[own], key[its], value[its])
            one, two, three = (item.transpose(0, 1)[None] for item in each)
            read = scaled_dot_product_attention(one, two, three, is_causal=reach > 1, enable_gqa=True)
            found[own] = read[0].transpose(0, 1)
    return found
