"""Records: one row per message whoever carried it, paths that say over what, and CSV that reads back."""

from pathlib import Path as File

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.traffic.cases import Work, assigned, flow, work_of, works
from topologies.errors import TraceError
from topologies.fabric import Nic, Port
from topologies.rail import rail_fabric
from traffic.records import COLUMNS, legs_of, path_of, path_text, read_records, records_of, write_records
from traffic.spraying.policy import QueuePair
from traffic.transfers import Transfers

OVER_LEAF = (Port("h0", 0), Port("leaf0", 1))
OVER_SPINE = (Port("h0", 1), Port("leaf1", 2), Port("spine0", 0), Port("leaf0", 1))


def predicted(work: Work, name: str) -> pd.DataFrame:
    """Return the records that the fluid model gives."""
    transfers = flow(work, assigned(name, work))
    return records_of(messages=work.messages, chunks=work.chunks, transfers=transfers, fabric=work.fabric)


def hand_made() -> pd.DataFrame:
    """Return the records of three messages: one inside h0, one over two ways, one over one."""
    matrix = np.zeros((4, 4), dtype=np.int64)
    matrix[0, 1], matrix[0, 2], matrix[1, 2] = 9, 20, 8
    work = work_of(rail_fabric(2, 2, nvlink_bps=8.0), matrix)
    return records_of(
        messages=work.messages,
        chunks=work.chunks,  # of 8, 8, 4 and 8 bytes
        transfers=Transfers(
            queue_pairs=(
                QueuePair(Nic(0, 0), Nic(1, 0)),
                QueuePair(Nic(0, 1), Nic(1, 0)),
                QueuePair(Nic(0, 1), Nic(1, 0), 1),
            ),
            paths=(OVER_LEAF, OVER_SPINE, OVER_SPINE),
            chunk_qp=np.array([0, 1, 2, 2]),
            sent_s=np.array([0.5, 0.25, 1.0, 2.0]),
            delivered_s=np.array([1.5, 4.0, 2.0, 3.0]),
        ),
        fabric=work.fabric,
        step=3,
        start_s=100.0,
    )


def test_a_message_is_one_row_from_its_first_byte_to_its_last() -> None:
    assert hand_made().to_dict("list") == {
        "step": [3, 3, 3],
        "source": [0, 0, 1],
        "destination": [1, 2, 2],
        "bytes": [9, 20, 8],
        "start_s": [100.0, 100.25, 102.0],
        "end_s": [109.0, 104.0, 103.0],
        "path": [
            "nvlink",
            "8@h0:0,leaf0:1 12@h0:1,leaf1:2,spine0:0,leaf0:1",
            "8@h0:1,leaf1:2,spine0:0,leaf0:1",
        ],
    }


def test_legs_are_the_ways_of_a_message() -> None:
    legs = legs_of(hand_made())
    assert legs.index.tolist() == [1, 1, 2]
    assert legs["bytes"].tolist() == [8, 12, 8]
    assert [path_of(way) for way in legs["way"]] == [OVER_LEAF, OVER_SPINE, OVER_SPINE]


@given(work=works(), name=st.sampled_from(["ecmp", "rails"]))
def test_legs_sum_to_their_message(work: Work, name: str) -> None:
    records = predicted(work, name)
    assert records[["source", "destination", "bytes"]].to_numpy().tolist() == [
        list(row)
        for row in zip(work.messages.source, work.messages.destination, work.messages.bytes, strict=True)
    ]
    crossed = records[records["path"] != "nvlink"]
    carried = legs_of(records)["bytes"].groupby(level=0).sum().reindex(crossed.index)
    assert carried.tolist() == crossed["bytes"].tolist()
    assert crossed["bytes"].sum() == work.crossing.bytes.sum()
    assert (records["start_s"] <= records["end_s"]).all()
    assert dict(records.dtypes.astype(str)) == COLUMNS


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
    with pytest.raises(TraceError, match="is no way through a fabric"):
        path_of(text)


@pytest.mark.parametrize("text", ["", "8", "8@", "@h0:1", "8@h0:1  8@h0:2", "x@h0:1"])
def test_what_is_no_leg_is_refused(text: str) -> None:
    records = hand_made()
    records.loc[1, "path"] = text
    with pytest.raises(TraceError, match="is no leg of a path"):
        legs_of(records)


def test_csv_reads_back_the_same(tmp_path: File) -> None:
    fabric = rail_fabric(3, 2)
    records = predicted(work_of(fabric, np.random.default_rng(1).integers(0, 99, (6, 6))), "ecmp")
    write_records(records, tmp_path / "records.csv")
    pd.testing.assert_frame_equal(read_records(tmp_path / "records.csv"), records, check_exact=True)


def test_no_records_read_back_too(tmp_path: File) -> None:
    none = predicted(work_of(rail_fabric(2, 1), np.zeros((2, 2), dtype=np.int64)), "rails")
    write_records(none, tmp_path / "records.csv")
    pd.testing.assert_frame_equal(read_records(tmp_path / "records.csv"), none)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "No such file"),
        ("", "No columns"),
        ("step,source\n1,2\n", "line 1 is step,source, expected step,source,destination"),
        (",".join(COLUMNS) + "\n0,0,one,8,0.0,1.0,nvlink\n", "holds no records: .*one"),
    ],
)
def test_what_is_no_table_of_records_is_refused(tmp_path: File, text: str | None, sentence: str) -> None:
    file = tmp_path / "records.csv"
    if text is not None:
        file.write_text(text)
    with pytest.raises(TraceError, match=sentence):
        read_records(file)
