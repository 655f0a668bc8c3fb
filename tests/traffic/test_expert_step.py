"""Files as steps of a mixture of experts: what is a dispatch, between whom, in which order, after what."""

from pathlib import Path

import numpy as np
import pytest

from tests.traffic.test_datasets import present
from tests.traffic.test_readers_simai import simai
from tests.traffic.trace_files import AICB_HEADER, aicb_row, written
from topologies.errors import TraceError
from traffic.collectives.all_to_all import AllToAll
from traffic.job import Compute, Job
from traffic.models.moe_step import repeated_gate
from traffic.readers.aicb import aicb_phases
from traffic.readers.expert_step import read_expert_step
from traffic.training import job_of_phases
from traffic.workloads.datasets import A100_LOG

HEADER = (
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 4 pp: 1 vpp: 1 ga: 1 all_gpus: 16 "
    "checkpoints: 0 checkpoint_initiates: 0"
)
ATTENTION = "attention -1 5000 NONE 0 10000 NONE 0 1 NONE 0 100"
MOE = "moelayer -1 2000 ALLTOALL_EP 8000 4000 ALLTOALL_EP 8000 1 NONE 0 100"
LAYER = (ATTENTION, MOE, MOE)
SKEWED = np.array([[1, 1, 2, 4], [1, 1, 2, 4], [1, 1, 2, 4], [1, 1, 2, 4]])
PRODUCT = "((4096, 1, 1024), (1024, 3072))"


def exchanges_of(job: Job) -> dict[str, AllToAll]:
    return {node.name: node.pattern for node in job.collectives if isinstance(node.pattern, AllToAll)}


def test_dispatches_are_every_other_all_to_all_forward(tmp_path: Path) -> None:
    step = read_expert_step(simai(tmp_path, *LAYER, *LAYER, header=HEADER))
    assert [(each.node, each.replica, each.layer) for each in step.dispatches] == [
        ("1 moelayer fwd all-to-all 0", 0, 0),
        ("1 moelayer fwd all-to-all 1", 1, 0),
        ("4 moelayer fwd all-to-all 0", 0, 1),
        ("4 moelayer fwd all-to-all 1", 1, 1),
    ]
    assert len(exchanges_of(step.job)) == 2 * 2 * 4, "two regions, two layers, four each"


def test_a_region_is_one_all_to_all_of_groups_that_stride(tmp_path: Path) -> None:
    step = read_expert_step(simai(tmp_path, *LAYER, header=HEADER))
    first, second = list(exchanges_of(step.job).values())[:2]
    assert first.ranks == tuple(range(8))
    assert second.ranks == tuple(range(8, 16))
    # tp 2: even GPUs among themselves, odd ones too; a buffer of 8,000 bytes is 2,000 for each rank.
    same_lane = (np.arange(8)[:, None] - np.arange(8)) % 2 == 0
    assert (first.demand.matrix == np.where(same_lane, 2000, 0)).all()


def test_gates_give_matrices_and_the_way_back_their_transposes(tmp_path: Path) -> None:
    gates = {0: SKEWED, 1: SKEWED[:, ::-1]}
    path = simai(tmp_path, *LAYER, *LAYER, header=HEADER.replace("all_gpus: 16", "all_gpus: 8"))
    job = read_expert_step(path, gate=lambda _region, _batch, layer: gates[layer]).job
    found = {name: pattern.demand.matrix[::2, ::2] for name, pattern in exchanges_of(job).items()}
    sent = {layer: 1000 * gate for layer, gate in gates.items()}
    expected = {
        "1 moelayer fwd": sent[0], "2 moelayer fwd": sent[0].T,
        "4 moelayer fwd": sent[1], "5 moelayer fwd": sent[1].T,
        "5 moelayer ig": sent[1], "4 moelayer ig": sent[1].T,
        "2 moelayer ig": sent[0], "1 moelayer ig": sent[0].T,
    }  # fmt: skip
    assert list(found) == [f"{name} all-to-all" for name in expected]
    assert all((found[f"{name} all-to-all"] == matrix).all() for name, matrix in expected.items())
    assert job.note.endswith("gates are not the file's")


def test_a_step_without_gates_says_that_they_are_even(tmp_path: Path) -> None:
    job = read_expert_step(simai(tmp_path, *LAYER, header=HEADER)).job
    assert job.note.endswith("gates send all experts the same")


def test_computes_stay_between_the_all_to_alls(tmp_path: Path) -> None:
    job = read_expert_step(simai(tmp_path, *LAYER, header=HEADER)).job
    computes = {node.name: node.duration_s for node in job.nodes if isinstance(node, Compute)}
    assert computes["0 attention fwd"] == pytest.approx(5e-6)
    assert computes["2 moelayer ig"] == pytest.approx(4e-6)
    waits = {node.name: node.after for node in job.nodes}
    assert waits["1 moelayer fwd all-to-all 1"] == ("1 moelayer fwd",)
    assert waits["2 moelayer fwd"] == ("1 moelayer fwd all-to-all 0", "1 moelayer fwd all-to-all 1")


def test_equal_layers_are_dropped_with_their_combines(tmp_path: Path) -> None:
    step = read_expert_step(simai(tmp_path, *LAYER, *LAYER, *LAYER, header=HEADER), alike=1)
    assert len(exchanges_of(step.job)) == 2 * 4
    assert "3 of 9 layers" in step.job.note


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ((ATTENTION,), "has no all-to-alls of expert-parallel ranks"),
        ((ATTENTION, MOE), "has 1 expert all-to-alls forward and 1 backward"),
        (
            (MOE.replace("2000 ALLTOALL_EP 8000", "1 NONE 0"),) * 2,
            "0 expert all-to-alls forward and 2 backward",
        ),
    ],
)
def test_files_without_pairs_are_one_sentence(tmp_path: Path, rows: tuple[str, ...], said: str) -> None:
    with pytest.raises(TraceError) as error:
        read_expert_step(simai(tmp_path, *rows, header=HEADER))
    assert said in str(error.value)


def test_gates_of_other_ranks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="a gate of 4 ranks and 3 experts"):
        read_expert_step(simai(tmp_path, *LAYER, header=HEADER), gate=repeated_gate(SKEWED[:, :3]))


def aicb(directory: Path, *, is_log: bool) -> Path:
    """Write a step of AICB with a product between dispatch and combine."""
    time = 0.5 if is_log else None
    rows = [
        aicb_row("all_reduce", "tp_group", 64, 2, time),
        aicb_row("all_reduce", "dp_group", 64, 4, time),
        aicb_row("all_to_all", "ep_group", 8000, 4, time),
        aicb_row("computation", "all", PRODUCT, None, 3.0 if is_log else 3000),
        aicb_row("all_to_all", "ep_group", 8000, 4, time),
    ]
    return written(directory, "\n".join([AICB_HEADER, *rows]), "step.csv")


@pytest.mark.parametrize(("is_log", "took_s"), [(True, 3e-3), (False, 3e-6)])
def test_computes_of_aicb_are_milliseconds_in_logs_and_nanoseconds_before(
    tmp_path: Path, *, is_log: bool, took_s: float
) -> None:
    step = read_expert_step(aicb(tmp_path, is_log=is_log))
    (compute,) = [node for node in step.job.nodes if isinstance(node, Compute)]
    assert compute.name == "3 forward.MoE"
    assert compute.duration_s == pytest.approx(took_s)
    assert [each.node for each in step.dispatches] == ["2 ep_group all-to-all"]
    assert "4 of 4 collectives" in step.job.note
    assert len(job_of_phases(aicb_phases(aicb(tmp_path, is_log=is_log))).nodes) == 4 + 2 + 2 + 1 + 2


def test_equal_exchanges_of_the_other_pass_are_no_copies(tmp_path: Path) -> None:
    exchange = [
        aicb_row("all_to_all", "ep_group", 8000, 4, 0.5, stage)
        for stage in ("forward.MoE", "backward.MoE")
        for _ in range(4)
    ]
    path = written(
        tmp_path, "\n".join([AICB_HEADER, aicb_row("all_reduce", "dp_group", 64, 4, 0.5), *exchange])
    )
    whole, few = (read_expert_step(path, alike=alike) for alike in (None, 1))
    assert [(each.micro_batch, each.layer) for each in whole.dispatches] == [(0, 0), (0, 1)]
    assert len(exchanges_of(whole.job)) == 8
    assert len(exchanges_of(few.job)) == 4
    assert len(few.dispatches) == 1


def test_the_a100_log_has_64_dispatches_a_step() -> None:
    step = read_expert_step(present(A100_LOG), least_bytes=10**6)
    assert len(step.dispatches) == 64
    assert all(
        pattern.ranks == tuple(range(8)) for name, pattern in exchanges_of(step.job).items() if "ep_" in name
    )
    assert {(each.micro_batch, each.layer) for each in step.dispatches} == {
        (micro_batch, layer) for micro_batch in range(2) for layer in range(32)
    }
    few = read_expert_step(present(A100_LOG), alike=1, least_bytes=10**6)
    assert len(few.dispatches) == 1
    assert sum("ep_group all-to-all" in name for name in exchanges_of(few.job)) == 2
