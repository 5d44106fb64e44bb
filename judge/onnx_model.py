"""ONNX models on disk: the card with the digests of their files, and sessions that run them."""

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

from empathy_judge.data.errors import UserError
from empathy_judge.data.storage import digest_file

NO_REPORTS = "ORT_DISABLE_TELEMETRY"
MODEL, TOKENIZER, CARD = "model.onnx", "tokenizer.json", "card.json"


def open_session(path: Path) -> Any:
    """Return an ONNX Runtime session of a model file."""
    onnxruntime = import_onnxruntime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    # Planning reuse takes quadratic time, 1.1 s of 24 layers, and saves neither time nor memory of a run.
    options.enable_mem_reuse = False
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def import_onnxruntime() -> Any:
    """Import ONNX Runtime without its reports of use over the network and its device id."""
    before = os.environ.get(NO_REPORTS)
    os.environ[NO_REPORTS] = "1"
    import onnxruntime

    if before is None:  # the environment is the caller's, and of its child processes
        del os.environ[NO_REPORTS]
    return onnxruntime


def read_card(folder: Path) -> dict[str, Any]:
    """Return the card of a trained judge, which must be complete."""
    try:
        card: dict[str, Any] = json.loads((folder / CARD).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"{folder}: no trained judge ({CARD} is missing)") from error
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{folder / CARD}: cannot be read: {error}; install or train again") from error
    missing = {"files", "caveat"} - set(card if isinstance(card, dict) else ())
    if missing:
        raise UserError(f"{folder / CARD}: lacks {', '.join(sorted(missing))}; install or train again")
    if not isinstance(card["files"], dict) or not card["files"]:
        raise UserError(f"{folder / CARD}: files: expected names and hashes, not {card['files']!r}")
    return card


def check_files(folder: Path, stated: dict[str, str]) -> str:
    """Refuse weights that are not the ones on the card; returns one hash of them all."""
    digest = sha256()
    for name, expected in sorted(stated.items()):
        actual = digest_file(folder / name)
        if actual != expected:
            raise UserError(
                f"{folder / name}: damaged or changed (its hash is not the one on the card); install again"
            )
        digest.update(actual.encode())
    return digest.hexdigest()
