"""Readers: what a file says is what the collective holds, whatever its format."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.traffic.trace_files import AICB_LOG, OLD_HEADER, aicb_row, written
from traffic.job import Job
from traffic.readers.aicb import read_aicb
from traffic.readers.detect import read_trace
from traffic.readers.mixnet import read_mixnet
from traffic.readers.nccl import read_nccl
from traffic.steps import demands_of
from traffic.training import Layout

matrices = st.integers(1, 12).flatmap(
    lambda n: hnp.arrays(np.int64, (n, n), elements=st.integers(0, 1 << 53))
)


@settings(deadline=None)
@given(matrices)
def test_nccl_reads_a_matrix_of_any_size(
    tmp_path_factory: pytest.TempPathFactory, matrix: np.ndarray
) -> None:
    path = tmp_path_factory.getbasetemp() / "matrix.txt"
    path.write_text("".join(" ".join(map(str, row)) + "\n" for row in matrix.tolist()))
    assert np.array_equal(read_nccl(path).matrix, matrix)
    (step,) = demands_of(read_trace(path))
    assert step == read_nccl(path)


def test_nccl_takes_any_whitespace_and_blank_lines(tmp_path: Path) -> None:
    demand = read_nccl(written(tmp_path, "0\t5e3 \n\n 7.0   0\n\n", "bytes.mat"))
    assert demand.matrix.tolist() == [[0, 5000], [7, 0]]
    assert (demand.name, demand.note) == (
        "trace bytes.mat",
        "nccl-tests matrix bytes.mat, bytes from row to column",
    )


def test_mixnet_counts_tokens(tmp_path: Path) -> None:
    path = written(tmp_path, "[[0, 5],\n [3, 1]]\n")
    assert read_mixnet(path, bytes_per_token=10).matrix.tolist() == [[0, 50], [30, 10]]
    (step,) = demands_of(read_trace(path, bytes_per_token=2))
    assert step.matrix.tolist() == [[0, 10], [6, 2]]
    assert "2 bytes per token" in step.note


def sizes(job: Job) -> list[int]:
    """Return what GPU 0 sends in each step [bytes]."""
    return [int(step.matrix[0].sum()) for step in demands_of(job)]


def test_aicb_gives_the_expert_all_to_alls_of_a_step(tmp_path: Path) -> None:
    path = written(tmp_path, AICB_LOG, "log.csv")
    log = read_aicb(path)
    assert (log.gpus, sizes(log)) == (8, [4096, 8192, 4096])
    assert sizes(read_trace(path, all_to_alls=2)) == [4096, 8192]
    assert log.note == (
        "AICB log log.csv, step 1 of 2: 3 of 3 all-to-alls in groups of 4; measured there: median 0.600 ms; "
        "set-up left out: rows of init (1); "
        "ep_group has no size: 4, of 4 data-parallel ranks; "
        "left out: all_gather tp_group (1), all_to_all tp_group (1)"
    )
    assert len(log.nodes) == len(log.collectives), "no compute"


def test_aicb_groups_stride_over_tensor_parallel_ranks(tmp_path: Path) -> None:
    matrix = demands_of(read_aicb(written(tmp_path, AICB_LOG)))[0].matrix
    expected = np.zeros((8, 8))
    for group in ([0, 2, 4, 6], [1, 3, 5, 7]):
        expected[np.ix_(group, group)] = 1024
    assert np.array_equal(matrix, expected)


def test_aicb_without_group_sizes_asks_for_the_gpus(tmp_path: Path) -> None:
    rows = [aicb_row("all_to_all", "dp_group", 4098).replace(",None,4098", ",4098", 1)] * 3
    path = written(tmp_path, "\n".join([OLD_HEADER, *rows]))
    collective = read_trace(path, gpus=4)
    assert (collective.gpus, sizes(collective)) == (4, [4098] * 3)
    assert np.ptp(demands_of(collective)[0].matrix) == 1
    assert "measured" not in collective.note


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4))
def test_expert_groups_partition_the_ranks(tp: int, ep: int, groups: int) -> None:
    layout = Layout(tp, ep * groups, ep)
    ranks = layout.groups("ep")
    assert sorted(rank for group in ranks for rank in group) == list(range(layout.gpus))
    assert {len(group) for group in ranks} == {ep}
    assert all(len({rank % tp for rank in group}) == 1 for group in ranks)
