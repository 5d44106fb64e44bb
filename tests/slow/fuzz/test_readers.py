"""Bad input in short: every input that once broke a reader, and some changes of every seed."""

import sys
import warnings
from random import Random

import pytest
from repository import TESTS

sys.path.insert(0, str(TESTS / "fuzz"))

from fuzz import COMMANDS, CORPUS, TARGETS, corpus_of, mutate, try_input

CHANGED = {True: 25, False: 150}  # inputs for each command and each parser; `make trust` tries many thousands


@pytest.fixture(autouse=True)
def _without_warnings() -> None:
    """Libraries warn of strange files (openpyxl of unknown extensions); that is not tested here."""
    warnings.simplefilter("ignore")


@pytest.mark.parametrize("name", TARGETS)
def test_only_messages_for_users_come_out(name: str) -> None:
    seeds, chance = corpus_of(name), Random(name)
    taken = [try_input(name, seed) for seed in seeds]
    # A calibration is sealed by a digest and expires, so that none of its seeds is taken.
    assert any(taken) or name == "calibration.json", "a seed is read: else only the first check is tried"
    for _ in range(CHANGED[name in COMMANDS]):
        try_input(name, mutate(seeds, chance))


def test_every_target_has_seeds_and_every_seed_a_target() -> None:
    assert {folder.name for folder in CORPUS.iterdir()} == set(TARGETS)
