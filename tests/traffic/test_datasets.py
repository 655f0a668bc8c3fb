"""Where data sets are found, and what the real ones hold where they are present."""

from pathlib import Path

import numpy as np
import pytest

from topologies.errors import TraceError
from topologies.rail import rail_fabric
from traffic.readers.aicb import read_aicb
from traffic.readers.detect import read_trace
from traffic.steps import demands_of
from traffic.workloads.datasets import A100_LOG, ORIGINS, dataset_path
from traffic.workloads.placement import placed


def put(directory: Path, name: str) -> Path:
    """Put a file where a data set would lie and return its path."""
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("0")
    return path


def test_places_are_searched_in_order(tmp_path: Path) -> None:
    checkout, told = tmp_path / "checkout", {"LIGHTRAIL_DATA": str(tmp_path / "told")}
    beside = put(tmp_path / "shared" / "data", A100_LOG)
    assert dataset_path(A100_LOG, checkout=checkout, environment=told) == beside
    inside = put(checkout / "data", A100_LOG)
    assert dataset_path(A100_LOG, checkout=checkout, environment=told) == inside
    named = put(tmp_path / "told", A100_LOG)
    assert dataset_path(A100_LOG, checkout=checkout, environment=told) == named
    assert dataset_path(A100_LOG, checkout=checkout, environment={"LIGHTRAIL_DATA": ""}) == inside
    own = put(tmp_path, "own.csv")
    assert dataset_path(A100_LOG, own, checkout=checkout, environment=told) == own


@pytest.mark.parametrize("folder", ORIGINS)
def test_an_absent_data_set_names_its_repository(tmp_path: Path, folder: str) -> None:
    with pytest.raises(TraceError) as error:
        dataset_path(f"{folder}/file", checkout=tmp_path / "checkout", environment={})
    assert ORIGINS[folder] in error.value.hint
    assert str(tmp_path / "checkout" / "data" / folder / "file") in error.value.hint
    assert "\n" not in str(error.value)


def test_an_absent_trace_is_told(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"absent\.csv does not exist"):
        dataset_path(A100_LOG, tmp_path / "absent.csv")


def present(name: str) -> Path:
    """Return where a real data set lies, or skip."""
    try:
        return dataset_path(name)
    except TraceError as error:
        pytest.skip(str(error))


def test_a100_log_holds_ten_steps_of_128_all_to_alls() -> None:
    path = present(A100_LOG)
    log = read_aicb(path)
    assert (log.gpus, len(demands_of(log))) == (8, 128)
    assert "step 1 of 10" in log.note
    for exchange in demands_of(log):
        assert (exchange.matrix.sum(axis=1) == 32 << 20).all()
        assert (np.count_nonzero(exchange.matrix, axis=1) == 4).all()


def test_a100_log_runs_on_a_rail_fabric() -> None:
    log = read_trace(present(A100_LOG), all_to_alls=4)
    on_fabric = placed(log, rail_fabric(8, 4))
    assert (on_fabric.gpus, len(demands_of(on_fabric))) == (32, 4)
    assert "4 of 128 all-to-alls" in on_fabric.note
    with pytest.raises(TraceError, match="between 8 GPUs, the fabric has 4"):
        placed(log, rail_fabric(2, 2))


def test_aicb_workload_without_results_is_read() -> None:
    workload = read_trace(present("aicb/all_to_all_workload.csv"), gpus=8)
    assert [exchange.total_bytes for exchange in demands_of(workload)] == [
        8 << exponent for exponent in range(12, 31) for _ in range(100)
    ]
    assert "step 1 of 1: 1900 of 1900 all-to-alls" in workload.note
    assert "set-up left out: rows of warmup (100)" in workload.note


@pytest.mark.parametrize(
    ("name", "nodes", "messages"),
    [
        ("incast.cm", 16, 15),
        ("outcast_incast.cm", 128, 21),
        ("perm_16n_16c_2MB.cm", 16, 16),
        ("perm_32n_32c_2MB.cm", 32, 32),
    ],
)
def test_htsim_matrices_are_read(name: str, nodes: int, messages: int) -> None:
    (step,) = demands_of(read_trace(present(f"htsim/{name}")))
    assert step.gpus == nodes
    assert np.count_nonzero(step.matrix) == messages
    assert step.total_bytes == messages * 2_000_000


@pytest.mark.parametrize(
    "name",
    ["infinitehbd-trace/fault_trace.json", "chakra/json_trace.tar.gz", "aicb/LICENSE"],
)
def test_other_files_are_no_collectives(name: str) -> None:
    with pytest.raises(TraceError):
        read_trace(present(name))
