"""The command ``lightrail diff-events``: where two event logs part, as an emulation's and a prediction's."""

import re
from pathlib import Path
from typing import Annotated

import typer

from testbed.study.options import Debug
from testbed.trust.event_diff import Log, diff_lines, event_diff, log_of
from topologies.errors import ScenarioError

UNITS_US = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}
TOLERANCE = re.compile(r"(?P<number>\d{1,9}(\.\d{1,9})?)(?P<unit>%|ns|us|ms|s)", re.ASCII)

A = Annotated[Path, typer.Argument(metavar="A", help="An event log, as --events writes it.")]
B = Annotated[Path, typer.Argument(metavar="B", help="Another one.")]
Tolerance = Annotated[
    str,
    typer.Option(
        metavar="SHARE|TIME",
        help="By how much times may differ: a share of the longer run such as 2%, or a time such as 50us.",
    ),
]


def diff_events(a: A, b: B, tolerance: Tolerance = "2%", debug: Debug = False) -> None:
    """Compare two event logs: what was decided of each operation, OCS, node and fault, and when.

    It prints how many agree, and the first place where the logs part. The exit code is 0 if they agree, 1 if
    they do not.

    `lightrail diff-events points/KEY.emulated.events points/KEY.predicted.events --tolerance 2%`
    """
    share, least_us = tolerated(tolerance)
    found = event_diff(read(a), read(b), share=share, least_us=least_us)
    print("\n".join(diff_lines(found)))
    if not found.agrees:
        raise typer.Exit(1)


def tolerated(text: str) -> tuple[float, float]:
    """Return the share of a run and the time [us] that a text gives; ScenarioError if it gives none."""
    if not (found := TOLERANCE.fullmatch(text)):
        raise ScenarioError(f"{text!r} is not a tolerance", "give a share such as 2%, or a time such as 50us")
    number, unit = float(found["number"]), found["unit"]
    return (number / 100, 0.0) if unit == "%" else (0.0, number * UNITS_US[unit])


def read(file: Path) -> Log:
    """Return the event log of a file; ScenarioError if there is none."""
    try:
        return log_of(str(file), file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ScenarioError(f"{file} cannot be read: {why}", "give a file that --events wrote") from error
