"""Results that give way to those of the same experiments run again: they go once there are others.

Only a directory that holds a run of lightrail's is replaced, under its own name and not through a symbolic
link. Until the new run has ended, the old results are beside it under a name of their own; a kill in between
leaves them there. Files that no run wrote stay in the directory.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

from testbed.machine.files import directory_lock, exists
from testbed.machine.walk import place
from testbed.report.checksums import Sums
from testbed.report.results import WRITTEN
from testbed.report.run_json import sources_of
from topologies.errors import ScenarioError

RUN = "run.json"
PLOTS = "*.png"
"""A user's too: those that a run drew are in its list."""


@contextmanager
def replaced(directory: Path) -> Iterator[None]:
    """While a run writes into a directory, keep the results that it holds; put them back if it leaves none.

    Raises
    ------
    ScenarioError
        If the directory holds something but no run, is a symbolic link or the current directory, or another
        run writes into it.
    """
    path = Path(os.path.abspath(directory))
    if not os.path.lexists(path) or (path.is_dir() and not any(path.iterdir())):
        yield
        return
    _check(path)
    aside = path.with_name(f"{path.name}.before.{token_hex(4)}")
    with place(path.parent) as above:
        with directory_lock(path):
            os.rename(path.name, aside.name, src_dir_fd=above, dst_dir_fd=above)
        try:
            yield
        finally:
            if exists(path / RUN):
                _carry_over(aside, path)
                shutil.rmtree(aside.name, dir_fd=above)
            else:
                with suppress(OSError):  # it is not empty: the old ones stay beside it
                    os.rename(aside.name, path.name, src_dir_fd=above, dst_dir_fd=above)


def _check(path: Path) -> None:
    """Raise ScenarioError if a path is not a directory of results that may be replaced."""
    if path.is_symlink() or not path.is_dir():
        raise ScenarioError(f"{path} is a symbolic link, or not a directory", "give a directory of results")
    if Path.cwd().is_relative_to(path.resolve()):
        raise ScenarioError(f"{path} holds the directory that this runs in", "give another directory")
    if not exists(path / RUN):
        raise ScenarioError(f"{path} holds no results that could be replaced", "give another directory")
    sources_of(path / RUN)  # refuses a file of that name that no run wrote


def _carry_over(old: Path, new: Path) -> None:
    """Move what no run wrote from old results to new ones."""
    own = {*WRITTEN} - {PLOTS}
    with suppress(ScenarioError):  # a list that is damaged
        own |= {*Sums(old, old).listed}
    tops = {name.partition("/")[0] for name in own}
    for path in old.iterdir():
        if path.name not in tops and not path.name.endswith(".part") and not os.path.lexists(new / path.name):
            os.rename(path, new / path.name)
