"""Sources of responses: a file, a folder, a glob, standard input, or a URL that fsspec opens."""

import gzip
import io
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from hashlib import file_digest, sha256
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import IO, cast

from empathy_judge.data.errors import OperationalError, UserError, install_hint
from empathy_judge.data.files import disk_errors
from empathy_judge.data.text import PASSWORD

SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".parquet", ".xlsx", ".eval")
STDIN = "-"
BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Remote:
    """A file behind a URL, with as much of `Path` as a reader needs; read in blocks, never fetched whole."""

    url: str

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        return PurePosixPath(self.url).name

    def open(self, mode: str = "rb") -> IO[bytes]:
        """Open the file for reading; seeking is possible, as Parquet needs."""
        with store_errors(self.url):
            import fsspec

            files, path = fsspec.core.url_to_fs(self.url)
            # Buffered once more: line by line, fsspec's own files are slow.
            return io.BufferedReader(files.open(path, mode, block_size=4 * BLOCK), BLOCK)


Table = Path | Remote


def kind_of(table: Table | PurePosixPath) -> str:
    """Return the suffix that decides how a file is read; none of a file that is not read."""
    suffix = PurePosixPath(re.sub(r"(?i)(\.jsonl?|\.[ct]sv)\.gz$", r"\1", table.name)).suffix.lower()
    return suffix if suffix in SUFFIXES else ""


@contextmanager
def open_table(table: Table) -> Iterator[IO[bytes]]:
    """Open a file for reading; gzip is decompressed."""
    with table.open("rb") as stream:
        is_zipped = table.name.lower().endswith(".gz")
        yield cast(IO[bytes], gzip.GzipFile(fileobj=stream)) if is_zipped else stream


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns that the user named; where each model has its own column, `responses` are several."""

    prompt: str | None = None
    responses: tuple[str, ...] = ()
    model: str | None = None

    def __bool__(self) -> bool:
        return bool(self.prompt or self.responses or self.model)


@dataclass(frozen=True, slots=True)
class Shards:
    """Tables that are read one after another, in the order of their names, as if they were one."""

    path: str
    """The path, glob or URL of the tables."""
    stem: str
    """The name of a run over them."""
    tables: tuple[tuple[str, Table], ...]
    """Each table under its name below `path`; a single file has no name."""
    models: tuple[str, ...] = ()
    """The model of each table's rows that name none."""
    columns: Columns = Columns()
    """The columns that the user named."""
    warnings: tuple[str, ...] = ()
    """Sentences about files that are skipped."""

    def __str__(self) -> str:
        return self.path


Source = Table | Shards


def as_shards(source: Source) -> Shards:
    """Return a source as shards: a single file is one shard without a name."""
    if isinstance(source, Shards):
        return source
    return Shards(str(source), unique_names([str(source)])[0], (("", source),))


def find_source(path: str) -> Shards:
    """Return the tables of a path, a quoted glob, a URL, or - for standard input."""
    path = path.removeprefix("file://")
    is_remote, is_glob = "://" in path, bool(re.search(r"[*?[]", path))
    if path == STDIN:
        return as_shards(_save_stdin()[0])
    if is_remote and PASSWORD.search(path):
        raise UserError(
            "the URL holds a password, which would be printed and stored with the run; "
            "set the credentials of the store in its own variables or files"
        )
    if not is_remote and not Path(path).is_dir() and (Path(path).exists() or not is_glob):
        return as_shards(Path(path))
    with store_errors(path):
        import fsspec

        files, root = fsspec.core.url_to_fs(path)
        if files.isdir(root):
            items = files.ls(root, detail=False)
        elif is_glob:
            items = files.glob(root)
            root = os.path.commonpath([str(PurePosixPath(item).parent) for item in items]) if items else ""
        elif files.exists(root):
            return as_shards(Remote(path))
        else:
            raise FileNotFoundError
        # Other tools leave files such as `_SUCCESS` and `.part-0.crc`.
        items = [item for item in sorted(items) if PurePosixPath(item).name[0] not in "._"]
        items = [item for item in items if not files.isdir(item)]
        if not is_remote and not Path(path).is_absolute():
            items, root = [os.path.relpath(item) for item in items], os.path.relpath(root)
        names = [PurePosixPath(os.path.relpath(item, root)).as_posix() for item in items]
        found = [Remote(files.unstrip_protocol(item)) if is_remote else Path(item) for item in items]
    tables = tuple((name, table) for name, table in zip(names, found, strict=True) if kind_of(table))
    if not tables:
        raise UserError(f"{path}: no file to read; use one of {', '.join(SUFFIXES)}")
    if {"plan.json", "judgments.jsonl"} <= set(names):
        raise UserError(f"{path}: a run, which is scored already; pass it to `compare` or `calibrate`")
    skipped = ", ".join(table.name for table in found if not kind_of(table))
    note = f"Skipped files that are not one of {', '.join(SUFFIXES)}: {skipped[:200]}"
    return Shards(path, PurePosixPath(root).name or "responses", tables, warnings=(note,) if skipped else ())


def find_sources(paths: Sequence[str | Path], columns: Columns | None = None) -> Shards:
    """Return the tables of several paths as one source; each path names the model of its rows."""
    found = [find_source(str(path)) for path in paths]
    names = unique_names([source.path.rstrip("/") for source in found])
    tables, models = [], []
    for name, source in zip(names, found, strict=True):
        if [item.path for item in found].count(source.path) > 1:
            raise UserError(f"{source}: passed twice; pass each file once")
        for below, table in source.tables:
            if len(found) > 1:
                below = f"{name}/{below}" if below else name + kind_of(table)
            tables.append((below, table))
            models.append(name)
    stem = found[0].stem if len(found) == 1 else "-".join(names[:2]).replace("/", "-")
    stem += f"-and-{len(found) - 2}-more" if len(found) > 2 else ""
    warnings = tuple(line for source in found for line in source.warnings)
    return Shards(
        " ".join(map(str, paths)), stem, tuple(tables), tuple(models), columns or Columns(), warnings
    )


@cache
def _save_stdin() -> tuple[Path, TemporaryDirectory[str]]:
    """Save standard input in a file for as long as the process runs: it is read more than once."""
    folder = TemporaryDirectory(prefix="empathy-judge-")
    start = sys.stdin.buffer.readline(BLOCK)
    first, last = start.strip()[:1], start.strip()[-1:]
    kind = ".jsonl" if first + last == b"{}" else ".json" if first in (b"[", b"{") else ".csv"
    path = Path(folder.name, "stdin" + (".jsonl.gz" if start[:2] == b"\x1f\x8b" else kind))
    with disk_errors(path), path.open("wb") as out:
        out.write(start)
        shutil.copyfileobj(sys.stdin.buffer, out)
    return path, folder


def unique_names(paths: Sequence[str]) -> list[str]:
    """Return the files' names without their suffix, with as many folders before them as make them unique."""
    parts = []
    for path in (PurePosixPath(path.replace(os.sep, "/")) for path in paths):
        stem = re.sub(rf"(?i){kind_of(path)}(\.gz)?$", "", path.name) if kind_of(path) else path.name
        parts.append((*path.parts[:-1], stem))
    for depth in range(1, 1 + max(map(len, parts), default=0)):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return list(paths)


def check_source(source: Source) -> None:
    """Refuse a source that cannot be read, before anything else is done."""
    for _, table in as_shards(source).tables:
        check_table(table)


def check_table(path: Table) -> None:
    """Refuse a path that is no table."""
    if isinstance(path, Path) and not path.exists():
        raise UserError(f"{path}: no such file")
    if isinstance(path, Path) and path.is_dir():
        raise UserError(f"{path}: is a folder; expected a file")
    if not kind_of(path):
        raise UserError(f"{path}: unknown file type; use one of {', '.join(SUFFIXES)}")


def digest_file(table: Table) -> str:
    """Return the SHA-256 of a file's bytes."""
    with disk_errors(table) if isinstance(table, Path) else store_errors(table), table.open("rb") as stream:
        return file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]


def digest_source(source: Source) -> str:
    """Return the SHA-256 of a file, or of the names and contents of all shards."""
    shards = as_shards(source)
    lines = [f"{digest_file(table)} {name}\n" for name, table in shards.tables]
    if len(lines) == 1 and not shards.tables[0][0] and not shards.columns:
        return lines[0].split()[0]
    lines += [repr(shards.columns)] if shards.columns else []  # other columns are other responses
    return sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


@contextmanager
def store_errors(table: object) -> Iterator[None]:
    """Turn an error of a store into one that names the path and the fix."""
    try:
        yield
    except UserError:
        raise
    except FileNotFoundError as error:
        raise UserError(f"{table}: no such file") from error
    except ValueError as error:  # the address is not one of the driver's
        raise UserError(f"{table}: {error}; use a path, or a URL that fsspec knows (s3://, gs://)") from error
    except ImportError as error:  # fsspec names the driver that is missing
        hint = f"install the driver of the store, such as {install_hint('stores')}"
        raise UserError(f"{table}: {error}; {hint}") from error
    except Exception as error:  # drivers raise errors of their own
        problem = str(error).strip() or type(error).__name__
        raise OperationalError(
            f"{table}: {problem}; check the address and the store's credentials"
        ) from error
