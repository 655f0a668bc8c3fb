"""The examples in the docstrings of the schedulers are run and compared with what they print."""

import doctest
import importlib
import pkgutil

import pytest

from controller import schedulers


@pytest.mark.parametrize("module", [found.name for found in pkgutil.iter_modules(schedulers.__path__)])
def test_examples_print_what_they_say(module: str) -> None:
    assert doctest.testmod(importlib.import_module(f"controller.schedulers.{module}")).failed == 0
