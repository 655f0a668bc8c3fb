"""Routing traces: every token reaches every one of its experts, once, and malformed ones are refused."""

import contextlib
import io
import itertools
import sys
import tracemalloc
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from tests.traffic.trace_files import router_record as record
from tests.traffic.trace_files import written
from topologies.errors import MachineError, TraceError
from traffic.readers.detect import read_trace
from traffic.readers.flame import flame_rows
from traffic.readers.megatron import read_megatron
from traffic.readers.routing import MAX_ALL_TO_ALLS, Hosting, dealt
from traffic.readers.vllm import vllm_rows
from traffic.steps import demands_of

HOSTING = Hosting(gpus=4, experts=8, bytes_per_token=10, tokens=3)
arrays = st.tuples(st.integers(1, 40), st.integers(1, 3), st.integers(1, 3)).flatmap(
    lambda shape: hnp.arrays(np.int16, shape, elements=st.integers(0, 7))
)


def by_hand(rows: NDArray[np.int16], hosting: Hosting) -> list[list[list[int]]]:
    """Return the matrices of a routing array, token by token as the rules are written."""
    batch = hosting.gpus * hosting.tokens
    batches, layers = -(-len(rows) // batch), rows.shape[1]
    owed = np.zeros((batches * layers, hosting.gpus, hosting.gpus), dtype=int)
    for (row, layer, _), expert in np.ndenumerate(rows):
        number, place = divmod(row, batch)
        home = int(expert) * hosting.gpus // hosting.experts
        owed[number * layers + layer, place // hosting.tokens, home] += hosting.bytes_per_token
    listed: list[list[list[int]]] = owed.tolist()
    return listed


@given(arrays, st.integers(1, 9))
def test_rows_are_dealt_as_written(rows: NDArray[np.int16], block: int) -> None:
    blocks = [rows[start : start + block] for start in range(0, len(rows), block)]
    collective = dealt(Path("rows"), blocks, HOSTING, note="trace")
    assert [step.matrix.tolist() for step in demands_of(collective)] == by_hand(rows, HOSTING)
    assert sum(step.total_bytes for step in demands_of(collective)) == rows.size * 10


@given(arrays, st.integers(1, 5))
def test_fewer_all_to_alls_are_the_first(rows: NDArray[np.int16], all_to_alls: int) -> None:
    full = dealt(Path("rows"), [rows], HOSTING, note="trace")
    some = dealt(Path("rows"), [rows], HOSTING, note="trace", all_to_alls=all_to_alls)
    assert demands_of(some) == demands_of(full)[:all_to_alls]


@settings(deadline=None)
@given(arrays)
def test_vllm_array_is_read(tmp_path_factory: pytest.TempPathFactory, rows: NDArray[np.int16]) -> None:
    path = tmp_path_factory.getbasetemp() / "routed.npy"
    np.save(path, rows)
    collective = dealt(path, vllm_rows(path), HOSTING, note="trace")
    assert [step.matrix.tolist() for step in demands_of(collective)] == by_hand(rows, HOSTING)
    told = read_trace(path, gpus=4, experts=8, bytes_per_token=10)
    assert sum(step.total_bytes for step in demands_of(told)) == rows.size * 10


@pytest.mark.parametrize(
    ("array", "complaint"),
    [
        (np.zeros((3, 2), np.int16), "holds int16 of shape (3, 2)"),
        (np.zeros((3, 2, 1)), "holds float64 of shape (3, 2, 1)"),
        (np.zeros((0, 2, 1), np.int16), "holds an array of shape (0, 2, 1)"),
        (np.full((3, 2, 1), 8, np.int16), "row 0: found the experts [8], expected 0 to 7"),
        (np.array([[[0]], [[-1]]], np.int16), "row 1: found the experts [-1]"),
        (np.array([[["a"]]], object), "is not a valid .npy file"),
    ],
)
def test_malformed_array_is_told(tmp_path: Path, array: NDArray[Any], complaint: str) -> None:
    path = tmp_path / "routed.npy"
    np.save(path, array)
    with pytest.raises(TraceError) as error:
        dealt(path, vllm_rows(path), HOSTING, note="trace")
    assert complaint in str(error.value)


def npy(rows: NDArray[np.int16]) -> bytes:
    """Return the bytes of a .npy file."""
    file = io.BytesIO()
    np.save(file, rows)
    return file.getvalue()


VALID = [
    npy(np.zeros((5, 2, 2), np.int16)),
    "".join(record(0, 0, rank, [[1, 2]]) for rank in range(4)).encode(),
]


@settings(deadline=None)
@given(st.sampled_from(VALID), st.data())
def test_damage_is_a_trace_error_or_a_collective(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(content)))
    end = data.draw(st.integers(start, min(len(content), start + 9)))
    path = tmp_path_factory.getbasetemp() / "damaged-routing"
    path.write_bytes(content[:start] + data.draw(st.binary(max_size=9)) + content[end:])
    with contextlib.suppress(TraceError):
        assert read_trace(path, gpus=4, experts=8).gpus <= 4


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"gpus": 0}, "on 0 GPUs"),
        ({"gpus": 5000}, "on 5000 GPUs"),
        ({"experts": 0}, "of 0 experts"),
        ({"tokens": 0}, "of 0 tokens per GPU"),
        ({"bytes_per_token": -1}, "of -1 bytes per token"),
    ],
)
def test_hosting_is_checked(options: dict[str, int], complaint: str) -> None:
    with pytest.raises(TraceError) as error:
        Hosting(**({"gpus": 4, "experts": 8, "bytes_per_token": 2} | options))
    assert complaint in str(error.value)


def test_what_a_trace_does_not_say_is_asked_for(tmp_path: Path) -> None:
    path = written(tmp_path, record(0, 0, 0, [[1]]))
    with pytest.raises(TraceError, match="does not tell how many experts there are; say it"):
        read_trace(path, gpus=4)
    with pytest.raises(TraceError, match="how many experts there are and how many GPUs there are"):
        read_trace(path)
    with pytest.raises(TraceError, match="0 all-to-alls"):
        read_trace(path, gpus=4, experts=8, all_to_alls=0)
    with pytest.raises(TraceError, match="holds no record"):
        read_megatron(written(tmp_path, "\n"), HOSTING)


def test_too_many_all_to_alls_are_told() -> None:
    one = Hosting(gpus=1, experts=1, bytes_per_token=1, tokens=1)
    rows = np.zeros((MAX_ALL_TO_ALLS + 1, 1, 1), np.int16)
    with pytest.raises(TraceError, match=f"over {MAX_ALL_TO_ALLS} all-to-alls"):
        dealt(Path("rows"), [rows], one, note="trace")


def test_memory_does_not_grow_with_the_rows() -> None:
    hosting = Hosting(gpus=8, experts=64, bytes_per_token=4096, tokens=1 << 14)
    block = np.arange(6 << 12, dtype=np.int16).reshape(-1, 1, 6) % 64
    peaks = []
    for blocks in (10, 100):
        tracemalloc.start()
        collective = dealt(Path("rows"), itertools.repeat(block, blocks), hosting, note="trace")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert sum(step.total_bytes for step in demands_of(collective)) == blocks * block.size * 4096
    assert peaks[1] < 1.5 * peaks[0]


@pytest.fixture
def parquet(tmp_path: Path) -> Any:  # noqa: ANN401 (pyarrow has no types)
    """Return a function that writes columns to a parquet file, or skip."""
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is optional and not installed")
    path = tmp_path / "layer_02.parquet"

    def write(**columns: object) -> Path:
        import_module("pyarrow.parquet").write_table(arrow.table(columns), path, row_group_size=7)
        return path

    return write


def test_damaged_parquet_is_told(parquet: Any) -> None:  # noqa: ANN401
    path = parquet(indices=[[1, 2]] * 100)
    whole = path.read_bytes()
    for keep in (5, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:keep])
        with pytest.raises(TraceError, match="is not a valid parquet file"):
            dealt(path, flame_rows(path), HOSTING, note="trace")


def test_parquet_without_pyarrow_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(MachineError, match="pip install pyarrow"):
        read_trace(written(tmp_path, "PAR1"), gpus=4)


def test_flame_parquet_is_read(parquet: Any) -> None:  # noqa: ANN401
    rows = np.random.default_rng(0).integers(0, 8, (100, 6), dtype=np.int16)
    path = parquet(scores=[[0.1] * 6] * 100, indices=rows.tolist())
    collective = dealt(path, flame_rows(path), HOSTING, note="trace")
    assert [step.matrix.tolist() for step in demands_of(collective)] == by_hand(rows[:, None], HOSTING)
    (one,) = demands_of(read_trace(path, gpus=4, bytes_per_token=4))
    assert one.total_bytes == rows.size * 4
    assert "64 experts on 4 GPUs" in one.note


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"token_id": [1, 2]}, "columns token_id, expected one named 'indices'"),
        ({"indices": [1, 2]}, "'indices' of type int64"),
        ({"indices": [[0.5], [1.5]]}, "'indices' of type list"),
        ({"indices": [[1], [2, 3]]}, "expected one, without nulls"),
        ({"indices": [[1], None]}, "expected one, without nulls"),
        ({"indices": [[1], [None]]}, "expected one, without nulls"),
        ({"indices": [[1], [8]]}, "row 1: found the experts [8], expected 0 to 7"),
    ],
)
def test_malformed_parquet_is_told(parquet: Any, columns: dict[str, object], complaint: str) -> None:  # noqa: ANN401
    path = parquet(**columns)
    with pytest.raises(TraceError) as error:
        dealt(path, flame_rows(path), HOSTING, note="trace")
    assert complaint in str(error.value)
