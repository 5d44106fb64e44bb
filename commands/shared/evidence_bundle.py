"""What was checked, as one dated file for whoever must show it: a zip with the hashes of all it holds."""

import json
import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from hashlib import sha256
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Final
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile, ZipInfo

from calibration.artifact import CALIBRATION_FILE, read_calibration
from data.crisis import READING_LIST
from data.errors import UserError
from data.files import disk_errors, replacing
from data.rubric import RUBRICS, read_rubric
from data.runs import read_object
from data.storage import digest_file
from data.tables import read_judgments, read_rows, to_json
from data.text import percent
from judge.base import WEIGHTS

MANIFEST: Final = "manifest.json"
README: Final = "README.txt"
FORMAT: Final = 1
RATINGS: Final = "ratings.jsonl"
WITH_TEXTS: Final = frozenset({READING_LIST, "judgments.jsonl", "set_aside.jsonl"})  # quote what people wrote


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One file of a bundle; without `content` it is not in it, and known there by its hash alone."""

    name: str
    what: str
    sha256: str
    size: int
    content: bytes | None = field(default=None, repr=False)


@dataclass(slots=True)
class Gathered:
    """What goes into a bundle: files, sentences on what they show, and what there is no proof of."""

    files: list[Evidence] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    read: set[str] = field(default_factory=set)  # contents that people rated
    to_read: dict[str, set[str]] = field(default_factory=dict)  # by run, contents for people to read
    calibrations: dict[str, Path] = field(default_factory=dict)  # by digest
    rubrics: dict[str, Path] = field(default_factory=dict)

    def add(self, name: str, what: str, content: bytes) -> None:
        """Put a file in, once."""
        if name not in {item.name for item in self.files}:
            digest = sha256(content).hexdigest()
            self.files.append(
                Evidence(name=name, what=what, sha256=digest, size=len(content), content=content)
            )

    def add_file(self, path: Path, name: str, what: str, *, is_kept: bool = True) -> None:
        """Put a file of the disk in, or only its hash."""
        with disk_errors(path):
            if is_kept:
                self.add(name, what, path.read_bytes())
            else:
                told = Evidence(name=name, what=what, sha256=digest_file(path), size=path.stat().st_size)
                self.files.append(told)


def gather(places: Sequence[Path], *, with_texts: bool = False) -> Gathered:
    """What runs, rating plans, calibrations and rubrics have to show."""
    found = Gathered()
    for rubric in RUBRICS.glob("*.toml"):
        found.rubrics[read_rubric(rubric.stem).digest] = rubric
    for shipped in WEIGHTS.glob(f"*/{CALIBRATION_FILE}"):
        found.calibrations[read_calibration(shipped).digest] = shipped
    runs = []
    for place in places:
        if (place / RATINGS).is_file():
            _gather_readings(place, found)
        elif (place / "plan.json").is_file():
            runs.append(place)
        elif place.suffix == ".toml":
            found.rubrics[read_rubric(str(place)).digest] = place
        elif place.name == CALIBRATION_FILE or (place / CALIBRATION_FILE).is_file():
            path = place / CALIBRATION_FILE if place.is_dir() else place
            found.calibrations[read_calibration(path).digest] = path
        else:
            raise UserError(
                f"{place}: no run, no rating plan with a {RATINGS} (`rate collect` writes it), no "
                f"{CALIBRATION_FILE}, and no rubric's .toml"
            )
    names = Counter(run.name for run in runs)
    for run in runs:
        name = run.name if names[run.name] == 1 else "-".join(run.resolve().parts[-2:])
        _gather_run(run, name, found, with_texts=with_texts)
    for name, contents in found.to_read.items():
        if contents:
            read = len(contents & found.read)
            found.shown.append(f"{name}: people read {read} of {len(contents)} replies for people to read")
            if read < len(contents):
                found.missing.append(
                    f"{name}: {len(contents) - read} replies of {READING_LIST} were not read"
                )
    if runs and not found.read:
        found.missing.append("readings by people: no collected rating plan was given")
    return found


def _gather_run(folder: Path, name: str, found: Gathered, *, with_texts: bool) -> None:
    if not (folder / "manifest.json").is_file():
        raise UserError(f"{folder}: not whole yet; give its command again, then this one")
    manifest, summary = read_object(folder / "manifest.json"), read_object(folder / "summary.json")
    for path in sorted(item for item in folder.iterdir() if item.is_file() and item.name != "lock"):
        is_kept = with_texts or path.name not in WITH_TEXTS
        found.add_file(path, f"runs/{name}/{path.name}", "a run", is_kept=is_kept)
    judge, digest = manifest.get("judge", "?"), manifest.get("calibration")
    counts, flagged = manifest.get("counts", {}), (summary.get("flagged") or {}).get("count", 0)
    found.shown.append(
        f"{name}: {judge} {manifest.get('version')} judged {counts.get('judged', 0):,} replies, left "
        f"{counts.get('unscored', 0):,} unscored and {flagged:,} for people to read"
    )
    for model in summary.get("models", ()):
        good = (model.get("corrected") or model["shares"]).get("Good")
        how = "corrected" if model.get("corrected") else "by the judge alone"
        if good:
            ends = f" [{percent(good['low'])}, {percent(good['high'])}]" if good["low"] is not None else ""
            found.shown.append(f"{name}: {model['model']}: Good {percent(good['share'])} %{ends}, {how}")
    if digest is None:
        found.missing.append(f"{name}: no calibration: nothing says how far {judge} strays from people")
    elif digest in found.calibrations:
        _add_calibration(found, digest)
    else:
        found.missing.append(f"{name}: calibration {digest[:12]} is not here; give its file too")
    rubric = found.rubrics.get(manifest.get("rubric", ""))
    if rubric is not None:
        found.add_file(rubric, f"rubric/{rubric.name}", "the rubric")
    else:
        found.missing.append(f"{name}: its rubric is not here; give its .toml too")
    for card in (WEIGHTS / str(judge)).glob("*.json"):
        if card.name in ("card.json", "attacks.json"):
            found.add_file(card, f"judges/{judge}/{card.name}", "what is known of the judge")
    if flagged:
        judgments = read_judgments(folder / "judgments.jsonl")
        found.to_read[name] = {item.content for item in judgments if item.flag is not None}


def _add_calibration(found: Gathered, digest: str) -> None:
    path = found.calibrations[digest]
    calibration = read_calibration(path)
    name = f"calibrations/{digest[:12]}.json"
    if name not in {item.name for item in found.files}:
        found.add_file(path, name, "what corrects the judge")
        found.shown.append(
            f"calibration {digest[:12]}: of {calibration.judge} {calibration.version}, "
            f"{calibration.count:,} ratings, made on {calibration.created}, until {calibration.expires}"
        )


def _gather_readings(folder: Path, found: Gathered) -> None:
    for name in (RATINGS, "consistency.json", "journal.jsonl"):
        if (folder / name).is_file():
            found.add_file(folder / name, f"readings/{folder.name}/{name}", "what people said")
    rows = [row for _, row in read_rows(folder / RATINGS)]
    found.read |= {str(row.get("content_digest", "")) for row in rows}
    raters = {row.get("rater") for row in rows}
    found.shown.append(f"{folder.name}: {len(rows):,} ratings by {len(raters):,} people")


def add_gates(found: Gathered, rows: Iterable[Mapping[str, Any]], name: str) -> None:
    """What the gates of a history said, night after night."""
    kept = list(rows)
    text = "".join(f"{to_json(dict(row))}\n" for row in kept)
    found.add(f"gates/{name}.jsonl", "what the gates said", text.encode())
    outcomes = Counter(str(row["outcome"]) for row in kept)
    told = ", ".join(f"{outcome} {count:,}" for outcome, count in sorted(outcomes.items()))
    found.shown.append(f"gates of {name}: {len({row['night'] for row in kept}):,} nights, {told or 'none'}")


def write_bundle(found: Gathered, path: Path, *, made: datetime, program: str) -> str:
    """Write the bundle in a single step; returns its SHA-256."""
    versions = sorted({f"{item.name} {item.version}" for item in distributions()}, key=str.lower)
    found.add("versions.txt", "the packages installed", "".join(f"{line}\n" for line in versions).encode())
    about = {
        "format": FORMAT,
        "made": made.isoformat(timespec="seconds"),
        "program": program,
        "python": platform.python_version(),
        "machine": f"{platform.machine()} {platform.system()}",
        "shown": found.shown,
        "missing": found.missing,
    }
    found.add(README, "this in words", _words(about).encode())
    rows = [
        {**asdict(item), "content": item.content is not None}
        for item in sorted(found.files, key=lambda item: item.name)
    ]
    manifest = json.dumps({**about, "files": rows}, indent=1) + "\n"
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as partial, ZipFile(partial, "w") as archive:
            held = {item.name: item.content for item in found.files if item.content is not None}
            for name, content in {MANIFEST: manifest.encode(), **held}.items():
                entry = ZipInfo(name, date_time=(*made.timetuple()[:5], 0))
                archive.writestr(entry, content, compress_type=ZIP_DEFLATED)
        return digest_file(path)


def check_bundle(path: Path) -> dict[str, Any]:
    """Hold every file of a bundle against its manifest; returns the manifest, or says what was changed."""
    try:
        with disk_errors(path), ZipFile(path) as archive:
            manifest: dict[str, Any] = json.loads(archive.read(MANIFEST))
            stated = {row["name"]: row["sha256"] for row in manifest["files"] if row["content"]}
            inside = {name: sha256(archive.read(name)).hexdigest() for name in archive.namelist()}
    except (BadZipFile, KeyError, ValueError, TypeError, RecursionError, NotImplementedError) as error:
        raise UserError(f"{path}: no bundle of `evidence`, or a damaged one: {error!r:.200}") from error
    inside.pop(MANIFEST, None)
    changed = sorted(name for name in {*stated, *inside} if stated.get(name) != inside.get(name))
    if changed:
        raise UserError(f"{path}: changed since it was made: {', '.join(changed[:5])}")
    return manifest


def _words(about: Mapping[str, Any]) -> str:
    lines = [f"What was checked, as of {about['made']}, by {about['program']}.", ""]
    lines += [f"- {line}" for line in about["shown"]]
    lines += ["", "Not shown:", *(f"- {line}" for line in about["missing"] or ["nothing that was asked for"])]
    lines += [
        "",
        f"{MANIFEST} has the SHA-256 of every file. Files marked with `content: false` hold people's words;",
        "they are not in here, and are known by their hash. `empathy-judge evidence --check` holds this",
        "bundle to its manifest; who keeps the SHA-256 of the bundle itself can tell that it is this one.",
        "",
        "An empathy score says how a crowd would rate replies. It is no proof that a reply is safe.",
    ]
    return "\n".join(lines) + "\n"
