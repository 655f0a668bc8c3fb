"""Tables as CSV, which spreadsheets open: a text that one would take for a formula is quoted as text."""

import re
from collections.abc import Iterable
from io import BytesIO

import pandas as pd

from topologies.printable import printable
from traffic.readers.text import is_number

FORMULA = re.compile(r"'*[=+\-@\uff1d\uff0b\uff0d\uff20]")
"""How a text begins that a spreadsheet would compute, also in full width; apostrophes first, so that what is
quoted is known."""
UNUSUAL = r"^['=+\-@]|[^ -~]"
"""The signs of a text that may not be in a cell as it is: few columns have any, and looking costs little."""


def csv_text(table: pd.DataFrame, *, header: bool = True) -> str:
    """Return a table as CSV: its texts, and the names of its columns, as `cell_of` has them."""
    cells = {name: table[name] for name in table.columns}
    for name, column in cells.items():
        if not pd.api.types.is_numeric_dtype(column) and column.astype(str).str.contains(UNUSUAL).any():
            cells[name] = column.map(lambda value: cell_of(value) if isinstance(value, str) else value)
    safe = pd.DataFrame({cell_of(str(name)): column for name, column in cells.items()})
    return safe.to_csv(index=False, header=header)


def cell_of(text: str) -> str:
    """Return a text as a cell has it: printable, behind an apostrophe where it begins as a formula does.

    Examples
    --------
    >>> cell_of("=cmd"), cell_of("'=cmd"), cell_of("-1.5"), cell_of("it's")
    ("'=cmd", "''=cmd", '-1.5', "it's")
    """
    said = printable(text)
    return f"'{said}" if FORMULA.match(said) and not is_number(said) else said


def text_of(cell: str) -> str:
    """Return the text of a cell, which `cell_of` gave."""
    return cell[1:] if cell.startswith("'") and FORMULA.match(cell) else cell


def table_of(text: bytes, names: Iterable[str]) -> pd.DataFrame:
    """Return the table of a CSV; some columns are of texts, also where these look like numbers or nothing."""
    table = pd.read_csv(BytesIO(text))
    texts = pd.read_csv(BytesIO(text), dtype=str, keep_default_na=False)
    return table.assign(**{name: texts[name].map(text_of) for name in names if name in texts})
