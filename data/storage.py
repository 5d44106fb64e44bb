"""Where responses lie: a file, a folder, a glob, standard input, or a URL that fsspec opens."""

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
from glob import glob
from hashlib import file_digest, sha256
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import IO, Any, cast

from empathy_judge.data.errors import OperationalError, UserError, install_hint
from empathy_judge.data.files import disk_errors
from empathy_judge.data.text import PASSWORD

SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".parquet", ".xlsx", ".eval")
STDIN = "-"
BLOCK = 1 << 20
KNOWN_PLACES = "use a path, or a URL that fsspec knows (s3://, gs://)"


@dataclass(frozen=True, slots=True)
class Remote:
    """A file behind a URL, with as much of `Path` as a reader needs; read in blocks, never fetched whole."""

    url: str

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        return PurePosixPath(self.url).name

    @property
    def stem(self) -> str:
        return PurePosixPath(self.url).stem

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.url).suffix

    def open(self, mode: str = "rb") -> IO[bytes]:
        """The bytes; seeking is possible, as Parquet needs."""
        with store_errors(self.url):
            files, path = _connect(self.url)
            # Buffered once more: line by line, fsspec's own files are slow.
            return io.BufferedReader(files.open(path, mode, block_size=4 * BLOCK), BLOCK)


Table = Path | Remote


def kind_of(table: Table | PurePosixPath) -> str:
    """Return the suffix that decides how a file is read; none of a file that is not read.

    >>> kind_of(Path("gpt-4.1.CSV")), kind_of(Path("night.jsonl.gz")), kind_of(Path("notes.txt"))
    ('.csv', '.jsonl', '')
    """
    suffix = PurePosixPath(re.sub(r"(?i)(\.jsonl?|\.[ct]sv)\.gz$", r"\1", table.name)).suffix.lower()
    return suffix if suffix in SUFFIXES else ""


@contextmanager
def open_table(table: Table) -> Iterator[IO[bytes]]:
    """Open a file for reading; gzip is decompressed."""
    with table.open("rb") as stream:
        is_zipped = table.suffix.lower() == ".gz"
        yield cast(IO[bytes], gzip.GzipFile(fileobj=stream)) if is_zipped else stream


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns hold what, as far as a person said so; several responses are one column a model."""

    prompt: str | None = None
    responses: tuple[str, ...] = ()
    model: str | None = None

    def __bool__(self) -> bool:
        return bool(self.prompt or self.responses or self.model)


NONE_NAMED = Columns()


@dataclass(frozen=True, slots=True)
class Shards:
    """Tables read one after another, in the order of their names, as if they were one.

    `models` are the tables' own names, for rows that name no model; `columns` are those a person named;
    `warnings` are about files that are skipped.
    """

    place: str
    stem: str  # what a run over them is called
    tables: tuple[tuple[str, Table], ...]  # each under its name from where they lie
    models: tuple[str, ...] = ()
    columns: Columns = NONE_NAMED
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.place


Source = Table | Shards


def find_source(place: str) -> Source:
    """Return the table, or the shards, of a path, a quoted glob, a URL, or - for standard input."""
    place = place.removeprefix("file://")
    if place == STDIN:
        return _save_stdin()[0]
    if "://" in place:
        if PASSWORD.search(place):
            raise UserError(
                "the URL holds a password, which would be printed and stored with the run; "
                "set the credentials of the store in its own variables or files"
            )
        return _find_remote(place)
    path = Path(place)
    if path.is_dir():
        files = [item for item in sorted(path.iterdir()) if item.is_file() and not _is_hidden(item.name)]
        return _gather(place, path.name or "responses", [(item.name, item) for item in files])
    if re.search(r"[*?[]", place) and not path.exists():
        matched = [Path(item) for item in sorted(glob(place, recursive=True)) if Path(item).is_file()]
        folder = Path(os.path.commonpath([item.parent for item in matched])) if matched else Path()
        return _gather(place, folder.name or "responses", [(_below(item, folder), item) for item in matched])
    return path


def find_sources(places: Sequence[str | Path], columns: Columns = NONE_NAMED) -> Shards:
    """All that a person means by several places, as one source; each place names the model of its rows."""
    found = [find_source(str(place)) for place in places]
    warnings = tuple(line for source in found if isinstance(source, Shards) for line in source.warnings)
    if len(found) > 1:
        for place, source in zip(places, found, strict=True):
            if [str(item) for item in found].count(str(source)) > 1:
                raise UserError(f"{place}: passed twice; pass each file once")
    names = tell_apart([str(source).rstrip("/") for source in found])
    tables, models = [], []
    for name, source in zip(names, found, strict=True):
        for below, table in shards_of(source):
            if len(found) > 1:
                below = f"{name}/{below}" if below else name + kind_of(table)
            tables.append((below, table))
            models.append(name)
    is_folder = len(found) == 1 and isinstance(found[0], Shards)
    stem = found[0].stem if is_folder else "-".join(names[:2]).replace("/", "-")
    stem += f"-and-{len(found) - 2}-more" if len(found) > 2 else ""
    return Shards(" ".join(map(str, places)), stem, tuple(tables), tuple(models), columns, warnings)


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


def tell_apart(places: Sequence[str]) -> list[str]:
    """The files' names without their suffix, with as many folders before them as tell them apart.

    >>> tell_apart(["new/gpt.csv", "old/gpt.csv"]), tell_apart(["a/gpt-4.1.csv", "b/claude.jsonl"])
    (['new/gpt', 'old/gpt'], ['gpt-4.1', 'claude'])
    """
    parts = []
    for place in places:
        path = PurePosixPath(place.replace(os.sep, "/"))
        stem = re.sub(rf"(?i){kind_of(path)}(\.gz)?$", "", path.name) if kind_of(path) else path.name
        parts.append((*path.parts[:-1], stem))
    for depth in range(1, 1 + max(map(len, parts), default=0)):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return list(places)


def shards_of(source: Source) -> tuple[tuple[str, Table], ...]:
    """The tables of a source with their names; a single one has none, and its rows bear their lines alone."""
    return source.tables if isinstance(source, Shards) else (("", source),)


def check_source(source: Source) -> None:
    """Refuse at once what cannot be read."""
    for _, table in shards_of(source):
        check_table(table)


def check_table(path: Table) -> None:
    """Refuse at once what cannot be a table."""
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
    """Return the SHA-256 of a file, or of the names and contents of all shards, wherever they lie."""
    each = [digest_file(table) for _, table in shards_of(source)]
    if not isinstance(source, Shards):
        return each[0]
    if len(each) == 1 and not source.tables[0][0] and not source.columns:
        return each[0]
    lines = [f"{digest} {name}\n" for digest, (name, _) in zip(each, source.tables, strict=True)]
    lines += [repr(source.columns)] if source.columns else []  # other columns are other responses
    return sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


@contextmanager
def store_errors(table: object) -> Iterator[None]:
    """Turn what a store refuses into an error that names the place and the fix."""
    try:
        yield
    except UserError:
        raise
    except FileNotFoundError as error:
        raise UserError(f"{table}: no such file") from error
    except ValueError as error:  # a driver's own word for an address it cannot read
        raise UserError(f"{table}: {error}; {KNOWN_PLACES}") from error
    except ImportError as error:  # fsspec names the driver that is missing
        hint = f"install fsspec and the driver of the store, such as {install_hint('stores')}"
        raise UserError(f"{table}: {error}; {hint}") from error
    except Exception as error:  # drivers raise errors of their own for what the world does to them
        problem = str(error).strip() or type(error).__name__
        raise OperationalError(
            f"{table}: {problem}; check the address and the store's credentials"
        ) from error


def _find_remote(url: str) -> Source:
    with store_errors(url):
        files, root = _connect(url)
        if re.search(r"[*?[]", root):
            items = [item for item in files.glob(root) if not files.isdir(item)]
            root = os.path.commonpath([str(PurePosixPath(item).parent) for item in items]) if items else ""
        elif files.isdir(root):
            items = [item for item in files.ls(root, detail=False) if not files.isdir(item)]
        elif files.exists(root):
            return Remote(url)
        else:
            raise FileNotFoundError
        shown = sorted(item for item in items if not _is_hidden(PurePosixPath(item).name))
        named = [(_below(item, root), Remote(files.unstrip_protocol(item))) for item in shown]
    return _gather(url, PurePosixPath(root).name or "responses", named)


def _connect(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path there."""
    import fsspec

    files, path = fsspec.core.url_to_fs(url)
    return files, path


def _gather(place: str, stem: str, named: list[tuple[str, Any]]) -> Shards:
    tables = [(name, table) for name, table in named if kind_of(table)]
    if not tables:
        raise UserError(f"{place}: no file to read; use one of {', '.join(SUFFIXES)}")
    if {"plan.json", "judgments.jsonl"} <= {name for name, _ in named}:
        raise UserError(f"{place}: a run, which is scored already; pass it to `compare` or `calibrate`")
    skipped = [name for name, table in named if not kind_of(table)]
    note = f"Skipped files that are not one of {', '.join(SUFFIXES)}: {', '.join(skipped)[:200]}"
    return Shards(place, stem, tuple(tables), warnings=(note,) if skipped else ())


def _below(item: object, root: object) -> str:
    return PurePosixPath(os.path.relpath(str(item), str(root))).as_posix()


def _is_hidden(name: str) -> bool:
    """Left by other tools beside the shards: `_SUCCESS`, `.part-0.crc`."""
    return name.startswith((".", "_"))
