"""Demand matrices in a ``.csv`` or a ``.npy``: read everywhere as bytes, or refused with the place."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.traffic.trace_files import written
from topologies.errors import TraceError
from topologies.rail import rail_fabric
from traffic.readers.detect import read_trace
from traffic.steps import demands_of
from traffic.workloads.ocs_workloads import demand_of_file
from traffic.workloads.placement import placed

matrices = st.integers(2, 8).flatmap(lambda n: hnp.arrays(np.int64, (n, n), elements=st.integers(0, 1 << 53)))


def npy(directory: Path, array: object) -> Path:
    np.save(directory / "matrix.npy", array)  # type: ignore[arg-type]
    return directory / "matrix.npy"


@settings(deadline=None)
@given(matrices, st.sampled_from([np.int64, np.uint64, np.float64, ">i8", ">f8"]))
def test_csv_and_npy_hold_the_bytes_of_a_matrix(
    tmp_path_factory: pytest.TempPathFactory, matrix: np.ndarray, kind: type
) -> None:
    folder = tmp_path_factory.getbasetemp()
    lines = "\n".join(", ".join(map(str, row)) for row in matrix.tolist())
    for path in (written(folder, lines, "matrix.csv"), npy(folder, matrix.astype(kind))):
        (demand,) = demands_of(read_trace(path))
        assert np.array_equal(demand.matrix, matrix)
        assert (demand.name, demand.note) == (
            f"trace {path.name}",
            f"matrix {path.name}, bytes from row to column",
        )


def test_a_matrix_is_a_demand_between_ocses_too(tmp_path: Path) -> None:
    for path in (written(tmp_path, "# bytes\n9,1\n2e3,9", "matrix.csv"), npy(tmp_path, [[9, 1], [2000, 9]])):
        assert demand_of_file(path, servers=8).matrix.tolist() == [[0, 1], [2000, 0]]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("0,1\n-1,0", "line 2: found '-1', expected bytes to GPU 0 (no header, no index): a whole number"),
        ("0,1.5\n1,0", "line 1: found '1.5', expected bytes to GPU 1"),
        ("0,nan\n1,0", "line 1: found 'nan', expected bytes to GPU 1"),
        ("0,inf\n1,0", "line 1: found 'inf', expected bytes to GPU 1"),
        (",0,1\n0,5,5\n1,5,5", "line 1: found '', expected bytes to GPU 0 (no header, no index)"),
        ("0,1\n0,5\n5,0", "line 1: found '2 numbers', expected 3, because the matrix has 3 rows"),
        ("0,1,\n1,0,", "line 1: found '3 numbers', expected 2"),
        (
            "a,b\n0,5\n5,0",
            "line 1: found 'a,b', expected the start of an nccl-tests matrix, a CSV of numbers",
        ),
        (np.zeros((2, 3)), "holds float64 of shape (2, 3); give a square of numbers"),
        (np.zeros((0, 0)), "holds float64 of shape (0, 0)"),
        (np.zeros((2, 2), dtype=bool), "holds bool of shape (2, 2)"),
        (np.zeros((2, 2), dtype=complex), "holds complex128 of shape (2, 2)"),
        (np.zeros((2, 2), dtype="timedelta64[s]"), "holds timedelta64[s] of shape (2, 2)"),
        (np.array([[0, 1], [-1, 0]]), "from GPU 1 to GPU 0: found -1, expected bytes: a whole number from 0"),
        (np.array([[0, 1.5], [1, 0]]), "from GPU 0 to GPU 1: found 1.5, expected bytes"),
        (np.array([[0, np.nan], [1, 0]]), "from GPU 0 to GPU 1: found nan, expected bytes"),
        (np.array([[0, np.inf], [1, 0]]), "from GPU 0 to GPU 1: found inf, expected bytes"),
        (np.array([[0, 2**60], [1, 0]]), "from GPU 0 to GPU 1: found 1152921504606846976, expected bytes"),
    ],
)
def test_what_is_no_matrix_of_bytes_is_refused_with_its_place(
    tmp_path: Path, content: str | np.ndarray, said: str
) -> None:
    path = written(tmp_path, content) if isinstance(content, str) else npy(tmp_path, content)
    with pytest.raises(TraceError) as error:
        read_trace(path)
    assert said in str(error.value)


@pytest.mark.parametrize("content", ["0,0\n0,0", "5,0\n0,5", "0 0\n0 0", "[[0, 0], [0, 0]]"])
def test_a_matrix_of_zeros_is_not_placed(tmp_path: Path, content: str) -> None:
    path = written(tmp_path, content, "zeros")
    with pytest.raises(TraceError, match="trace zeros holds no bytes from one GPU to another"):
        placed(read_trace(path), rail_fabric(2, 2))
    with pytest.raises(TraceError, match="holds nothing that one server owes another"):
        demand_of_file(path, servers=2)
