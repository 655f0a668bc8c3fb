"""Traces of which the meaning is mutated: their syntax stays valid.

A trace is a list of records. They are mutated as records: one is there twice or missing, two change places,
a number becomes zero, unknown, or another record's. Then they are written in the syntax of their format, and
read. What a file states is counted of its records, by code that shares nothing with the readers: a reader has
as much in the job, names in the note what it left out, or refuses the file.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from topologies.errors import LightrailError

Record = dict[str, Any]
Records = list[Record]


@dataclass(frozen=True)
class Stated:
    """The content of a file, counted of its records."""

    count: int | None
    """Bytes, or faults; None if the file has to be refused."""
    named: Sequence[str] = ()
    """Words of the note on what is left out."""
    collectives: int = 0
    """How many collectives there are at least."""


@dataclass(frozen=True)
class Got:
    """The result of a reader."""

    count: int
    note: str
    collectives: int


@dataclass(frozen=True)
class Format:
    """A format of traces."""

    make: Callable[[Random], Records]
    write: Callable[[Records, Path], None]
    state: Callable[[Records], Stated]
    read: Callable[[Path], Got]


def mutated(rng: Random, records: Records) -> Records:
    """Return records with up to three changes of their meaning."""
    records = [dict(record) for record in records]
    for _ in range(rng.choice([0, 1, 1, 2, 3])):
        at, other = (rng.randrange(len(records)) for _ in range(2))
        key = rng.choice(list(records[at]))
        match rng.randrange(6):
            case 0:
                records.insert(other, dict(records[at]))
            case 1 if len(records) > 1:
                del records[at]
            case 2:
                records[at], records[other] = records[other], records[at]
            case 3:
                records[at][key] = records[other].get(key)
            case 4:
                records[at][key] = None
            case _ if isinstance(records[at][key], int):
                records[at][key] = 0
    return records


def check(of: Format, records: Records, path: Path) -> None:
    """Check that what records state is read from their file, named, or refused."""
    stated = of.state(records)
    of.write(records, path)
    try:
        got = of.read(path)
    except LightrailError:
        return
    assert stated.count is not None, f"not refused, but read as {got}"
    assert got.count == stated.count, f"{stated} became {got}"
    assert got.collectives >= stated.collectives, f"{stated} became {got}"
    for words in stated.named:
        assert words in got.note, f"{words!r} is not in the note of {got}"
