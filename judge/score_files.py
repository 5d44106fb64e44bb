"""Several files of replies scored by one judge, each into a run of its own."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from data.errors import UserError
from data.runs import OnProgress
from data.storage import Columns, Shards, Source, find_sources, tell_apart
from data.tables import notice_unit
from judge.base import Judge, load_judge
from judge.scoring import AUTO, RunSummary, score_file

DEFAULT_JUDGE: Final = "classifier"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredFiles:
    """The runs, those of files among them; `labels` are the files' names, `sources` their replies."""

    runs: tuple[Path, ...]
    labels: Mapping[Path, str]
    sources: tuple[Source, ...]


def score_files(
    paths: Sequence[Path],
    *,
    judge_name: str | None = None,
    columns: Columns = Columns(),  # noqa: B008 (frozen)
    calibration: str | None = None,
    skip_invalid: bool = False,
    watch: Callable[[Path, Judge], AbstractContextManager[OnProgress]],
    on_read: Callable[[Sequence[str]], object] = lambda notes: None,
) -> ScoredFiles:
    """Score the files among `paths`, and return their runs in place of them.

    Without `judge_name` it is the judge of the runs among `paths`. `watch` shows a file's progress.
    """
    folders = [path for path in paths if path.is_dir()]
    files = [path for path in paths if not path.is_dir()]
    names = dict(zip(files, tell_apart([str(path) for path in files]), strict=True))
    sources: dict[Path, Shards] = {
        path: replace(find_sources([path], columns), models=(names[path],)) for path in files
    }
    units = {notice_unit(source) for source in sources.values()}
    units |= {RunSummary.read(folder).unit for folder in folders}
    if len(units) > 1:
        raise UserError(
            "some of these hold whole conversations and some single replies; score them with the same"
            " --unit first, and compare the runs"
        )
    default = RunSummary.read(folders[0]).judge if folders else DEFAULT_JUDGE
    judge = load_judge(judge_name or default, unit=units.pop())
    scored: dict[Path, Path] = {}
    for path in files:
        with watch(path, judge) as on_progress:
            run = score_file(
                sources[path],
                judge=judge,
                calibration=calibration or AUTO,
                on_progress=on_progress,
                skip_invalid=skip_invalid,
                on_read=on_read,
            )
        scored[path] = run.folder
    if len(set(scored.values())) < len(files):
        raise UserError("the same replies are given twice; name each file once")
    return ScoredFiles(
        runs=tuple(scored.get(path, path) for path in paths),
        labels={folder: names[path] for path, folder in scored.items()},
        sources=tuple(sources.values()),
    )
