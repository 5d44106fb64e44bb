"""Made-up exchanges in any number, no two prompts, ids or replies alike in a row; and rows as CSV."""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from empathy_judge.data.tables import write_rows

WORDS = ("so", "sorry", "that", "sounds", "hard", "tell", "me", "more", "if", "you", "like", "today")
MODELS = ("ada", "bea", "cyd")


def make_rows(count: int, *, start: int = 0, with_ids: bool = True) -> Iterator[dict[str, Any]]:
    """The same rows for the same numbers: three models answer each prompt, in 1 to 36 words."""
    for number in range(start, start + count):
        words = (WORDS[(number + turn) % len(WORDS)] for turn in range(1 + number * 7 % 36))
        row = {
            "id": f"r{number}",
            "model": MODELS[number % len(MODELS)],
            "prompt": f"Something happened today, and it was number {number // len(MODELS)}.",
            "response": f"{' '.join(words).capitalize()}.",
            "emotion": "sad",
        }
        yield row if with_ids else {key: value for key, value in row.items() if key != "id"}


def write_many(path: Path, count: int) -> Path:
    """The rows as JSONL, streamed."""
    with path.open("w", encoding="utf-8") as out:
        out.writelines(f"{json.dumps(row)}\n" for row in make_rows(count))
    return path


def write_shards(folder: Path, counts: dict[str, int], *, with_ids: bool = True) -> Path:
    """So many rows in each file of a folder, which go on from one to the next."""
    start = 0
    for name, count in sorted(counts.items()):
        write_rows(folder / name, make_rows(count, start=start, with_ids=with_ids))
        start += count
    return folder


def write_csv(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """Any rows, with the columns of the first, as another program would write them."""
    rows = list(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path
