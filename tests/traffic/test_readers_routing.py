"""Routing traces: every token reaches every one of its experts, once, and malformed ones are refused."""

import contextlib
import io
import itertools
import re
import sys
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.traffic.trace_files import router_record as record
from tests.traffic.trace_files import written
from topologies.errors import MachineError, ScenarioError, TraceError
from traffic.readers.detect import read_trace
from traffic.readers.flame import flame_rows
from traffic.readers.megatron import read_megatron
from traffic.readers.npy import npy_array
from traffic.readers.routing import MAX_ALL_TO_ALLS, Hosting, TokenRows, dealt
from traffic.readers.vllm import vllm_rows
from traffic.steps import demands_of

TOKENS = 3
HOSTING = Hosting(gpus=4, experts=8, bytes_per_token=10, tokens=TOKENS)
hostings = st.builds(
    Hosting,
    gpus=st.integers(1, 5),
    experts=st.just(8),
    bytes_per_token=st.just(10),
    tokens=st.none() | st.integers(1, 9),
)


@st.composite
def arrays(draw: st.DrawFn, least_k: int = 1) -> NDArray[np.int16]:
    """Draw the experts of tokens, shape (tokens, layers, top k); those of a token differ."""
    tokens, layers, k = draw(st.integers(1, 40)), draw(st.integers(1, 3)), draw(st.integers(least_k, 3))
    order = np.random.default_rng(draw(st.integers(0, 999))).random((tokens, layers, 8)).argsort(axis=2)
    return order[:, :, :k].astype(np.int16)


def in_blocks(rows: NDArray[np.int16], block: int = 99) -> TokenRows:
    """Return rows as a reader gives them, some at a time."""
    return TokenRows(len(rows), [rows[start : start + block] for start in range(0, len(rows), block)])


def batches_by_hand(rows: NDArray[np.int16], hosting: Hosting) -> list[list[NDArray[np.int16]]]:
    """Return each GPU's rows in each batch, as the rules are written."""
    if hosting.tokens is None:
        return [np.array_split(rows, hosting.gpus)]
    pieces = [rows[start : start + hosting.tokens] for start in range(0, len(rows), hosting.tokens)]
    return [pieces[first : first + hosting.gpus] for first in range(0, len(pieces), hosting.gpus)]


def by_hand(rows: NDArray[np.int16], hosting: Hosting) -> list[list[list[int]]]:
    """Return the matrices of a routing array, token by token."""
    matrices = []
    for batch in batches_by_hand(rows, hosting):
        owed = np.zeros((rows.shape[1], hosting.gpus, hosting.gpus), dtype=int)
        for gpu, own in enumerate(batch):
            for (_, layer, _), expert in np.ndenumerate(own):
                owed[layer, gpu, int(expert) * hosting.gpus // hosting.experts] += hosting.bytes_per_token
        matrices += owed.tolist()
    return matrices


@given(arrays(), hostings, st.integers(1, 9))
def test_rows_are_dealt_as_written(rows: NDArray[np.int16], hosting: Hosting, block: int) -> None:
    collective = dealt(Path("rows"), in_blocks(rows, block), hosting, note="trace")
    assert [step.matrix.tolist() for step in demands_of(collective)] == by_hand(rows, hosting)
    assert sum(step.total_bytes for step in demands_of(collective)) == rows.size * 10
    said = "spread evenly" if hosting.tokens is None else f" in batches of {hosting.tokens} per GPU"
    assert f"; {len(rows)} token{'s' * (len(rows) > 1)} in" in collective.note
    assert said in collective.note
    assert f"; {len(demands_of(collective))} all-to-all" in collective.note


@given(arrays(), hostings)
def test_by_default_no_gpu_has_two_tokens_more_than_another(
    rows: NDArray[np.int16], hosting: Hosting
) -> None:
    even = replace(hosting, tokens=None)
    for step in demands_of(dealt(Path("rows"), in_blocks(rows), even, note="trace")):
        sent = step.matrix.sum(axis=1)
        assert sent.max() - sent.min() <= rows.shape[2] * 10
        assert (np.diff(sent) <= 0).all()


@given(arrays(), hostings, st.integers(1, 5))
def test_fewer_all_to_alls_are_the_first(rows: NDArray[np.int16], hosting: Hosting, all_to_alls: int) -> None:
    full = dealt(Path("rows"), in_blocks(rows), hosting, note="trace")
    some = dealt(Path("rows"), in_blocks(rows), hosting, note="trace", all_to_alls=all_to_alls)
    assert [step.matrix.tolist() for step in demands_of(some)] == [
        step.matrix.tolist() for step in demands_of(full)[:all_to_alls]
    ]
    assert noted(some.note) == noted_by_hand(rows, hosting, all_to_alls)


def noted(note: str) -> tuple[int, int, int, int, int]:
    """Return the figures of a note: tokens taken, given, and in a short last batch; all-to-alls likewise."""
    found = re.search(r"; (?:(\d+) of )?(\d+) tokens? in [^;,]*(?:, (\d+) in the last)?[;,]", note)
    several = re.search(r"; (?:(\d+) of )?(\d+) all-to-alls?, dispatches alone$", note)
    assert found, note
    assert several, note
    taken, given, last = found.groups()
    some, every = several.groups()
    return int(taken or given), int(given), int(last or 0), int(some or every), int(every)


def noted_by_hand(
    rows: NDArray[np.int16], hosting: Hosting, all_to_alls: int
) -> tuple[int, int, int, int, int]:
    """Return the figures of the note of the first all-to-alls."""
    layers, batches = rows.shape[1], [sum(map(len, batch)) for batch in batches_by_hand(rows, hosting)]
    every = layers * len(batches)
    taken = min(all_to_alls, every)
    replayed = batches[: -(-taken // layers)]
    is_short = hosting.tokens is not None and replayed[-1] < hosting.gpus * hosting.tokens
    return sum(replayed), len(rows), is_short * replayed[-1], taken, every


def test_the_note_counts_the_rows_that_are_replayed(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.array([[[0, 1], [2, 3]]] * 10, np.int16))
    note = read_trace(path, gpus=4, experts=8, tokens_per_gpu=2, all_to_alls=1).note
    assert note.endswith("; 8 of 10 tokens in batches of 2 per GPU; 1 of 4 all-to-alls, dispatches alone")


@given(arrays(least_k=2), hostings, st.integers(1, 9), st.integers(1, 5), st.data())
def test_a_layer_is_dense_only_if_it_is_zero_after_the_cut_too(
    rows: NDArray[np.int16], hosting: Hosting, block: int, all_to_alls: int, data: st.DataObject
) -> None:
    """One whose first rows alone are zero has tokens without experts, however few all-to-alls are taken."""
    at, until = data.draw(st.integers(0, rows.shape[1])), data.draw(st.integers(1, len(rows)))
    late = np.insert(rows, at, rows[:, 0], axis=1)
    first = sum(map(len, batches_by_hand(rows, hosting)[0]))
    late[: max(until, min(first, len(rows))), at] = 0
    if late[:, at].any():
        with pytest.raises(TraceError, match=rf"layer {at}, row 0: found the experts \[0, 0"):
            dealt(Path("rows"), in_blocks(late, block), hosting, note="trace", all_to_alls=all_to_alls)
    else:
        note = dealt(
            Path("rows"), in_blocks(late, block), hosting, note="trace", all_to_alls=all_to_alls
        ).note
        assert f"; layer {at} is dense: left out;" in note
        assert noted(note) == noted_by_hand(rows, hosting, all_to_alls)


def test_rows_after_the_cut_are_not_read_once_no_layer_may_be_dense() -> None:
    def blocks() -> Iterator[NDArray[np.int16]]:
        yield np.ones((TOKENS * 4, 2, 1), np.int16)
        yield np.ones((1, 2, 1), np.int16)
        raise AssertionError("read on")

    rows = TokenRows(10**9, blocks())
    assert len(demands_of(dealt(Path("rows"), rows, HOSTING, note="trace", all_to_alls=1))) == 1


@given(arrays(least_k=2), hostings, st.integers(1, 9), st.data())
def test_layers_of_zeros_are_dense_and_left_out(
    rows: NDArray[np.int16], hosting: Hosting, block: int, data: st.DataObject
) -> None:
    """Inference engines have slots for dense layers too, which stay zero."""
    layers = rows.shape[1]
    at = data.draw(st.lists(st.integers(0, layers), min_size=1, max_size=3))
    padded = np.insert(rows, sorted(at), 0, axis=1)
    dense = [layer for layer in range(padded.shape[1]) if not padded[:, layer].any()]
    all_to_alls = data.draw(st.none() | st.integers(1, 2 * layers))
    read = dealt(Path("rows"), in_blocks(padded, block), hosting, note="trace", all_to_alls=all_to_alls)
    assert [step.matrix.tolist() for step in demands_of(read)] == by_hand(rows, hosting)[:all_to_alls]
    named = ", ".join(map(str, dense))
    said = f"layer {named} is dense: left out" if len(dense) == 1 else f"layers {named} are dense: left out"
    assert said in read.note


@given(arrays(least_k=2), st.integers(1, 9), st.data())
def test_a_token_that_has_an_expert_twice_is_refused(
    rows: NDArray[np.int16], block: int, data: st.DataObject
) -> None:
    """Also where it has zeros, and other tokens of the layer do not: its experts were not recorded."""
    rows = np.concatenate([rows, rows[:1]])
    row, layer = (data.draw(st.integers(0, size - 1)) for size in rows.shape[:2])
    rows[row, layer] = data.draw(st.integers(0, 7))
    with pytest.raises(TraceError) as error:
        dealt(Path("rows"), in_blocks(rows, block), HOSTING, note="trace")
    where = f"rows, layer {layer}" if rows.shape[1] > 1 else "rows"
    assert f"{where}, row {row}: found the experts {rows[row, layer].tolist()}" in str(error.value)
    assert "leave out tokens whose experts were not recorded" in error.value.hint
    recorded = np.delete(rows, row, axis=0)
    assert dealt(Path("rows"), in_blocks(recorded, block), HOSTING, note="trace").gpus == 4


@given(arrays(least_k=2))
def test_a_trace_of_dense_layers_alone_is_refused(rows: NDArray[np.int16]) -> None:
    with pytest.raises(TraceError, match="zeros as the experts of all tokens in all layers"):
        dealt(Path("rows"), in_blocks(0 * rows), HOSTING, note="trace")


def test_zeros_in_one_slot_may_be_expert_0_and_the_note_says_so() -> None:
    rows = np.array([[[0], [3]], [[0], [0]]], np.int16)
    read = dealt(Path("rows"), in_blocks(rows), HOSTING, note="trace")
    assert len(demands_of(read)) == 2
    assert "all tokens of layer 0 go to expert 0, or it is dense" in read.note
    for all_to_alls in (None, 1):
        read = dealt(Path("rows"), in_blocks(0 * rows), HOSTING, note="trace", all_to_alls=all_to_alls)
        assert "; all tokens of layers 0, 1 go to expert 0, or they are dense;" in read.note


@settings(deadline=None)
@given(arrays())
def test_vllm_array_is_read(tmp_path_factory: pytest.TempPathFactory, rows: NDArray[np.int16]) -> None:
    path = tmp_path_factory.getbasetemp() / "routed.npy"
    np.save(path, rows)
    collective = dealt(path, vllm_rows(path, npy_array(path)), HOSTING, note="trace")
    assert [step.matrix.tolist() for step in demands_of(collective)] == by_hand(rows, HOSTING)
    for tokens in (None, TOKENS):
        told = read_trace(path, gpus=4, experts=8, bytes_per_token=10, tokens_per_gpu=tokens)
        assert [step.matrix.tolist() for step in demands_of(told)] == by_hand(
            rows, replace(HOSTING, tokens=tokens)
        )


@pytest.mark.parametrize(
    ("array", "complaint"),
    [
        (np.zeros((3, 2), np.int16), "holds int16 of shape (3, 2)"),
        (np.zeros((3, 2, 1)), "holds float64 of shape (3, 2, 1)"),
        (np.zeros((0, 2, 1), np.int16), "holds int16 of shape (0, 2, 1)"),
        (np.full((3, 2, 1), 8, np.int16), "row 0: found the experts [8], expected 0 to 7"),
        (np.array([[[0]], [[-1]]], np.int16), "row 1: found the experts [-1]"),
        (np.array([[["a"]]], object), "is not a valid .npy file"),
    ],
)
def test_malformed_array_is_told(tmp_path: Path, array: NDArray[Any], complaint: str) -> None:
    path = tmp_path / "routed.npy"
    np.save(path, array)
    with pytest.raises(TraceError) as error:
        dealt(path, vllm_rows(path, npy_array(path)), HOSTING, note="trace")
    assert complaint in str(error.value)


def npy(rows: NDArray[np.int16]) -> bytes:
    """Return the bytes of a .npy file."""
    file = io.BytesIO()
    np.save(file, rows)
    return file.getvalue()


VALID = [
    npy(np.tile(np.array([1, 2], np.int16), (5, 2, 1))),
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
        ({"bytes_per_token": 10**10}, f"of {10**10} bytes per token; give 1 to {1 << 33}"),
    ],
)
def test_hosting_is_checked(options: dict[str, int], complaint: str) -> None:
    with pytest.raises(TraceError) as error:
        Hosting(**({"gpus": 4, "experts": 8, "bytes_per_token": 2} | options))
    assert complaint in str(error.value)


def test_what_a_trace_does_not_say_is_asked_for(tmp_path: Path) -> None:
    path = written(tmp_path, record(0, 0, 0, [[1]]))
    with pytest.raises(
        TraceError, match=r"does not tell how many experts there are; give experts \(--experts, or the key"
    ):
        read_trace(path, gpus=4)
    with pytest.raises(TraceError, match="how many experts there are and how many GPUs there are"):
        read_trace(path)
    with pytest.raises(ScenarioError, match=r"so tokens_per_gpu \(--tokens-per-gpu\) would have no effect"):
        read_trace(path, gpus=4, experts=8, tokens_per_gpu=3)
    with pytest.raises(TraceError, match="0 all-to-alls"):
        read_trace(path, gpus=4, experts=8, all_to_alls=0)
    with pytest.raises(TraceError, match="holds no record"):
        read_megatron(written(tmp_path, "\n"), HOSTING)


def test_too_many_all_to_alls_are_told() -> None:
    one = Hosting(gpus=1, experts=1, bytes_per_token=1, tokens=1)
    rows = np.zeros((MAX_ALL_TO_ALLS + 1, 1, 1), np.int16)
    with pytest.raises(TraceError, match=f"over {MAX_ALL_TO_ALLS} all-to-alls"):
        dealt(Path("rows"), in_blocks(rows), one, note="trace")
    many = Hosting(gpus=4096, experts=1, bytes_per_token=1)
    layers = TokenRows(4, [np.zeros((4, 5, 1), np.int16)])
    with pytest.raises(TraceError, match=r"over 4 all-to-alls, .*; ask for fewer all-to-alls"):
        dealt(Path("rows"), layers, many, note="trace")
    assert len(demands_of(dealt(Path("rows"), layers, many, note="trace", all_to_alls=1))) == 1


def test_memory_does_not_grow_with_the_rows() -> None:
    hosting = Hosting(gpus=8, experts=64, bytes_per_token=4096, tokens=1 << 14)
    block = np.arange(6 << 12, dtype=np.int16).reshape(-1, 1, 6) % 64
    peaks = []
    for blocks in (10, 100):
        tracemalloc.start()
        rows = TokenRows(blocks * len(block), itertools.repeat(block, blocks))
        collective = dealt(Path("rows"), rows, hosting, note="trace")
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
    rows = np.random.default_rng(0).random((100, 8)).argsort(axis=1)[:, :6].astype(np.int16)
    path = parquet(scores=[[0.1] * 6] * 100, indices=rows.tolist(), token_id=[7] * 100)
    collective = dealt(path, flame_rows(path), HOSTING, note="trace")
    assert [step.matrix.tolist() for step in demands_of(collective)] == by_hand(rows[:, None], HOSTING)
    (one,) = demands_of(read_trace(path, gpus=4, bytes_per_token=4))
    assert one.total_bytes == rows.size * 4
    assert "64 experts on 4 GPUs" in one.note
    assert "100 tokens in one batch, spread evenly; left out: the columns token_id;" in one.note
    assert one.matrix.sum(axis=1).tolist() == [25 * 6 * 4] * 4


def test_rows_of_different_lengths_are_refused_however_far_apart(
    parquet: Any,  # noqa: ANN401
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("traffic.readers.flame.BATCH_ROWS", 7)
    path = parquet(indices=[[1, 2]] * 14 + [[1, 2, 3]] * 7)
    with pytest.raises(TraceError, match="from row 14: 'indices' of length 2 and 3, expected one"):
        dealt(path, flame_rows(path), HOSTING, note="trace")


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is optional and not installed")
    table = arrow.Table.from_arrays([arrow.array([[0]]), arrow.array([[7]])], ["indices", "indices"])
    import_module("pyarrow.parquet").write_table(table, tmp_path / "twice.parquet")
    with pytest.raises(TraceError, match="columns indices, indices, expected one named 'indices'"):
        flame_rows(tmp_path / "twice.parquet")


def test_one_of_each_is_named_in_the_singular() -> None:
    one = Hosting(gpus=1, experts=1, bytes_per_token=1)
    note = dealt(Path("rows"), in_blocks(np.zeros((1, 1, 1), np.int16)), one, note="trace").note
    assert note.startswith("trace: 1 expert on 1 GPU, 1 byte per token; 1 token in one batch")


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"token_id": [1, 2]}, "columns token_id, expected one named 'indices'"),
        ({"indices": [1, 2]}, "'indices' of type int64"),
        ({"indices": [[0.5], [1.5]]}, "'indices' of type list"),
        ({"indices": [[1], [2, 3]]}, "'indices' of length 1 and 2, expected one, without nulls"),
        ({"indices": [[1], None]}, "'indices' of length 1 and null, expected one, without nulls"),
        ({"indices": [[1], [None]]}, "'indices' of length 1 and null, expected one, without nulls"),
        ({"indices": [[1], [8]]}, "row 1: found the experts [8], expected 0 to 7"),
        ({"indices": [[1, 2], [3, 3]]}, "row 1: found the experts [3, 3], expected 2 that differ"),
    ],
)
def test_malformed_parquet_is_told(parquet: Any, columns: dict[str, object], complaint: str) -> None:  # noqa: ANN401
    path = parquet(**columns)
    with pytest.raises(TraceError) as error:
        dealt(path, flame_rows(path), HOSTING, note="trace")
    assert complaint in str(error.value)
