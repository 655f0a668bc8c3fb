"""SimAI's workloads and the whole steps of AICB's logs: order, groups, sizes, and malformed files."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.traffic.test_datasets import present
from tests.traffic.trace_files import AICB_HEADER, AICB_LOG, aicb_row, written
from topologies.errors import TraceError
from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.ring import Ring
from traffic.job import Compute, Job
from traffic.readers.aicb import aicb_phases
from traffic.readers.detect import read_step, read_trace
from traffic.readers.simai import simai_phases
from traffic.readers.text import Taken
from traffic.training import job_of_phases
from traffic.workloads.datasets import A100_LOG, GPT_STEP

HEADER = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 checkpoints: 0 checkpoint_initiates: 0"
NEW = (
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 2 pp: 3 vpp: 1 ga: 4 all_gpus: 24 "
    "checkpoints: 0 checkpoint_initiates: 0 pp_comm 100"
)
GRADIENTS = "grad\t-1\t1\tNONE\t0\t1\tNONE\t0\t3\tREDUCESCATTER\t4000\t100"
LAYER = "layer  -1  5 ALLREDUCE 800  6\tALLREDUCE 900 7 NONE 0 100"
NORM = "norm -1 0 BROADCAST 16 0 NONE 0 0 NONE 0 100"
MOE = "moe -1 0 ALLTOALL_EP 400 0 NONE 0 0 ALLREDUCE_DP_EP 600 100"


def simai(directory: Path, *rows: str, header: str = HEADER, count: object = None) -> Path:
    """Write a workload; its last line has no newline, as the generator's may not."""
    return written(directory, "\n".join([header, str(len(rows) if count is None else count), *rows]))


def drawn(job: Job) -> list[tuple[str, tuple[str, ...]]]:
    return [(node.name, node.after) for node in job.nodes]


def test_a_step_runs_forward_and_then_back(tmp_path: Path) -> None:
    job = read_step(simai(tmp_path, GRADIENTS, LAYER), gpus=2)
    assert drawn(job) == [
        ("0 grad fwd", ()),
        ("1 layer fwd", ("0 grad fwd",)),
        ("1 layer fwd all-reduce", ("1 layer fwd",)),
        ("1 layer ig", ("1 layer fwd all-reduce",)),
        ("1 layer ig all-reduce", ("1 layer ig",)),
        ("1 layer wg", ("1 layer ig all-reduce",)),
        ("0 grad ig", ("1 layer wg",)),
        ("0 grad wg", ("0 grad ig",)),
    ], "dp is 1 and sends nothing"
    durations = [node.duration_s for node in job.nodes if isinstance(node, Compute)]
    assert durations == pytest.approx([1e-9, 5e-9, 6e-9, 7e-9, 1e-9, 3e-9])
    assert [node.pattern for node in job.collectives] == [Ring(((0, 1),), 800), Ring(((0, 1),), 900)]


def test_weight_gradients_go_one_after_another_beside_the_rest(tmp_path: Path) -> None:
    job = read_step(simai(tmp_path, GRADIENTS, GRADIENTS.replace("4000", "5000")), gpus=4)
    waits = dict(drawn(job))
    assert waits["0 grad ig"] == ("1 grad wg",)
    sent = ("1 grad wg reduce-scatter 0", "1 grad wg reduce-scatter 1")
    assert waits["0 grad wg reduce-scatter 1"] == ("0 grad wg", *sent)
    assert {node.pattern for node in job.collectives} == {
        Ring((ranks,), size, "reduce-scatter") for ranks in ((0, 2), (1, 3)) for size in (4000, 5000)
    }


def test_suffixes_name_the_groups_of_a_pipeline_stage(tmp_path: Path) -> None:
    job = read_step(simai(tmp_path, MOE, header=NEW), gpus=999)
    assert job.gpus == 8
    assert "tp 2 dp 4; ep 2; one of 3 pipeline stages" in job.note
    groups = [sorted(node.gpus) for node in job.collectives]
    assert groups == [[0, 2], [1, 3], [4, 6], [5, 7], [0, 4], [1, 5], [2, 6], [3, 7]]
    exchanges = [node.pattern for node in job.collectives if isinstance(node.pattern, AllToAll)]
    assert len(exchanges) == 4
    assert all((each.demand.matrix == 200).all() for each in exchanges), "a GPU's buffer, its own part too"


def test_micro_benchmarks_are_between_all_gpus(tmp_path: Path) -> None:
    rows = [f"micro -1 1 NONE 0 1 NONE 0 1 ALLGATHER {size} 1" for size in (3, 4096)]
    job = read_step(simai(tmp_path, *rows, header="MICRO"), gpus=4)
    assert job.is_chain
    assert [node.pattern for node in job.collectives] == [
        Ring(((0, 1, 2, 3),), size, "all-gather") for size in (4, 4096)
    ], "a byte per chunk at least"


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    path = simai(tmp_path, NORM, LAYER, LAYER, LAYER)
    job = read_step(path, gpus=2, alike=2, least_bytes=900)
    assert "3 of 4 layers" in job.note
    assert job.note.endswith(
        "left out: BROADCAST (1), weight update (4); left out: collectives under 900 bytes (2)"
    )
    assert len(job.collectives) == 2


def test_collectives_that_send_nothing_are_left_out_by_name(tmp_path: Path) -> None:
    empty = LAYER.replace(" 800 ", " 0 ").replace(" 900 ", " 0 ").replace(" 100", " 0")
    job = read_step(simai(tmp_path, GRADIENTS, MOE, empty), gpus=2)
    assert not job.collectives
    assert job.note == (
        "SimAI workload trace.txt, 3 of 3 layers, tp 2 dp 1; left out: weight update (2), "
        "all-to-all of one ep rank (1), all-reduce of 0 bytes (2), all-reduce of one dp_ep rank (1), "
        "reduce-scatter of one dp rank (1)"
    )


def test_a_header_is_read_or_named(tmp_path: Path) -> None:
    other = NEW.replace("ep: 2 ", "expert_parallel_npu_group: 2 ")
    named, plain = (read_step(simai(tmp_path, MOE, header=header)) for header in (other, NEW))
    assert (named.nodes, named.note) == (plain.nodes, plain.note)
    assert "left out: pp_comm (1), weight update (1)" in plain.note
    quiet = read_step(
        simai(tmp_path, MOE.replace(" 100", " 0"), header=NEW.replace("pp_comm 100", "pp_comm: 0"))
    )
    assert "left out" not in quiet.note
    with pytest.raises(TraceError, match="expected ep: once"):
        read_step(simai(tmp_path, MOE, header=f"{NEW} ep: 4"))


def test_a_micro_benchmark_names_its_other_passes(tmp_path: Path) -> None:
    job = read_step(
        simai(tmp_path, "micro -1 1 ALLREDUCE 8 1 NONE 0 1 ALLGATHER 64 0", header="MICRO"), gpus=4
    )
    assert job.note.endswith("1 of 1 layers, tp 1 dp 4; left out: fwd all-reduce (1)")


COUNTS = st.integers(0, 10**9)


@settings(deadline=None)
@given(st.lists(st.tuples(COUNTS, COUNTS), min_size=1, max_size=5), st.sampled_from([2, 4, 8]))
def test_computes_and_bytes_are_those_of_the_file(
    tmp_path_factory: pytest.TempPathFactory, layers: list[tuple[int, int]], gpus: int
) -> None:
    rows = [f"x{i} -1 {ns} ALLREDUCE {size} 0 NONE 0 1 NONE 0 1" for i, (ns, size) in enumerate(layers)]
    job = read_step(simai(tmp_path_factory.getbasetemp(), *rows), gpus=gpus)
    computes = [node for node in job.nodes if isinstance(node, Compute)]
    assert sum(node.duration_s for node in computes) == pytest.approx(
        1e-9 * sum(ns + 1 for ns, _ in layers), rel=1e-9
    )
    sent = [node.pattern.bytes for node in job.collectives if isinstance(node.pattern, Ring)]
    assert sum(sent) == gpus // 2 * sum(max(size, 2) for _, size in layers if size)


@pytest.mark.parametrize(
    ("header", "rows", "count", "said"),
    [
        ("DATA x", [LAYER], None, "line 1: found 'DATA x', expected a policy"),
        ("HYBRID_TRANSFORMER", [LAYER], None, "expected model_parallel_NPU_group: and a number"),
        (HEADER.replace(": 2", ": two"), [LAYER], None, "line 1: found 'two', expected a number after model"),
        (HEADER.replace(": 2", ": 3"), [LAYER], None, "tp 3, ep 1 and pp 1, and there are 4 GPUs"),
        (HEADER.replace(": 2", ": 0"), [LAYER], None, "tp 0, ep 1 and pp 1"),
        (f"{HEADER} ep: 0", [LAYER], None, "tp 2, ep 0 and pp 1"),
        (f"{HEADER} all_gpus: 0", [LAYER], None, "and there are 0 GPUs"),
        (HEADER.replace("ints: 0", "ints: 1 5"), [LAYER], None, "recomputes activations (checkpoints)"),
        (HEADER, [LAYER], 2, "has 1 layers, and its second line says 2"),
        (HEADER, [LAYER], "x", "line 2: found 'x', expected how many layers"),
        (HEADER, [], "", "line 2: found '', expected how many layers"),
        (HEADER, [LAYER], LAYER, "line 2: found"),
        (HEADER, ["layer -1 5"], None, "line 3: found '3 fields', expected 12"),
        (HEADER, [LAYER.replace("800", "-8")], None, "line 3: found '-8', expected bytes"),
        (HEADER, [LAYER.replace(" 5 ", " 0.5 ")], None, "line 3: found '0.5', expected a time in ns"),
        (HEADER, [LAYER.replace("ALLREDUCE 800", "GATHER 1")], None, "found 'GATHER', expected NONE, BROADC"),
        (HEADER, [NORM], None, "has nothing to do"),
    ],
)
def test_malformed_workloads_are_one_sentence(
    tmp_path: Path, header: str, rows: list[str], count: object, said: str
) -> None:
    with pytest.raises(TraceError) as error:
        simai_phases(simai(tmp_path, *rows, header=header, count=count), Taken(gpus=4))
    assert said in str(error.value)


def test_a_workload_must_tell_its_gpus_or_be_told(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="does not tell how many GPUs"):
        read_trace(simai(tmp_path, LAYER))
    assert read_trace(simai(tmp_path, LAYER), gpus=2).gpus == 2


def test_a_log_gives_all_collectives_of_a_step(tmp_path: Path) -> None:
    path = written(tmp_path, AICB_LOG, "log.csv")
    job = read_step(path, least_bytes=100)
    assert [node.name for node in job.collectives][:5] == [
        *(f"0 tp_group all-gather {group}" for group in range(4)),
        "2 ep_group all-to-all 0",
    ]
    assert job.collectives[4].after == tuple(node.name for node in job.collectives[:4])
    assert len(job.nodes) == len(job.collectives), "no compute"
    assert job.note == (
        "AICB log log.csv, step 1 of 2: 5 of 5 collectives, tp 2 dp 4 ep 4 pp 1; "
        "set-up left out: rows of init (1); "
        "ep_group has no size: 4, of 4 data-parallel ranks; "
        "left out: collectives under 100 bytes (1)"
    )
    with pytest.raises(TraceError, match="holds no step with collectives of 100000 bytes or more"):
        aicb_phases(path, Taken(least_bytes=100_000))


def test_a_log_has_pipeline_stages_and_other_rows(tmp_path: Path) -> None:
    rows = [
        aicb_row("all_reduce", "tp_group", 64, 2),
        aicb_row("reduce_scatter", "dp_group", 64, 2),
        aicb_row("all_reduce", "pp_group", 64, 2),
        aicb_row("broadcast", "tp_group", 64, 2),
        aicb_row("isend", "pp_group", 64, 2),
    ]
    job = job_of_phases(aicb_phases(written(tmp_path, "\n".join([AICB_HEADER, *rows]))))
    assert job.gpus == 8
    assert [sorted(node.gpus) for node in job.collectives[8:]] == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert job.note.endswith("left out: broadcast tp_group (1), isend pp_group (1)")


def test_other_files_are_no_steps(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="line 1: found '0 1', expected the start of AICB's CSV or a SimAI"):
        read_step(written(tmp_path, "0 1\n1 0"))


@pytest.mark.parametrize(
    ("name", "gpus", "layers"),
    [
        (GPT_STEP, 32, 92),
        ("aicb/G175B-M1-C03_GPT175B_megatron_tp8_pp1_mbs1_A100.txt", 16, 33),
        ("aicb/L7B-M1-C04_Llama7B_megatron_tp2_pp1_mbs1_A100.txt", 8, 76),
        ("aicb/all_reduce.txt", 8, 19),
        ("aicb/all_to_all.txt", 8, 19),
    ],
)
def test_simais_own_workloads_are_read(name: str, gpus: int, layers: int) -> None:
    job = read_step(present(name), gpus=gpus)
    assert job.gpus == gpus
    assert f"{layers} of {layers} layers" in job.note


def test_the_a100_log_has_848_collectives_a_step() -> None:
    job = read_step(present(A100_LOG), alike=1, least_bytes=10**6)
    assert job.gpus == 8
    assert "step 1 of 10" in job.note
    reduced = {node.pattern.bytes for node in job.collectives if isinstance(node.pattern, Ring)}
    assert {35_634_282_496, 17_817_141_248} <= reduced
