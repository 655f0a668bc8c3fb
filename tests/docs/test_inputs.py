"""The page of input formats: its files are read by the readers that it names, and its commands run."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from controller.circuits.programs import program_from_text
from testbed.study.study_file import study_of_file
from tests.docs.pages import Reader, blocks_of
from topologies.errors import LightrailError
from topologies.fabric import Fabric
from traffic.collectives.pattern import bytes_between
from traffic.job_file import read_job
from traffic.readers.detect import read_step, read_trace
from traffic.readers.infinitehbd import read_fault_trace

PAGE = "docs/reference/inputs.md"
BLOCKS = blocks_of(PAGE)
TEXT = "".join(block.text for block in BLOCKS)
ROUTED = {"gpus": 4, "experts": 8}
TOKEN_BYTES = 8192


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with all files of the page, those that its scripts write among them."""
    folder = tmp_path_factory.mktemp("inputs")
    for block in BLOCKS:
        if block.title:
            (folder / block.title).parent.mkdir(exist_ok=True)
            (folder / block.title).write_text(block.text)
        elif block.is_script:
            subprocess.run([sys.executable, "-c", block.text], cwd=folder, check=True)
    return folder


@pytest.mark.parametrize(
    ("name", "options", "gpus", "nodes", "sent_bytes"),
    [
        ("demand.txt", {}, 4, 1, 240_000_000),
        ("demand.csv", {}, 4, 1, 240_000_000),
        ("demand.npy", {}, 4, 1, 240_000_000),
        ("tokens.json", {}, 4, 1, 4096 * TOKEN_BYTES),
        ("router", ROUTED, 2, 1, 5 * TOKEN_BYTES),
        ("routed.npy", ROUTED, 4, 2, None),
        ("layer.parquet", {"gpus": 4}, 4, 1, None),
        ("chain.cm", {}, 4, 3, 10_000_000),
        ("mice.cm", {"start_unit": "us"}, 4, 3, 20_400_000),
        ("step.csv", {}, 4, 2, 2 * 4 * 3 * 8_388_608 // 4),
        ("step.txt", {}, 4, 9, None),
    ],
)
def test_its_traces_are_read(
    name: str, options: dict[str, Any], gpus: int, nodes: int, sent_bytes: int | None, folder: Path
) -> None:
    job = read_trace(folder / name, **options)
    assert (job.gpus, len(job.nodes)) == (gpus, nodes)
    if sent_bytes is not None:
        matrices = [bytes_between(each.pattern, gpus) for each in job.collectives]
        assert sum(int(matrix.sum() - matrix.trace()) for matrix in matrices) == sent_bytes


@pytest.mark.parametrize("name", ["step.csv", "step.txt"])
def test_its_steps_have_rings_too(name: str, folder: Path) -> None:
    kinds = {each.pattern.name for each in read_step(folder / name).collectives}
    assert kinds == {"all-to-all", "ring all-reduce"}


def test_its_other_files_are_read(folder: Path) -> None:
    assert [point.scheme for point in study_of_file(folder / "trace.toml").experiments] == ["ecmp", "rails"]
    assert [node.name for node in read_job(folder / "moe_step.json").nodes] == ["attention", "dispatch"]
    assert Fabric.from_json((folder / "pair.json").read_text()).gpus == 4
    trace = read_fault_trace(folder / "faults.json", servers=100)
    assert (trace.window_days, trace.node.tolist(), trace.end_days.tolist()) == (10.0, [0, 1], [2.0, 10.0])


def test_its_program_alternates_light_and_dark() -> None:
    (program,) = re.findall(r"^show ocs0 (.+)$", TEXT, re.MULTILINE)
    days = program_from_text(program, ports=4).days
    assert [(str(day.circuits), day.duration_s, day.night_s) for day in days] == [
        ("0>1 1>0", 0.05, 0.0),
        ("0>2 2>0", 0.05, 0.02),
    ]


def read_program(path: Path) -> object:
    """Return the program that a file holds."""
    return program_from_text(path.read_text(), ports=4)


def read_fabric(path: Path) -> Fabric:
    """Return the fabric that a file holds."""
    return Fabric.from_json(path.read_text())


def read_routed(path: Path) -> object:
    """Return the job of a routing trace."""
    return read_trace(path, gpus=4, experts=8)


JOB = """{"format": "lightrail job 1", "name": "a", "gpus": 2, "ring": 1,
          "nodes": [{"kind": "compute", "name": "a", "duration_s": 0}]}"""
FABRIC = '{"format": 1, "name": "a", "servers": [], "switches": [], "links": [], "ring": 1}'


@pytest.mark.parametrize(
    ("read", "text", "said"),
    [
        (read_trace, "0 1 2 3\n1 0 1\n1 1 0 1\n1 1 1 0", "'3 numbers', expected 4"),
        (read_trace, "0 -1\n1 0", "found '-1'"),
        (read_trace, "0 0.5\n1 0", "found '0.5'"),
        (read_trace, "to,a,b\n0,1\n1,0", "expected the start of"),
        (read_trace, '{"schemaVersion": 1}', "expected"),
        (read_routed, '{"step": 0, "layer": 1, "rank": 0, "top_indices": [[1, 1]]}', "experts"),
        (read_routed, '{"step": 0, "layer": 1, "rank": 0, "top_indices": [[1, 8]]}', "an expert from 0 to 7"),
        (read_trace, "Nodes 2\nConnections 1\n0->1 start 0 size 0", "size 0"),
        (read_trace, "Nodes 2\nConnections 2\n0->1 start 0 size 9\n0->1 start 9 size 9", "in which unit"),
        (read_trace, "Nodes 2\nConnections 1\n0->0 start 0 size 9", "sends to itself"),
        (read_trace, "Nodes 2\nConnections 1\n0->1 trigger 4 size 9", "one that the file declares"),
        (read_step, "MICRO all_gpus: 4\n2\n" + "a -1 0 NONE 0 0 NONE 0 0 NONE 0 0", "has 1 layers"),
        (read_job, JOB, "ring"),
        (read_fabric, FABRIC, "ring"),
        (read_fault_trace, '[{"node_id": "a", "event_time": 2, "event_type": "fault_end"}]', "not begun"),
        (read_program, "50 0>1", "'50' is not a valid duration"),
        (read_program, "50ms 0>0", "lights itself"),
        (read_program, "50ms 0>1,0>2", "lit twice"),
        (read_program, "50ms 0>9", "port 9"),
    ],
)
def test_it_refuses_what_the_page_says(
    read: Callable[[Path], object], text: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text(text)
    with pytest.raises(LightrailError, match=re.escape(said)):
        read(tmp_path / "file")


@pytest.mark.slow  # 14 commands, of some seconds each
@pytest.mark.timeout(1200)
def test_its_commands_run(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    for block in BLOCKS:
        reader.does(block)
