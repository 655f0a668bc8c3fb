"""A trace that an option names: the file decides what is run, and on how many servers."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from scenarios.ring_trace import ring_trace
from testbed.study.study import Study
from testbed.study.study_file import study_of_file
from testbed.study.study_options import described
from testbed.study.toml_document import assigned
from tests.scenarios.command import ran
from tests.tools import CHECKOUT
from tests.traffic.trace_files import AICB_END, AICB_HEADER, AICB_LOG, MICE, aicb_row, router_record, written
from topologies.errors import LightrailError, TraceError
from traffic.workloads.placement import servers_for

SPARSE = described(CHECKOUT / "scenarios" / "rails_sparse.toml")
ROWS = [[0 if row == column else 1000 for column in range(8)] for row in range(8)]


def nccl(folder: Path) -> Path:
    return written(folder, "\n".join(" ".join(map(str, row)) for row in ROWS))


def csv(folder: Path) -> Path:
    return written(folder, "\n".join(",".join(map(str, row)) for row in ROWS))


def npy(folder: Path) -> Path:
    np.save(folder / "matrix.npy", np.array(ROWS))
    return folder / "matrix.npy"


def megatron(folder: Path) -> Path:
    """Return a directory with a file for each of eight ranks."""
    for rank in range(8):
        written(folder, router_record(0, 0, rank, [[rank, (rank + 1) % 8]]), f"rank{rank}.jsonl")
    return folder


def aicb(folder: Path) -> Path:
    return written(folder, AICB_LOG)


def study(trace: Path, **options: str) -> Study:
    """Return the study of a scenario with a trace."""
    return SPARSE(trace=str(trace), **options)


@pytest.mark.parametrize("make", [nccl, csv, npy, megatron, aicb])
def test_it_is_run_alone_on_the_servers_that_its_gpus_fill(
    make: Callable[[Path], Path], tmp_path: Path
) -> None:
    options = {"experts": "8"} if make is megatron else {}
    found = study(make(tmp_path), **options)
    jobs = {each.job for each in found.experiments}
    assert [(job.name[:6], job.gpus) for job in jobs] == [("trace ", 8)]
    assert {len(each.fabric.servers) for each in found.experiments} == {2}
    assert len(found.experiments) == 3
    assert found.title.startswith("trace ")


def test_what_options_say_of_other_workloads_has_them_run_beside_it(tmp_path: Path) -> None:
    beside = study(nccl(tmp_path), sparsity="0.6")
    assert [name[:6] for name in dict.fromkeys(each.job.name for each in beside.experiments)] == [
        "sparse",
        "trace ",
    ]
    assert beside.title.startswith("Sparse MoE")


def test_more_options_of_the_trace_itself_leave_it_alone(tmp_path: Path) -> None:
    found = study(megatron(tmp_path), **{"experts": "8", "token_bytes": "10", "all_to_alls": "1"})
    assert len({each.job.name for each in found.experiments}) == 1


def test_a_matrix_of_htsim_with_starts_needs_their_unit(tmp_path: Path) -> None:
    trace = written(tmp_path, MICE)
    with pytest.raises(
        LightrailError, match=r"^--trace: .* in which unit; give start_unit .--start-unit.: us"
    ):
        study(trace, rails="1")
    found = study(trace, start_unit="us", rails="1")
    (job,) = {each.job for each in found.experiments}
    assert [node.at_s for node in job.nodes] == pytest.approx([0.0, 50e-6, 100e-6])
    assert {len(each.fabric.servers) for each in found.experiments} == {5}


def test_seeds_are_those_that_are_asked_for(tmp_path: Path) -> None:
    seeds = [each.seed for each in study(nccl(tmp_path), seeds="3", schemes="ecmp").experiments]
    assert seeds == [0, 1, 2]
    assert [each.seed for each in study(nccl(tmp_path), schemes="ecmp").experiments] == [0]


def test_servers_that_are_given_are_kept(tmp_path: Path) -> None:
    found = study(nccl(tmp_path), servers="4")
    assert {len(each.fabric.servers) for each in found.experiments} == {4}
    assert "on GPUs 0 to 7 of 16" in found.experiments[0].job.note
    with pytest.raises(LightrailError, match="is between 8 GPUs, the fabric has 2"):
        study(nccl(tmp_path), servers="1", rails="2")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0 1\n1\n", "trace.txt, line 2: found '1 numbers', expected 2, because"),
        (None, "trace.txt does not exist"),
    ],
)
def test_a_mistake_in_it_is_reported_by_its_option_alone(text: str | None, said: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace.txt" if text is None else written(tmp_path, text)
    with pytest.raises(LightrailError, match=f"^--trace: {tmp_path}/{said}"):
        study(trace)


def test_gpus_that_fill_no_servers_are_refused_with_what_would_do(tmp_path: Path) -> None:
    with pytest.raises(
        LightrailError,
        match=r"trace\.txt is between 8 GPUs, which do not fill several servers of 3; give --ra",
    ):
        study(nccl(tmp_path), rails="3")


@pytest.mark.parametrize(("gpus", "server_gpus", "servers"), [(64, 8, 8), (8, 4, 2), (6, 3, 2), (2, 1, 2)])
def test_servers_are_as_many_as_are_full(gpus: int, server_gpus: int, servers: int) -> None:
    assert servers_for("trace", gpus, server_gpus) == servers


@pytest.mark.parametrize(
    ("gpus", "server_gpus", "rails"), [(6, 4, 3), (4, 4, 2), (7, 4, 1), (2, 4, 1), (10, 4, 2)]
)
def test_the_rails_that_it_names_do(gpus: int, server_gpus: int, rails: int) -> None:
    with pytest.raises(TraceError, match=f"give --rails {rails}, or --servers"):
        servers_for("trace", gpus, server_gpus)
    assert servers_for("trace", gpus, rails) * rails == gpus


def test_a_trace_of_one_gpu_has_no_rails_that_would_do() -> None:
    with pytest.raises(
        TraceError, match="trace is of one GPU, which sends to no other; give a trace between"
    ):
        servers_for("trace", 1, 4)


def test_none_and_a_trace_that_is_set_are_no_such_trace(tmp_path: Path) -> None:
    assert "sparse 0.6" in {each.job.name for each in study(Path("none")).experiments}
    file, trace = CHECKOUT / "scenarios" / "rails_sparse.toml", nccl(tmp_path)
    found = study_of_file(file, [assigned(f"workload.trace={trace}"), assigned("seeds=1")])
    names = {each.job.name for each in found.experiments}
    assert {"sparse 0.6", f"trace {trace.name}"} <= names


def test_the_command_says_nothing_of_claims_that_are_about_others(tmp_path: Path) -> None:
    done = ran("rails_sparse", "--model-only", "--trace", nccl(tmp_path), "--out", "out", cwd=tmp_path)
    assert (done.returncode, done.stderr.strip()) == (0, "")
    assert "RailS, VI-C" not in done.stdout
    assert set(pd.read_csv(tmp_path / "out" / "summary.csv")["workload"]) == {"trace trace.txt"}


def test_a_ring_step_is_on_the_servers_that_its_gpus_fill(tmp_path: Path) -> None:
    log = "\n".join(
        [
            AICB_HEADER,
            aicb_row("all_reduce", "dp_group", 1 << 24, 4),
            aicb_row("all_reduce", "tp_group", 8, 2),
            AICB_END,
            "",
        ]
    )
    trace = written(tmp_path, log, "step.csv")
    found = ring_trace(trace=trace, rails=4)
    assert {len(each.fabric.servers) for each in found.experiments} == {2}
    assert {len(each.fabric.servers) for each in ring_trace(trace=trace, rails=4, servers=5).experiments} == {
        5
    }
