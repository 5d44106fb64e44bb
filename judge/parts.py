"""How far the batches of a run have come, on disk."""

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from data.errors import UserError
from data.files import disk_errors, replacing

FORMAT: Final = 1
FILE: Final = "batch.json"


@dataclass(slots=True, kw_only=True)
class Part:
    """One batch: the requests about exchanges from position `first` to `last` that were not judged yet."""

    number: int
    first: int
    last: int
    requests: int = 0
    cost_at_most: float = 0.0
    digest: str = ""
    file_id: str = ""
    batch_id: str = ""
    status: str = ""
    done: int = 0
    output_digest: str = ""  # of the files that were fetched
    error_digest: str = ""
    is_collected: bool = False

    def file(self, folder: Path, kind: str = "") -> Path:
        """Where its requests lie, or what the server gave of `kind`."""
        return folder / f"batch-{self.number}{'-' if kind else ''}{kind}.jsonl"


@dataclass(slots=True, kw_only=True)
class State:
    """All batches of a run, at which server they are, and the run's own mark."""

    base_url: str
    mark: str
    parts: list[Part] = field(default_factory=list)

    @property
    def open(self) -> list[Part]:
        """Those not collected yet."""
        return [part for part in self.parts if not part.is_collected]

    @property
    def requests(self) -> int:
        """How many requests are in the open ones."""
        return sum(part.requests for part in self.open)

    @property
    def done(self) -> int:
        """How many of these the server has dealt with."""
        return sum(part.done for part in self.open)


def read_state(folder: Path) -> State | None:
    """The state an earlier command left, or None."""
    path = folder / FILE
    with disk_errors(path):
        if not path.exists():
            return None
        text = path.read_text(encoding="utf-8", errors="replace")
    try:
        row: dict[str, Any] = json.loads(text)
        if row["format"] != FORMAT:
            raise ValueError(f"format {row['format']!r}")
        parts = [Part(**part) for part in row["parts"]]
        for part in parts:
            _check_kinds(part)
        return State(base_url=str(row["base_url"]), mark=str(row["mark"]), parts=parts)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(
            f"{path}: damaged ({error!r}); without it nobody knows what was submitted: mend it, or name "
            "another folder with --out and submit all of it again"
        ) from error


def _check_kinds(part: Part) -> None:
    for item in fields(Part):
        value = getattr(part, item.name)
        if type(value) is not item.type and not (item.type is float and type(value) is int):
            raise TypeError(f"{item.name}: {value!r}")
        if isinstance(value, int | float) and not value >= 0:
            raise ValueError(f"{item.name}: {value!r}")


def write_state(folder: Path, state: State) -> None:
    """Whole or not at all."""
    path = folder / FILE
    with disk_errors(path), replacing(path) as partial:
        text = json.dumps({"format": FORMAT, **asdict(state)}, indent=1)
        partial.write_text(f"{text}\n", encoding="utf-8")
