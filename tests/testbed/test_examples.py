"""The examples in the docstrings of what shows results are run and compared with what they print."""

import doctest
import importlib

import pytest


@pytest.mark.parametrize("module", ["testbed.report.page", "testbed.report.table"])
def test_examples_print_what_they_say(module: str) -> None:
    assert doctest.testmod(importlib.import_module(module)).failed == 0
