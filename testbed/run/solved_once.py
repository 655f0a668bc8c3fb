"""Equal sections of a job run once: the same tables as if each had run, for the time of one.

That is exact, but for rounding, over a backend whose links do not change and under a scheme that places
equal messages alike at any time: then nothing that happened before a barrier changes what comes after.
Queue pairs that were open before stay open, and idle ones slow nothing.
"""

from collections.abc import Callable
from itertools import chain

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from testbed.run.runner import Run
from traffic.job import Job
from traffic.sections import Folded, folded


def solved_once(job: Job, run: Callable[[Job], Run]) -> Run:
    """Return what comes of a job, of which each distinct section (`traffic.sections`) is run once.

    Parameters
    ----------
    job
        What runs, without circuits that change and without faults.
    run
        Runs a job from its start to its end, over the fluid backend.
    """
    whole = folded(job)
    return run(job) if whole is None else _Repeated(whole, run(whole.job)).run()


class _Repeated:
    """The run of distinct sections, and where each of its rows belongs."""

    def __init__(self, whole: Folded, found: Run) -> None:
        self._found = found
        self._place = {name: place for place, name in enumerate(chain.from_iterable(whole.distinct))}
        """The place of each node of the run among all of them."""
        sizes = np.array([len(names) for names in whole.distinct])
        self._first = np.append(0, np.cumsum(sizes))
        """The place of the first node of each distinct section, and how many nodes there are."""
        self._section = np.repeat(np.arange(len(sizes)), sizes)
        """The distinct section of each place."""
        self._equals = np.array([number for number, _ in whole.sections])
        """The distinct section that each section of the whole job equals."""
        self._names = np.array(list(chain.from_iterable(names for _, names in whole.sections)), dtype=object)
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
