"""The better and slower judge: only the changes to its base are shipped, the base comes from its package."""

import os
import sys
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from data.errors import UserError
from judge.classifier import ClassifierJudge

WEIGHTS = Path(__file__).parent / "weights" / "classifier-large"


class LargeClassifierJudge(ClassifierJudge):
    """SmolLM2-135M with low-rank changes, merged once into a cache folder that may be deleted at any time.

    In full precision: some states of this base are so large that int8 loses the others.
    """

    name = "classifier-large"
    shipped = WEIGHTS
    judged_by = "network-0.safetensors"

    def __init__(self, *, weights: str = "", cache: str = "", rubric: str = "crowd") -> None:
        super().__init__(weights=weights, rubric=rubric)
        self.cache = Path(cache) if cache else find_cache()

    @cached_property
    def merged(self) -> Path:
        """Where base and changes lie as one; made on first use."""
        folder = self.cache / f"{self.name}-{self.version}"
        if not folder.exists():
            print(
                f"merging the large judge into {folder} (once, some minutes) ...", file=sys.stderr, flush=True
            )
            merge(self.folder, self.card, folder)
        return folder


def find_cache() -> Path:
    """The user's cache folder, as the XDG convention has it."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "empathy-judge"


def merge(weights: Path, card: dict[str, Any], folder: Path) -> None:
    """Base and changes as one ONNX file, in a folder that is there only when it is whole."""
    try:
        from judge.export import export_onnx
        from judge.network import load_network, merge_low_rank
    except ImportError as error:
        raise UserError(
            f"the large judge is merged with torch and transformers, and {error.name} is missing: "
            "pip install -c requirements.lock -e '.[train]'"
        ) from error
    from judge.recipe import build_recipe

    recipe = build_recipe(card["recipe"], place=str(weights))
    found = [load_network(recipe, weights / name) for name in sorted(card["files"])]
    for network, _ in found:
        merge_low_rank(network.base)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent) as scratch:
        export_onnx([network for network, _ in found], found[0][1], Path(scratch) / "merged", int8=False)
        with suppress(FileExistsError):  # another process has merged the same judge meanwhile
            os.rename(Path(scratch) / "merged", folder)
