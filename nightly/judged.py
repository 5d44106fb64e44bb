"""What is to be calibrated: the judgments of a run, of another tool's table, or of one of several raters."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from data.errors import UserError
from data.recorded import JUDGES, judgments_by, read_recorded
from data.records import UNNAMED_MODEL, Exchange, Judgment, Rating
from data.runs import read_summary
from data.tables import check_table, read_judgments, read_ratings, read_rows


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

    @property
    def scored(self) -> int:
        """How many judgments have a label."""
        return sum(1 for judgment in self.judgments if judgment.unscored is None)

    def per_thousand(self, total: float | None) -> float | None:
        """What a thousand judgments take of something."""
        return 1000 * total / len(self.judgments) if total is not None and self.judgments else None


def read_judged(
    path: Path, *, scale: Sequence[str], judges: Sequence[str] = (), dimension: str = "empathy"
) -> list[Judged]:
    """A run's folder, or a table: one judge of it, or those named."""
    if path.is_dir():
        if judges:
            raise UserError(f"{path}: a run has one judge; --judge is for tables with several")
        return [_read_run(path)]
    check_table(path)
    if _holds_ratings(path):
        return _read_raters(path, scale=scale, judges=judges, dimension=dimension)
    return [
        Judged(
            name=name or path.stem,
            judgments=tuple(read_recorded(path, scale=scale, judge=name)),
            source=path.name,
        )
        for name in (judges or (None,))
    ]


def with_exchanges(judged: Judged, exchanges: Mapping[str, Exchange]) -> Judged:
    """The same, where a judgment that does not know its model or prompt learns them from its exchange."""
    return replace(judged, judgments=tuple(_complete(item, exchanges) for item in judged.judgments))


def _complete(judgment: Judgment, exchanges: Mapping[str, Exchange]) -> Judgment:
    exchange = exchanges.get(judgment.id)
    if exchange is None or judgment.content:
        return judgment
    model = exchange.model if judgment.model == UNNAMED_MODEL else judgment.model
    return replace(judgment, model=model, prompt_digest=exchange.prompt_digest)


def _read_run(folder: Path) -> Judged:
    try:
        manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        if not isinstance(manifest, dict):
            raise ValueError("an object was expected")
    except FileNotFoundError as error:
        raise UserError(f"{folder}: no whole run here; give its `score` command again") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{folder / 'manifest.json'}: not JSON: {error}") from error
    read_summary(folder)  # a run without one is damaged
    return Judged(
        name=str(manifest.get("judge", folder.name)),
        version=str(manifest.get("version", "")),
        rubric=str(manifest.get("rubric", "")),
        judgments=tuple(read_judgments(folder / "judgments.jsonl")),
        source=folder.name,
        cost=manifest.get("cost"),
        seconds=manifest.get("wall_seconds"),
    )


def _holds_ratings(path: Path) -> bool:
    """Whether a table lists several dimensions by rater, as imported datasets do."""
    first = next(iter(read_rows(path)), None)
    return first is not None and "dimension" in first[1] and any(name in first[1] for name in JUDGES)


def _read_raters(path: Path, *, scale: Sequence[str], judges: Sequence[str], dimension: str) -> list[Judged]:
    ratings = list(read_ratings(path))
    if not judges:
        names = ", ".join(sorted({rating.rater for rating in ratings})[:12])
        raise UserError(f"{path}: ratings by several; say with --judge who is the judge: {names}")
    return [
        Judged(
            name=name,
            judgments=tuple(judgments_by(ratings, rater=name, scale=scale, dimension=dimension)),
            source=path.name,
        )
        for name in judges
    ]


def people_only(
    ratings: Iterable[Rating], *, raters: Sequence[str] = (), judges: Sequence[str] = ()
) -> list[Rating]:
    """The ratings by these people, or by all who are not judges."""
    kept = [item for item in ratings if (item.rater in raters if raters else item.rater not in judges)]
    if not kept:
        wanted = ", ".join(raters) or "anyone but the judges"
        raise UserError(f"ratings: none by {wanted}")
    return kept
