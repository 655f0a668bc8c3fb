"""What a scenario says on standard output, which may be a full disk or a closed pipe."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from testbed.report.claims import Claim
from testbed.report.page import Sheet
from testbed.report.table import block_table, claims_table, least_width
from testbed.report.terminal import Terminal
from topologies.errors import MachineError
from topologies.printable import printable


def print_results(tables: Sequence[RenderableType], claims: Sequence[Claim], path: Path) -> None:
    """Print the tables and claims of a run whose results are written, and where its report is.

    Raises
    ------
    MachineError
        If standard output cannot be written; it says that the results are there all the same.
    """
    hint = f"the results are complete: {path}/report.html"
    judged = [claims_table(claims)] if claims else []
    print_tables([*tables, *judged], hint, last=f"results: {path}/report.html")


def print_tables(tables: Sequence[RenderableType], hint: str, last: str = "") -> None:
    """Print tables, and a line that is not wrapped; MachineError with a hint if that cannot be written.

    A table has all its numbers: where there is no room for them its lines are longer than the terminal's.
    """
    console = Terminal()
    width = console.width
    with standard_output(hint):
        # Captured, because rich ends the program without a word where the pipe is closed.
        with console.capture() as captured:
            for table in tables:
                console.width = max(width, least_width(table)) if isinstance(table, Table) else width
                console.print(table)
            if last:
                console.print(last, soft_wrap=True)
        print(captured.get(), end="", flush=True)


def sheet_table(sheet: Sheet) -> Table:
    """Return a table of the report for the terminal: the same cells, blocks and caption."""
    shown = block_table(sheet.caption)
    for header in sheet.words:
        shown.add_column(
            Text(header), overflow="fold"
        )  # where there is no room, words wrap and numbers do not
    for header in sheet.numbers:
        shown.add_column(Text(header), justify="right", no_wrap=True)
    for block in sheet.blocks:
        if block.title:
            shown.add_row(Text.assemble((block.title, "bold"), (f"  {block.note}".rstrip(), "dim")))
        for line in block.lines:
            shown.add_row(*map(Text, line.cells), end_section=line is block.lines[-1])
    return shown


@contextmanager
def standard_output(hint: str) -> Iterator[None]:
    """While it is written to, turn its failure into a MachineError with this hint."""
    try:
        yield
    except OSError as error:
        # What is still in Python's buffer would fail once more when the program ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise MachineError(f"standard output cannot be written: {error.strerror}", hint) from error


def say(sentence: str) -> None:
    """Say a sentence beside what standard output holds."""
    sys.stderr.write(f"{printable(sentence)}\n")


def progress_bar() -> Progress:
    """Return a bar beside what standard output holds, on a terminal; it is gone when it ends."""
    columns = BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    description = TextColumn("{task.description}", markup=False)
    console, is_seen = Terminal(stderr=True), sys.stderr.isatty()  # rich takes a notebook for a terminal
    return Progress(description, *columns, console=console, transient=True, disable=not is_seen)
