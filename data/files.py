"""Files that are complete or absent, whatever happens while they are written."""

import errno
import fcntl
import os
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from empathy_judge.data.errors import OperationalError, UserError

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


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn an error of the disk into one that names the path and the fix."""
    try:
        yield
    except OSError as error:
        raise OperationalError(f"{path}: {explain(error)}") from error


def explain(error: OSError) -> str:
    """Return the error's text, and the fix if one is known.

    >>> explain(OSError(errno.EROFS, "Read-only file system"))
    'read-only file system; choose a folder on a writable disk'
    """
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
