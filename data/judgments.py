"""Judgments of a run, of another tool's table, or of one of several raters, on any scale.

A scale is the names of its levels, worst first. Levels whose names are whole numbers in a row ("1" to "5",
"0" to "2") are known by their number; of other levels, such as Bad, Okay and Good, the first is number 1.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

from empathy_judge.data.errors import UserError
from empathy_judge.data.readers.file_formats import BadRow
from empathy_judge.data.readers.table_rows import read_rows, stop_at_bad_row
from empathy_judge.data.records import (
    EMPATHY,
    LABELS,
    REPLY,
    UNNAMED_MODEL,
    Exchange,
    Judgment,
    Rating,
    label_of,
    reply_features,
)
from empathy_judge.data.runs import read_manifest, read_object
from empathy_judge.data.tables import read_judgments
from empathy_judge.data.text import listed

NOT_GIVEN: Final = "no score given"
GIVEN_IN: Final = ("score", "rating", "label")  # columns that may have the judgment, the finest first
MANIFEST_KEYS: Final = ("version", "rubric", "unit", "dimension", "dimension_note")
JUDGES: Final = ("judge", "rater")  # columns that may name the judge
SUM_TOLERANCE = 0.02  # of a row's probabilities: tools write two digits


def parse_scale(text: str) -> tuple[str, ...]:
    """Return the levels of a scale such as "1-5", or of one with named levels, worst first."""
    if ends := re.fullmatch(r"\s*(-?\d{1,3})\s*(?:-|to)\s*(-?\d{1,3})\s*", text):
        levels = tuple(str(number) for number in range(int(ends[1]), int(ends[2]) + 1))
    else:
        levels = tuple(part.strip() for part in text.split(",") if part.strip())
    if len(levels) < 2 or len(set(levels)) < len(levels):
        raise UserError(
            f"scale {text!r}: expected two or more levels, worst first, such as 1-5 or Bad,Okay,Good"
        )
    return levels


def first_number(scale: Sequence[str]) -> int:
    """Return the number of the lowest level."""
    low = int(scale[0]) if re.fullmatch(r"-?\d+", scale[0]) else 1
    return low if list(scale) == [str(low + step) for step in range(len(scale))] else 1


def position_on(value: Any, scale: Sequence[str]) -> float | None:
    """Return the position of a level's name or number, 1 to k and between; None off the scale."""
    text = str(value).strip()
    names = [name.casefold() for name in scale]
    if text.casefold() in names:
        return float(names.index(text.casefold()) + 1)
    try:
        position = float(text) - first_number(scale) + 1
    except ValueError:
        return None
    return position if 1 <= position <= len(scale) else None  # nan, which compares with nothing, fails too


def is_judgment_table(path: Path, judges: Sequence[str] = (), scale: Sequence[str] = LABELS) -> bool:
    """Return whether a table holds judgments rather than replies to judge, by its first row."""
    _, row = next(iter(read_rows(path)), (0, {}))
    if "response" in row and ("id" not in row or (judges and not any(name in row for name in JUDGES))):
        return False
    return any(name in row for name in (*GIVEN_IN, "unscored", *scale))


def read_recorded(
    path: Path, *, scale: Sequence[str] = LABELS, judge: str | None = None, dimension: str = EMPATHY
) -> Iterator[Judgment]:
    """Yield every judgment of a table with `id` and one of `score`, `rating` and `label`, in order.

    Optional: `model`, `prompt`, `judge` or `rater` (where there are several, `judge` picks one), `dimension`
    (others are left out) and a column of probabilities for every level, named like it. A value that is
    missing or off the scale is unscored. So one rater's ratings are a judge's judgments: datasets list
    language models among the raters.
    """
    judges: set[str] = set()
    first_seen: dict[str, int] = {}
    has_judgment = False
    for line, row in read_rows(path):
        by = next((str(row[column]).strip() for column in JUDGES if row.get(column) is not None), "")
        judges.add(by)
        if judge is None and len(judges) > 1:
            names = ", ".join(sorted(judges))
            raise UserError(f"{path.name}:{line}: judge: more than one ({names}); choose one with --judge")
        if (judge is not None and by != judge) or row.get("dimension", dimension) != dimension:
            continue
        try:
            judgment = judgment_of_row(row, scale=scale)
            if first_seen.setdefault(judgment.id, line) != line:
                raise UserError(f"id: {judgment.id!r} is already at line {first_seen[judgment.id]}")
        except UserError as problem:
            stop_at_bad_row(BadRow(path, line, str(problem), row))
        has_judgment |= judgment.unscored != NOT_GIVEN
        yield judgment
    if not first_seen and judge is not None:
        found = ", ".join(sorted(judges)) or "nobody"
        raise UserError(f"{path}: no row of {dimension!r} by {judge!r}; found: {found}")
    if first_seen and not has_judgment:
        columns = f"{', '.join(GIVEN_IN)}, or a probability under each of {', '.join(scale)}"
        raise UserError(f"{path}: no row has a judgment; expected a column {columns}")


def judgment_of_row(row: Mapping[str, Any], *, scale: Sequence[str]) -> Judgment:
    """Return one row of another tool as a judgment; errors start with the field."""
    identity = str(row.get("id") if row.get("id") is not None else "").strip()
    if not identity:
        raise UserError("id: missing or empty; every row needs it")
    model, prompt = str(row.get("model") or UNNAMED_MODEL).strip(), row.get("prompt")
    # Without a prompt, the id without its model's name identifies the prompt.
    grouped = str(prompt) if prompt is not None else plain_id(identity, model)
    digest = Exchange(id="", prompt=grouped, response="").prompt_digest
    found = _read_judgment(row, scale)
    return Judgment(id=identity, model=model, content_digest="", prompt_digest=digest, **found)


def _read_judgment(row: Mapping[str, Any], scale: Sequence[str]) -> dict[str, Any]:
    """Return the fields of a number, a level's name, nothing but probabilities, or nothing."""
    probabilities = _probabilities(row, scale)
    given = next((str(row[column]) for column in GIVEN_IN if _is_given(row.get(column))), None)
    if given is None and probabilities is None:
        return {"unscored": str(row.get("unscored") or NOT_GIVEN)}
    if given is None and probabilities is not None:
        score = sum(position * probabilities[name] for position, name in enumerate(scale, start=1))
        return {"label": label_of(probabilities), "probabilities": probabilities, "score": score}
    label = str(row["label"]) if _is_given(row.get("label")) else given
    position, named = position_on(given, scale), position_on(label, scale)
    if position is None or named is None:
        off = given if position is None else label
        return {"unscored": f"off the scale: {str(off)[:40]!r}"}
    # Halfway between two levels the even one, so that halves lean neither way.
    return {"label": scale[round(named) - 1], "probabilities": probabilities, "score": position}


def _probabilities(row: Mapping[str, Any], scale: Sequence[str]) -> dict[str, float] | None:
    """Return the probability of every level, where the row has columns for them; they must sum to 1."""
    given = [name for name in scale if _is_given(row.get(name))]
    if not given:
        return None
    if missing := [name for name in scale if name not in given]:
        raise UserError(f"{missing[0]}: missing, although {given[0]} is present; give all levels or none")
    values = {}
    for name in scale:
        with suppress(TypeError, ValueError):
            values[name] = float(row[name])
        if not 0 <= values.get(name, -1) <= 1:
            raise UserError(f"{name}: expected a probability from 0 to 1, not {str(row[name])[:40]!r}")
    total = sum(values.values())
    if abs(total - 1) > SUM_TOLERANCE:
        raise UserError(f"{scale[0]}: the row's probabilities sum to {total:.3g}, not to 1")
    return {name: value / total for name, value in values.items()}


def _is_given(value: Any) -> bool:
    return value is not None and str(value).strip() != "" and value == value  # nan is no value


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One judge's judgments, and what is known of the judge."""

    name: str
    """the judge's name"""
    judgments: tuple[Judgment, ...]
    """all judgments"""
    version: str = ""
    """the judge's version; another tool's judge has none"""
    rubric: str = ""
    """the digest of the rubric"""
    source: str = ""
    """the run's folder or the table"""
    cost: float | None = None
    """USD for all judgments"""
    seconds: float | None = None
    """the time for all judgments"""
    unit: str = REPLY
    """what was judged as one: replies, or whole conversations"""
    dimension: str = EMPATHY
    """what was judged: empathy, or a part of it"""
    dimension_note: str = ""
    """what figures of a part mean"""
    is_language_model: bool = False
    """whether the judge asks a language model"""
    is_joint: bool = False
    """whether the replies to a prompt were graded side by side"""

    def per_thousand(self, total: float | None) -> float | None:
        """Return the cost or time of a thousand judgments."""
        return 1000 * total / len(self.judgments) if total is not None and self.judgments else None


def read_judged(
    path: Path, *, scale: Sequence[str], judges: Sequence[str] = (), dimension: str = EMPATHY
) -> list[Judged]:
    """Read a run's folder, or a table: all judges of its column `judge`, or those named."""
    if path.is_dir():
        return [_read_run(path)]
    named = (str(row["judge"]) for _, row in read_rows(path) if row.get("judge"))
    return [
        Judged(
            name=name or path.stem,
            judgments=tuple(read_recorded(path, scale=scale, judge=name, dimension=dimension)),
            source=path.name,
        )
        for name in list(judges or dict.fromkeys(named)) or (None,)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRun:
    """A run's judgments and its summary."""

    folder: Path
    """the run's folder"""
    label: str
    """what distinguishes its models from those of the same name in other runs"""
    judged: Judged
    """the judge and its judgments"""
    summary: Mapping[str, Any]
    """the content of summary.json"""


def read_judged_runs(folders: Sequence[Path], labels: Mapping[Path, str]) -> list[JudgedRun]:
    """Read runs of one judge, labeled by `labels` or by the folders' names; refused if judges differ."""
    runs = [
        JudgedRun(
            folder=folder,
            label=labels.get(folder, folder.name),
            judged=_read_run(folder),
            summary=read_object(folder / "summary.json"),
        )
        for folder in folders
    ]
    judges = {(item.judged.name, item.judged.version, item.judged.rubric): item for item in runs}
    if len(judges) > 1:
        one, other = list(judges.values())[:2]
        names = (f"{item.judged.name} {item.judged.version}".strip() for item in (one, other))
        raise UserError(
            f"{one.folder} and {other.folder}: scored by {' and by '.join(names)}, whose shares are not "
            "comparable; score both with one judge"
        )
    if len({item.folder.resolve() for item in runs}) < len(runs):
        raise UserError(f"{max(folders, key=list(folders).count)}: passed twice; pass each run once")
    return runs


def judged_dimension(paths: Iterable[Path]) -> str:
    """Return what was judged in these runs: empathy, or a part of it; tables of other tools are empathy."""
    folders = [path for path in paths if (path / "manifest.json").exists()]
    found = {str(read_object(path / "manifest.json").get("dimension", EMPATHY)) for path in folders}
    if len(found) > 1:
        raise UserError(
            f"these runs differ in what was scored ({listed(sorted(found))}); calibrate them separately"
        )
    return found.pop() if found else EMPATHY


def with_exchanges(judged: Judged, exchanges: Mapping[str, Exchange]) -> Judged:
    """Return the judgments of another tool with the model, prompt and features of their exchanges."""
    judgments = []
    for item in judged.judgments:
        exchange = exchanges.get(item.id)
        if exchange is not None and not item.content_digest:
            model = exchange.model if item.model == UNNAMED_MODEL else item.model
            item = replace(
                item,
                model=model,
                prompt_digest=exchange.prompt_digest,
                reply_digest=exchange.reply_digest,
                features=reply_features(exchange),
            )
        judgments.append(item)
    return replace(judged, judgments=tuple(judgments))


def _read_run(folder: Path) -> Judged:
    manifest = read_manifest(folder)
    judgments = tuple(read_judgments(folder / "judgments.jsonl"))
    costs = [(item.usage or {"cost": 0.0}).get("cost") for item in judgments]
    return Judged(
        name=str(manifest.get("judge", folder.name)),
        judgments=judgments,
        source=folder.name,
        cost=None if None in costs else sum(filter(None, costs)),  # what reused judgments took, too
        seconds=None if any(item.reused for item in judgments) else manifest.get("wall_seconds"),
        is_language_model=manifest.get("is_language_model") is True,
        is_joint=manifest.get("is_joint") is True,
        **{key: str(manifest[key]) for key in MANIFEST_KEYS if key in manifest},
    )


def plain_id(identity: str, model: str) -> str:
    """Return the id as in its file, without the model's name that is added where models share ids."""
    return identity.removesuffix(f"/{model}")


def pool_runs(judged: Sequence[Judged]) -> list[Judged]:
    """Return the runs of each judge as one, with unique ids; a reply that is in two runs counts once."""
    by_judge: dict[tuple[str, ...], list[Judged]] = {}
    for run in judged:
        # A table has no judge version, so each table is a judge of its own.
        same = (run.name, run.version, run.rubric) if run.version else (run.name, run.source)
        by_judge.setdefault(same, []).append(run)
    return [runs[0] if len(runs) == 1 else _pool(runs) for runs in by_judge.values()]


def make_ids_unique(runs: Sequence[Judged], names: Sequence[str] = ()) -> list[Judged]:
    """Return runs with unique ids, extended by the model's name, or the run's, where models share them."""
    named = [
        [replace(item, model=name) if item.model == UNNAMED_MODEL else item for item in run.judgments]
        for run, name in zip(runs, names or [run.source for run in runs], strict=True)
    ]
    contents: dict[str, set[str]] = {}
    for item in chain(*named):
        contents.setdefault(item.id, set()).add(item.content_digest)
    first: dict[str, tuple[str, str]] = {}
    unique = []
    for run, judgments in zip(runs, named, strict=True):
        kept = []
        for item in judgments:
            name = f"{item.id}/{item.model}" if len(contents[item.id]) > 1 else item.id
            content, source = first.setdefault(name, (item.content_digest, run.source))
            if content != item.content_digest:
                raise UserError(
                    f"the id {plain_id(name, item.model)!r} has different replies of {item.model} in"
                    f" {source} and {run.source}; give every reply a unique id"
                )
            kept.append(replace(item, id=name))
        unique.append(replace(run, judgments=tuple(kept)))
    return unique


def _pool(runs: Sequence[Judged]) -> Judged:
    kept = {item.id: item for run in make_ids_unique(runs) for item in run.judgments}

    def total(values: list[float | None]) -> float | None:
        return None if None in values else sum(value or 0 for value in values)

    return replace(
        runs[0],
        judgments=tuple(kept.values()),
        source="+".join(run.source for run in runs),
        cost=total([run.cost for run in runs]),
        seconds=total([run.seconds for run in runs]),
    )


def texts_by_id(exchanges: Iterable[Exchange], judges: Iterable[Judged]) -> dict[str, Exchange]:
    """Return exchanges under the ids of their judgments, which pooling may have extended."""
    judgments = [item for judged in judges for item in judged.judgments]
    ids, by_content = {item.id for item in judgments}, {item.content_digest: item.id for item in judgments}
    texts: dict[str, Exchange] = {}
    for item in exchanges:
        known_as = item.id if item.id in ids else by_content.get(item.content_digest, item.id)
        found = texts.setdefault(known_as, replace(item, id=known_as))
        if found.content_digest != item.content_digest:
            raise UserError(
                f"--exchanges: the id {item.id!r} has different replies in two files; give every reply a "
                "unique id"
            )
    return texts


def of_people(ratings: Iterable[Rating], *, judges: Sequence[str]) -> list[Rating]:
    """Return the ratings by all raters who are not judges."""
    kept = [item for item in ratings if item.rater not in judges]
    if not kept:
        raise UserError("ratings: none by a rater other than the judges")
    return kept
