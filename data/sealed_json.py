"""JSON files with the digest of their content: a damaged or edited file is refused."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from empathy_judge.data.errors import UserError
from empathy_judge.data.files import disk_errors, replacing
from empathy_judge.data.input_limits import LARGEST_SEALED, MB
from empathy_judge.data.readers.file_formats import parse_json
from empathy_judge.data.records import digest_json

DIGEST: Final = "digest"


def write_sealed(path: Path, content: Mapping[str, Any]) -> str:
    """Write an object as JSON with its digest; the file is complete or absent. Return the digest."""
    digest = digest_json(content)
    text = json.dumps({DIGEST: digest, **content}, ensure_ascii=False, allow_nan=False, indent=1)
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as partial:
            partial.write_text(f"{text}\n", encoding="utf-8", errors="surrogatepass")
    return digest


def read_sealed(path: Path, *, what: str, version: Any, remedy: str) -> dict[str, Any]:
    """Return the object of such a file, without its digest; refused where the two do not fit.

    `what` is the kind of file, `version` its `format`, and `remedy` says how to make a new one.
    """
    with disk_errors(path):
        if not path.is_file():
            raise UserError(f"{path}: no {what} here; {remedy}")
        if path.stat().st_size > LARGEST_SEALED:
            raise UserError(
                f"{path}: larger than {LARGEST_SEALED // MB} MB, the limit for a {what}; {remedy}"
            )
        raw = path.read_bytes()
    try:
        content = parse_json(raw)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: damaged, not JSON ({error}); {remedy}") from error
    if not isinstance(content, dict) or DIGEST not in content:
        raise UserError(f"{path}: not a {what}; {remedy}")
    if content.get("format") != version:
        found = content.get("format")
        raise UserError(f"{path}: format {found!r}; this version reads {version!r}; {remedy}")
    if content.pop(DIGEST) != digest_json(content):
        raise UserError(f"{path}: damaged or changed since it was written (digest differs); {remedy}")
    return content
