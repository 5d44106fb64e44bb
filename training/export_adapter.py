"""Export of a network with LoRA adapters to the judge `classifier-large`: a peft adapter and a head."""

import json
import re
from pathlib import Path

from data.errors import UserError
from data.storage import digest_file
from judge.classifier.large_judge import ADAPTER, HEAD, SETTINGS

_LORA = re.compile(r"base\.(layers\.(\d+)\..*\.(\w+))\.(down|up)")


def write_adapter(network: Path, folder: Path) -> dict[str, str]:
    """Convert a network that `save_network` wrote; return the SHA-256 of each written file.

    The scale of `LoraLinear` is 2, so `lora_alpha` is twice the rank. Weights stay in half precision. The
    recipe must keep all layers of its base.
    """
    from safetensors.torch import load_file, save_file

    adapter, head, layers, modules, ranks = {}, {}, set(), set(), set()
    for name, tensor in load_file(network).items():
        if found := _LORA.fullmatch(name):
            path, layer, module, side = found.groups()
            letter, rank = ("A", len(tensor)) if side == "down" else ("B", tensor.shape[1])
            adapter[f"base_model.model.{path}.lora_{letter}.weight"] = tensor
            layers.add(int(layer))
            modules.add(module)
            ranks.add(rank)
        elif name.startswith("head."):
            head[name.removeprefix("head.")] = tensor
        else:
            raise UserError(f"{network}: {name} is neither of a LoRA adapter nor of the head")
    if len(ranks) != 1 or set(head) != {"weight", "bias"}:
        raise UserError(f"{network}: adapters of one rank and a head are needed; train with rank above 0")
    (rank,) = ranks
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": 2 * rank,
        "target_modules": sorted(modules),
        "layers_to_transform": sorted(layers),
        "layers_pattern": "layers",
        "inference_mode": True,
    }
    (folder / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    save_file(adapter, folder / ADAPTER)
    save_file(head, folder / HEAD)
    return {name: digest_file(folder / name) for name in (ADAPTER, SETTINGS, HEAD)}
