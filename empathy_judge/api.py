"""The Python interface: `score`, `compare` and `calibrate` in this process, with results that notebooks show.

Calls from several threads take turns. After Ctrl-C, the same call resumes.
"""

import html
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import copy_context
from dataclasses import asdict, dataclass, replace
from datetime import date
from os import PathLike, fspath
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import RLock
from typing import TYPE_CHECKING, Any, Protocol

from empathy_judge.calibration.comparison import compare_runs
from empathy_judge.client import ModelShares
from empathy_judge.commands.calibrate import fit_judges
from empathy_judge.commands.compare import score_paths
from empathy_judge.commands.shared.options import say_notes
from empathy_judge.data.errors import UserError
from empathy_judge.data.judgments import parse_scale
from empathy_judge.data.rating_files.sheet import SheetOptions
from empathy_judge.data.runs import OnProgress
from empathy_judge.data.storage import Columns, check_source, find_sources
from empathy_judge.data.tables import notice_unit, to_row
from empathy_judge.judge.base import AUTO, DEFAULT, DEVICE, WEIGHTS, Judge, load_judge
from empathy_judge.judge.budget import Budget
from empathy_judge.judge.scoring import ScoringRequest, plan_scoring, read_mapped, score_file, start_afresh
from empathy_judge.reports.calibration.calibration_page import plain_report
from empathy_judge.reports.comparison.comparison_page import compared_runs_row
from empathy_judge.reports.progress import progress

if TYPE_CHECKING:
    import pandas


class Frame(Protocol):
    """A pandas or polars DataFrame."""

    @property
    def columns(self) -> Any: ...


AnyPath = str | PathLike[str]
Rows = Iterable[Mapping[str, Any]]
_TURN = RLock()  # two calls must not write to one run


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ResultTable:
    """A table with notes; `folder` has the files written, if any, and `data` the JSON of the command."""

    rows: Sequence[Mapping[str, Any]]
    notes: Sequence[str]
    data: Mapping[str, Any]
    folder: Path | None = None

    def to_pandas(self) -> "pandas.DataFrame":
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
    """Scored replies in a `folder`; `models` are sorted by their Good share, the highest first.

    `frame` has a row for each reply, as a DataFrame of the library that the replies came in; else None.
    """

    models: tuple[ModelShares, ...]
    frame: Any = None

    def judgments(self) -> list[dict[str, Any]]:
        """Return the judgment of every reply in the order of the input, with a column for each label."""
        assert self.folder is not None
        rows = [row | (row.pop("probabilities") or {}) for row in map(to_row, read_mapped(self.folder))]
        names = ("id", "model", "label", "Bad", "Okay", "Good", "score", "unscored", "flag")
        return [{name.lower(): row.get(name) for name in names} for row in rows]

    def to_pandas(self) -> "pandas.DataFrame":
        """Return the judgments as a pandas DataFrame."""
        import pandas

        return pandas.DataFrame(self.judgments())


Data = AnyPath | Sequence[AnyPath] | Rows | Frame | ResultTable


def score(
    data: Data,
    judge: str | None = None,
    *,
    out: AnyPath | None = None,
    unit: str | None = None,
    calibration: AnyPath | None = None,
    limit: int | None = None,
    seed: int = 0,
    skip_invalid: bool = False,
    max_cost: float | None = None,
    fresh: bool = False,
    device: str | None = None,
    prompt_column: str | None = None,
    response_column: str | Sequence[str] = (),
    model_column: str | None = None,
) -> ScoredRun:
    """Score replies: estimate the share of each model's replies that people would rate Good.

    `data` is a path, several paths, a pandas or polars DataFrame, or rows (mappings) with `prompt`,
    `response` and perhaps `model`. The options are those of `empathy-judge score`, such as `limit=10`,
    `calibration="calibration.json"` or `max_cost=2.5`. Judgments are saved in the folder `out`, by default in
    `runs/`; the same call resumes and judges nothing twice. A language model's judgments of the same replies
    are reused from all runs in `runs/`, unless `fresh`.
    """
    if limit is not None and limit < 1:
        raise UserError(f"limit: expected 1 or more, not {limit}")
    responses = (response_column,) if isinstance(response_column, str) else tuple(response_column)
    with _files(replies=data) as (paths,):
        source = find_sources(paths, Columns(prompt_column, responses, model_column))
        check_source(source)
        context = copy_context()
        context.run(DEVICE.set, device or AUTO)
        loaded = context.run(load_judge, judge or DEFAULT, unit=unit or notice_unit(source), allow_joint=True)
        loaded.use_budget(Budget(max_cost))
        request = ScoringRequest(
            source=source,
            judge=loaded,
            out=Path(out) if out else None,
            calibration=None if calibration is None else str(calibration),
            limit=limit,
            skip_invalid=skip_invalid,
            seed=seed,
        )
        planned = plan_scoring(request)
        if fresh:
            start_afresh([planned])
        with _watch(None, loaded) as on_progress:
            scored = score_file(planned, on_progress=on_progress, on_read=say_notes)
    found = {**scored.summary.as_dict(), "cost": scored.manifest["cost"], "run": str(scored.folder)}
    models = tuple(map(ModelShares.from_row, found["models"]))
    run = ScoredRun(
        rows=[
            {"model": item.model, "replies": item.judged, "unscored": item.unscored}
            | _interval("good", asdict(item.good) if item.good else {})
            for item in models
        ],
        notes=[*(f"{item.model}: {item.refused}" for item in models if item.refused), *found["caveats"]],
        data=found,
        folder=scored.folder,
        models=models,
    )
    return replace(run, frame=_like(data, run.judgments()))


def compare(
    *data: Data,
    ratings: Data | None = None,
    judge: str | None = None,
    baseline: str | Sequence[str] = (),
    models: Sequence[str] = (),
    variants: bool = False,
    exchanges: Sequence[AnyPath] = (),
    fresh: bool = False,
    calibration: AnyPath | None = None,
    margin: float = 5.0,
    max_drop: float = 10.0,
    scale: str | None = None,
    cut: Sequence[str] = (),
    skip_invalid: bool = False,
) -> ResultTable:
    """Compare models by their replies, and return the verdict on each pair.

    Pass what `score` takes, or results of it. DataFrames and rows without `model` are named `replies-1` and
    so on. `ratings` are human ratings of some of the replies: a path, a DataFrame or rows. The options are
    those of `empathy-judge compare`, such as `baseline="study:human"` or `variants=True`.

    A row has the `probability` that the Good share of `model` is higher than that of `other`, and
    `at_least`, the probability that it is lower by no more than `max_drop` points. `data["ranking"]` has the
    groups of models that cannot be separated, with each model's probability of being the best.
    """
    named = {f"replies-{number}": item for number, item in enumerate(data, start=1)}
    with _files(**named, ratings=ratings) as (*replies, rated):
        request = compare_runs.ComparisonRequest(
            paths=tuple(Path(path) for item in replies for path in item),
            baselines=(baseline,) if isinstance(baseline, str) else tuple(baseline),
            models=tuple(models),
            ratings=Path(rated[0]) if rated else None,
            exchanges=tuple(map(Path, exchanges)),
            calibration=None if calibration is None else str(calibration),
            margin=margin / 100,
            max_drop=max_drop / 100,
            weights=WEIGHTS,
            are_variants=variants,
            reading=_reading(scale, cut, skip_invalid),
        )
        request, _ = score_paths(request, judge, fresh=fresh, watch=_watch)
        compared = compare_runs.compare(request, today=date.today())
    if not isinstance(compared, compare_runs.ComparedRuns):
        raise UserError("a table of ratings: use the command `empathy-judge compare`")
    found = compared_runs_row(compared)
    rows = [
        {
            "model": pair["one"],
            "verdict": pair["verdict"],
            "other": pair["other"],
            "probability": pair["probability"],
            "at_least": pair["at_least"][0],
        }
        | _interval("difference", pair["shares"].get("Good", {}))
        for pair in found["pairs"]
    ]
    return ResultTable(
        rows=rows, notes=[*(pair["sentence"] for pair in found["pairs"]), *found["notes"]], data=found
    )


def calibrate(
    data: Data,
    ratings: Data,
    judges: str | Sequence[str] = (),
    *,
    out: AnyPath | None = None,
    scale: str | None = None,
    cut: Sequence[str] = (),
    dimension: str | None = None,
    skip_invalid: bool = False,
    max_cost: float | None = None,
    fresh: bool = False,
) -> ResultTable:
    """Compare judges with human ratings: the agreement and cost of each, beside baselines and people.

    `data` and `ratings` are paths, DataFrames or rows; a rating has `id` (of the reply), `rater` and
    `rating`. Every judge, by default the classifier, scores the replies first. The report and the calibration
    of the first judge are saved in the folder `out`, by default in `calibrations/`. The options are those of
    `empathy-judge calibrate`, such as `scale="1-5"`.
    """
    with _files(replies=data, ratings=ratings) as (replies, rated):
        fitted = fit_judges(
            list(map(Path, replies)),
            Path(rated[0]),
            reading=_reading(scale, cut, skip_invalid),
            judges=[judges] if isinstance(judges, str) else judges,
            dimension=dimension,
            max_cost=max_cost,
            fresh=fresh,
            out=Path(out) if out else None,
            watch=_watch,
        )
    found = plain_report(fitted.report)
    rows = [
        {"judge": run["name"], "kind": run["kind"]}
        | _interval("agreement", run["metrics"].get(found["headline"], run["metrics"]["qwk"]))
        | {name: run[name] for name in ("usd_per_1000", "seconds_per_1000")}
        for run in found["runs"]
    ]
    return ResultTable(rows=rows, notes=found["verdict"], data=found, folder=fitted.written[0].parent)


@contextmanager
def _files(**tables: Data | None) -> Iterator[list[list[str]]]:
    """Give the paths of each table, one call at a time; DataFrames and rows lie in a folder meanwhile."""
    with _TURN, TemporaryDirectory() as folder:
        yield [
            [] if table is None else _paths(table, Path(folder, f"{name}.jsonl"))
            for name, table in tables.items()
        ]


def _paths(table: Any, path: Path) -> list[str]:
    """Return the paths of a table; a DataFrame or rows are written to `path`."""
    if isinstance(table, str | PathLike | ResultTable):
        return [fspath(table.folder or "") if isinstance(table, ResultTable) else fspath(table)]
    if hasattr(table, "collect"):  # polars, lazy
        table = table.collect()
    if hasattr(table, "write_ndjson"):  # polars
        table.write_ndjson(path)
    elif hasattr(table, "columns") and hasattr(table, "to_json"):  # pandas
        table.to_json(path, orient="records", lines=True, date_format="iso")
    elif isinstance(table, Sequence) and table and all(isinstance(item, str | PathLike) for item in table):
        return list(map(fspath, table))
    else:
        is_rows = isinstance(table, Iterable) and not isinstance(table, Mapping)
        items = [*table] if is_rows else [None]
        if not all(isinstance(item, Mapping) for item in items):
            wanted = "a path, a DataFrame with prompt and response, or a list of rows"
            raise TypeError(f"expected {wanted}, not {type(table).__name__}")
        path.write_text("".join(json.dumps(item, default=str) + "\n" for item in items), encoding="utf-8")
    return [str(path)]


def _watch(path: Path | None, judge: Judge) -> AbstractContextManager[OnProgress]:
    return progress(f"scoring with {judge.name}", spent=lambda: judge.spent)


def _reading(scale: str | None, cut: Sequence[str], skip_invalid: bool) -> SheetOptions:
    levels = None if scale is None else parse_scale(scale)
    return SheetOptions(scale=levels, cut=tuple(map(str, cut)) or None, skip_invalid=skip_invalid)


def _like(data: Any, rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return the rows as a DataFrame of the kind of `data`, with its index if they are as many."""
    if not hasattr(data, "columns"):
        return None
    frame = type(data)({name: [row[name] for row in rows] for name in rows[0]})
    if hasattr(data, "index") and len(data) == len(frame):
        frame.index = data.index
    return frame


def _interval(name: str, share: Mapping[str, Any]) -> dict[str, float | None]:
    return {name: share.get("value"), "low": share.get("low"), "high": share.get("high")}


def _show(value: object) -> str:
    return "" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)
