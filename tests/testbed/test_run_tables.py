"""Tables put together from rows and blocks: as if each row had been written down on its own."""

import numpy as np
import pandas as pd

from testbed.core.run import Run
from testbed.core.run_tables import Of, Rows, counted
from topologies.fabric import Nic, Port
from traffic.clock import NEVER
from traffic.spraying.policy import QueuePair
from traffic.tables import LEGS, LIGHT, MESSAGES, NVLINK, PACKETS, Tables, empty

COLUMNS = {"node": "int32", "bytes": "int64", "known": "bool"}


def test_blocks_and_rows_keep_their_order() -> None:
    rows, sizes = Rows(COLUMNS), np.array([5, 6, 7])
    assert rows.add(0, 10, True) == 0
    assert rows.block(3, 1, sizes, False) == 1
    assert rows.block(2, Of(counted(2), plus=4), Of(sizes, np.array([2, 0])), True) == 4
    assert rows.add(9, NEVER, False) == 6
    expected = [
        (0, 10, True),
        (1, 5, False),
        (1, 6, False),
        (1, 7, False),
        (4, 7, True),
        (5, 5, True),
        (9, NEVER, False),
    ]
    pd.testing.assert_frame_equal(rows.table(), pd.DataFrame(expected, columns=list(COLUMNS)).astype(COLUMNS))
    assert len(rows) == 7


def test_nothing_makes_empty_tables() -> None:
    pd.testing.assert_frame_equal(Rows(COLUMNS).table(), empty(COLUMNS))


def test_a_table_is_made_when_it_is_asked_for_and_once() -> None:
    made = []

    def table() -> pd.DataFrame:
        made.append(1)
        return empty(LEGS)

    tables = Tables(legs=table)
    assert not made
    assert tables.legs is tables.legs
    assert made == [1]
    assert list(Tables().wire) == ["port", "bytes", "packets", "drops"]


def test_people_read_paths_by_their_ports_and_what_went_together_by_its_part() -> None:
    path = (Port("h0", 0), Port("leaf0", 1))
    messages = [
        (0, 0, 0, 0, 1, 7, 0, 5, False, False, -1),
        (0, 1, 0, 0, 2, 100, 0, NEVER, True, True, -1),
        (0, 2, 0, 0, 3, 30, 0, 9, False, True, 2),
        (0, 3, 0, 1, 3, 10, 0, 9, False, True, 2),
    ]
    legs = [
        (0, 0, 0, 0, NVLINK, -1, -1, 0, 1, 7, 0, 5, -1, -1),
        (0, 1, 0, 0, PACKETS, 0, 0, 0, 2, 40, 0, 4, -1, -1),
        (0, 1, 0, 1, LIGHT, 1, 1, 0, 2, 20, 4, 6, -1, -1),
        (0, 1, 0, 0, PACKETS, 0, 0, 0, 2, 10, 6, 8, -1, -1),
        (0, -1, 0, 0, NVLINK, -1, -1, 0, 1, 40, 0, 2, -1, -1),
        (0, -1, 1, 0, PACKETS, 0, 0, 0, 2, 20, 2, 5, -1, 2),
        (0, -1, 1, 0, LIGHT, 1, 1, 0, 2, 20, 2, 5, -1, 2),
    ]
    tables = Tables(
        messages=pd.DataFrame(messages, columns=list(MESSAGES)).astype(MESSAGES),
        legs=pd.DataFrame(legs, columns=list(LEGS)).astype(LEGS),
        nodes=("a",),
        lanes=(QueuePair(Nic(0, 0), Nic(1, 0)), QueuePair(Nic(0, 1), Nic(1, 1), 3)),
        paths=(path, ()),
    )
    over, other = "h0:0,leaf0:1", "0.1>1.1#3"
    found = Run(tables).messages
    assert found["path"].tolist() == [
        "nvlink",
        f"50@{over} 20@{other}",
        f"15@{over} 15@{other}",
        f"5@{over} 5@{other}",
    ]
    assert found["end_s"].isna().tolist() == [False, True, False, False]
    assert Run(tables).records["path"].tolist() == [found["path"][0], found["path"][2], found["path"][3]]
