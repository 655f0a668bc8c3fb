"""Equal sections of a job solved once: the same tables as if each had run, for the time of a few.

Between two barriers (`traffic.sections`) a run depends on what the backend keeps from before: nothing but
the queue pairs that are open. Idle ones slow nothing, but links that they join are solved together
(`traffic.fluid.network`), and where queue pairs share by what they have left, it matters when. So a section
is solved anew until nothing was opened since an equal one began, as a rule twice. What is left to differ
is rounding: the model takes ends for one that lie within a part of 1e-9 of the time since the start.
"""

from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from testbed.run.fluid_backend import FluidBackend
from testbed.run.runner import Run
from traffic.job import Collective, Job, Node
from traffic.sections import contents, in_turn, sections


def solved_once(job: Job, backend: FluidBackend, run: Callable[[Job], Run]) -> Run:
    """Return the run of a job whose equal sections are solved once where that is exact.

    Parameters
    ----------
    job
        What runs, without circuits and without faults.
    backend
        Over which, unused as yet.
    run
        Runs a job over the backend from now to its end, under a scheme that places equal messages alike at
        any time.
    """
    found = sections(job)
    if len(found) == 1:
        return run(job)
    content = contents(found)
    if len(set(content)) == len(found):
        return run(job)
    solved = _Solved(job, run)
    solved.without_messages(found, content)
    for number, section in zip(content, found, strict=True):
        solved.find(number, section, backend)
    return solved.whole(found)


class _Solved:
    """The sections that were solved, and which of them stands for each section of the whole job."""

    def __init__(self, job: Job, run: Callable[[Job], Run]) -> None:
        self._job, self._run = job, run
        self._quiet: dict[int, int] = {}
        """What stands for each content without messages."""
        self._known: dict[tuple[int, int], int] = {}
        """What stands for each content while so much is open."""
        self._sections: list[Sequence[Node]] = []
        self._runs: list[Run] = []
        self._equals: list[int] = []

    def without_messages(self, found: Sequence[Sequence[Node]], content: Sequence[int]) -> None:
        """Solve all sections without messages in one run: they depend on nothing that is open."""
        distinct = {
            number: section
            for number, section in zip(content, found, strict=True)
            if not any(isinstance(node, Collective) for node in section)
        }
        self._quiet = {number: index for index, number in enumerate(distinct)}
        if distinct:
            self._solve(list(distinct.values()))

    def find(self, content: int, section: Sequence[Node], backend: FluidBackend) -> None:
        """Take what stands for the next section, or solve it."""
        if content in self._quiet:
            self._equals.append(self._quiet[content])
            return
        state = content, backend.opened
        if state not in self._known:
            self._known[state] = len(self._sections)
            self._solve([section])
        self._equals.append(self._known[state])

    def _solve(self, new: Sequence[Sequence[Node]]) -> None:
        parts = {f"{number}": nodes for number, nodes in enumerate(new, start=len(self._sections))}
        self._sections += new
        self._runs.append(self._run(in_turn(self._job.name, self._job.gpus, parts)))

    def whole(self, found: Sequence[Sequence[Node]]) -> Run:
        """Return the run of the whole job, of these sections."""
        distinct = [
            [f"{number}/{node.name}" for node in section] for number, section in enumerate(self._sections)
        ]
        tables = Run(
            _joined([run.messages for run in self._runs]),
            _joined([run.tasks for run in self._runs]),
            _joined([run.events for run in self._runs]),
        )
        names = [node.name for section in found for node in section]
        return _Repeated(tables, distinct, names, np.array(self._equals)).run()


def _joined(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    filled = [table for table in tables if len(table)]
    return pd.concat(filled, ignore_index=True) if filled else tables[0]


class _Repeated:
    """The run of distinct sections, and where each of its rows belongs.

    Parameters
    ----------
    found
        The run.
    distinct
        The nodes of each distinct section as the run names them; its rows stand in this order.
    names
        Of all nodes of the whole job, section by section.
    equals
        The distinct section that each section of the whole job equals.
    """

    def __init__(
        self, found: Run, distinct: Sequence[Sequence[str]], names: Sequence[str], equals: NDArray[np.int64]
    ) -> None:
        self._found, self._equals = found, equals
        self._names = np.array(names, dtype=object)
        self._place = {name: place for place, name in enumerate(chain.from_iterable(distinct))}
        """The place of each node of the run among all of them."""
        sizes = np.array([len(nodes) for nodes in distinct])
        self._first = np.append(0, np.cumsum(sizes))
        """The place of the first node of each distinct section, and how many nodes there are."""
        self._section = np.repeat(np.arange(len(sizes)), sizes)
        """The distinct section of each place."""
        self._later_s = self._shifts()
        """How much later each section of the whole job starts than the one that it equals [s]."""

    def run(self) -> Run:
        """Return the run of the whole job."""
        return Run(
            self._repeated(self._found.messages), self._repeated(self._found.tasks), self._found.events
        )

    def _shifts(self) -> NDArray[np.float64]:
        tasks, distinct = self._found.tasks, len(self._first) - 1
        section = self._section[self._places(tasks)]
        start_s, end_s = np.full(distinct, np.inf), np.zeros(distinct)
        np.minimum.at(start_s, section, tasks["start_s"].to_numpy(float))
        np.maximum.at(end_s, section, tasks["end_s"].to_numpy(float))
        start_s = np.minimum(start_s, end_s)  # a section without tasks takes no time
        until_s = np.cumsum((end_s - start_s)[self._equals])
        return np.asarray(np.append(0.0, until_s[:-1]) - start_s[self._equals])

    def _places(self, table: pd.DataFrame) -> NDArray[np.int64]:
        return np.array([self._place[name] for name in table["node"]], dtype=np.int64)

    def _repeated(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the rows of each section, one after the other, named and timed as its own."""
        place = self._places(table)
        first_row = np.searchsorted(self._section[place], np.arange(len(self._first)))
        rows, to_row = _moved(first_row, self._equals)
        _, to_name = _moved(self._first, self._equals)
        row = np.arange(rows.sum()) - np.repeat(to_row, rows)
        names = self._names[place[row] + np.repeat(to_name, rows)]
        later_s = np.repeat(self._later_s, rows)
        found: pd.DataFrame = table.iloc[row].reset_index(drop=True)
        found["node"] = pd.Series(names, dtype=table["node"].dtype)
        found["start_s"] += later_s
        found["end_s"] += later_s
        return found


def _moved(
    first: NDArray[np.int64], equals: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return how many things each section has, and how far behind those of its equal they stand.

    Parameters
    ----------
    first
        The first of the things of each distinct section, and how many there are.
    equals
        The distinct section that each section equals; their things stand one after the other.
    """
    counts = np.diff(first)[equals]
    return counts, np.cumsum(counts) - counts - first[equals]
