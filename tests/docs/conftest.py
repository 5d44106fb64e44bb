"""What the tests of the pages share."""

import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
from repository import ROOT


@pytest.fixture(scope="module")
def fill() -> Iterator[ModuleType]:
    """The site's hook, found as MkDocs finds it."""
    before = sys.path.copy()
    sys.path.insert(0, str(ROOT / "docs"))
    import fill as module

    yield module
    sys.path[:] = before
