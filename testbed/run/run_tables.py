"""The tables of a run, put together from what the runner wrote down: columns, and blocks of rows.

A training step on 32,768 GPUs has ten million rows; a tuple for each takes gigabytes.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from traffic.messages import Messages

Row = tuple[str, int, int, int, int, int, str]
"""Node, source, destination, bytes, start and end [ps], path: a row of `traffic.tables.Tables.messages`."""
MESSAGE_COLUMNS = ("node", "source", "destination", "bytes", "start_ps", "end_ps", "path")
SPAN_COLUMNS = ("node", "gpu", "start_ps", "end_ps")


class Tasks(NamedTuple):
    """What GPUs computed of a node at the same time, or a collective (GPU -1)."""

    node: str
    gpus: Sequence[int]
    start_ps: int
    end_ps: int


class Sent(NamedTuple):
    """Messages of a node that started together and ended together: a block of rows."""

    node: str
    messages: Messages
    start_ps: int
    end_ps: int
    paths: Sequence[str]
    """Of each message, or one that all have."""


def span_table(found: Sequence[Tasks]) -> pd.DataFrame:
    """Return a row per GPU that computed, and per collective."""
    counts = [len(tasks.gpus) for tasks in found]
    columns = (
        _names([tasks.node for tasks in found], counts),
        np.fromiter(chain.from_iterable(tasks.gpus for tasks in found), np.int64, sum(counts)),
        np.repeat(np.array([tasks.start_ps for tasks in found], dtype=np.int64), counts),
        np.repeat(np.array([tasks.end_ps for tasks in found], dtype=np.int64), counts),
    )
    return pd.DataFrame(dict(zip(SPAN_COLUMNS, columns, strict=True)))


def event_table(found: Sequence[tuple[int, str, str]]) -> pd.DataFrame:
    """Return a row per event: time [ps], what happened, and to which."""
    table = pd.DataFrame(found, columns=["at_ps", "what", "which"])
    return table.astype({"at_ps": np.int64})


def message_table(found: Iterable[Row | Sent]) -> pd.DataFrame:
    """Return a row per message."""
    columns = _MessageColumns()
    for each in found:
        columns.add(each)
    return columns.table()


class _MessageColumns:
    """What is known of rows and blocks, column by column."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._counts: list[int] = []
        """Of a row 1, of a block its rows."""
        self._times_ps: tuple[list[int], list[int]] = ([], [])
        self._integers: tuple[list[NDArray[np.int64]], ...] = ([], [], [])
        self._rows: list[tuple[int, int, int]] = []
        """Source, destination and bytes of rows that are not yet among these."""
        self._paths: list[str] = []

    def add(self, each: Row | Sent) -> None:
        """Take a row or a block, the next of the table."""
        if isinstance(each, Sent):
            self._flush()
            name, messages, start_ps, end_ps, paths = each
            columns = (messages.source, messages.destination, messages.bytes)
            for column, numbers in zip(self._integers, columns, strict=True):
                column.append(numbers)
            self._counts.append(len(messages))
            self._paths += paths if len(paths) == len(messages) else list(paths) * len(messages)
        else:
            name, source, destination, size, start_ps, end_ps, path = each
            self._rows.append((source, destination, size))
            self._counts.append(1)
            self._paths.append(path)
        self._names.append(name)
        self._times_ps[0].append(start_ps)
        self._times_ps[1].append(end_ps)

    def table(self) -> pd.DataFrame:
        """Return the table of all."""
        self._flush()
        columns = (
            _names(self._names, self._counts),
            *(np.concatenate([np.zeros(0, dtype=np.int64), *column]) for column in self._integers),
            *(np.repeat(np.array(times_ps, dtype=np.int64), self._counts) for times_ps in self._times_ps),
            pd.array(self._paths, dtype="str"),
        )
        return pd.DataFrame(dict(zip(MESSAGE_COLUMNS, columns, strict=True)))

    def _flush(self) -> None:
        if self._rows:
            for column, numbers in zip(self._integers, np.array(self._rows, dtype=np.int64).T, strict=True):
                column.append(numbers)
            self._rows = []


def _names(names: Sequence[str], counts: Sequence[int]) -> "pd.api.extensions.ExtensionArray":
    return pd.array(names, dtype="str").repeat(counts)
