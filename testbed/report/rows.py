"""The summary of a run: one tidy table, a row per point, and its file, which is whole at any time."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from testbed.machine.files import write_whole
from testbed.report.csv_text import csv_text

GROWTH = 1.1
"""The file is written anew for so many times as many rows: whole, and in time that grows as they do."""


class GrowingTable:
    """A table that grows by rows, and its file."""

    def __init__(self) -> None:
        self._columns: list[str] = []
        self._rows: list[tuple[object, ...]] = []
        self._words: dict[str, str] = {}
        """Each text once: verdicts, names and reasons are alike in most rows."""
        self._written = 0
        """How many rows the file has."""

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def table(self) -> pd.DataFrame:
        """All rows; what a row lacks is NaN."""
        width = len(self._columns)
        full = [(*row, *(math.nan,) * (width - len(row))) for row in self._rows]
        return pd.DataFrame(full, columns=self._columns)

    def append(self, rows: Sequence[Mapping[str, object]], file: Path) -> None:
        """Append rows, and write the file anew if it lacks many; MachineError if it cannot be written."""
        self._rows += map(self._row, rows)
        if len(self._rows) >= GROWTH * self._written:
            self.write(file)

    def replace(self, since: int, rows: Sequence[Mapping[str, object]], file: Path) -> None:
        """Put rows in the place of those from a number on."""
        self._rows[since:] = map(self._row, rows)
        self.write(file)

    def write(self, file: Path) -> None:
        """Write the file anew."""
        write_whole(file, csv_text(self.table))
        self._written = len(self._rows)

    def _row(self, row: Mapping[str, object]) -> tuple[object, ...]:
        self._columns += [name for name in row if name not in self._columns]
        return tuple(self._once(row.get(name, math.nan)) for name in self._columns)

    def _once(self, value: object) -> object:
        return self._words.setdefault(value, value) if isinstance(value, str) else value
