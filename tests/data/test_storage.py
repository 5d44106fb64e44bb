"""Sources of responses: shards, globs and object stores give the same as one local file."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import fsspec
import httpx
import pytest
from click.testing import Result
from command_line import run
from rows import make_rows, write_shards

from empathy_judge.data.errors import OperationalError, UserError
from empathy_judge.data.storage import check_source, digest_source, find_source
from empathy_judge.data.tables import read_exchanges, write_rows

NAMES = {"a.jsonl": 4, "b.csv": 3, "c.parquet": 5}


@pytest.fixture
def bucket() -> Iterator[str]:
    """A folder in this process's memory that fsspec takes for a store."""
    yield "memory://bucket"
    fsspec.filesystem("memory").rm("/bucket", recursive=True)


def upload(folder: Path, url: str) -> str:
    for path in folder.iterdir():
        with fsspec.open(f"{url}/{path.name}", "wb") as out:
            out.write(path.read_bytes())
    return url


def score(place: object, out: Path, *options: str) -> Result:
    return run("score", place, "--judge", "length", "--out", out, *options)


def ids(place: object) -> list[str]:
    return [exchange.id for exchange in read_exchanges(find_source(str(place)))]


def test_shards_come_in_the_order_of_their_names(tmp_path: Path) -> None:
    folder = write_shards(tmp_path / "night", NAMES)
    for left in ("_SUCCESS", ".a.jsonl.crc"):
        (folder / left).touch()
    expected = [row["id"] for row in make_rows(12)]
    assert ids(folder) == ids(f"{folder}/*.*") == ids(f"{tmp_path}/**/[a-c].*") == expected
    assert ids(f"file://{folder}") == expected
    assert ids(f"{folder}/[ab].*") == expected[:7]


def test_a_row_without_an_id_bears_its_shard_and_line(tmp_path: Path) -> None:
    folder = write_shards(tmp_path / "night", NAMES, with_ids=False)
    assert ids(folder) == [
        *(f"a.jsonl:{line}" for line in (1, 2, 3, 4)),
        *(f"b.csv:{line}" for line in (2, 3, 4)),
        *(f"c.parquet:{line}" for line in (1, 2, 3, 4, 5)),
    ]
    assert ids(folder / "a.jsonl") == ["1", "2", "3", "4"], "a file alone is read as ever"
    assert ids(f"{folder}/a.*") == [f"a.jsonl:{line}" for line in (1, 2, 3, 4)], "a glob is for shards"
    (folder / "a.jsonl").rename(folder / "a[1].jsonl")
    assert ids(folder / "a[1].jsonl") == ["1", "2", "3", "4"], "a bracket in the name of a file is no glob"


def test_a_bad_row_names_its_shard(tmp_path: Path) -> None:
    folder = tmp_path / "night"
    write_rows(folder / "a.jsonl", make_rows(3))
    write_rows(folder / "b.jsonl", [*make_rows(2, start=2), {"prompt": "alone"}])
    with pytest.raises(UserError, match=r"b\.jsonl:1: id: 'r2' is already at line 3 of a\.jsonl"):
        ids(folder)
    assert "b.jsonl:3: response: missing" in score(f"{folder}/b*", tmp_path / "run").stderr
    assert score(folder, tmp_path / "run", "--skip-invalid").exit_code == 0
    lines = map(json.loads, (tmp_path / "run/set_aside.jsonl").read_text().splitlines())
    assert [(row["file"], row["line"]) for row in lines] == [("b.jsonl", 1), ("b.jsonl", 3)]


def test_scoring_a_bucket_is_scoring_the_folder(tmp_path: Path, bucket: str) -> None:
    folder = write_shards(tmp_path / "night", NAMES)
    upload(folder, f"{bucket}/night")
    for number, part in enumerate(("", "/*.csv", "/a.jsonl")):
        runs = [tmp_path / f"far-{number}", tmp_path / f"near-{number}"]
        for place, out in zip((f"{bucket}/night", folder), runs, strict=True):
            assert score(f"{place}{part}", out).exit_code == 0
        for file in ("judgments.jsonl", "summary.json", "plan.json"):
            assert (runs[0] / file).read_bytes() == (runs[1] / file).read_bytes()
    digest = digest_source(find_source(str(folder)))
    (folder / "a.jsonl").rename(folder / "d.jsonl")
    assert digest_source(find_source(str(folder))) != digest, "names count as well"


class Unreadable:
    """A driver that cannot read the address, or not reach the store."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def isdir(self, path: str) -> bool:
        raise self.error


DRIVERS: list[tuple[Exception, type[UserError], str]] = [
    (ImportError("Install gcsfs"), UserError, r"Install gcsfs; .*pip install .*s3fs"),
    (ValueError("Repository id must be 'namespace/name'"), UserError, "use a path, or a URL"),
    (httpx.ConnectError("no such host"), OperationalError, "check the address"),
]


@pytest.mark.parametrize(("error", "kind", "words"), DRIVERS)
def test_an_error_of_a_driver_names_the_fix(
    monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type[UserError], words: str
) -> None:
    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda url: (Unreadable(error), "a.jsonl"))
    with pytest.raises(kind, match=words):
        find_source("hf://a.jsonl")


def test_what_is_no_table_is_refused(tmp_path: Path, bucket: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other/notes.txt").touch()
    refused = {
        f"{tmp_path}/empty": "no file to read",
        f"{tmp_path}/*.jsonl": "no file to read",
        f"{tmp_path}/other": "no file to read",
        f"{tmp_path}/none.jsonl": "no such file",
        f"{tmp_path}/other/notes.txt": "unknown file type",
        f"{bucket}/none.jsonl": "no such file",
        f"{bucket}/none*.jsonl": "no file to read",
        "nowhere://x/a.jsonl": "Protocol not known: nowhere",
        "https://me:secret@example.org/a.csv": "password",
    }
    for path, problem in refused.items():
        with pytest.raises(UserError, match=problem):
            check_source(find_source(path))
    upload(write_shards(tmp_path / "night", {"a.jsonl": 1}), f"{bucket}/gone")
    source = find_source(f"{bucket}/gone/a.jsonl")
    fsspec.filesystem("memory").rm("/bucket/gone/a.jsonl")
    with pytest.raises(UserError, match="no such file"):
        digest_source(source)


def test_the_default_folder_bears_the_shards_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_shards(Path("night"), NAMES)
    for place in ("night", "night/*.*"):
        run("score", place, "--judge", "length", code=0)
    (made,) = os.listdir("runs")
    assert made.startswith("night-length-"), "and both ways of naming them find the same run"
