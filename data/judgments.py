"""Judgments of a run, of another tool's table, or of one of several raters, on any scale.

A scale is the names of its levels, worst first. Levels whose names are whole numbers in a row ("1" to "5",
"0" to "2") are known by their number; of other levels, such as Bad, Okay and Good, the first is number 1.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any, Final

from empathy_judge.data.errors import UserError
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
from empathy_judge.data.tables import BadRow, read_judgments, read_rows, stop_at_bad_row
from empathy_judge.data.text import listed

OFF_SCALE: Final = "off the scale"
NOT_GIVEN: Final = "no score given"
SAYINGS: Final = ("score", "rating", "label")  # the columns that may hold the judgment, the finest first
JUDGES: Final = ("judge", "rater")  # columns that may name the judge
SUM_TOLERANCE = 0.02  # of a row's probabilities: tools write two digits


def parse_scale(text: str) -> tuple[str, ...]:
    """A scale as people write it: "1-5", or its levels by name, worst first.

    >>> parse_scale("0-2"), parse_scale("Bad, Okay, Good")
    (('0', '1', '2'), ('Bad', 'Okay', 'Good'))
    """
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
    """The number of the lowest level.

    >>> first_number(("0", "1", "2")), first_number(("Bad", "Okay", "Good"))
    (0, 1)
    """
    if not re.fullmatch(r"-?\d+", scale[0]):
        return 1
    low = int(scale[0])
    return low if list(scale) == [str(low + step) for step in range(len(scale))] else 1


def position_on(value: Any, scale: Sequence[str]) -> float | None:
    """Return the position of a level's name or number, 1 to k and between; None off the scale.

    >>> position_on("good", LABELS), position_on("0.5", ("0", "1", "2")), position_on(4, LABELS)
    (3.0, 1.5, None)
    """
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
    """Return whether a table holds judgments rather than replies to judge, by its first row.

    A table with a column `response` holds replies if it has no `id`, or if `judges` are given and it has no
    column `judge` or `rater`.
    """
    _, row = next(iter(read_rows(path)), (0, {}))
    if "response" in row and ("id" not in row or (judges and not any(name in row for name in JUDGES))):
        return False
    return any(name in row for name in (*SAYINGS, "unscored", *scale))


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
    says_something = False
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
        says_something |= judgment.unscored != NOT_GIVEN
        yield judgment
    if not first_seen and judge is not None:
        found = ", ".join(sorted(judges)) or "nobody"
        raise UserError(f"{path}: no row of {dimension!r} by {judge!r}; found: {found}")
    if first_seen and not says_something:
        columns = f"{', '.join(SAYINGS)}, or a probability under each of {', '.join(scale)}"
        raise UserError(f"{path}: no row has a judgment; expected a column {columns}")


def judgment_of_row(row: Mapping[str, Any], *, scale: Sequence[str]) -> Judgment:
    """One row of another tool as a judgment; errors start with the field.

    >>> judgment_of_row({"id": "1", "score": "3.4"}, scale=parse_scale("1-5")).label
    '3'
    >>> judgment_of_row({"id": "1", "score": "7"}, scale=parse_scale("1-5")).unscored
    "off the scale: '7'"
    """
    identity = str(row.get("id") if row.get("id") is not None else "").strip()
    if not identity:
        raise UserError("id: missing or empty; every row needs it")
    model, prompt = str(row.get("model") or UNNAMED_MODEL).strip(), row.get("prompt")
    # Without a prompt, the id without its model's name identifies the prompt.
    grouped = str(prompt) if prompt is not None else plain_id(identity, model)
    digest = sha256(grouped.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return Judgment(
        id=identity, model=model, content_digest="", prompt_digest=digest, **_read_said(row, scale)
    )


def _read_said(row: Mapping[str, Any], scale: Sequence[str]) -> dict[str, Any]:
    """Read what was said: a number, a level's name, nothing but probabilities, or nothing."""
    probabilities = _probabilities(row, scale)
    said = next((str(row[column]) for column in SAYINGS if _is_given(row.get(column))), None)
    if said is None and probabilities is None:
        return {"unscored": str(row.get("unscored") or NOT_GIVEN)}
    if said is None and probabilities is not None:
        mean = sum(place * probabilities[name] for place, name in enumerate(scale, start=1))
        score = mean / sum(probabilities.values())
        return {"label": label_of(probabilities), "probabilities": probabilities, "score": score}
    label = str(row["label"]) if _is_given(row.get("label")) else said
    position, named = position_on(said, scale), position_on(label, scale)
    if position is None or named is None:
        off = said if position is None else label
        return {"unscored": f"{OFF_SCALE}: {str(off)[:40]!r}"}
    # Halfway between two levels the even one, so that halves lean neither way.
    return {"label": scale[round(named) - 1], "probabilities": probabilities, "score": position}


def _probabilities(row: Mapping[str, Any], scale: Sequence[str]) -> dict[str, float] | None:
    """By level, where the row has a column for each; they must sum to 1, nearly."""
    given = [name for name in scale if _is_given(row.get(name))]
    if not given:
        return None
    if missing := [name for name in scale if name not in given]:
        raise UserError(f"{missing[0]}: missing, although {given[0]} is present; give all levels or none")
    values = {}
    for name in scale:
        try:
            values[name] = float(row[name])
        except (TypeError, ValueError):
            raise UserError(f"{name}: expected a probability, not {str(row[name])[:40]!r}") from None
        if not 0 <= values[name] <= 1:
            raise UserError(f"{name}: expected a probability from 0 to 1, not {str(row[name])[:40]!r}")
    total = sum(values.values())
    if abs(total - 1) > SUM_TOLERANCE:
        raise UserError(f"{scale[0]}: the row's probabilities sum to {total:.3g}, not to 1")
    return {name: value / total for name, value in values.items()}


def _is_given(value: Any) -> bool:
    return value is not None and str(value).strip() != "" and value == value  # nan is no value


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One judge's judgments, and what is known of the judge; `cost` (USD) and `seconds` are of them all."""

    name: str
    judgments: tuple[Judgment, ...]
    version: str = ""
    rubric: str = ""
    source: str = ""
    cost: float | None = None
    seconds: float | None = None
    unit: str = REPLY
    dimension: str = EMPATHY  # what was judged, and where that is a part, what figures of it mean
    dimension_note: str = ""

    def per_thousand(self, total: float | None) -> float | None:
        """What a thousand judgments take of something."""
        return 1000 * total / len(self.judgments) if total is not None and self.judgments else None


def read_judged(
    path: Path, *, scale: Sequence[str], judges: Sequence[str] = (), dimension: str = "empathy"
) -> list[Judged]:
    """Read a run's folder, or a table: all judges of its column `judge`, or those named."""
    if path.is_dir():
        return [_read_run(path)]
    judges = judges or list(
        dict.fromkeys(str(row["judge"]) for _, row in read_rows(path) if row.get("judge"))
    )
    return [
        Judged(
            name=name or path.stem,
            judgments=tuple(read_recorded(path, scale=scale, judge=name, dimension=dimension)),
            source=path.name,
        )
        for name in judges or (None,)
    ]


def judged_dimension(paths: Iterable[Path]) -> str:
    """What the judges of these runs judged: empathy, or one part of it; another tool's table does not say."""
    folders = [path for path in paths if (path / "manifest.json").exists()]
    told = {str(read_object(path / "manifest.json").get("dimension", EMPATHY)) for path in folders}
    if len(told) > 1:
        raise UserError(
            f"these runs differ in what was scored ({listed(sorted(told))}); calibrate them separately"
        )
    return told.pop() if told else EMPATHY


def with_exchanges(judged: Judged, exchanges: Mapping[str, Exchange]) -> Judged:
    """The same, where a judgment of another tool learns its model, prompt and shape from its exchange."""
    return replace(judged, judgments=tuple(_complete(item, exchanges) for item in judged.judgments))


def _complete(judgment: Judgment, exchanges: Mapping[str, Exchange]) -> Judgment:
    exchange = exchanges.get(judgment.id)
    if exchange is None or judgment.content_digest:
        return judgment
    model = exchange.model if judgment.model == UNNAMED_MODEL else judgment.model
    return replace(
        judgment, model=model, prompt_digest=exchange.prompt_digest, features=reply_features(exchange)
    )


def _read_run(folder: Path) -> Judged:
    manifest = read_manifest(folder)
    judgments = tuple(read_judgments(folder / "judgments.jsonl"))
    is_priced = not any(item.usage and "cost" not in item.usage for item in judgments)
    return Judged(
        name=str(manifest.get("judge", folder.name)),
        version=str(manifest.get("version", "")),
        rubric=str(manifest.get("rubric", "")),
        judgments=judgments,
        source=folder.name,
        cost=manifest.get("cost") if is_priced else None,
        seconds=manifest.get("wall_seconds"),
        unit=str(manifest.get("unit", REPLY)),
        dimension=str(manifest.get("dimension", EMPATHY)),
        dimension_note=str(manifest.get("dimension_note", "")),
    )


def plain_id(identity: str, model: str) -> str:
    """Return the id as in its file, without the model's name that is added where models share ids.

    >>> plain_id("7/ada", "ada"), plain_id("7", "ada")
    ('7', '7')
    """
    return identity.removesuffix(f"/{model}")


def pool_runs(judged: Sequence[Judged]) -> list[Judged]:
    """The runs of each judge as one, so that two models' runs of one judge are one judge's.

    A reply that is in two runs counts once. Where models share ids, each reply's id gets its model's name;
    a model without a name gets its run's.
    """
    by_judge: dict[tuple[str, ...], list[Judged]] = {}
    for run in judged:
        # A table has no judge version, so each table is a judge of its own.
        same = (run.name, run.version, run.rubric) if run.version else (run.name, run.source)
        by_judge.setdefault(same, []).append(run)
    return [runs[0] if len(runs) == 1 else _pool(runs) for runs in by_judge.values()]


def make_ids_unique(runs: Sequence[Judged], names: Sequence[str] = ()) -> list[Judged]:
    """Return runs with unique ids: where models share ids, each gets its model's name.

    A model without a name gets its run's, of `names` or else of the source.
    """
    named = [
        [replace(item, model=name) if item.model == UNNAMED_MODEL else item for item in run.judgments]
        for run, name in zip(runs, names or [run.source for run in runs], strict=True)
    ]
    contents: dict[str, set[str]] = {}
    for item in chain(*named):
        contents.setdefault(item.id, set()).add(item.content_digest)
    first: dict[str, tuple[str, str]] = {}
    told = []
    for run, judgments in zip(runs, named, strict=True):
        judgments = [
            replace(item, id=f"{item.id}/{item.model}") if len(contents[item.id]) > 1 else item
            for item in judgments
        ]
        for item in judgments:
            content, source = first.setdefault(item.id, (item.content_digest, run.source))
            if content != item.content_digest:
                raise UserError(
                    f"the id {plain_id(item.id, item.model)!r} has different replies of {item.model} in"
                    f" {source} and {run.source}; give every reply a unique id"
                )
        told.append(replace(run, judgments=tuple(judgments)))
    return told


def _pool(runs: Sequence[Judged]) -> Judged:
    kept = {item.id: item for run in make_ids_unique(runs) for item in run.judgments}
    costs, seconds = [run.cost for run in runs], [run.seconds for run in runs]
    return replace(
        runs[0],
        judgments=tuple(kept.values()),
        source="+".join(run.source for run in runs),
        cost=None if None in costs else sum(cost or 0 for cost in costs),
        seconds=None if None in seconds else sum(time or 0 for time in seconds),
    )


def texts_by_id(exchanges: Iterable[Exchange], judges: Iterable[Judged]) -> dict[str, Exchange]:
    """Exchanges under the ids of their judgments, which pooling may have extended."""
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
