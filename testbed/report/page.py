"""What a report says, as values: tables, plots to be drawn, claims.

Who knows the run fills a `Page` (`testbed.report.collective_report`, `testbed.report.ocs_report`);
`testbed.report.report_html` makes one file of it.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, get_args

import pandas as pd

from testbed.report.claims import Claim
from testbed.report.run_json import RunRecord

if TYPE_CHECKING:  # matplotlib takes longer to import than a dry run takes
    from matplotlib.figure import Figure

Format = Literal["png", "pdf", "svg"]
FORMATS: tuple[Format, ...] = get_args(Format)
"""Formats of plots."""
LONGEST_SLUG = 100
"""Most bytes of what names give to a file's name: two of them and what is around them are under 255."""
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

    run: RunRecord
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
    fabrics: Sequence[Plot] = ()
    """The fabrics that it was run over, which stand before the results."""
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


def slug(*names: str) -> str:
    """Return names as a part of a file's name, of at most `LONGEST_SLUG` bytes.

    Where letters, digits, dots, spaces and underscores are not all, or that is too long, a digest stands for
    the rest.

    Examples
    --------
    >>> slug("sparse 0.4", "rails", "credit"), slug("tcp:bbr")
    ('sparse_0.4_rails_credit', 'tcp_bbr_715552bf')
    """
    read = "_".join("".join(c if c.isalnum() or c == "." else "_" for c in name) for name in names)
    is_all = all(c.isalnum() or c in "._ " for name in names for c in name)
    if is_all and len(read.encode()) <= LONGEST_SLUG:
        return read
    digest = sha256(repr(names).encode()).hexdigest()[:8]
    return f"{read.encode()[: LONGEST_SLUG - 9].decode(errors='ignore')}_{digest}"


def apart(plots: Sequence[Plot]) -> list[Plot]:
    """Return plots with names that differ, since each is a file's: the second of a name has a number."""
    seen, named = Counter[str](), []
    for plot in plots:
        seen[plot.name] += 1
        number = seen[plot.name]
        named.append(plot if number == 1 else replace(plot, name=f"{plot.name}_{number}"))
    return named
