"""Tables put together from what a run wrote down: rows and blocks of rows, when a table is asked for.

A training step on 32,768 GPUs has ten million messages and many more legs; a tuple for each would take
gigabytes. Messages that started and ended together are a block, which is expanded with its table.
"""

from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from traffic.records import NVLINK as OVER_NVLINK
from traffic.records import path_text
from traffic.tables import EVENTS, RowBlock, Tables

Integers = NDArray[np.integer]
"""Whole numbers, in a type that holds them."""


class Of(NamedTuple):
    """A column of a block, worked out when its table is: values at some places, and something added."""

    values: Integers
    at: Integers | None = None
    """Which of them each row has; None if each has its own."""
    plus: int = 0

    def column(self) -> Integers:
        """Return it."""
        values = self.values if self.at is None else self.values[self.at]
        return values.astype(np.int64) + self.plus if self.plus else values


Value = int | Integers | Of
"""A column of a block: one value of all its rows, or one of each."""


@lru_cache(maxsize=256)
def counted(rows: int) -> NDArray[np.int64]:
    """Return the numbers of rows from 0; blocks share them."""
    return np.arange(rows)


class Leg(NamedTuple):
    """A leg of an operation, or of one that brings it further, with columns of `traffic.tables.LEGS`."""

    hop: int
    medium: int
    lane: int
    path: int
    from_gpu: int
    to_gpu: int
    bytes: int
    first_ps: int
    last_ps: int
    slot: int = -1


class Rows:
    """The rows of a table, in the order in which they were added.

    Parameters
    ----------
    columns
        Names and types.
    """

    def __init__(self, columns: Mapping[str, str]) -> None:
        self._columns = columns
        self._flat = array("q")
        """Rows that are not yet among the blocks, one after the other."""
        self._blocks: list[tuple[int, tuple[Value, ...]]] = []
        self._rows = 0

    def __len__(self) -> int:
        """How many rows."""
        return self._rows

    def add(self, *row: int) -> int:
        """Add a row; return its number."""
        self._flat.extend(row)
        self._rows += 1
        return self._rows - 1

    def block(self, rows: int, *columns: Value) -> int:
        """Add a block of rows; return the number of its first."""
        self._flush()
        self._blocks.append((rows, columns))
        self._rows += rows
        return self._rows - rows

    def table(self) -> pd.DataFrame:
        """Return the table of all."""
        self._flush()
        counts = np.array([rows for rows, _ in self._blocks], dtype=np.int64)
        edges = list(pairwise(accumulate(counts.tolist(), initial=0)))
        columns = {}
        for place, (name, kind) in enumerate(self._columns.items()):
            found = [values[place] for _, values in self._blocks]
            common = np.array([value if isinstance(value, int) else 0 for value in found], dtype=kind)
            column = columns[name] = np.repeat(common, counts)
            for (begin, end), value in zip(edges, found, strict=True):
                if not isinstance(value, int):
                    column[begin:end] = value.column() if isinstance(value, Of) else value
        return pd.DataFrame(columns, copy=False)  # else all of it is there twice for a while

    def blocks(self) -> Iterator[RowBlock]:
        """Yield its rows block by block."""
        self._flush()
        names = {name: place for place, name in enumerate(self._columns)}
        for rows, values in self._blocks:
            yield RowBlock(rows, partial(_column, names, values))

    def _flush(self) -> None:
        if self._flat:
            table = np.frombuffer(self._flat, dtype=np.int64).reshape(-1, len(self._columns))
            columns = zip(table.T, self._columns.values(), strict=True)
            self._blocks.append((len(table), tuple(column.astype(kind) for column, kind in columns)))
            self._flat = array("q")


def _column(names: Mapping[str, int], values: Sequence[Value], name: str) -> int | NDArray[np.int64]:
    value = values[names[name]]
    if isinstance(value, int):
        return value
    return (value.column() if isinstance(value, Of) else value).astype(np.int64, copy=False)


def event_table(found: Sequence[tuple[int, str, str]]) -> pd.DataFrame:
    """Return a row per event: time [ps], what happened, and to which."""
    return pd.DataFrame(found, columns=list(EVENTS)).astype(EVENTS)


def message_texts(tables: Tables) -> list[str]:
    """Return the path of each message as text (`traffic.records`).

    What legs carry of several messages together counts for each by its part.
    """
    names, messages, legs = _Names(tables), tables.messages, tables.legs
    own = legs["message"].to_numpy()
    count = np.bincount(own[own >= 0], minlength=len(messages)).tolist()
    texts, parts_of = [""] * len(messages), defaultdict[tuple[bool, int], dict[str, int]](dict)
    columns = (legs[name].tolist() for name in ("message", "group", "lane", "path", "bytes"))
    for message, group, lane, path, size in zip(*columns, strict=True):
        name = names[lane, path]
        if message >= 0 and count[message] == 1:
            texts[message] = name if lane < 0 else f"{size}@{name}"
        elif lane < 0 and group >= 0:
            continue  # what crosses NVLink on its way to a lane has no ports to be named by
        elif message >= 0 or group >= 0:
            parts = parts_of[message >= 0, max(message, group)]
            parts[name] = parts.get(name, 0) + size
    groups, sizes = messages["group"].to_numpy(), messages["bytes"].to_numpy()
    total = np.zeros(len(messages), dtype=np.int64)
    np.add.at(total, groups[groups >= 0], sizes[groups >= 0])
    for number, (group, size) in enumerate(zip(groups.tolist(), sizes.tolist(), strict=True)):
        if group >= 0:
            texts[number] = _part(parts_of[False, group], size, int(total[group]))
        elif count[number] > 1:
            texts[number] = _text(parts_of[True, number])
    return texts


class _Names(dict[tuple[int, int], str]):
    """The name of each lane and path in the text of a path: where no path is known it is the lane."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def __missing__(self, over: tuple[int, int]) -> str:
        lane, path = over
        if lane < 0:
            name = OVER_NVLINK
        else:
            ports = self._tables.paths[path]
            name = path_text(ports) if ports else str(self._tables.lanes[lane])
        self[over] = name
        return name


def _text(parts: Mapping[str, int]) -> str:
    return " ".join(name if name == OVER_NVLINK else f"{size}@{name}" for name, size in parts.items())


def _part(parts: Mapping[str, int], size: int, total: int) -> str:
    """Return the path of a message that is ``size`` bytes of all that go between two servers."""
    edges = [0, *(round(carried * size / total) for carried in accumulate(parts.values()))]
    each = zip(parts, pairwise(edges), strict=True)
    return _text({name: end - begin for name, (begin, end) in each if end > begin})
