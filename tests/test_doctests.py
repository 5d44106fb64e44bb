"""The examples in docstrings are right."""

import doctest
from importlib import import_module

import pytest
from repository import MODULES


@pytest.mark.parametrize("name", [name for name, path in MODULES.items() if ">>>" in path.read_text("utf-8")])
def test_examples(name: str) -> None:
    try:
        module = import_module(name)
    except ModuleNotFoundError as missing:
        pytest.skip(f"{missing.name} is not installed")
    assert not doctest.testmod(module, optionflags=doctest.ELLIPSIS).failed
