"""A user's own scheme, transport, scheduler, pattern or fabric, named ``module:function``.

How it is found, what it must take, what is said of an error in it, and which version of it ran.
"""

import errno
import importlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from inspect import signature
from pathlib import Path
from sysconfig import get_path
from textwrap import shorten
from traceback import TracebackException, walk_tb

from topologies.errors import FabricError, LightrailError, ScenarioError
from topologies.fabric import Fabric

FABRIC_PAGE = "docs/own_fabric.md"
CHECKOUT = Path(__file__).parents[1]
INSTALLED = {"site-packages", "dist-packages"}
"""Folders of packages that are no user's own."""
LONGEST_MESSAGE = 300
"""Most characters that a sentence repeats of a user's error."""


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
        If there is no such module, or nothing of that name in it, or the module's own code raises; or if it
        is the script that runs, which no worker has.
    """
    module, _, attribute = name.partition(":")
    if module == "__main__":
        raise ScenarioError(f"the {kind} {name!r} is defined in the calling script", "put it in a file")
    try:
        with _current_directory_on_path():
            return getattr(importlib.import_module(module), attribute)
    except (Exception, SystemExit) as error:  # the module is a user's: importing it may raise anything
        if _line_of(name, error):
            raise _raised(kind, name, error) from error
        raise ScenarioError(
            f"the {kind} {name!r} cannot be imported: {type(error).__name__}: {error}",
            "name it as module:function, with the module in this directory or on PYTHONPATH",
        ) from error


@contextmanager
def own_code(kind: str, name: str) -> Iterator[None]:
    """Turn what a user's code raises in this context into one sentence, which says where.

    An exit is an error too: it would end the run with the exit code of a success.

    Parameters
    ----------
    kind, name
        As of `own_object`.

    Raises
    ------
    LightrailError
        As raised, or a ScenarioError for any other exception; the traceback is that of its cause.
    """
    try:
        yield
    except LightrailError:
        raise
    except (Exception, SystemExit) as error:  # the code is a user's: it may raise anything
        raise _raised(kind, name, error) from error


def own_sources(names: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of the source of each module that is a user's own.

    Parameters
    ----------
    names
        What is used of them, as ``module:function``; without any there is no such module.

    Returns
    -------
    dict
        By the names of modules: those that ``names`` are in, and what has been imported by now that belongs
        neither to Python, nor to an installed package, nor to lightrail.
    """
    named = {name.partition(":")[0] for name in names}
    files = {
        module: Path(file)
        for module in sorted(sys.modules)
        if named and (file := getattr(sys.modules[module], "__file__", None))
    }
    return {
        module: sha256(file.read_bytes()).hexdigest()
        for module, file in files.items()
        if (module in named or _is_own(module, file)) and file.is_file()
    }


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
    made = own_object("fabric", name)
    if callable(made):
        with own_code("fabric", name):
            made = made()
    if not isinstance(made, Fabric):
        raise ScenarioError(
            f"the fabric {name!r} is of the type {type(made).__name__}, and not a Fabric",
            f"name a function that returns one, see {FABRIC_PAGE}",
        )
    return made


def _raised(kind: str, name: str, error: BaseException) -> ScenarioError:
    """Return what a user's code raised as a sentence without line breaks and control characters."""
    line = _line_of(name, error)
    where = f"at {line}" if line else f"in {name}"
    text = str(TracebackException(type(error), error, None))  # str(error) is a user's code too
    printable = "".join(letter if letter.isprintable() else " " for letter in text)
    message = shorten(printable, LONGEST_MESSAGE, placeholder=" ...")
    raised = f"your {kind} raised {type(error).__name__} {where}"
    return ScenarioError(f"{raised}: {message}" if message else raised, "--debug shows the traceback")


def _line_of(name: str, error: BaseException) -> str:
    """Return the innermost line of a user's package that raised, as ``file:line``; empty if none did."""
    package = name.partition(":")[0].partition(".")[0]
    lines = [
        (Path(frame.f_code.co_filename), line)
        for frame, line in walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__")).partition(".")[0] == package
    ]
    if not lines:
        return ""
    (file, line), here = lines[-1], Path.cwd()
    return f"{file.relative_to(here) if file.is_relative_to(here) else file}:{line}"


def _is_own(module: str, file: Path) -> bool:
    """Return whether a module is a user's: not lightrail's, Python's, installed, or the program itself."""
    is_lightrails = file.is_relative_to(CHECKOUT) and file.parent != CHECKOUT
    is_pythons = file.is_relative_to(get_path("stdlib")) or bool(INSTALLED & set(file.parts))
    return not (is_lightrails or is_pythons or module in ("__main__", "__mp_main__"))


def _fabric_of_file(name: str) -> Fabric:
    path = Path(name)
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):  # a device may have no end
            raise OSError(errno.EINVAL, "not a regular file")
        return Fabric.from_json(path.read_text(encoding="utf-8"))
    except FabricError as error:
        raise FabricError(f"in {name!r} {error.sentence}", error.hint) from error
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
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
