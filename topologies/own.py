"""A user's own scheme or scheduler, named ``module:function``: how it is found, and what it must take."""

import importlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from inspect import signature

from topologies.errors import ScenarioError


def own_object(kind: str, name: str) -> object:
    """Return what a module has under a name.

    Parameters
    ----------
    kind
        What is looked for, in the words of an error: ``scheme``.
    name
        ``module:function``. The module is searched on Python's path, then in the current directory.

    Raises
    ------
    ScenarioError
        If there is no such module, or nothing of that name in it, or the module's own code fails.
    """
    module, _, attribute = name.partition(":")
    try:
        with _current_directory_on_path():
            return getattr(importlib.import_module(module), attribute)
    except Exception as error:  # the module is a user's: importing it may raise anything
        raise ScenarioError(
            f"the {kind} {name!r} cannot be imported: {type(error).__name__}: {error}",
            "name it as module:function, with the module in this directory or on PYTHONPATH",
        ) from error


def check_arguments(
    kind: str, name: str, function: Callable[..., object], arguments: Iterable[str], page: str
) -> None:
    """Refuse a function that cannot be called with these arguments, by keyword.

    Parameters
    ----------
    kind, name
        As of `own_object`; the name may be that of a method.
    function
        The function, or the bound method.
    arguments
        The keywords that it is called with.
    page
        Where to read more.

    Raises
    ------
    ScenarioError
        If it takes others.
    """
    try:
        signature(function).bind(**dict.fromkeys(arguments))
    except (TypeError, ValueError) as error:  # a ValueError: it is written in C and has no signature
        listed = ", ".join(arguments)
        raise ScenarioError(
            f"the {kind} {name!r} does not take the arguments {listed}",
            f"write it as: def {re.split('[:.]', name)[-1]}(*, {listed}), see {page}",
        ) from error


@contextmanager
def _current_directory_on_path() -> Iterator[None]:
    """Let modules be imported from the current directory, after all that are on the path."""
    directory, added = os.getcwd(), False
    if directory not in sys.path:
        sys.path.append(directory)
        added = True
    importlib.invalidate_caches()  # a file may be younger than Python's listing of its directory
    try:
        yield
    finally:
        if added and directory in sys.path:
            sys.path.remove(directory)
