"""Tables as CSV: no cell is a formula, and what is read again is what was written."""

import csv
from io import StringIO

import pandas as pd
from hypothesis import example, given
from hypothesis import strategies as st

from testbed.report.csv_text import csv_text, table_of
from tests.hostile_names import raw
from topologies.printable import printable

TEXTS = st.lists(st.one_of(st.text("'=+-@\t\r\n, \"a1.5", max_size=6), st.text(max_size=20)), min_size=1)


def is_number(text: str) -> bool:
    """Return whether a text is a number as a spreadsheet reads it."""
    try:
        float(text)
    except ValueError:
        return False
    return True


@given(TEXTS)
@example(["=cmd", "\uff1dcmd", "'=cmd", "''=cmd", "-1.5", "'-1.5", "nan", "", "007", "@x", "\t=x", "\r=x"])
def test_names_are_no_formulas_and_are_read_as_they_were(names: list[str]) -> None:
    text = csv_text(pd.DataFrame({"name": names, "cct_s": [-1.5] * len(names)}))
    _, *rows = csv.reader(StringIO(text))
    for cell, number in rows:
        assert is_number(cell) or not cell.startswith(("=", "+", "-", "@", "\uff1d", "\t", "\r", "\n"))
        assert not raw(cell)
        assert number == "-1.5"
    table = table_of(text.encode(), ["name"])
    assert table["name"].tolist() == list(map(printable, names))
    assert table["cct_s"].tolist() == [-1.5] * len(names)


def test_a_columns_name_is_no_formula_either() -> None:
    assert csv_text(pd.DataFrame({"=a": [1]})) == "'=a\n1\n"


def test_a_table_without_such_texts_is_as_pandas_writes_it() -> None:
    table = pd.DataFrame({"a": ["x", "it's"], "b": [-1.5, None], "c": [True, "y"], "d": [-1, 2]})
    assert csv_text(table) == table.to_csv(index=False)
    assert csv_text(table[:0]) == table[:0].to_csv(index=False)
    assert csv_text(table, header=False) == table.to_csv(index=False, header=False)
