"""A user's own scheme, transport, scheduler, pattern or fabric, named ``module:function``.

How it is found, what it must take and return, what is said of an error in it, and which version of it ran.

A file that names code may come from anybody, and importing a module runs it. So what a file names is said
before any of it is loaded (`say_own`); a module is looked for without being imported, and is none of
Python's own or of an installed package; what runs is the source that is there, and no cache of it
(`_FromSource`); what is found in it is called only if it has what its kind has; and a dry run loads nothing
(`without_own_code`).
"""

import errno
import importlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import sha256
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
    SourcelessFileLoader,
)
from inspect import isclass, isroutine, signature
from pathlib import Path
from sysconfig import get_path
from textwrap import shorten
from traceback import TracebackException, walk_tb
from types import CodeType
from typing import ParamSpec, TypeVar, get_args

from topologies.errors import FabricError, LightrailError, ScenarioError
from topologies.fabric import Fabric
from topologies.printable import printable

FABRIC_PAGE = "docs/howto/own_fabric.md"
CHECKOUT = Path(__file__).parents[1]
ROOMS = {"topologies", "controller", "traffic", "testbed", "scenarios", "tests", "lightrail.py"}
"""Names in the checkout of what is lightrail's: its rooms, and their facade."""
INSTALLED = {"site-packages", "dist-packages"}
"""Folders of packages that are no user's own."""
PYTHONS = get_path("stdlib"), get_path("platstdlib")
LONGEST_MESSAGE = 300
"""Most characters that a sentence repeats of a user's error."""
NO_FILE = Path("built-in")
NAME_IT = "name it as module:function, with the module in this directory or on PYTHONPATH"
Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")
_REFUSED: ContextVar[bool] = ContextVar("refused", default=False)
"""Whether this context loads no code of a user's own."""
_SAID: set[str] = set()
"""The lines of `say_own` that were printed: a file is read several times."""


class _FromSource(SourceFileLoader):
    """Loads a user's own module from its source: what `__pycache__` has for it may be made of another."""

    def get_code(self, fullname: str) -> CodeType | None:
        """Return the code of a module."""
        if not _is_own(fullname, Path(self.path)):
            return super().get_code(fullname)
        return self.source_to_code(self.get_data(self.path), self.path)


# For all that is imported from now on: what own modules import, even as they run, is their code too.
sys.path_hooks.insert(
    0,
    FileFinder.path_hook(
        (ExtensionFileLoader, EXTENSION_SUFFIXES),
        (_FromSource, SOURCE_SUFFIXES),
        (SourcelessFileLoader, BYTECODE_SUFFIXES),
    ),
)
sys.path_importer_cache.clear()


class NotLoadedError(Exception):
    """Code of a user's own would have been loaded where that is refused; no error of theirs."""


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
        is the script that runs, which no worker has, or of Python or an installed package, also where a
        module of lightrail's has it from there.
    NotLoadedError
        If it is a user's, and nothing of theirs is loaded here.
    """
    module, _, attribute = name.partition(":")
    if module == "__main__":
        raise ScenarioError(f"the {kind} {name!r} is defined in the calling script", "put it in a file")
    if not attribute.isidentifier():  # before its module is imported, which `say_own` did not name
        raise ScenarioError(f"the {kind} {name!r} cannot be imported: it is not module:function", NAME_IT)
    if (file := _file_of(module)) is None:
        why = f"ModuleNotFoundError: No module named {module!r}"
        raise ScenarioError(f"the {kind} {name!r} cannot be imported: {why}", NAME_IT)
    if not (_is_own(module, file) or _is_lightrails(file)):
        why = f"{module} is a module of {'Python itself' if _is_pythons(file) else 'an installed package'}"
        raise ScenarioError(f"the {kind} {name!r} cannot be loaded: {why}", NAME_IT)
    if _REFUSED.get() and not _is_lightrails(file):
        raise NotLoadedError(f"the {kind} {name!r} of {file}")
    try:
        with _current_directory_on_path():
            found: object = getattr(importlib.import_module(module), attribute)
    except (Exception, SystemExit) as error:  # the module is a user's: importing it may raise anything
        if _line_of(name, error):
            raise _raised(kind, name, error) from error
        raise ScenarioError(
            f"the {kind} {name!r} cannot be imported: {type(error).__name__}: {error}", NAME_IT
        ) from error
    is_defined = isclass(found) or isroutine(found)  # an object was made where it is
    defined = str(found.__module__) if is_defined else module
    if _is_lightrails(file) and not _is_lightrails(_file_of(defined) or NO_FILE):
        why = f"{module} has it from {defined}"
        raise ScenarioError(f"the {kind} {name!r} cannot be loaded: {why}", NAME_IT)
    return found


def say_own(file: Path, document: object) -> None:
    """Say on standard error which code of a user's own a file names, each once, before any is loaded.

    Parameters
    ----------
    file
        The file.
    document
        Its values; a text among them that names something of a module of a user's is such a name.
    """
    for name, found in own_files(document).items():
        line = printable(f"{file} runs {found.name}:{name.partition(':')[2]} from {found.parent}")
        if line not in _SAID:
            _SAID.add(line)
            sys.stderr.write(f"{line}\n")


def own_files(document: object) -> dict[str, Path]:
    """Return the files of the modules of a user's own that texts of a document name, by these names."""
    names = [name for name in dict.fromkeys(_texts(document)) if name.partition(":")[2].isidentifier()]
    files = {module: _file_of(module) for module in {name.partition(":")[0] for name in names}}
    own = {module: file for module, file in files.items() if file and _is_own(module, file)}
    return {name: own[module] for name in names if (module := name.partition(":")[0]) in own}


def _texts(document: object) -> Iterator[str]:
    """Yield all texts among the values of a document."""
    if isinstance(document, str):
        yield document
    elif isinstance(document, dict | list):
        for each in document.values() if isinstance(document, dict) else document:
            yield from _texts(each)


@contextmanager
def without_own_code() -> Iterator[None]:
    """Load no code of a user's own in this context: NotLoadedError where it would be."""
    token = _REFUSED.set(True)
    try:
        yield
    finally:
        _REFUSED.reset(token)


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
        As raised, with the line of the user's that led to it if there is one; or a ScenarioError for any
        other exception, whose traceback is that of its cause.
    """
    try:
        yield
    except NotLoadedError:
        raise
    except LightrailError as error:
        if line := _line_of(name, error):
            error.sentence = f"{line}: {error.sentence}"
        raise
    except (Exception, SystemExit) as error:  # the code is a user's: it may raise anything
        raise _raised(kind, name, error) from error


class OwnCode:
    """A user's code that is asked often: entering `own_code` takes a microsecond, and this a tenth of that.

    Parameters
    ----------
    kind, name
        As of `own_object`.
    """

    def __init__(self, kind: str, name: str) -> None:
        self._kind, self._name = kind, name

    def asked(
        self, ask: Callable[Arguments, Answer], *arguments: Arguments.args, **named: Arguments.kwargs
    ) -> Answer:
        """Return the answer of the user's code; an error of it is as of `own_code`."""
        try:
            return ask(*arguments, **named)
        except (Exception, SystemExit):
            with own_code(self._kind, self._name):
                raise
            raise  # not reached: `own_code` raises

    def wrapped(self, ask: Callable[Arguments, Answer]) -> Callable[Arguments, Answer]:
        """Return a function of the user's that is asked so."""
        return lambda *arguments, **named: self.asked(ask, *arguments, **named)


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


def check_returns(
    kind: str,
    name: str,
    function: Callable[..., object],
    wanted: str,
    is_wanted: Callable[[type], bool],
    page: str,
) -> None:
    """Refuse a function that is not annotated to return an object of its kind, before it is called.

    Parameters
    ----------
    kind, name, function, page
        As of `check_arguments`.
    wanted
        The annotation that is advised.
    is_wanted
        Whether a class of the annotation is of the kind; one of several will do.

    Raises
    ------
    ScenarioError
        If its annotation is another, or missing: a file that names it may come from anybody.
    """
    with own_code(kind, name):
        try:
            returned = signature(function, eval_str=True).return_annotation
        except ValueError:  # it is written in C and has no signature
            returned = None
    if not any(map(is_wanted, _classes(returned))):
        raise ScenarioError(
            f"the {kind} {name!r} is not annotated to return {wanted}",
            f"write it as: def {name.partition(':')[2]}(...) -> {wanted}, see {page}",
        )


def is_a(*kinds: type) -> Callable[[type], bool]:
    """Return the test whether a class is one of these, or derived from one."""
    return lambda each: issubclass(each, kinds)


def _classes(annotation: object) -> Iterator[type]:
    """Yield all classes in an annotation."""
    if isinstance(annotation, type) and not get_args(annotation):
        yield annotation
    for each in get_args(annotation):
        yield from _classes(each)


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
        check_returns("fabric", name, made, "Fabric", is_a(Fabric), FABRIC_PAGE)
        check_arguments("fabric", name, made, [], FABRIC_PAGE)
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
    if INSTALLED & {*file.parts} or _is_lightrails(file) or _is_pythons(file):
        return False
    return module not in ("__main__", "__mp_main__")


def _is_lightrails(file: Path) -> bool:
    """Return whether a module is in one of lightrail's rooms."""
    return file.is_relative_to(CHECKOUT) and file.relative_to(CHECKOUT).parts[0] in ROOMS


def _is_pythons(file: Path) -> bool:
    """Return whether a module is of Python itself, and not of a package that is installed beside it."""
    return file == NO_FILE or (not INSTALLED & {*file.parts} and any(map(file.is_relative_to, PYTHONS)))


def _file_of(module: str) -> Path | None:
    """Return the file of a module, `NO_FILE` if it is built into Python, None if there is none.

    Nothing is imported, as `importlib.util.find_spec` would a package that holds the module.
    """
    if module in sys.modules:
        return Path(getattr(sys.modules[module], "__file__", None) or NO_FILE)
    if not all(name.isidentifier() for name in module.split(".")):
        return None
    with _current_directory_on_path():
        spec = _spec_of(module)
    origin = spec.origin if spec else None  # None of a folder alone, which is a package without code
    if origin in ("built-in", "frozen"):
        return NO_FILE
    return Path(origin) if origin else None


def _spec_of(module: str) -> ModuleSpec | None:
    """Return where a module comes from, found in its package, which is found in the same way."""
    package, places = module.rpartition(".")[0], None
    if package:
        within = _spec_of(package)
        places = within.submodule_search_locations if within else None
        if places is None:
            return None
    found = (finder.find_spec(module, places) for finder in sys.meta_path)
    return next(filter(None, found), None)


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
