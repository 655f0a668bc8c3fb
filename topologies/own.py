"""A user's own scheme, scheduler or fabric, named ``module:function``: how it is found, what it must take."""

import errno
import importlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from inspect import signature
from pathlib import Path

from topologies.errors import FabricError, LightrailError, ScenarioError
from topologies.fabric import Fabric

FABRIC_PAGE = "docs/own_fabric.md"


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


def own_fabric(name: str) -> Fabric:
    """Return a user's own fabric.

    Parameters
    ----------
    name
        ``module:function`` of a function without arguments, or a JSON file that `Fabric.to_json` wrote.

    Raises
    ------
    LightrailError
        If there is no such function or file, it gives no fabric, or one that cannot be wired.
    """
    if ":" not in name or os.path.exists(name):
        return _fabric_of_file(name)
    made = _made(name, own_object("fabric", name))
    if not isinstance(made, Fabric):
        raise ScenarioError(
            f"the fabric {name!r} is of the type {type(made).__name__}, and not a Fabric",
            f"name a function that returns one, see {FABRIC_PAGE}",
        )
    return made


def _made(name: str, own: object) -> object:
    """Return what a user's function returns; anything else as it is."""
    if not callable(own):
        return own
    try:
        return own()
    except LightrailError:
        raise
    except Exception as error:  # the function is a user's: it may raise anything
        raise ScenarioError(
            f"the fabric {name!r} cannot be made: {type(error).__name__}: {error}",
            f"name a function without arguments, see {FABRIC_PAGE}",
        ) from error


def _fabric_of_file(name: str) -> Fabric:
    path = Path(name)
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):  # a device may have no end
            raise OSError(errno.EINVAL, "not a regular file")
        return Fabric.from_json(path.read_text(encoding="utf-8"))
    except FabricError as error:
        raise FabricError(f"in {name!r} {error.sentence}", error.hint) from error
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not a text"
        raise FabricError(
            f"the fabric {name!r} cannot be read: {why}",
            f"give module:function, or a JSON file that Fabric.to_json wrote, see {FABRIC_PAGE}",
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
