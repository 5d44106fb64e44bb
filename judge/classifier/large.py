"""The better and slower judge: only the changes to its base are shipped, the base comes from its package."""

import json
import os
import shutil
import sys
from functools import cached_property
from pathlib import Path
from typing import Any

from data.errors import UserError, install_hint
from data.files import disk_errors, locked, sync
from data.storage import digest_file
from judge.classifier.judge import MODEL, TOKENIZER, ClassifierJudge

SUMS = "sums.json"  # the hashes of what was merged
WEIGHTS = Path(__file__).parents[1] / "weights" / "classifier-large"


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

    @property
    def merged_folder(self) -> Path:
        """Where base and changes lie as one once they are merged."""
        return self.cache / f"{self.name}-{self.weights[:12]}"

    @cached_property
    def merged(self) -> Path:
        """Where base and changes lie as one; made on first use."""
        folder = self.merged_folder
        if not (folder / SUMS).exists():
            print(
                f"merging the large judge into {folder} (once, some minutes) ...", file=sys.stderr, flush=True
            )
            merge(self.folder, self.card, folder)
        try:
            sums = json.loads((folder / SUMS).read_text(encoding="utf-8"))
            is_whole = set(sums) == {MODEL, TOKENIZER} and all(
                digest_file(folder / name) == digest for name, digest in sums.items()
            )
        except (OSError, UserError, ValueError, TypeError):
            is_whole = False
        if not is_whole:
            raise UserError(
                f"{folder}: damaged or changed since it was merged; delete it, and it is merged anew"
            )
        return folder


def find_cache() -> Path:
    """The user's cache folder, as the XDG convention has it."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "empathy-judge"


def merge(weights: Path, card: dict[str, Any], folder: Path) -> None:
    """Base and changes as one ONNX file, in a folder that is there only when it is whole."""
    try:
        from judge.classifier.export import export_onnx
        from judge.classifier.network import load_network, merge_low_rank
    except ImportError as error:
        raise UserError(
            f"the large judge is merged with torch and transformers, and {error.name} is missing: "
            f"{install_hint('train')}"
        ) from error
    from judge.classifier.recipe import build_recipe

    recipe = build_recipe(card["recipe"], place=str(weights))
    loaded = [load_network(recipe, weights / name) for name in sorted(card["files"])]
    for network, _ in loaded:
        merge_low_rank(network.base)
    with disk_errors(folder), locked(folder.parent):
        if (folder / SUMS).exists():
            return  # another process has merged the same judge meanwhile
        # Always under one name, so that what a killed merge left is taken away by the next.
        scratch = folder.with_name(f".{folder.name}.partial")
        for leavings in (scratch, folder):
            shutil.rmtree(leavings, ignore_errors=True)
        export_onnx([network for network, _ in loaded], loaded[0][1], scratch)
        sums = {name: digest_file(scratch / name) for name in (MODEL, TOKENIZER)}
        (scratch / SUMS).write_text(json.dumps(sums, indent=1) + "\n", encoding="ascii")
        for name in (*sums, SUMS):
            sync(scratch / name)
        os.replace(scratch, folder)
