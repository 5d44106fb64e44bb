"""The bad-input campaign in short: every input that once broke a reader, and some changes of every seed."""

import subprocess
import sys
import warnings
from pathlib import Path
from random import Random

import pytest
from repository import TESTS

FUZZ = TESTS / "fuzz"
sys.path.insert(0, str(FUZZ))

from harness import CORPUS, TARGETS, corpus_of, try_input  # noqa: E402
from mutate import mutate  # noqa: E402

CHANGED = 150  # inputs for each target; `make trust` tries many thousands
DEAR = {
    "nights.sqlite": 5,
    "program.json": 15,
    "emotionbench.xlsx": 40,
    "judge.toml": 40,
    "journal.jsonl": 60,
}


@pytest.fixture(autouse=True)
def _without_warnings() -> None:
    """Libraries warn of strange files (openpyxl of unknown extensions); that is not what is looked for."""
    warnings.simplefilter("ignore")


@pytest.mark.parametrize("name", TARGETS)
def test_only_words_for_a_person_come_out(name: str) -> None:
    seeds, chance = corpus_of(name), Random(name)
    kept = [try_input(name, seed) for seed in seeds]
    assert any(kept) or name == "card.json", (
        "one seed at least is read: else nothing behind the door is tried"
    )
    for _ in range(DEAR.get(name, CHANGED)):
        try_input(name, mutate(seeds, chance))


def test_every_target_has_seeds_and_no_seed_is_without_a_target() -> None:
    assert {folder.name for folder in CORPUS.iterdir()} == set(TARGETS)
    files = [path for path in CORPUS.rglob("*") if path.is_file()]
    assert max(path.stat().st_size for path in files) < 64 << 10
    assert all(path.name.startswith(("seed", "crash-")) for path in files)


def test_changes_follow_from_the_seed_alone() -> None:
    seeds = corpus_of("exchanges.jsonl")
    first, second, other = (
        [mutate(seeds, chance) for _ in range(50)] for chance in (Random(1), Random(1), Random(2))
    )
    assert first == second != other


def test_the_long_campaign_counts_what_it_tried(tmp_path: Path) -> None:
    import json

    command = [
        sys.executable,
        str(FUZZ / "run.py"),
        "--inputs",
        "60",
        "--target",
        "base-url",
        "--target",
        "wire",
    ]
    done = subprocess.run([*command, "--keep", str(tmp_path)], capture_output=True, text=True, timeout=120)
    found = json.loads(done.stdout)
    assert done.returncode == 0
    assert (found["inputs"], found["crashes"]) == (60, 0)
    assert found["read"] + found["refused"] == 60
    assert set(found["targets"]) == {"base-url", "wire"}
    assert not list(tmp_path.iterdir())
