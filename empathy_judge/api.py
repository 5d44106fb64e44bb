"""The Python interface: `score`, `compare` and `calibrate`, with results that notebooks show.

Each call runs the command of that name in a child process. It returns the figures that the command prints,
and works in a project whose own packages have the same names.
"""

import html
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from os import PathLike, fspath
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

from empathy_judge.client import ModelShares
from empathy_judge.connections import LAST_OUTPUT, JudgeError, start_command

MESSAGE = re.compile(r"^error: (.*)", re.DOTALL | re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ResultTable:
    """A table with notes; `folder` has the files written, if any, and `data` the JSON of the command."""

    rows: Sequence[Mapping[str, Any]]
    notes: Sequence[str]
    data: Mapping[str, Any]
    folder: Path | None = None

    def to_pandas(self) -> Any:
        """Return the rows as a pandas DataFrame."""
        import pandas

        return pandas.DataFrame(self.rows)

    def __repr__(self) -> str:
        cells = [[*map(_show, row.values())] for row in self.rows]
        cells[:0] = [list(row) for row in self.rows[:1]]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]
        return "\n".join([*lines, *self.notes])

    def _repr_html_(self) -> str:
        return f'<pre style="white-space: pre-wrap">{html.escape(repr(self))}</pre>'


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ScoredRun(ResultTable):
    """Scored replies in a `folder`; `models` are sorted by their Good share, the highest first."""

    models: tuple[ModelShares, ...]

    def judgments(self) -> list[dict[str, Any]]:
        """Return the judgment of every reply in the order of the input, with a column for each label."""
        assert self.folder is not None
        lines = (self.folder / "judgments.jsonl").read_text(encoding="utf-8").splitlines()
        rows = [row | (row.pop("probabilities") or {}) for row in map(json.loads, lines)]
        names = ("id", "model", "label", "Bad", "Okay", "Good", "score", "unscored", "flag")
        return [{name.lower(): row.get(name) for name in names} for row in rows]

    def to_pandas(self) -> Any:
        """Return the judgments as a pandas DataFrame."""
        import pandas

        return pandas.DataFrame(self.judgments())


def score(
    replies: Any, *, judge: str = "classifier", out: str | PathLike[str] | None = None, **options: Any
) -> ScoredRun:
    """Score replies: estimate the share of each model's replies that people would rate Good.

    `replies` is a path, several paths, a pandas or polars DataFrame, or rows (mappings) with `prompt`,
    `response` and perhaps `model`. `options` are those of `empathy-judge score`, such as `limit=10`,
    `calibration="calibration.json"` or `max_cost=2.5`. Judgments are saved in the folder `out`, by default in
    `runs/`; the same call resumes and judges nothing twice.
    """
    with TemporaryDirectory() as folder:
        data = _run("score", *_paths(replies, folder, "replies"), judge=judge, out=out, **options)
    if "models" not in data:
        raise JudgeError(f"{data['batch']}; call again later")
    models = tuple(map(ModelShares.from_row, data["models"]))
    return ScoredRun(
        rows=[
            {"model": item.model, "replies": item.judged, "unscored": item.unscored}
            | _interval("good", asdict(item.good) if item.good else {})
            for item in models
        ],
        notes=[*(f"{item.model}: {item.refused}" for item in models if item.refused), *data["caveats"]],
        data=data,
        folder=Path(data["run"]),
        models=models,
    )


def compare(*replies: Any, ratings: Any = None, **options: Any) -> ResultTable:
    """Compare models by their replies, and return the verdict on each pair.

    Pass what `score` takes, or results of it. DataFrames and rows without `model` are named `replies-1` and
    so on. `ratings` are human ratings of some of the replies: a path, a DataFrame or rows. `options` are
    those of `empathy-judge compare`, such as `baseline="study:human"` or `variants=True`.
    """
    with TemporaryDirectory() as folder:
        named = [(f"replies-{number}", item) for number, item in enumerate(replies, start=1)]
        paths = [path for name, item in named for path in _paths(item, folder, name)]
        rated = [] if ratings is None else _paths(ratings, folder, "ratings")
        data = _run("compare", *paths, ratings=rated, **options)
    if data["kind"] != "runs":
        raise JudgeError("a table of ratings: use the command `empathy-judge compare`")
    pairs = data["pairs"]
    rows = [
        {"model": pair["one"], "verdict": pair["verdict"], "other": pair["other"]}
        | _interval("difference", pair["shares"].get("Good", {}))
        for pair in pairs
    ]
    return ResultTable(rows=rows, notes=[*(pair["sentence"] for pair in pairs), *data["notes"]], data=data)


def calibrate(
    replies: Any,
    ratings: Any,
    *,
    judges: Sequence[str] = ("classifier",),
    out: str | PathLike[str] | None = None,
    **options: Any,
) -> ResultTable:
    """Compare judges with human ratings: the agreement and cost of each, beside baselines and people.

    `replies` and `ratings` are paths, DataFrames or rows; a rating has `id` (of the reply), `rater` and
    `rating`. Every judge scores the replies first. The report and the calibration of the first judge are
    saved in the folder `out`, by default in `calibrations/`. `options` are those of
    `empathy-judge calibrate`, such as `scale="1-5"`.
    """
    with TemporaryDirectory() as folder:
        paths = [*_paths(replies, folder, "replies"), *_paths(ratings, folder, "ratings")]
        data = _run(
            "calibrate", *paths, judge=judges if isinstance(judges, str) else list(judges), out=out, **options
        )
    rows = [
        {"judge": run["name"], "kind": run["kind"]}
        | _interval("agreement", run["metrics"].get(data["headline"], run["metrics"]["qwk"]))
        | {name: run[name] for name in ("usd_per_1000", "seconds_per_1000")}
        for run in data["runs"]
    ]
    return ResultTable(rows=rows, notes=data["verdict"], data=data, folder=Path(data["folder"]))


def _paths(table: Any, folder: str, name: str) -> list[str]:
    """Return the paths of a table; a DataFrame or rows are written into the folder."""
    if isinstance(table, str | PathLike | ResultTable):
        return [fspath(table.folder or "") if isinstance(table, ResultTable) else fspath(table)]
    path = Path(folder, f"{name}.jsonl")
    if hasattr(table, "collect"):  # polars, lazy
        table = table.collect()
    if hasattr(table, "write_ndjson"):  # polars
        table.write_ndjson(path)
    elif hasattr(table, "to_json"):  # pandas
        table.to_json(path, orient="records", lines=True, date_format="iso")
    else:
        items = [] if isinstance(table, Mapping) else list(table)
        if items and all(isinstance(item, str | PathLike) for item in items):
            return [fspath(item) for item in items]
        if isinstance(table, Mapping) or not all(isinstance(item, Mapping) for item in items):
            raise TypeError(f"expected a path, a DataFrame or a list of rows, not {type(table).__name__}")
        path.write_text("".join(json.dumps(item, default=str) + "\n" for item in items), encoding="utf-8")
    return [str(path)]


def _run(*words: object, **options: Any) -> dict[str, Any]:
    """Run a command with `--json` and return its result; notes and progress go to `sys.stderr`."""
    line, said = [*start_command(), *map(str, words), "--json"], ""
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        for item in value if isinstance(value, list | tuple) else [value]:
            line += [flag] if item is True else [] if item is None or item is False else [flag, str(item)]
    with TemporaryFile() as out:
        pipes: Any = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": subprocess.PIPE}
        with subprocess.Popen(line, **pipes, encoding="utf-8", errors="replace") as child:
            try:
                for note in child.stderr or ():
                    said += note
                    if not MESSAGE.search(said) and not note.startswith("Next"):
                        print(note, end="", file=sys.stderr)
            except BaseException:  # such as Ctrl-C: finished judgments are saved
                child.kill()
                raise
        out.seek(0)
        printed = out.read()
    if not printed.strip():
        error = MESSAGE.search(said)
        raise JudgeError(error[1].strip() if error else said[-LAST_OUTPUT:])
    result: dict[str, Any] = json.loads(printed)
    return result


def _interval(name: str, share: Mapping[str, Any]) -> dict[str, float | None]:
    return {name: share.get("value"), "low": share.get("low"), "high": share.get("high")}


def _show(value: object) -> str:
    return "" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)
