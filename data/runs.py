"""A run folder: it can be resumed after any interruption, and is complete once it has a manifest.

    plan.json        what is asked of whom; written first, never changed
    journal.jsonl    judgments as they come; there only while the run is under way
    judgments.jsonl  the same lines, in the order of the input
    set_aside.jsonl  rows that could not be read, where they may be skipped
    summary.json     each model's shares
    manifest.json    written last; holds the digests of the other results and of itself
    lock             held by the process at work; the system releases it, even after kill -9

A judgment counts as made once its line is in the journal, unscored ones too: a resumed run asks for none of
them again. To have unscored responses asked again, start a new run: it reuses only the scored ones of others.

A model that answers prompts has such a folder as well: then `answers.jsonl` replaces `judgments.jsonl`.
"""

import json
import os
import shutil
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import chain
from pathlib import Path
from time import monotonic
from typing import Any

from empathy_judge.data.errors import OperationalError, UserError
from empathy_judge.data.files import (
    disk_errors,
    explain,
    locked,
    parse_json,
    read_sealed,
    replacing,
    sync,
    without_links,
    write_sealed,
)
from empathy_judge.data.readers.file_formats import BadRow, read_lines
from empathy_judge.data.records import Exchange, Judgment, danger_in, reply_features
from empathy_judge.data.storage import digest_file
from empathy_judge.data.tables import is_judgment, read_judgments, to_json, to_line, to_row

SYNC_SECONDS = 1.0  # a power cut costs this much work at most; a killed process costs none
BUSY = "process {process} is using this folder; wait until it finishes, or set another --out"
FORMAT = 2  # raise when a file of a finished run changes: runs of other formats are refused
REMEDY = "delete this folder and run the command that made it (`score`) again"
UNDER_WAY = frozenset({"lock", ".plan.json.partial"})  # what a run killed before its plan leaves behind
OnProgress = Callable[[int, int], None]  # how many of how many are done


class RunPlan(dict[str, Any]):
    """Everything that decides the rows of a run: with another value it is another run."""

    @property
    def digest(self) -> str:
        """The digest that names the run."""
        return sha256(to_json(self).encode()).hexdigest()[:16]

    def default_folder(self, parent: str, *names: str) -> Path:
        """Return the folder in `parent` that the same command finds again."""
        return Path(parent) / "-".join([*names, self.digest[:8]]).replace("/", "-")


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRun:
    """A finished run: its folder, its manifest, and the number of rows asked for just now."""

    folder: Path
    manifest: Mapping[str, Any]
    asked: int


def folder_name(model: str) -> str:
    """Return a model's name as part of a folder's."""
    safe = "".join(letter if letter.isalnum() or letter in "-._" else "-" for letter in model)
    return safe.strip(".-")[:60] or "model"


def seal_run(folder: Path, manifest: Mapping[str, Any], names: Sequence[str]) -> None:
    """Write the manifest with the digests of these files, as far as they exist; the run is finished then."""
    digests = {name: digest_file(folder / name) for name in names if (folder / name).exists()}
    write_sealed(folder / "manifest.json", {**manifest, "format": FORMAT, "files": digests})


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a finished run; refused where a file of it is missing or has changed."""
    if not (folder / "manifest.json").exists():
        raise UserError(f"{folder}: no finished run here; run its `score` command again")
    manifest, missing = _read_sealed_manifest(folder)
    if missing:
        raise UserError(f"{folder / missing[0]}: missing; run the `score` command of this run again")
    return manifest


def find_manifest(folder: Path, plan: RunPlan) -> dict[str, Any] | None:
    """Return the manifest of a finished run; None if it is not finished, an error if it is another run."""
    if not (folder / "plan.json").exists():
        return None
    _check_plan(folder, plan)
    # With a journal still there it was killed in its last step: that step is taken again.
    if not (folder / "manifest.json").exists() or (folder / "journal.jsonl").exists():
        return None
    manifest, missing = _read_sealed_manifest(folder)
    return None if missing else manifest


def _read_sealed_manifest(folder: Path) -> tuple[dict[str, Any], list[str]]:
    """Return the manifest and the names of missing files; refused where another file has changed."""
    path = folder / "manifest.json"
    manifest = read_sealed(path, what="manifest of a sealed run", version=FORMAT, remedy=REMEDY)
    del manifest["format"]
    files: dict[str, str] = manifest.pop("files")
    missing = [name for name in files if not (folder / name).exists()]
    for name in files.keys() - set(missing):
        if digest_file(folder / name) != files[name]:
            raise UserError(f"{folder / name}: changed since the run finished (digest differs); {REMEDY}")
    return manifest, missing


class Run:
    """A run under way, as `open_run` gives it; one thread at a time may call it."""

    def __init__(self, folder: Path, *, name: str = "judgments") -> None:
        self.folder = folder
        self.judgments = folder / f"{name}.jsonl"
        self.set_aside_count = 0
        self.asked = 0  # rows that this session asked for
        self.identities: dict[int, str] = {}  # by position, where it is not the content's digest
        self.twins: dict[int, tuple[Exchange, str]] = {}  # equal to an earlier exchange, with the identity
        self.on_row: Callable[[], object] = lambda: None  # called after each row, found or asked for
        self._journal = folder / "journal.jsonl"
        is_whole = is_judgment if name == "judgments" else lambda row: True
        self._earlier, self._end = _read_journal(self._journal, self.judgments, is_whole)
        # 8 bytes a row are all that grows here with the input: where the judgment of each position lies.
        self._offsets = array("q")
        self._stream = without_links(str(self._journal), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._synced = monotonic()
        (folder / "set_aside.jsonl").unlink(missing_ok=True)

    @property
    def has_more(self) -> bool:
        """Whether an earlier session has judgments of exchanges that are still to come."""
        return bool(self._earlier)

    def is_judged(self, position: int, exchange: Exchange) -> bool:
        """Return whether an earlier session judged this exchange; if so its judgment goes to `position`."""
        offset = self._earlier.pop(_key(exchange.id, exchange.content_digest), None)
        if offset is not None:
            self._place(position, offset)
            self.on_row()
        return offset is not None

    def keep(self, position: int, judgment: Judgment | Mapping[str, Any]) -> None:
        """Append a judgment, or a row with the `id` and `content_digest` of its exchange, to the journal."""
        self.keep_lines([position], [to_line(to_row(judgment))])

    def reuse(self, position: int, exchange: Exchange, judgment: Judgment) -> None:
        """Copy the judgment of an equal exchange to the journal, unless this exchange has one."""
        key = _key(exchange.id, exchange.content_digest)
        if key not in self._earlier:
            copied = replace(
                judgment,
                id=exchange.id,
                model=exchange.model,
                content_digest=exchange.content_digest,
                flag=danger_in(exchange),
                features=reply_features(exchange),
                identity=None,
            )
            line = self._identify(position, to_line(to_row(copied)))
            self._append(line)
            self._earlier[key] = self._end
            self._end += len(line)

    def copy_to_twins(self) -> None:
        """Copy the judgment of the first of equal exchanges to the others."""
        made = read_judgments(self._journal, on_bad=lambda bad: None) if self.twins else ()
        found = {item.identity or item.content_digest: item for item in made}
        for position, (exchange, identity) in self.twins.items():
            source = found[identity]
            self.reuse(position, exchange, replace(source, reused=source.reused or self.folder.name))
            self.is_judged(position, exchange)

    def keep_lines(self, positions: Sequence[int], lines: Sequence[bytes]) -> None:
        """Append judgments that are lines of JSON already, each to its position."""
        lines = list(map(self._identify, positions, lines))
        self._append(b"".join(lines))
        for position, line in zip(positions, lines, strict=True):
            self._place(position, self._end)
            self._end += len(line)
            self.asked += 1
            self.on_row()

    def _identify(self, position: int, line: bytes) -> bytes:
        identity = self.identities.get(position)
        return to_line({**parse_json(line), "identity": identity}) if identity else line

    def _append(self, left: bytes) -> None:
        try:
            while left:
                left = left[os.write(self._stream, left) :]
        except OSError as error:
            # A full disk takes half a line: the next one, of another thread, must not be joined to it.
            os.ftruncate(self._stream, self._end)
            raise OperationalError(f"{self.folder}: {explain(error)}") from error
        if monotonic() - self._synced > SYNC_SECONDS:
            with disk_errors(self.folder):
                os.fsync(self._stream)
            self._synced = monotonic()

    def set_aside(self, bad: BadRow) -> None:
        """Save a row that could not be read, with its line and the problem."""
        shard = {"file": bad.shard} if bad.shard else {}
        row = {**shard, "line": bad.line, "problem": bad.problem, "raw": bad.raw}
        path = self.folder / "set_aside.jsonl"
        with disk_errors(self.folder), open(path, "ab", opener=without_links) as out:
            out.write(to_line(row))
        self.set_aside_count += 1

    def write_judgments(self) -> None:
        """Write the judgments in the order of the input, line by line from the journal."""
        with disk_errors(self.folder), replacing(self.judgments) as partial:
            os.fsync(self._stream)
            with self._journal.open("rb") as journal, partial.open("wb") as out:
                for offset in self._offsets:
                    if offset >= 0:
                        journal.seek(offset)
                        out.write(journal.readline())

    def finish(self, *, manifest: Mapping[str, Any], summary: Mapping[str, Any] | None = None) -> None:
        """Write the summary, then the manifest, then delete the journal."""
        with disk_errors(self.folder):
            if self.set_aside_count:
                sync(self.folder / "set_aside.jsonl")
            if summary is not None:
                write_object(self.folder / "summary.json", summary)
            seal_run(self.folder, manifest, (self.judgments.name, "summary.json"))
            self._journal.unlink()

    def close(self) -> None:
        """Write the journal to the disk; `open_run` calls this however the run ends."""
        with disk_errors(self.folder):
            try:
                os.fsync(self._stream)
            finally:
                os.close(self._stream)

    def _place(self, position: int, offset: int) -> None:
        self._offsets.extend([-1] * (position + 1 - len(self._offsets)))
        self._offsets[position] = offset


@contextmanager
def open_run(
    folder: Path, plan: RunPlan, *, name: str = "judgments", known: Path | None = None
) -> Iterator[Run]:
    """Start a run in `folder`, or resume the one that is there; `name` is what it makes.

    A new run starts with the judgments in the file `known`. Refused when the folder holds another run or
    other files, or when another process is at work in it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if _gone(folder).exists():
            shutil.rmtree(_gone(folder))
    except (FileExistsError, NotADirectoryError) as error:
        raise UserError(f"{folder}: is a file; set another --out") from error
    except OSError as error:
        raise OperationalError(f"{folder}: {explain(error)}") from error
    with locked(folder, busy=BUSY):
        with disk_errors(folder):
            if (folder / "plan.json").exists():
                _check_plan(folder, plan)
            elif strangers := {item.name for item in folder.iterdir()} - UNDER_WAY:
                raise UserError(
                    f"{folder}: not a run folder (it has {min(strangers)!r} and no plan.json); "
                    "set --out to a new or empty folder"
                )
            else:
                write_object(folder / "plan.json", plan)
                if known:
                    shutil.copyfile(known, folder / "journal.jsonl")
            (folder / "manifest.json").unlink(missing_ok=True)
            run = Run(folder, name=name)
        try:
            yield run
        finally:
            run.close()


def run_all(
    folder: Path,
    plan: RunPlan,
    *,
    total: int,
    ask: Callable[[Run], object],
    conclude: Callable[[Run], Mapping[str, Any]],
    is_enough: Callable[[Mapping[str, Any]], bool] = lambda manifest: True,
    name: str = "judgments",
    known: Path | None = None,
    on_progress: OnProgress = lambda done, total: None,
) -> FinishedRun:
    """Ask for the rows that the run in `folder` does not have yet, and finish the run.

    A finished run whose manifest `is_enough` is left as it is. `ask` saves the answers in the run.
    `conclude` is called once the rows are written in order: it returns the keys of the manifest beside the
    plan and the time; a `summary` among them becomes a file of its own.
    """
    manifest = find_manifest(folder, plan)
    if manifest is not None and is_enough(manifest):
        return FinishedRun(folder=folder, manifest=manifest, asked=0)
    done, started = 0, monotonic()

    def count_one() -> None:
        nonlocal done
        done += 1
        if run.asked:  # what an earlier session did says nothing about the time left
            on_progress(done, max(done, total))

    with open_run(folder, plan, name=name, known=known) as run:
        run.on_row = count_one
        ask(run)
        run.write_judgments()
        manifest = {**plan, **conclude(run), "wall_seconds": round(monotonic() - started, 3)}
        run.finish(summary=manifest.pop("summary", None), manifest=manifest)
    return FinishedRun(folder=folder, manifest=manifest, asked=run.asked)


def find_known(folder: Path, plan: RunPlan) -> Path | None:
    """Return the judgments of a finished run beside it that differs by its calibration alone."""
    for other in _find_runs(folder.parent.glob("*/plan.json"), plan, "input"):
        if other != folder and (other / "manifest.json").exists():
            return other / "judgments.jsonl"
    return None


def find_judgments(plan: RunPlan, roots: Iterable[Path], wanted: Collection[str]) -> dict[str, Judgment]:
    """Return the scored judgments by this judge of `wanted` identities, those of the newest run first.

    They are from every run in one of `roots` or a folder in it, finished or not.
    """
    found: dict[str, Judgment] = {}
    plans = dict.fromkeys(chain.from_iterable(root.rglob("plan.json") for root in roots))
    for run in _find_runs(plans, plan):
        for path in (run / "judgments.jsonl", run / "journal.jsonl"):
            if path.exists() and len(found) < len(wanted):
                for item in read_judgments(path, on_bad=lambda bad: None):
                    name = item.identity or item.content_digest
                    if name in wanted and item.unscored is None:
                        found.setdefault(name, replace(item, reused=item.reused or run.name))
    return found


def _find_runs(plans: Iterable[Path], plan: RunPlan, *same: str) -> list[Path]:
    """Return the folders of sound runs with the judge of a plan and the `same` values, the newest first."""
    found: dict[Path, float] = {}
    for path in plans:
        with suppress(UserError, OSError):  # damaged, or discarded by another process just now
            other, keys = read_object(path), ("judge", "version", "rubric", *same)
            if not path.parent.name.startswith(".") and all(other.get(key) == plan[key] for key in keys):
                if (path.parent / "manifest.json").exists():
                    read_manifest(path.parent)
                found[path.parent] = path.stat().st_mtime
    return sorted(found, key=found.__getitem__, reverse=True)


def start_afresh(folder: Path, plan: RunPlan) -> None:
    """Discard the run in `folder`, and start one that reuses no judgments of others."""
    if (folder / "plan.json").exists():
        _check_plan(folder, plan)
        with locked(folder, busy=BUSY):
            discard_run(folder)
    with open_run(folder, RunPlan(plan, fresh=True)):
        pass


def is_fresh(folder: Path, *, unfinished: bool = False) -> bool:
    """Return whether the run in `folder` was started afresh, and is unfinished if that is asked for."""
    if not (folder / "plan.json").exists() or (unfinished and (folder / "manifest.json").exists()):
        return False
    return bool(read_object(folder / "plan.json").get("fresh"))


def discard_run(folder: Path) -> None:
    """Remove a run in a single step, so that the same command starts afresh even if this is killed."""
    with disk_errors(folder):
        os.replace(folder, _gone(folder))
        shutil.rmtree(_gone(folder))


def _gone(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.gone")


def _check_plan(folder: Path, plan: RunPlan) -> None:
    there = read_object(folder / "plan.json")
    differing = [
        f"{key} {str(there.get(key))[:16]} instead of {str(value)[:16]}"
        for key, value in plan.items()
        if there.get(key) != value
    ]
    if differing:
        raise UserError(
            f"{folder}: has another run ({', '.join(differing)}); set another --out, or delete this folder"
        )


def _read_journal(
    journal: Path, judgments: Path, is_whole: Callable[[dict[str, Any]], bool]
) -> tuple[dict[str, int], int]:
    """Return where each judgment of an earlier session starts, and where the journal ends."""
    if not journal.exists() and judgments.exists():
        os.replace(judgments, journal)  # a whole run that is asked for more: its judgments stay
        sync(journal.parent)
    earlier, end = dict[str, int](), 0
    if not journal.exists():
        return earlier, end
    with open(journal, "r+b", opener=without_links) as lines:
        for line in read_lines(lines):
            if line is None:  # no line of this program is that long
                end = lines.tell()
                continue
            if not line.endswith(b"\n"):
                break
            try:
                row = parse_json(line)
                key = _key(row["id"], row["content_digest"])
                if is_whole(row):
                    earlier[key] = end
            except (ValueError, KeyError, TypeError, RecursionError):
                pass  # damaged by a power cut, or another version's: its exchange is asked again
            end += len(line)
        lines.truncate(end)  # a line torn by a kill must not become the start of the next one
    return earlier, end


def _key(identity: str, content: str) -> str:
    return f"{content} {identity}"


def write_object(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object; the file is complete or absent."""
    with replacing(path) as partial:
        partial.write_text(json.dumps(content, indent=2) + "\n", encoding="ascii")


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object of a run's file."""
    with disk_errors(path):
        text = path.read_text(encoding="utf-8", errors="replace")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not JSON: {error}; delete the folder, or set another --out") from error
    if not isinstance(content, dict):
        raise UserError(f"{path}: expected a JSON object; delete the folder, or set another --out")
    return content
