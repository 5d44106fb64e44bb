"""Files that are complete or absent, whatever happens while they are written; strict and sealed JSON; limits.

A sealed file has the digest of its content: a damaged or edited one is refused.
"""

import errno
import fcntl
import json
import math
import os
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from empathy_judge.data.errors import OperationalError, UserError

DIGEST: Final = "digest"
FIXES = {
    errno.ENOSPC: "free some space, then run the command again to resume",
    errno.EDQUOT: "free some space, then run the command again to resume",
    errno.EFBIG: "allow larger files (ulimit -f), then run the command again",
    errno.EIO: "the disk or its connection fails; fix it, then run the command again",
    errno.EROFS: "choose a folder on a writable disk",
    errno.EACCES: "change its permissions, or choose another",
    errno.EPERM: "change its permissions, or choose another",
    errno.ELOOP: "remove the link, or choose another folder",
}

# Limits of what is read; whatever exceeds one is refused with its number.
MB: Final = 1 << 20

# Files
LONGEST_LINE: Final = 16 * MB  # bytes of a line of JSON or CSV; usual rows have a few thousand
LARGEST_WHOLE: Final = 128 * MB  # bytes of a file that is read whole, as one JSON value is
LARGEST_ARCHIVE: Final = 128 * MB  # bytes of a workbook or an Inspect log without its compression
LARGEST_BATCH: Final = 64 * MB  # bytes of 256 rows of Parquet without their compression
MOST_EXPANSION: Final = 1_000  # times the size of a Parquet file, if that is more than a batch
LARGEST_SEALED: Final = 64 * MB  # bytes of a calibration, a plan or another file of this program
MOST_COLUMNS: Final = 16_384  # as many as Excel has
MOST_ROWS: Final = 1 << 20  # of a workbook, as many as Excel has
MOST_CELLS: Final = 1 << 25  # of a workbook, empty ones included
MOST_BAD_ROWS: Final = 1_000  # before the shape of a table is known
MOST_PARTS: Final = 256  # exchanges in one row
MOST_DIGITS: Final = 308  # as many as a number with a decimal point can have before it
DEEPEST_MESSAGES: Final = 6  # as deep as messages are nested in what tools write
LONGEST_TEXT: Final = 100_000  # characters; a longer text is a mistake far more often than a reply
LONGEST_RAW: Final = 1 << 16  # bytes saved of a line that cannot be read
LONGEST_COLUMN: Final = 200  # characters; the patterns of columns take the square of its length
MOST_ITEMS: Final = 5_000  # turns of a dialogue, or values in another field of a row

# Requests to the server
LARGEST_BODY: Final = MB  # bytes of a request
MOST_EXCHANGES: Final = 256  # in a request
LONGEST_EXCHANGE: Final = 200_000  # characters of all its texts together
MOST_QUEUED: Final = 512  # runs of the judge's network accepted at once
MOST_CONNECTIONS: Final = 512  # and as many that wait to be accepted
MOST_OPEN_FILES: Final = 8192
IDLE_SECONDS: Final = 30.0  # for a whole request to arrive, or an answer to be read
BODY_TIMEOUT: Final = 30.0  # seconds for the whole body to arrive
DRAIN_FACTOR: Final = 32  # times the limit that is read of an oversized body, so that the sender gets the 413
LONGEST_RETRY: Final = 600  # seconds in Retry-After
DEEPEST_BODY: Final = 32  # nested containers
MOST_FIELDS: Final = 100  # properties of a JSON schema, and options of one of them
LONGEST_OPTION: Final = 80  # characters of an option that are compared with a label

# Raters
LONGEST_REASON: Final = 2_000  # characters
LARGEST_RATING: Final = 64 << 10  # bytes of one rating that the page sends
LONGEST_TIME: Final = 40  # characters


def without_links(path: str, flags: int) -> int:
    """Open a file for writing without following symbolic links."""
    try:
        return os.open(path, flags | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        problem = f"{os.path.basename(path)} is a symbolic link; nothing is written through it"
        raise OSError(errno.ELOOP, problem, path) from None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a path to write to; once written, it replaces `path` in a single step.

    Its name is always the same, so that the next process overwrites what a killed one left. Of two processes
    that write the same file at once, the second waits for the first.
    """
    partial = path.with_name(f".{path.name}.partial")
    with _held(partial):
        try:
            yield partial
            # Content first, name second: after a power cut the name must not point at an empty file.
            sync(partial)
            os.replace(partial, path)
            sync(path.parent)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


@contextmanager
def locked(folder: Path, *, busy: str) -> Iterator[None]:
    """Let one process at a time work in a folder; the system releases the lock, even after kill -9.

    A second process is refused with the sentence `busy`, in which {process} is the first one's id.
    """
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = open(folder / "lock", "a+", encoding="ascii", opener=without_links)  # noqa: SIM115 (closed below)
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            process = lock.read().strip() or "unknown"
            raise OperationalError(f"{folder}: {busy.format(process=process)}") from None
        with disk_errors(folder):
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
        yield


@contextmanager
def _held(partial: Path) -> Iterator[None]:
    """Lock an empty file for this process; the system releases it, even after kill -9."""
    while True:
        with open(partial, "ab", opener=without_links) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                is_ours = os.path.samestat(os.fstat(lock.fileno()), os.lstat(partial))
            except FileNotFoundError:
                is_ours = False
            if not is_ours:
                continue  # its holder renamed or removed it
            os.ftruncate(lock.fileno(), 0)
            yield
            return


def sync(path: Path) -> None:
    """Wait until a file or folder has reached the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class LineFile:
    """A file of JSON lines that grows; a line is on the disk before `append` returns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with disk_errors(path):
            # Unbuffered, so that a line that a full disk refused does not come with the next one.
            self._file = open(path, "ab", buffering=0, opener=without_links)  # noqa: SIM115 (kept open)
            # A torn line was never acknowledged.
            self._file.truncate(path.read_bytes().rfind(b"\n") + 1)
            sync(path.parent)

    def append(self, line: str) -> None:
        """Add a line."""
        content = line.encode() + b"\n"
        with disk_errors(self._path):
            end = self._path.stat().st_size
            try:
                if self._file.write(content) != len(content):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(self._file.fileno())
            except OSError:
                os.truncate(self._path, end)
                raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn an error of the disk into one that names the path and the fix."""
    try:
        yield
    except OSError as error:
        raise OperationalError(f"{path}: {explain(error)}") from error


def explain(error: OSError) -> str:
    """Return the error's text, and the fix if one is known."""
    reason = (error.strerror or str(error) or type(error).__name__).lower()
    fix = FIXES.get(error.errno or 0)
    return f"{reason}; {fix}" if fix else reason


def read_toml(path: Path) -> dict[str, Any]:
    """Return the table of a TOML file; an error names the file and the line."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file") from error
    except (OSError, ValueError, RecursionError) as error:  # ValueError: also a number of 5,000 digits
        raise UserError(f"{path}: not TOML: {error}") from error


def write_texts(files: Mapping[str, str], folder: Path) -> list[Path]:
    """Write a report's files, each whole or not at all."""
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            with replacing(folder / name) as partial:
                partial.write_text(text, encoding="utf-8")
    return [folder / name for name in files]


class BadValue(ValueError):
    """JSON that two parsers could read in different ways."""


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise BadValue(f"the key {twice[:40]!r} occurs twice in one object")
    return table


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        is_word = text.lstrip("-").isalpha()  # NaN or Infinity
        raise BadValue(f"{text} is not a number" if is_word else "a number is too large")
    return number


def _whole(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise BadValue("a number is too large")
    return int(text)


DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_unique_keys, parse_constant=_finite, parse_float=_finite, parse_int=_whole
)


def parse_json(text: str | bytes) -> Any:
    """Parse JSON strictly; raise `ValueError` where it is not JSON, or where two parsers could differ."""
    if isinstance(text, bytes):
        text = text.strip().decode("utf-8", "surrogatepass")  # a lone surrogate is text too
    return DECODER.decode(text)


def digest_json(value: Any) -> str:
    """Return the SHA-256 of a value as JSON in ASCII, with sorted keys."""
    return sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


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
