"""Pretrained bases: published files, bound by SHA-256, and how transformers loads them."""

from contextlib import redirect_stderr
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, Final

from empathy_judge.data.errors import UserError
from empathy_judge.data.storage import digest_file


@dataclass(frozen=True, slots=True)
class PublishedBase:
    """A file with the weights of a base, in a repository of the Hugging Face hub."""

    repository: str
    file: str
    sha256: str

    def find(self, given: str = "") -> Path:
        """Return the path of the file: given, or in the given folder, or in the Hugging Face cache.

        A file with another SHA-256 is refused.
        """
        from huggingface_hub import try_to_load_from_cache

        download = f"run `hf download {self.repository} {self.file}`"
        if not self.repository:  # the adapter was trained on a base of one's own
            given, download = given or ".", f"set `base` to the folder with the {self.file} it was trained on"
        if given:
            path = Path(given, self.file) if Path(given).is_dir() else Path(given)
            if not path.is_file():
                raise UserError(f"base: there is no file {path}; {download} and leave `base` out")
        elif isinstance(cached := try_to_load_from_cache(self.repository, self.file), str):
            path = Path(cached)
        else:
            raise UserError(f"the base is not in the Hugging Face cache: {download}")
        if (found := digest_file(path)) != self.sha256:
            raise UserError(f"{path}: SHA-256 {found} instead of {self.sha256}; delete it and {download}")
        return path


PUBLISHED_BASES: Final = {
    "qwen2.5-coder-1.5b": PublishedBase(
        "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
        "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    ),
}


def load_pretrained(path: Path) -> tuple[Any, Any]:
    """Return a model in single precision and its tokenizer, from a GGUF file or a transformers folder."""
    import torch
    from tokenizers import Tokenizer
    from transformers import AutoModel, AutoTokenizer
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # type: ignore[no-untyped-call]
    if path.suffix == ".gguf":
        with redirect_stderr(StringIO()):  # this progress bar cannot be switched off
            model = AutoModel.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
        return model, AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name).backend_tokenizer
    if missing := [name for name in ("config.json", "tokenizer.json") if not (path / name).exists()]:
        raise UserError(f"{path}: not the folder of a base ({' and '.join(missing)} missing)")
    model = AutoModel.from_pretrained(path, local_files_only=True, dtype=torch.float32)
    return model, Tokenizer.from_file(str(path / "tokenizer.json"))
