"""Some hundred made-up and broken requests meet no error of the server's own. More: fuzz_serving.py."""

from collections.abc import Iterator

import pytest
from fuzz_serving import count_failures, fuzz, send_corrupted
from served import serving

from judge.base import load_judge


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serving(load_judge("length")) as url:
        yield url


def test_requests_made_from_the_description_meet_what_it_says(server: str) -> None:
    statuses = fuzz(server, 42)
    assert count_failures(statuses) == 0
    assert statuses[200] and statuses[400], "both sides of the fence were tried"


def test_broken_bodies_are_the_senders_fault(server: str) -> None:
    statuses = send_corrupted(server, 300)
    assert count_failures(statuses) == 0
    assert statuses[200] and statuses[400]
