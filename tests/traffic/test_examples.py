"""The examples in the docstrings of traffic are run and compared with what they print."""

import doctest
import importlib
from pathlib import Path

import pytest

import traffic

ROOM = Path(traffic.__file__).parent
MODULES = [
    ".".join(file.relative_to(ROOM.parent).with_suffix("").parts)
    for file in sorted(ROOM.rglob("*.py"))
    if ">>> " in file.read_text()
]


@pytest.mark.parametrize("module", MODULES)
def test_examples_print_what_they_say(module: str) -> None:
    assert doctest.testmod(importlib.import_module(module)).failed == 0
