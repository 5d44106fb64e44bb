"""Responses behind s3:// URLs, read with s3fs from a server that implements S3."""

import json
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from click.testing import Result
from command_line import run
from moto.server import ThreadedMotoServer
from rows import make_rows, write_shards

from empathy_judge.data.storage import Remote

NAMES = {"a.jsonl": 40, "b.csv": 30, "c.parquet": 50}
FILES = ("judgments.jsonl", "summary.json", "plan.json")
pytestmark = pytest.mark.filterwarnings(r"ignore::DeprecationWarning:(ray|botocore|aiobotocore)\..*")


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """The URL of an empty bucket; its server is there as long as the tests of this module."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    settings = {
        "AWS_ENDPOINT_URL": "http://{}:{}".format(*server.get_host_and_port()),
        "AWS_ACCESS_KEY_ID": "nobody",
        "AWS_SECRET_ACCESS_KEY": "nothing",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        fsspec.filesystem("s3").clear_instance_cache()
        fsspec.filesystem("s3").mkdir("night")
        yield "s3://night"
    server.stop()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, bucket: str) -> Path:
    """Shards of three kinds on the disk; the bucket has the same under `replies/`."""
    shards = write_shards(tmp_path_factory.mktemp("disk") / "replies", NAMES)
    for path in shards.iterdir():
        with fsspec.open(f"{bucket}/replies/{path.name}", "wb") as out:
            out.write(path.read_bytes())
    return shards


def score(place: object, out: Path, *options: str) -> Result:
    return run("score", place, "--judge", "length", "--out", out, *options)


@pytest.mark.parametrize(
    ("names", "options"), [("", []), ("/c.parquet", []), ("", ["--engine", "ray", "--workers", "2"])], ids=str
)
def test_a_bucket_gives_the_files_that_a_folder_gives(
    tmp_path: Path, bucket: str, folder: Path, names: str, options: list[str]
) -> None:
    """The workers of Ray read the bucket themselves."""
    assert score(f"{folder}{names}", tmp_path / "near").exit_code == 0
    result = score(f"{bucket}/replies{names}", tmp_path / "far", *options)
    assert result.exit_code == 0, result.output
    for file in FILES:
        assert (tmp_path / "far" / file).read_bytes() == (tmp_path / "near" / file).read_bytes(), file


def test_a_large_file_is_read_in_blocks(bucket: str) -> None:
    row = {**next(make_rows(1)), "response": "hm " * 30_000}
    content = "".join(json.dumps({**row, "id": str(number)}) + "\n" for number in range(200)).encode()
    with fsspec.open(f"{bucket}/large.jsonl", "wb") as out:
        out.write(content)
    with Remote(f"{bucket}/large.jsonl").open() as stream:
        assert json.loads(stream.readline())["id"] == "0"
        assert stream.raw.cache.end < len(content) / 2  # type: ignore[attr-defined]
        assert [json.loads(line)["id"] for line in stream] == [str(number) for number in range(1, 200)]


@pytest.mark.usefixtures("folder")
def test_what_is_not_in_the_store_ends_with_exit_code_2(tmp_path: Path, bucket: str) -> None:
    for url in (f"{bucket}/none.jsonl", f"{bucket}/replies/none*.jsonl", "s3://no-such-bucket/a.jsonl"):
        result = score(url, tmp_path / "run")
        assert (result.exit_code, url in result.stderr) == (2, True), result.output
    assert not (tmp_path / "run").exists()


def test_a_store_that_cannot_be_reached_ends_with_exit_code_5(
    tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    fsspec.filesystem("s3").clear_instance_cache()
    try:
        result = score(f"{bucket}/replies", tmp_path / "run")
    finally:
        fsspec.filesystem("s3").clear_instance_cache()
    assert result.exit_code == 5, result.output
    assert f"{bucket}/replies" in result.stderr
