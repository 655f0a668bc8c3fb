"""Programs: what an OCS shows one after the other, written by a scheduler or typed by a person.

The compact form alternates days and nights, as in ``50ms 0>1,1>0 20ms - 50ms 0>2,2>0``:

    program   = step *(" " step)
    step      = duration " " ( circuits / "-" )
    circuits  = circuit *("," circuit)        ; no blanks inside
    circuit   = input ">" output              ; ports count from 0
    duration  = number ( "s" / "ms" / "us" )

A day's duration is how long its circuits are lit. Before each day the device's delay passes in the
dark. A night ``-`` is a dark time that is stated: all circuits go dark, those too that the days on both
sides of it share. The device moves during the night, so that it lasts as long as it says or as the
device needs, whichever is longer. A night at the end is a day without circuits: the program ends after it.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from controller.circuits.circuits import Circuits, circuits_from_text
from controller.circuits.devices import LONGEST_S
from topologies.errors import DemandError
from topologies.strict_json import shown

UNITS_S = {"s": 1.0, "ms": 1e-3, "us": 1e-6}


@dataclass(frozen=True)
class Day:
    """Circuits, and how long they are lit; without circuits a dark time."""

    circuits: Circuits
    duration_s: float
    """How long they are lit [s], more than zero."""
    night_s: float = 0.0
    """How long the OCS is dark before them at least [s], the device's delay if that is longer; 0 for a
    reconfiguration without a stated night, in which circuits may be kept."""


@dataclass(frozen=True)
class Program:
    """The days of one OCS, in order; after the last the OCS is dark.

    Raises
    ------
    DemandError
        If a day has no duration, it or its night is longer than `LONGEST_S`, or days are of several OCSes.
    """

    days: tuple[Day, ...]
    partial: bool = True
    """Whether circuits that two days share keep carrying between them, unless a night is stated there."""

    def __post_init__(self) -> None:
        """Check the days."""
        if len({day.circuits.ports for day in self.days}) > 1:
            raise DemandError("a program whose days are not all for one OCS")
        for day in self.days:
            if not (0 < day.duration_s <= LONGEST_S and 0 <= day.night_s <= LONGEST_S):
                raise DemandError(
                    f"a day of {day.duration_s:g} s after a night of {day.night_s:g} s",
                    f"give the day more than 0 s, and neither more than {LONGEST_S:g} s",
                )


@dataclass(frozen=True)
class Showing:
    """A program, and how an OCS shows it."""

    program: Program
    start_s: float | None = None
    """When the first night begins, on the machine's monotonic clock [s]; None for now."""
    notify: Path | None = None
    """A unix datagram socket that receives whatever changes (`controller.app.notices`)."""


def program_from_text(text: str, ports: int, partial: bool = True) -> Program:
    """Return the program that a person typed in the compact form.

    Raises
    ------
    DemandError
        If the text does not follow the form, or the OCS cannot light it.

    Examples
    --------
    >>> [str(day.circuits) for day in program_from_text("50ms 0>1,1>0 20ms - 1s 0>2", 4).days]
    ['0>1 1>0', '0>2']
    """
    words = text.split()
    if not words or len(words) % 2:
        raise DemandError(f"a program of {len(words)} words", "write: duration circuits duration - ...")
    days, night_s = [], 0.0
    for duration, circuits in zip(words[::2], words[1::2], strict=True):
        length_s = seconds(duration)
        if circuits == "-":
            if not length_s:
                raise DemandError("a night of 0 s", "give it some time, or leave it out")
            night_s += length_s
        else:
            days.append(Day(circuits_from_text(circuits, ports), length_s, night_s))
            night_s = 0.0
    if night_s:
        days.append(Day(Circuits(ports), night_s))
    return Program(tuple(days), partial)


def seconds(duration: str) -> float:
    """Return a typed duration in seconds; DemandError if it has no number or no unit."""
    found = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)(s|ms|us)", duration)
    if not found:
        raise DemandError(f"{shown(duration)} is not a valid duration", "write it as 50ms, 1.5s or 200us")
    return float(found[1]) * UNITS_S[found[2]]
