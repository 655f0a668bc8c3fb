"""Megatron's router traces: files of ranks are one trace, and one that lacks ranks is none."""

from pathlib import Path

import pytest

from tests.traffic.trace_files import router_record as record
from tests.traffic.trace_files import written
from topologies.errors import TraceError
from traffic.readers.detect import read_trace
from traffic.readers.megatron import read_megatron
from traffic.readers.routing import Hosting
from traffic.steps import demands_of
from traffic.workloads.datasets import dataset_path

HOSTING = Hosting(gpus=4, experts=8, bytes_per_token=10)


def ranks(directory: Path, *contents: str) -> Path:
    """Write the files of ranks 0, 1 ... of a router trace to a directory and return it."""
    directory.mkdir()
    for rank, content in enumerate(contents):
        written(directory, content, f"rank{rank}.jsonl")
    return directory


IDLE = [record(0, 3, rank, []) + record(0, 4, rank, []) for rank in range(4)]
"""What the ranks of a trace write who have no token, of two layers."""


def test_megatron_files_of_ranks_are_one_trace(tmp_path: Path) -> None:
    first = record(0, 3, 0, [[0, 7], [1, 2]]) + record(0, 4, 0, [[6, 7]])
    last = "\n" + record(0, 4, 3, []) + record(0, 3, 3, [[3, 2]])
    folder = ranks(tmp_path / "trace.d", first, IDLE[1], IDLE[2], last)
    written(folder, "no trace", ".hidden")
    collective = read_trace(folder, gpus=4, experts=8, bytes_per_token=10)
    layer3, layer4 = (step.matrix for step in demands_of(collective))
    assert layer3.tolist() == [[20, 10, 0, 10], [0] * 4, [0] * 4, [0, 20, 0, 0]]
    assert layer4.tolist() == [[0, 0, 0, 20], [0] * 4, [0] * 4, [0] * 4]
    assert (collective.name, dataset_path("any", folder)) == ("trace trace.d", folder)
    whole = written(tmp_path, "".join([first, *IDLE[1:3], last]))
    assert [step.matrix.tolist() for step in demands_of(read_megatron(whole, HOSTING))] == [
        layer3.tolist(),
        layer4.tolist(),
    ]
    assert demands_of(read_megatron(folder, HOSTING, all_to_alls=1))[0].matrix.tolist() == layer3.tolist()


@pytest.mark.parametrize(
    ("contents", "lacking"),
    [
        (IDLE[:1], "lacks 3 of 4 ranks, the first is rank 1, in step 0, stage forward, block 0, layer 3"),
        (IDLE[1:], "lacks 1 of 4 ranks, the first is rank 0, in step 0"),
        ([*IDLE[:3], record(0, 3, 3, [])], "lacks 1 of 4 ranks, the first is rank 3, in step 0, .*, layer 4"),
    ],
)
def test_a_router_trace_without_all_ranks_is_refused(
    tmp_path: Path, contents: list[str], lacking: str
) -> None:
    folder = ranks(tmp_path / "trace", *contents)
    with pytest.raises(TraceError, match=lacking) as error:
        read_trace(folder, gpus=4, experts=8)
    assert "the directory with the files of all ranks" in error.value.hint
    with pytest.raises(TraceError, match="lacks 3 of 4 ranks"):
        read_trace(folder / "rank0.jsonl", gpus=4, experts=8)


def test_all_ranks_are_needed_only_in_the_all_to_alls_that_are_asked_for(tmp_path: Path) -> None:
    folder = ranks(tmp_path / "trace", *IDLE[:3], record(0, 3, 3, [[0]]))
    (only,) = demands_of(read_trace(folder, gpus=4, experts=8, bytes_per_token=5, all_to_alls=1))
    assert only.total_bytes == 5


@pytest.mark.parametrize(
    ("contents", "complaint"),
    [
        ([], "is a directory without files"),
        (["0 1\n1 0\n"], "is a directory, and rank0.jsonl in it is not a router trace"),
        ([*IDLE, "0 1\n1 0\n"], r"rank4.jsonl, line 1: found '0 1"),
    ],
)
def test_a_directory_of_anything_else_is_told(tmp_path: Path, contents: list[str], complaint: str) -> None:
    with pytest.raises(TraceError, match=complaint):
        read_trace(ranks(tmp_path / "trace", *contents), gpus=4, experts=8)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{", "line 1: found '{', expected a JSON object"),
        ('{"a": 1}', "expected a JSON object with step"),
        (record(0, 0, 0, [[0]]) + "[1]\n", "line 2: found '[1]"),
        (record(0, 0, 4, [[0]]), "line 1: found 'rank 4', expected a rank from 0 to 3"),
        (record(0, 0, -1, [[0]]), "found 'rank -1'"),
        (record(0, 0, 0, [[8]]), "found 'expert 8', expected an expert from 0 to 7"),
        (record(0, 0, 0, [[-1]]), "found 'expert -1'"),
        (record(0, 0, 0, [[1], [2, 3]]), "top_indices of several lengths"),
        (record(0, 0, 0, [[1]], top_indices=[["x"]]), "top_indices of shape (1, 1)"),
        (record(0, 0, 0, [[1]], top_indices=[[1.5]]), "top_indices of shape (1, 1)"),
        (record(0, 0, 0, [[1]], top_indices=7), "top_indices of shape ()"),
        (record(0, 0, 0, [[1]], top_indices=[[10**30]]), "top_indices of shape (1, 1)"),
        (record(0, 0, 0, [[1]], num_tokens=2), "expected '2 tokens, top 1'"),
        (record(0, 0, 0, [[1]], topk=2), "expected '1 tokens, top 2'"),
        (record(0, 0, 0, [[1]], stage=[1]), "found 'a list or object'"),
        ("{" * 100_000, "line 1: found"),
    ],
)
def test_malformed_router_trace_is_told(tmp_path: Path, content: str, complaint: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(TraceError) as error:
        read_trace(path, gpus=4, experts=8)
    assert str(path) in str(error.value)
    assert complaint.replace("expected '", "expected ").rstrip("'") in str(error.value)
