"""Trained networks as files that score without torch: ONNX in int8, and the tokenizer."""

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from judge.classifier.judge import MODEL, TOKENIZER, import_onnxruntime
from judge.classifier.network import JudgeNetwork
from judge.classifier.preprocessing import STYLE, Tokeniser


class Alone(nn.Module):
    """One exchange at a time needs no padding, hence no mask: a smaller graph and a faster one."""

    def __init__(self, networks: Sequence[JudgeNetwork]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, ids: Tensor, segments: Tensor, style: Tensor) -> Tensor:
        mask = torch.ones_like(ids)
        each = [network(ids, mask, segments, style).softmax(dim=-1) for network in self.networks]
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
        torch.zeros((1, len(STYLE))),
    )
    with _quiet():
        program = torch.onnx.export(
            Alone([network.cpu().float().eval() for network in networks]).eval(),
            example,
            input_names=["ids", "segments", "style"],
            output_names=["probabilities"],
            dynamic_shapes={"ids": {1: length}, "segments": {1: length}, "style": None},
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
    import onnx
    from onnx import numpy_helper

    model = onnx.load(path)
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
