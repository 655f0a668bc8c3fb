"""Equal sections of a job solved once: the same tables as if each had run, for the time of a few.

Between two barriers (`traffic.sections`) a run depends on what is kept from before: in the backend nothing
but the queue pairs that are open. Idle ones slow nothing, but links that they join are solved together
(`traffic.fluid.network`), and where queue pairs share by what they have left, it matters when. The scheme
may keep anything. So a section is solved anew until nothing was opened, and the scheme's memory is the same,
since an equal one began, as a rule twice.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from testbed.core.run import Run
from testbed.model.backend import FluidBackend
from topologies.fabric import Path
from traffic.clock import NEVER
from traffic.job import Collective, Job, Node
from traffic.sections import contents, in_turn, sections
from traffic.spraying.policy import QueuePair
from traffic.tables import Tables


def solved_once(
    job: Job, backend: FluidBackend, run: Callable[[Job], Run], memory: Callable[[], int] = lambda: 0
) -> Run:
    """Return the run of a job whose equal sections are solved once where that is exact.

    Parameters
    ----------
    job
        What runs, without circuits and without faults.
    backend
        Over which, unused as yet.
    run
        Runs a job over the backend from now to its end, under a scheme that places equal messages alike as
        long as its memory is the same.
    memory
        Returns that (`traffic.scheme.Scheme`); by default the scheme keeps nothing.
    """
    found = sections(job)
    if len(found) == 1 or job.has_starts:  # a time of the job is another time of each section
        return run(job)
    content = contents(found)
    if len(set(content)) == len(found):
        return run(job)
    solved = _Solved(job, run, memory)
    solved.without_messages(found, content)
    for number, section in zip(content, found, strict=True):
        solved.find(number, section, backend)
    return solved.whole(found)


class _Solved:
    """The sections that were solved, and which of them stands for each section of the whole job."""

    def __init__(self, job: Job, run: Callable[[Job], Run], memory: Callable[[], int]) -> None:
        self._job, self._run, self._memory = job, run, memory
        self._known: dict[tuple[int, ...], int] = {}
        """What stands for each content while so much is open and in memory, or ever if it has no messages."""
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
        self._known = {(number,): index for index, number in enumerate(distinct)}
        if distinct:
            self._solve(list(distinct.values()))

    def find(self, content: int, section: Sequence[Node], backend: FluidBackend) -> None:
        """Take what stands for the next section, or solve it."""
        is_quiet = (content,) in self._known
        state = (content,) if is_quiet else (content, backend.opened, self._memory())
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
        names = [node.name for section in found for node in section]
        joined = _joined([run.tables for run in self._runs])
        return Run(_Repeated(joined, distinct, names, np.array(self._equals)).tables())


def _joined(parts: Sequence[Tables]) -> Tables:
    """Return the tables of runs one below the other, with one numbering of all that they number."""
    lanes = tuple(dict.fromkeys(lane for part in parts for lane in part.lanes))
    paths = tuple(dict.fromkeys(path for part in parts for path in part.paths))
    stacked = partial(_stacked, parts, lanes, paths)
    return replace(
        parts[0],
        messages=partial(stacked, "messages"),
        legs=partial(stacked, "legs"),
        spans=partial(stacked, "spans"),
        events=partial(stacked, "events"),
        nodes=tuple(chain.from_iterable(part.nodes for part in parts)),
        lanes=lanes,
        paths=paths,
        leg_blocks=None,
    )


def _stacked(
    parts: Sequence[Tables], lanes: Sequence[QueuePair], paths: Sequence[Path], name: str
) -> pd.DataFrame:
    """Return a table of each run one below the other, where lanes and paths have other numbers."""
    number_of = {lane: number for number, lane in enumerate(lanes)}
    number_of_path = {path: number for number, path in enumerate(paths)}
    tables, messages, nodes = list[pd.DataFrame](), 0, 0
    for part in parts:
        table = getattr(part, name)
        now = {
            "node": np.arange(len(part.nodes)) + nodes,
            "message": np.arange(len(part.messages)) + messages,
            "group": np.arange(len(part.messages)) + messages,
            "lane": np.array([number_of[lane] for lane in part.lanes], dtype=np.int64),
            "path": np.array([number_of_path[path] for path in part.paths], dtype=np.int64),
        }
        changed = {
            column: _renumbered(table[column].to_numpy(), numbers)
            for column, numbers in now.items()
            if column in table
        }
        tables.append(table.assign(**changed))
        messages, nodes = messages + len(part.messages), nodes + len(part.nodes)
    filled = [table for table in tables if len(table)]
    return pd.concat(filled, ignore_index=True) if filled else tables[0]


def _renumbered(column: NDArray[np.int64], now: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return what each number of a column is now; what has none keeps -1."""
    return np.append(now, -1).astype(column.dtype)[column]


class _Repeated:
    """The tables of distinct sections, and where each of its rows belongs.

    Parameters
    ----------
    found
        The tables.
    distinct
        The nodes of each distinct section as they name them; its rows stand in this order.
    names
        Of all nodes of the whole job, section by section.
    equals
        The distinct section that each section of the whole job equals.
    """

    def __init__(
        self,
        found: Tables,
        distinct: Sequence[Sequence[str]],
        names: Sequence[str],
        equals: NDArray[np.int64],
    ) -> None:
        self._found, self._equals, self._names = found, equals, tuple(names)
        place = {name: place for place, name in enumerate(chain.from_iterable(distinct))}
        self._place = np.array([place.get(name, -1) for name in found.nodes], dtype=np.int64)
        """The place of each node among all of the distinct sections; -1 for barriers between them."""
        sizes = np.array([len(nodes) for nodes in distinct])
        self._first = np.append(0, np.cumsum(sizes))
        """The place of the first node of each distinct section, and how many nodes there are."""
        self._section = np.repeat(np.arange(len(sizes)), sizes)
        """The distinct section of each place."""
        self._later_ps = self._shifts()
        """How much later each section of the whole job starts than the one that it equals [ps]."""

    def tables(self) -> Tables:
        """Return the tables of the whole job."""
        return replace(
            self._found,
            messages=partial(self._repeated, "messages"),
            legs=partial(self._repeated, "legs"),
            spans=partial(self._repeated, "spans"),
            nodes=self._names,
        )

    def _shifts(self) -> NDArray[np.int64]:
        spans, distinct = self._found.spans, len(self._first) - 1
        section = self._section[self._places(spans)]
        start_ps, end_ps = np.full(distinct, NEVER), np.zeros(distinct, dtype=np.int64)
        np.minimum.at(start_ps, section, spans["ready_ps"].to_numpy())
        np.maximum.at(end_ps, section, spans["end_ps"].to_numpy())
        start_ps = np.minimum(start_ps, end_ps)  # a section without spans takes no time
        until_ps = np.cumsum((end_ps - start_ps)[self._equals])
        return np.asarray(np.append(0, until_ps[:-1]) - start_ps[self._equals])

    def _places(self, table: pd.DataFrame) -> NDArray[np.int64]:
        return np.asarray(self._place[table["node"].to_numpy()])

    def _repeated(self, name: str) -> pd.DataFrame:
        """Return the rows of each section, one after the other, numbered and timed as its own."""
        table: pd.DataFrame = getattr(self._found, name)
        place = self._places(table)
        rows, to_row = self._moved_rows(place)
        _, to_node = _moved(self._first, self._equals)
        row = np.arange(rows.sum()) - np.repeat(to_row, rows)
        found: pd.DataFrame = table.iloc[row].reset_index(drop=True)
        found["node"] = (place[row] + np.repeat(to_node, rows)).astype(table["node"].dtype)
        _, to_message = self._moved_rows(self._places(self._found.messages))
        for column in {"message", "group"} & set(found.columns):
            later = np.where(found[column] >= 0, np.repeat(to_message, rows), 0)
            found[column] = (found[column] + later).astype(table[column].dtype)
        later_ps = np.repeat(self._later_ps, rows)
        for column in [str(column) for column in found.columns if str(column).endswith("_ps")]:
            found[column] += np.where(found[column] < NEVER, later_ps, 0)
        return found

    def _moved_rows(self, place: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return how many rows each section has, given their places, and how far behind its equal's."""
        first = np.searchsorted(self._section[place], np.arange(len(self._first)))
        return _moved(first, self._equals)


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
