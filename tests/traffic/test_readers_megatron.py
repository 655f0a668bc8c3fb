"""Megatron's router traces: files of ranks are one trace, and one that lacks ranks is none."""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.traffic.trace_files import router_record as record
from tests.traffic.trace_files import written
from topologies.errors import TraceError
from traffic.demand import Demand
from traffic.job import Job, Node
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


def drawn(rng: random.Random, experts: int = 8) -> list[list[int]]:
    """Return the 2 experts of each of some tokens."""
    return [rng.sample(range(experts), 2) for _ in range(rng.randrange(4))]


def sent_by_hand(chosen: Sequence[list[list[int]]], experts: int = 8) -> list[list[int]]:
    """Return the tokens that each rank of a group sends to each, as the rules are written."""
    sent = np.zeros((len(chosen), len(chosen)), dtype=int)
    for rank, tokens in enumerate(chosen):
        for expert in (expert for token in tokens for expert in token):
            sent[rank, expert * len(chosen) // experts] += 1
    listed: list[list[int]] = sent.tolist()
    return listed


@settings(deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 2), st.integers(1, 3), st.integers(1, 2), st.booleans())
def test_each_micro_batch_is_an_all_to_all(
    tmp_path_factory: pytest.TempPathFactory, seed: int, steps: int, micro: int, layers: int, alone: bool
) -> None:
    """A rank's n-th record of a step and a layer is the n-th micro-batch's, in one file or one a rank."""
    rng = random.Random(seed)
    keys = [(step, layer) for step in range(steps) for _ in range(micro) for layer in range(layers)]
    chosen = [[drawn(rng) for _ in range(4)] for _ in keys]
    contents = [
        "".join(record(*key, rank, own[rank], topk=2) for key, own in zip(keys, chosen, strict=True))
        for rank in range(4)
    ]
    folder = tmp_path_factory.mktemp("micro") / "trace"
    path = written(folder.parent, "".join(contents)) if alone else ranks(folder, *contents)
    read = read_trace(path, gpus=4, experts=8, bytes_per_token=1)
    assert [step.matrix.tolist() for step in demands_of(read)] == [*map(sent_by_hand, chosen)]
    assert f"; {len(keys)} all-to-all" in read.note
    assert "ranks 0-3: one group with all experts" in read.note
    assert read.is_chain


def test_micro_batches_do_not_become_one_even_all_to_all(tmp_path: Path) -> None:
    """Four incasts of 10 bytes a rank are not one all-to-all of 10 bytes a pair."""
    contents = ["".join(record(0, 3, rank, [[2 * micro]]) for micro in range(4)) for rank in range(4)]
    read = read_trace(ranks(tmp_path / "trace", *contents), gpus=4, experts=8, bytes_per_token=10)
    incasts = [[[10 * (gpu == micro) for gpu in range(4)]] * 4 for micro in range(4)]
    assert [step.matrix.tolist() for step in demands_of(read)] == incasts


def test_heads_that_predict_tokens_are_layers_of_their_own(tmp_path: Path) -> None:
    """Megatron numbers the layers of each MTP head from 0, as the decoder's."""
    heads: list[dict[str, object]] = [
        {"block": "decoder"},
        {"block": "mtp", "mtp_idx": 0},
        {"block": "mtp", "mtp_idx": 1},
    ]
    content = "".join(record(0, 0, rank, [[0, 7]], **head) for rank in range(4) for head in heads)
    path = written(tmp_path, content + record(0, 0, 3, [], **heads[2]))
    with pytest.raises(TraceError, match=r"lacks 3 of 4 .* block mtp, mtp_idx 1, layer 0, record 1"):
        read_trace(path, gpus=4, experts=8)
    assert len(demands_of(read_trace(written(tmp_path, content), gpus=4, experts=8))) == 3


def alone(node: Node) -> Demand:
    """Return the demand of a node that is an all-to-all."""
    return demands_of(Job("alone", 1 + max(node.gpus), (replace(node, after=()),)))[0]


@pytest.mark.parametrize("all_to_alls", [None, 1, 2, 3])
def test_stages_of_a_pipeline_are_groups_that_go_on_at_the_same_time(
    tmp_path: Path, all_to_alls: int | None
) -> None:
    chosen = [[[0, 7], [1, 2]], [[4, 5]], [[6, 7]], [[0, 1]]]
    contents = [
        "".join(record(0, 2 * (rank // 2) + layer, rank, own) for layer in (0, 1))
        for rank, own in enumerate(chosen)
    ]
    folder = ranks(tmp_path / "trace", *contents)
    read = read_trace(folder, gpus=4, experts=8, bytes_per_token=1, all_to_alls=all_to_alls)
    found = []
    for gpus in ((0, 1), (2, 3)):
        stage = [node for node in read.collectives if node.gpus == gpus]
        assert [node.after for node in stage] == [(), *((node.name,) for node in stage)][: len(stage)]
        found.append([alone(node).matrix.tolist() for node in stage])
    taken = {None: (2, 2), 1: (1, 0), 2: (1, 1), 3: (2, 1)}[all_to_alls]
    assert found == [[sent_by_hand(chosen[:2])] * taken[0], [sent_by_hand(chosen[2:])] * taken[1]]
    both = "ranks 0-1 and ranks 2-3: each with all experts, at the same time"
    assert (both in read.note) == (all_to_alls != 1)


@settings(deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 3), st.integers(1, 3), st.integers(1, 20))
def test_fewer_all_to_alls_are_the_first_of_each_group_in_turn(
    tmp_path_factory: pytest.TempPathFactory, seed: int, stages: int, micro: int, all_to_alls: int
) -> None:
    rng = random.Random(seed)
    gpus, layers = 2 * stages, [range(rng.randint(1, 3)) for _ in range(stages)]
    contents = [
        "".join(
            record(0, 10 * stage + n, rank, drawn(rng), topk=2) for _ in range(micro) for n in layers[stage]
        )
        for rank in range(gpus)
        for stage in [rank % stages]  # the ranks of a stage are strided
    ]
    folder = ranks(tmp_path_factory.mktemp("stages") / "trace", *contents)
    full = read_trace(folder, gpus=gpus, experts=8)
    some = read_trace(folder, gpus=gpus, experts=8, all_to_alls=all_to_alls)
    assert len(full.collectives) == micro * sum(map(len, layers))
    assert len(some.collectives) == min(all_to_alls, len(full.collectives))
    lengths = []
    for stage in range(stages):
        own, whole = (
            [alone(node).matrix.tolist() for node in job.collectives if node.gpus == (stage, stage + stages)]
            for job in (some, full)
        )
        assert own == whole[: len(own)]
        lengths += [len(own)] if len(own) < len(whole) else []
    assert not lengths or max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize(
    ("contents", "lacking", "whole"),
    [
        ([IDLE[0] * 2, IDLE[1] * 2, IDLE[2], IDLE[3] * 2], "1 of 4 .* rank 2, .* layer 3, record 1", 2),
        ([*IDLE[:3], IDLE[3] * 2], "lacks 3 of 4 ranks, .* rank 0, .* layer 3, record 1", 2),
        ([record(0, 3, 0, []), *IDLE[1:]], "lacks 1 of 4 ranks, the first is rank 0, in .* layer 4", 1),
        (
            [record(0, 0, 0, []), record(0, 0, 1, []), record(0, 1, 2, []) * 2, record(0, 1, 3, [])],
            "lacks 1 of 2 ranks, the first is rank 3, in .* layer 1, record 1",
            2,
        ),
    ],
)
def test_ranks_of_a_group_have_the_same_records(
    tmp_path: Path, contents: list[str], lacking: str, whole: int
) -> None:
    """Those before the first that lacks one are a trace, as the advice says."""
    folder = ranks(tmp_path / "trace", *contents)
    with pytest.raises(TraceError, match=lacking) as error:
        read_trace(folder, gpus=4, experts=8)
    assert f"or take the {whole} all-to-alls before it (all_to_alls, --all-to-alls)" in error.value.hint
    assert len(demands_of(read_trace(folder, gpus=4, experts=8, all_to_alls=whole))) == whole


def test_a_rank_in_two_files_is_refused(tmp_path: Path) -> None:
    """A copied file is not another micro-batch."""
    folder = ranks(tmp_path / "trace", *IDLE)
    written(folder, IDLE[1], "rank1 (copy).jsonl")
    with pytest.raises(
        TraceError, match=r"rank 1 in rank1 \(copy\).jsonl and in rank1.jsonl; take one"
    ) as error:
        read_trace(folder, gpus=4, experts=8)
    assert str(folder) in str(error.value)
    (folder / "rank1 (copy).jsonl").unlink()
    assert read_trace(folder, gpus=4, experts=8).gpus == 4


def test_files_beside_a_router_trace_are_left_out_and_named(tmp_path: Path) -> None:
    folder = ranks(tmp_path / "trace", *IDLE)
    for rank in range(4):
        (folder / f"hidden_states_rank{rank}.bin").write_bytes(bytes(range(rank, 200)))
    written(folder, '{"seed": 1}', "arguments.json")
    note = read_trace(folder, gpus=4, experts=8).note
    assert "left out: arguments.json, hidden_states_rank0.bin, hidden_states_rank1.bin, hid" in note
    for number in range(9):
        written(folder, "", f"log{number}")
    assert "log0, log1, log2, 6 more;" in read_trace(folder, gpus=4, experts=8).note


@pytest.mark.parametrize("name", ["rank2.jsonl", "rank2"])
def test_a_damaged_file_of_a_rank_is_not_left_out_unseen(tmp_path: Path, name: str) -> None:
    folder = ranks(tmp_path / "trace", *IDLE)
    (folder / "rank2.jsonl").rename(folder / name)
    written(folder, IDLE[2][5:], name)
    with pytest.raises(TraceError, match="rank2.jsonl, line 1: found" if "." in name else "first is rank 2"):
        read_trace(folder, gpus=4, experts=8)


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
        (
            record(0, 0, 0, [[0, 1], [3, 3]]),
            "line 1, row 1: found the experts [3, 3], expected 2 that differ",
        ),
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
