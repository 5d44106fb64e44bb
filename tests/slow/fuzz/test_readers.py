"""Bad input in short: every input that once broke a reader, and some changes of every seed.

`make trust` tries many thousands: FUZZ_INPUTS sets how many for each target, FUZZ_SEED which.
"""

import os
import resource
import signal
import sys
import warnings
from collections.abc import Iterator
from hashlib import sha256
from random import Random

import pytest
from repository import TESTS

sys.path.insert(0, str(TESTS / "fuzz"))

from fuzz import COMMANDS, CORPUS, TARGETS, corpus_of, mutate, try_input

INPUTS = int(os.environ.get("FUZZ_INPUTS", "0"))
SECONDS = 20  # an input that takes longer hangs
MEMORY = 6 << 30  # bytes of address space; an input that needs more is a bomb


def hang(*_: object) -> None:
    raise TimeoutError(f"more than {SECONDS} s")


@pytest.fixture(autouse=True)
def limits() -> Iterator[None]:
    """Limit memory and time; libraries warn of strange files, which is not tested here."""
    warnings.simplefilter("ignore")
    before, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, hard))
    handler = signal.signal(signal.SIGALRM, hang)
    yield
    signal.signal(signal.SIGALRM, handler)
    resource.setrlimit(resource.RLIMIT_AS, (before, hard))


@pytest.mark.parametrize("name", TARGETS)
def test_only_messages_for_users_come_out(name: str) -> None:
    seeds, chance = corpus_of(name), Random(f"{os.environ.get('FUZZ_SEED', 0)} {name}")
    taken = [try_input(name, seed) for seed in seeds]
    # A calibration is sealed by a digest and expires, so that none of its seeds is taken.
    assert any(taken) or name == "calibration.json", "a seed is read: else only the first check is tried"
    for _ in range(INPUTS or (25 if name in COMMANDS else 150)):
        data = mutate(seeds, chance)
        signal.alarm(SECONDS)
        try:
            try_input(name, data)
        except BaseException:
            (CORPUS / name / f"crash-{sha256(data).hexdigest()[:10]}").write_bytes(data)
            raise
        finally:
            signal.alarm(0)


def test_every_target_has_seeds_and_every_seed_a_target() -> None:
    assert {folder.name for folder in CORPUS.iterdir()} == set(TARGETS)
