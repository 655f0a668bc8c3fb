"""Records: one row per message whoever carried it, paths that say over what, and CSV that reads back."""

from pathlib import Path as File

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies.errors import TraceError
from topologies.fabric import Port
from traffic.records import COLUMNS, legs_of, path_of, path_text

OVER_LEAF = (Port("h0", 0), Port("leaf0", 1))
OVER_SPINE = (Port("h0", 1), Port("leaf1", 2), Port("spine0", 0), Port("leaf0", 1))


def hand_made() -> pd.DataFrame:
    """Return the records of three messages: one inside h0, one over two paths, one over one."""
    rows = [
        (3, 0, 1, 9, 100.0, 109.0, "nvlink"),
        (3, 0, 2, 20, 100.0, 104.0, "8@h0:0,leaf0:1 12@h0:1,leaf1:2,spine0:0,leaf0:1"),
        (3, 1, 2, 8, 100.0, 103.0, "8@h0:1,leaf1:2,spine0:0,leaf0:1"),
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)


def test_legs_are_the_paths_of_a_message() -> None:
    legs = legs_of(hand_made())
    assert legs.index.tolist() == [1, 1, 2]
    assert legs["bytes"].tolist() == [8, 12, 8]
    assert [path_of(path) for path in legs["path"]] == [OVER_LEAF, OVER_SPINE, OVER_SPINE]


@given(
    st.lists(
        st.tuples(st.from_regex(r"[a-z]+[0-9]?", fullmatch=True), st.integers(0, 999)), min_size=1, max_size=5
    )
)
def test_a_way_reads_back(ports: list[tuple[str, int]]) -> None:
    path = tuple(Port(*port) for port in ports)
    assert path_of(path_text(path)) == path


@pytest.mark.parametrize("text", ["", "h0", "h0:", ":1", "h0:1,", "h0:-1", "h0:x"])
def test_what_is_no_way_is_refused(text: str) -> None:
    with pytest.raises(TraceError, match="is not a valid path through a fabric"):
        path_of(text)


@pytest.mark.parametrize("text", ["", "8", "8@", "@h0:1", "8@h0:1  8@h0:2", "x@h0:1"])
def test_what_is_no_leg_is_refused(text: str) -> None:
    records = hand_made()
    records.loc[1, "path"] = text
    with pytest.raises(TraceError, match="is not a valid leg of a path"):
        legs_of(records)


def test_csv_reads_back_the_same(tmp_path: File) -> None:
    times = np.random.default_rng(1).random((2, 3))
    records = hand_made().assign(start_s=times[0], end_s=times[0] + times[1])
    records.to_csv(tmp_path / "records.csv", index=False)
    pd.testing.assert_frame_equal(
        pd.read_csv(tmp_path / "records.csv", dtype=str, keep_default_na=False).astype(COLUMNS),
        records,
        check_exact=True,
    )
