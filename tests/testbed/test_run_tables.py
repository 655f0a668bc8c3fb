"""Tables put together from columns: as if each row had been written down on its own."""

import numpy as np
import pandas as pd

from testbed.run.run_tables import MESSAGE_COLUMNS, SPAN_COLUMNS, Row, Sent, Tasks, message_table, span_table
from traffic.clock import NEVER
from traffic.messages import Messages


def block(node: str, ends: list[tuple[int, int, int]], paths: tuple[str, ...]) -> Sent:
    return Sent(node, Messages(*np.array(ends, dtype=np.int64).T), 10, 25, paths)


def test_blocks_and_rows_keep_their_order() -> None:
    single: list[Row] = [("a", 0, 1, 10, 0, NEVER, "10@x"), ("a", 1, 0, 7, 0, 5, "")]
    found: list[Row | Sent] = [
        single[0],
        block("b", [(2, 3, 5), (3, 2, 6)], ("nvlink",)),
        block("c", [(0, 2, 8), (1, 3, 9)], ("8@y", "9@z")),
        single[1],
    ]
    rows = [
        single[0],
        ("b", 2, 3, 5, 10, 25, "nvlink"),
        ("b", 3, 2, 6, 10, 25, "nvlink"),
        ("c", 0, 2, 8, 10, 25, "8@y"),
        ("c", 1, 3, 9, 10, 25, "9@z"),
        single[1],
    ]
    pd.testing.assert_frame_equal(message_table(found), pd.DataFrame(rows, columns=list(MESSAGE_COLUMNS)))


def test_tasks_have_a_row_per_gpu() -> None:
    found = [Tasks("a", (4, 5), 0, 10), Tasks("send", (-1,), 10, 15), Tasks("b", range(2), 15, 20)]
    rows = [("a", 4, 0, 10), ("a", 5, 0, 10), ("send", -1, 10, 15)]
    rows += [("b", 0, 15, 20), ("b", 1, 15, 20)]
    pd.testing.assert_frame_equal(span_table(found), pd.DataFrame(rows, columns=list(SPAN_COLUMNS)))


def test_nothing_makes_empty_tables() -> None:
    assert message_table([]).empty
    assert span_table([]).empty
