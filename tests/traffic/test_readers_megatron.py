"""Megatron's router traces: files of ranks are one trace, and one that lacks ranks is none."""

import json
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
from topologies.rail import rail_fabric
from traffic.demand import Demand
from traffic.job import Job, Node
from traffic.readers.detect import read_trace
from traffic.readers.megatron import read_megatron
from traffic.readers.routing import Hosting
from traffic.steps import demands_of
from traffic.workloads.datasets import dataset_path
from traffic.workloads.placement import placed

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
        (IDLE[:1], "no all-to-all between two ranks, only records of rank 0;"),
        (
            IDLE[3:],
            "lacks 3 of 4 ranks, the first is rank 0, in step 0, stage forward, block decoder, layer 3",
        ),
        (IDLE[1:], "lacks 1 of 4 ranks, the first is rank 0, in step 0"),
        ([*IDLE[:3], record(0, 3, 3, [])], "lacks 1 of 4 ranks, the first is rank 3, in step 0, .*, layer 4"),
        ([record(0, rank, rank, []) for rank in range(3)], "between two ranks, only records of ranks 0-2;"),
    ],
)
def test_a_router_trace_without_all_ranks_is_refused(
    tmp_path: Path, contents: list[str], lacking: str
) -> None:
    folder = ranks(tmp_path / "trace", *contents)
    with pytest.raises(TraceError, match=lacking) as error:
        read_trace(folder, gpus=4, experts=8)
    assert "the directory with the files of all ranks" in error.value.hint
    with pytest.raises(TraceError, match=r"between two ranks|lacks \d of \d ranks"):
        read_trace(folder / "rank0.jsonl", gpus=4, experts=8)


@given(st.integers(2, 4), st.integers(4, 9), st.data())
def test_the_ranks_of_a_trace_are_its_gpus(
    tmp_path_factory: pytest.TempPathFactory, ranked: int, gpus: int, data: st.DataObject
) -> None:
    """A fabric may be larger; a rank below the largest that has no record is missing."""
    chosen = [drawn(data.draw(st.randoms())) for _ in range(ranked)]
    lines = [record(0, 3, rank, own, topk=2) for rank, own in enumerate(chosen)]
    path = tmp_path_factory.getbasetemp() / "larger"
    path.write_text("".join(lines))
    read = read_trace(path, gpus=gpus, experts=8, bytes_per_token=1)
    assert [step.matrix.tolist() for step in demands_of(read)] == [sent_by_hand(chosen)]
    assert read.gpus == ranked
    assert f": 8 experts on {ranked} GPUs, " in read.note
    assert f"; ranks 0-{ranked - 1}: one group" in read.note
    absent = data.draw(st.integers(0, ranked - 2))
    path.write_text("".join(line for rank, line in enumerate(lines) if rank != absent))
    with pytest.raises(TraceError, match=f"lacks 1 of {ranked} ranks, the first is rank {absent}"):
        read_trace(path, gpus=gpus, experts=8)


def test_a_trace_is_placed_on_the_first_gpus_of_a_larger_fabric(tmp_path: Path) -> None:
    folder = ranks(tmp_path / "trace", record(0, 3, 0, [[0], [7]]), record(0, 3, 1, [[1]]))
    job = placed(read_trace(folder, gpus=8, experts=8, bytes_per_token=1), rail_fabric(4, 2, 2))
    assert job.gpus == 8
    assert demands_of(job)[0].matrix[:2, :2].tolist() == [[1, 1], [1, 0]]
    assert job.note.endswith("on GPUs 0 to 1 of 8")


def test_all_ranks_are_needed_only_in_the_all_to_alls_that_are_asked_for(tmp_path: Path) -> None:
    folder = ranks(tmp_path / "trace", *IDLE[:3], record(0, 3, 3, [[0, 1]]))
    read = read_trace(folder, gpus=4, experts=8, bytes_per_token=5, all_to_alls=1)
    (only,) = demands_of(read)
    assert only.total_bytes == 10
    assert read.note.endswith("; 1 of 2 all-to-alls, dispatches alone")


def test_fewer_all_to_alls_do_not_hide_that_a_rank_lacks_one(tmp_path: Path) -> None:
    """Rank 3 is of the group although what it has in common with the others is not taken."""
    folder = ranks(tmp_path / "trace", *IDLE[:3], record(0, 4, 3, []))
    with pytest.raises(TraceError, match=r"lacks 1 of 4 ranks, the first is rank 3, in .* layer 3"):
        read_trace(folder, gpus=4, experts=8, all_to_alls=1)


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
    first = "ranks 0-1: 1 of 2 groups, each with all experts, at the same time"
    assert f"; {first if all_to_alls == 1 else both}; " in read.note
    said = "4" if all_to_alls is None else f"{all_to_alls} of 4"
    assert f"; {said} all-to-alls" in read.note


def test_a_rank_that_is_a_group_alone_is_named_in_the_singular(tmp_path: Path) -> None:
    folder = ranks(tmp_path / "trace", IDLE[0], IDLE[1], record(0, 5, 2, [[1, 2]]))
    note = read_trace(folder, gpus=4, experts=8).note
    assert "; ranks 0-1 and rank 2: each with all experts, at the same time; 3 all-to-alls" in note


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


def line_of(rank: int, **changed: object) -> str:
    """Return a line that Megatron writes, of which keys have other values, or are not there (None)."""
    line = json.loads(record(0, 3, rank, [[0, 7]], stage="pre_dispatch")) | changed
    return json.dumps({key: value for key, value in line.items() if value is not None})


@pytest.mark.parametrize(
    ("first", "other", "complaint"),
    [
        ({}, {"stage": None}, "found no key 'stage', unlike rank0.jsonl, line 1; give the files that one"),
        ({"stage": None}, {}, "found a key 'stage', unlike rank0.jsonl, line 1"),
        ({}, {"block": None}, "found no key 'block', unlike rank0.jsonl, line 1"),
        ({"block": "mtp", "mtp_idx": 0}, {"block": "mtp"}, "found no key 'mtp_idx', unlike rank0.jsonl"),
        ({}, {"top_indices": [[1]], "topk": 1}, "found top 1, unlike rank0.jsonl, line 1"),
        ({}, {"top_indices": [], "num_tokens": 0, "topk": 1}, "found top 1, unlike rank0.jsonl, line 1"),
        ({}, {"step": "0"}, "found \"step '0'\", expected a whole number from 0 as step"),
        ({}, {"step": -1}, "found 'step -1', expected a whole number from 0 as step"),
        ({}, {"step": True}, "found 'step true', expected a whole number"),
        ({}, {"layer": 3.5}, "found 'layer 3.5', expected a whole number from 0 as layer"),
        ({}, {"layer": "3"}, "found \"layer '3'\", expected a whole number from 0 as layer"),
        ({}, {"mtp_idx": "0"}, "found \"mtp_idx '0'\", expected a whole number from 0 as mtp_idx"),
        ({}, {"stage": 1}, "found 'stage 1', expected a text as stage"),
        ({}, {"block": 0}, "found 'block 0', expected a text as block"),
    ],
)
@pytest.mark.parametrize("stages", [1, 2])
def test_ranks_that_disagree_on_what_a_record_is_of_are_not_groups(
    tmp_path: Path, stages: int, first: dict[str, object], other: dict[str, object], complaint: str
) -> None:
    """Neither a rank each, nor two halves that look like the stages of a pipeline."""
    contents = [line_of(rank, **(first if rank < stages else other)) for rank in range(2 * stages)]
    with pytest.raises(TraceError) as error:
        read_trace(ranks(tmp_path / "trace", *contents), gpus=2 * stages, experts=8)
    assert f"rank{stages}.jsonl, line 1: {complaint}" in str(error.value)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (
            {"step": 1},
            "on ranks 0-1 with step 0, stage pre_dispatch and on ranks 2-3 with step 1, stage pre_d",
        ),
        (
            {"stage": "x"},
            "on ranks 0-1 with step 0, stage pre_dispatch and on ranks 2-3 with step 0, stage x",
        ),
    ],
)
def test_groups_that_do_not_begin_together_are_not_the_stages_of_a_pipeline(
    tmp_path: Path, other: dict[str, object], said: str
) -> None:
    contents = [line_of(rank, **(other if rank > 1 else {})) for rank in range(4)]
    with pytest.raises(TraceError, match=f"trace begins {said}") as error:
        read_trace(ranks(tmp_path / "trace", *contents), gpus=4, experts=8)
    assert error.value.hint == "give the files that one run wrote"


@given(st.sampled_from(["top_indices", "rank", "step", "num_tokens"]), st.integers(0, 3), st.booleans())
def test_a_key_that_is_twice_in_a_record_is_refused(
    tmp_path_factory: pytest.TempPathFactory, key: str, rank: int, is_equal: bool
) -> None:
    """Also in the first record, by which the format is known, and where both values are one."""
    value = {"top_indices": [[0, 7]], "rank": rank, "num_tokens": 1}.get(key, 0)
    twice = line_of(rank).removesuffix("}") + f', "{key}": {json.dumps(value if is_equal else 5)}' + "}"
    path = tmp_path_factory.getbasetemp() / "twice"
    path.write_text("\n".join(twice if each == rank else line_of(each) for each in range(4)))
    with pytest.raises(TraceError, match=f"twice, line {rank + 1}: the key '{key}' is twice in one JSON obj"):
        read_trace(path, gpus=4, experts=8)


def test_directories_beside_a_router_trace_are_left_out_and_named(tmp_path: Path) -> None:
    folder = ranks(tmp_path / "trace", *IDLE)
    ranks(folder / "more", *IDLE)
    (folder / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    assert "; left out: gone.jsonl, more/; 2 all-to-alls" in read_trace(folder, gpus=4, experts=8).note


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


def test_a_damaged_file_of_the_last_rank_is_named(tmp_path: Path) -> None:
    folder = ranks(tmp_path / "trace", *IDLE[:3])
    written(folder, IDLE[3][5:], "rank3")
    assert (
        "; ranks 0-2: one group with all experts; left out: rank3;"
        in read_trace(folder, gpus=4, experts=8).note
    )


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
        (record(0, 0, 0, [[1]], stage=[1]), "found 'stage a list of 1', expected a text as stage"),
        (record(0, 0, 0, [[1]], mtp_idx={}), "found 'mtp_idx an object', expected a whole number"),
        (record(0, 0, 0, [], top_indices=[[], []]), "top_indices of shape (2, 0)"),
        (record(0, 0, 0, [], top_indices=[[[]]]), "top_indices of shape (1, 1, 0)"),
        ("{" * 100_000, "line 1: found"),
    ],
)
def test_malformed_router_trace_is_told(tmp_path: Path, content: str, complaint: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(TraceError) as error:
        read_trace(path, gpus=4, experts=8)
    assert str(path) in str(error.value)
    assert complaint.replace("expected '", "expected ").rstrip("'") in str(error.value)
