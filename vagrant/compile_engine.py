"""Compile the engine: ``.venv/bin/python vagrant/compile_engine.py``, which says nothing if that is done.

`traffic/compiled.py` says what is compiled, where to, and when it is used. `provision.sh` calls this. After
an edit of what is compiled the edited files run interpreted, until this is called again.
"""

import contextlib
import io
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from setuptools import Extension

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(CHECKOUT))
from traffic.compiled import MODULES, folder, is_whole  # noqa: E402

SETTINGS = """\
[mypy]
explicit_package_bases = True
[mypy-networkx,networkx.*,pydantic,pydantic.*]
follow_imports = skip
follow_imports_for_stubs = True
"""
"""For mypyc. The engine itself uses neither library; to read their types takes 15 s of 18."""
KEPT = 16
"""How many folders an environment keeps: checkouts may share it, and each edit makes one."""
SCRATCH = "new-"
"""How the name begins of a folder that something is compiled in."""
LEFT_S = 3600.0
"""After how long such a folder is of a process that was killed [s]."""


def main() -> None:
    """Compile what is not compiled, and leave it where `traffic.compiled` looks."""
    os.umask(0o022)  # who may read the environment may have the engine
    try:
        _compile_into(folder())
    except ModuleNotFoundError as error:
        sys.exit(f"the engine is not compiled: this Python has no {error.name}; install mypy")
    except OSError as error:
        sys.exit(f"the engine is not compiled: {error.filename or sys.prefix}: {error.strerror}")


def _compile_into(place: Path) -> None:
    if is_whole(place):
        with contextlib.suppress(OSError):  # of another user, who has it all the same
            os.utime(place)  # in use
        return
    print("Compiling the engine", flush=True)
    os.chdir(CHECKOUT)
    place.parent.mkdir(exist_ok=True)
    with TemporaryDirectory(dir=place.parent, prefix=SCRATCH) as scratch:
        built = Path(scratch, "built")
        built.mkdir()
        extensions = _translated(Path(scratch))
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = {
                source: pool.submit(_compile, source, each) for each in extensions for source in each.sources
            }
            for each in extensions:
                _link([objects[source].result() for source in each.sources], built / f"{each.name}.so")
        if folder() != place:
            sys.exit("the sources of the engine were edited while it was compiled; compile it again")
        if place.exists() and not is_whole(place):  # someone removed a part of it
            shutil.rmtree(place)
        with contextlib.suppress(OSError):  # another has been quicker
            built.rename(place)
    with contextlib.suppress(OSError):  # another cleans, too
        _clean(place.parent)


def _clean(parent: Path) -> None:
    """Remove what was compiled long ago, and what is left of those who were killed."""
    kept = sorted(parent.glob("[0-9a-f]*"), key=lambda path: path.stat().st_mtime)
    left = [each for each in parent.glob(f"{SCRATCH}*") if time.time() - each.stat().st_mtime > LEFT_S]
    for old in kept[:-KEPT] + left:
        shutil.rmtree(old, ignore_errors=True)


def _translated(scratch: Path) -> "list[Extension]":
    """Have mypyc translate the modules into C, in a scratch folder."""
    from mypyc.build import mypycify

    settings = scratch / "mypy.ini"
    settings.write_text(SETTINGS)
    options = ["--config-file", str(settings), "--cache-dir", os.devnull]
    files = [f"{name.replace('.', '/')}.py" for name in MODULES]
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            extensions: list[Extension] = mypycify(
                [*options, *files], target_dir=str(scratch), multi_file=True
            )
    except SystemExit as ended:
        sys.exit(f"{said.getvalue()}{ended}\ncompile_engine.py: mypyc does not take the engine; see above")
    return extensions


def _compile(source: str, extension: "Extension") -> str:
    """Compile a file of C, and return the object file."""
    result = f"{source}.o"
    flags = _words("CC", "CFLAGS", "CCSHARED")
    include = [f"-I{path}" for path in (sysconfig.get_path("include"), *extension.include_dirs)]
    _run([*flags, "-w", "-O2", "-g0", "-fvisibility=hidden", *include, "-c", source, "-o", result])
    return result


def _link(objects: list[str], result: Path) -> None:
    _run([*_words("LDSHARED"), *objects, "-o", str(result)])


def _words(*names: str) -> list[str]:
    """Return what Python itself was compiled with."""
    return [word for name in names for word in shlex.split(str(sysconfig.get_config_var(name)))]


def _run(command: list[str]) -> None:
    try:
        ran = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        sys.exit(
            f"the engine is not compiled: there is no {command[0]}; run as root: bash vagrant/provision.sh"
        )
    if ran.returncode:
        sys.exit(f"{ran.stderr}compile_engine.py: {command[0]} does not take the engine; see above")


if __name__ == "__main__":
    try:
        main()
    except (ImportError, OSError) as error:  # no mypy, no compiler, or an environment that is another's
        sys.exit(f"compile_engine.py: {error}")
