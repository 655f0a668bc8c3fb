"""What a report says, as values: tables, plots to be drawn, claims.

Who knows the run fills a `Page` (`testbed.report.collective_report`, `testbed.report.ocs_report`);
`testbed.report.report_html` makes one file of it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import pandas as pd

from testbed.report.claims import Claim
from testbed.report.run_json import Run

if TYPE_CHECKING:  # matplotlib takes longer to import than a dry run takes
    from matplotlib.figure import Figure

TRACES = "traces/ has what happened when, of the first seed, for ui.perfetto.dev or chrome://tracing."


@dataclass(frozen=True)
class Line:
    """A line of a table."""

    cells: Sequence[str]
    word: str = ""
    """The verdict behind its cell ``verdict``."""
    look: Literal["", "void", "bound"] = ""


@dataclass(frozen=True)
class Block:
    """Lines under one heading."""

    lines: Sequence[Line]
    title: str = ""
    note: str = ""
    """Where what the title names comes from."""


@dataclass(frozen=True)
class Sheet:
    """A table."""

    words: Sequence[str]
    """The headers of its first columns, those of words, the verdict's last."""
    numbers: Sequence[str]
    """The headers of the others."""
    blocks: Sequence[Block]
    caption: str


@dataclass(frozen=True, eq=False)
class Plot:
    """A figure to draw, and what goes with it."""

    name: str
    """Of its file, without the ending."""
    draw: Callable[[], "Figure"]
    """Return its figure: called where it becomes an image, which may be another process."""
    caption: str
    """What it shows."""


@dataclass(frozen=True)
class Findings:
    """What a scenario has to say of its outcomes itself, beside what its kind of run has."""

    sheets: Sequence[Sheet] = ()
    plots: Sequence[Plot] = ()
    claims: Sequence[Claim] = ()
    leads: bool = False
    """Whether its tables stand before that of its kind of run."""


@dataclass(frozen=True)
class Page:
    """What a report says."""

    run: Run
    sentence: str
    """What was run."""
    table: pd.DataFrame
    """The summary: seed and verdict; where something was emulated all of `outcome.summary_row`."""
    results: Sheet
    claims: Sequence[Claim]
    plots: Sequence[Plot]
    definitions: Sequence[tuple[str, str]]
    files: str
    """What lies where, a sentence."""
    more: Sequence[Sheet] = ()
    """Further tables of results, where one cannot hold them all."""


def counted(count: int, noun: str) -> str:
    """Return a number of things in words.

    Examples
    --------
    >>> counted(1, "seed"), counted(2, "seed")
    ('1 seed', '2 seeds')
    """
    return f"{count} {noun}" + ("s" if count != 1 else "")


def slug(name: str) -> str:
    """Return a name as a file's may have it."""
    return "".join(letter if letter.isalnum() or letter == "." else "_" for letter in name)
