"""Valid inputs of every kind, and what is done with a mutated one: as in a run without a network."""

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import cast

import httpx

from controller.app.app import Controller
from controller.app.northbound import northbound
from controller.circuits.circuits import circuits_from_text
from controller.circuits.programs import program_from_text
from controller.circuits.status import FlowStatus, PortStatus, Status, SwitchStatus
from controller.packet.routing import forwarding_rules
from testbed.experiment.experiment import Experiment
from testbed.model.predict import predict
from testbed.study.options import faults as faults_of_option
from testbed.study.study_file import study_of_file
from testbed.study.toml_document import assigned
from testbed.trust.outcome import Outcome, bound_s
from tests.controller.test_northbound_ocs import Played
from tests.fuzz.commands import command
from tests.fuzz.formats import meaning
from tests.fuzz.mutations import json_mutated, text_mutated
from tests.traffic.trace_files import AICB_LOG, HTSIM, TRIGGERED, router_record
from topologies.big_switch import big_switch_fabric
from topologies.errors import NetworkError
from topologies.fabric import Fabric
from topologies.fat_tree import fat_tree_fabric
from topologies.khop_ring import KHopRing, khop_ring_fabric
from topologies.leaf_spine import leaf_spine_fabric
from topologies.mfabric import mfabric_fabric
from topologies.own import own_fabric
from topologies.parallel_ocs import parallel_ocs_fabric
from topologies.rail import rail_fabric
from traffic.demand import Demand
from traffic.job import Job
from traffic.job_file import job_text, read_job
from traffic.readers.detect import read_step, read_trace
from traffic.readers.infinitehbd import read_fault_trace
from traffic.spraying.registry import POLICIES
from traffic.steps import single
from traffic.workloads.placement import placed

Case = Callable[[], object]
"""What is done with a mutated input; it returns, or raises a LightrailError."""
FABRIC = rail_fabric(2, 2, 2)
FABRICS = [
    fabric.to_json()
    for fabric in (
        FABRIC,
        rail_fabric(3, 2, 1, uplink_bps=50e9).with_links(delay_s=1e-6, loss=0.01),
        leaf_spine_fabric(4, 2, 2),
        fat_tree_fabric(2),
        big_switch_fabric(3, nics=2, gpus=4),
        parallel_ocs_fabric(3, 2, packet_switch=True),
        mfabric_fabric(4, 2, gpus=2, nics=4),
        khop_ring_fabric(KHopRing(5, 2, 2)),
    )
]
JOBS = [
    """{"format": "lightrail job 1", "name": "step", "gpus": 4, "nodes": [
      {"kind": "compute", "name": "c", "duration_s": 0.002, "gpus": [0, 1], "durations_s": [0.001, 0.002]},
      {"kind": "all_to_all", "name": "a", "uniform_bytes": 40000, "after": ["c"]},
      {"kind": "all_to_all", "name": "m", "gpus": [0, 2], "matrix_bytes": [[0, 5000], [7000, 0]]},
      {"kind": "ring_all_reduce", "name": "r", "bytes": 8000, "rings": [[0, 1, 2, 3], [3, 2, 1, 0]]},
      {"kind": "point_to_point", "name": "p", "messages": [{"source": 0, "destination": 3, "bytes": 900}]},
      {"kind": "part", "name": "layer", "repeat": 3, "after": ["r"], "nodes": [
        {"kind": "ring_all_gather", "name": "w", "bytes": 6400, "gpus": [1, 3]},
        {"kind": "compute", "name": "f", "duration_s": 1e-3, "after": ["w"], "repeat": 2}]}]}""",
    job_text(single(Demand("tokens", [[0, 1, 2], [3, 0, 4], [5, 6, 0]]))),  # type: ignore[arg-type]
    """{"format": "lightrail job 1", "name": "ring", "gpus": 4, "nodes": [
      {"kind": "ring_all_to_all", "name": "a", "node_bytes": 4000,
       "hops": [[[0, 1], [1, 2], [2, 3], [3, 0]]]}]}""",
    """{"format": "lightrail job 1", "name": "exchange", "gpus": 4, "nodes": [
      {"kind": "exchange_round", "name": "a", "node_bytes": 4000, "distance": 2,
       "nodes": [[0], [1], [2], [3]], "hops": [[[0, 2], [1, 3], [2, 0], [3, 1]]]},
      {"kind": "exchange_round", "name": "b", "node_bytes": 4000, "distance": 1, "after": ["a"],
       "nodes": [[0], [1], [2], [3]], "hops": [[[0, 1], [1, 0], [2, 3], [3, 2]]]}]}""",
]
SIMAI = """HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 checkpoints: 0 checkpoint_initiates: 0
3
grad\t-1\t1\tNONE\t0\t1\tNONE\t0\t3\tREDUCESCATTER\t4000\t100
layer  -1  5 ALLREDUCE 800  6\tALLREDUCE 900 7 NONE 0 100
moe -1 0 ALLTOALL_EP 400 0 NONE 0 0 ALLREDUCE_DP_EP 600 100"""
ROUTING = "".join(router_record(0, 0, rank, [[1, 2]]) for rank in range(4))
TRACES = [
    HTSIM, TRIGGERED, AICB_LOG, f"[rank0 ~ rank7]\n{AICB_LOG}", SIMAI, ROUTING,
    "[[0, 5], [3, 1]]", "0 5 1\n3 1 1\n2 2 0\n", "0,5,1\n3,1,1\n2,2,0\n",
]  # fmt: skip
STUDY = """scheme = ["ecmp", "rails"]
seeds = 2
transport = "tcp"
mtu = [1500, 9000]
buffer = 10
faults = "nic:0:1@40%"
[[fabric]]
builder = "rail"
servers = [2, 3]
rails = 2
rate_gbps = 100.5
[[fabric]]
builder = "leaf_spine"
servers = 4
leaves = 2
[[workload]]
generator = "sparse"
gating = ["token", "gpu"]
[[workload]]
trace = "none.txt"
if_found = true
seed = 0
[grid]
sparsity = [0.5, 0]
"fabric.loss" = [0, 0.01]
"""
FAULT_TRACE = json.dumps(
    [
        {"node_id": node, "event_time": time, "event_type": f"fault_{kind}"}
        for node, time, kind in (("b", 0.5, "start"), ("a", 1, "start"), ("b", 2, "end"), ("a", 5.25, "end"))
    ]
)
FAULTS = [
    "nic:1:1@40%-70%", "link:leaf0-spine1@2ms", "server:1@40%", "gpu:3@40%", "port:leaf1:2@1e-3s-2e-3s",
    "controller@40%", "switches@40%", "nic:0:0@3%,nic:0:1@5%-6%",
    "nic:1:1@40%-70%=0.5", "link:leaf0:2@2ms=loss:0.01",
]  # fmt: skip
TYPED = ["0>3 3>0", "0>1,1>2,2>0", "-", "50ms 0>1,1>0 20ms - 50ms 0>2,2>0", "1s 0>1"]
BODIES = {
    ("PUT", "ocs0/circuits"): [
        '{"circuits": [[0, 3], [3, 0]]}',
        '{"circuits": "0>3 3>0", "partial": false, "busy": "queue"}',
    ],
    ("PUT", "ocs0/device"): [
        '{"device": "polatis", "delay_s": 0.01, "delay_p99_s": 0.02, "nic_s": 0.1, "nic_p99_s": 0.2,'
        ' "flip_s": 0.01}'
    ],
    ("POST", "ocs0/schedule"): [
        '{"days": [{"circuits": "0>1", "duration_s": 0.5},'
        ' {"circuits": [[1, 0]], "duration_s": 1, "night_s": 0.25}]}',
        '{"text": "500ms 0>1 250ms - 1s 1>0", "partial": true, "start_s": 9.5, "notify": "/run/x"}',
    ],
    ("PUT", "ocs0/shadow"): ['{"circuits": [[0, 3], [3, 0]]}', '{"circuits": "0>3 3>0"}'],
    ("POST", "flip"): ['{"ocses": ["ocs0", "ocs1"], "notify": "/run/x"}'],
    ("POST", "schedules"): ['{"schedules": {"ocs0": {"text": "1s 0>1"}, "ocs1": {"text": "1s -"}}}'],
}


def fabric(rng: Random, folder: Path) -> tuple[str, Case]:
    """Read a fabric, and send something over it."""
    text, policy = json_mutated(rng, rng.choice(FABRICS)), rng.choice(list(POLICIES))
    return f"{policy} {text}", lambda: _over(own_fabric(_file(folder, text)), policy)


def job(rng: Random, folder: Path) -> tuple[str, Case]:
    """Read a job, and predict it."""
    text, policy = json_mutated(rng, rng.choice(JOBS)), rng.choice(["ecmp", "rails"])
    return text, lambda: _predicted(FABRIC, read_job(Path(_file(folder, text))), policy)


def trace(rng: Random, folder: Path) -> tuple[str, Case]:
    """Read a trace as a step, as all-to-alls and as faults, and predict its all-to-alls."""
    readers: list[tuple[str, Callable[[Path], object]]] = [
        (rng.choice(TRACES), _replayed),
        (rng.choice([SIMAI, AICB_LOG]), _step),
        (FAULT_TRACE, read_fault_trace),
    ]
    valid, read = rng.choice(readers)
    text = json_mutated(rng, valid) if valid.startswith(("[[", "[{")) else text_mutated(rng, valid)
    return text, lambda: read(Path(_file(folder, text)))


def fault(rng: Random, _folder: Path) -> tuple[str, Case]:
    """Read what fails, and predict a job with it."""
    text = text_mutated(rng, rng.choice(FAULTS))
    return text, lambda: _failing(text)


def typed(rng: Random, _folder: Path) -> tuple[str, Case]:
    """Read circuits and programs as people type them in the CLI."""
    text = text_mutated(rng, rng.choice(TYPED))
    read = circuits_from_text if ">" in text.partition(" ")[0] else program_from_text
    return text, lambda: read(text, 4)


def body(rng: Random, _folder: Path) -> tuple[str, Case]:
    """Ask the northbound of an OCS something."""
    (method, path), valid = rng.choice(list(BODIES.items()))
    text = json_mutated(rng, rng.choice(valid))
    return f"{method} {path} {text}", lambda: _answered(method, path, text)


def study(rng: Random, folder: Path) -> tuple[str, Case]:
    """Read a study, with a value from the command line."""
    text, put = text_mutated(rng, STUDY), text_mutated(rng, "grid.seed=0..1")
    path = Path(_file(folder, text))
    return f"{text}--set {put}", lambda: study_of_file(path, [assigned(put)])


KINDS: Mapping[str, tuple[Callable[[Random, Path], tuple[str, Case]], float]] = {
    "fabric": (fabric, 0.3),
    "job": (job, 0.2),
    "trace": (trace, 0.2),
    "fault": (fault, 0.1),
    "typed": (typed, 0.1),
    "body": (body, 0.08),
    "study": (study, 0.1),
    "command": (command, 0.02),
    "meaning": (meaning, 0.5),
}
"""Makers of a case, each with its share of all."""


def _file(folder: Path, text: str) -> str:
    path = folder / "mutated"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return str(path)


def _over(wired: Fabric, policy: str) -> None:
    assert Fabric.from_json(wired.to_json()) == wired
    forwarding_rules(wired)
    gpus = min(wired.gpus, 4)
    demand = Demand("few", [[100_000 * (a != b) for a in range(gpus)] for b in range(gpus)])  # type: ignore[arg-type]
    _predicted(wired, placed(single(demand), wired), policy)


def _predicted(wired: Fabric, job: Job, policy: str) -> Outcome:
    experiment = Experiment(wired, job, policy)
    assert Experiment.from_json(experiment.to_json()) == experiment
    bound_s(experiment)
    return Outcome(experiment, predict(experiment))


def _replayed(path: Path) -> None:
    read = read_trace(path, gpus=4, experts=8 if path.read_bytes().startswith(b"{") else None)
    if len(read.collectives) < 9:
        _predicted(FABRIC, placed(read, FABRIC), "rails")


def _step(path: Path) -> None:
    read_step(path, gpus=4)


def _failing(text: str) -> None:
    plain = Experiment(FABRIC, single(Demand("few", [[0, 9000], [9000, 0]])), "rails")  # type: ignore[arg-type]
    found = tuple(each.over(FABRIC, 1e-3) for each in faults_of_option(text))
    predict(Experiment(FABRIC, plain.job, "rails", faults=found))


class _Network:
    """Has OCSes, and nothing else to be asked."""

    fabric = FABRIC

    def __init__(self) -> None:
        self.ocses = Played()

    def status(self) -> Status:
        raise NetworkError("nothing to be asked")

    def switches(self) -> list[SwitchStatus]:
        raise NetworkError("nothing to be asked")

    def flows(self, name: str) -> list[FlowStatus]:
        raise NetworkError("nothing to be asked")

    def ports(self, name: str) -> PortStatus:
        raise NetworkError("nothing to be asked")


NORTHBOUND = httpx.ASGITransport(app=northbound(cast(Controller, _Network())))


def _answered(method: str, path: str, text: str) -> None:
    async def answer() -> httpx.Response:
        async with httpx.AsyncClient(transport=NORTHBOUND, base_url="http://controller") as client:
            content, kind = text.encode("utf-8", "surrogatepass"), {"content-type": "application/json"}
            return await client.request(method, f"/ocs/{path}", content=content, headers=kind)

    found = asyncio.run(answer())
    assert found.status_code == 200 or (found.status_code in (400, 404, 422) and found.json()["detail"]), (
        found.text
    )
