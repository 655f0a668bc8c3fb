"""Real collectives: all bytes arrive, over the computed paths, in about the predicted time."""

import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path as File

import numpy as np
import pytest

from testbed.core.packet_paths import paths_over
from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.live.emulate import EmulatedRun, emulate
from testbed.machine.residue import until
from tests.emulation.conftest import Booted
from tests.testbed.cases import queue_pairs_of
from topologies.addresses import interface
from topologies.errors import NetworkError, ScenarioError, StuckError
from topologies.fabric import Fabric, Path
from topologies.fat_tree import fat_tree_fabric
from topologies.leaf_spine import leaf_spine_fabric
from topologies.rail import rail_fabric
from traffic.demand import Demand
from traffic.messages import crosses_network, messages_of
from traffic.records import Records
from traffic.spraying.policy import SPRAYED, QueuePair
from traffic.steps import Step, demands_of, job_of_steps, single
from traffic.workloads.synthetic import sparse

pytestmark = [pytest.mark.emulation, pytest.mark.early]

DILATION = Dilation(rate=2e-4, volume=0.2)
"""100 Gbit/s is 20 Mbit/s here, and a millisecond a second."""
MIDDLE_S = 20.0
"""How long until a collective has certainly begun, also on a busy machine [s]."""


def experiment(fabric: Fabric, policy: str, *, seed: int = 1, dilation: Dilation = DILATION) -> Experiment:
    """Return a sparse all-to-all, about a millisecond long in reality."""
    demand = sparse(fabric.gpus, 0.4, gating="gpu", tokens=1024, seed=seed)
    return Experiment(fabric, single(demand), policy, dilation, seed, chunk_bytes=1 << 20)


def assert_all_arrived(emulation: EmulatedRun, asked: Experiment) -> None:
    """Compare what arrived with what was owed: to the message, and to the byte at emulated scale."""
    messages = messages_of(demands_of(asked.job)[0])
    records = emulation.run.records
    assert records["source"].tolist() == messages.source.tolist()
    assert records["destination"].tolist() == messages.destination.tolist()
    assert records["bytes"].tolist() == messages.bytes.tolist()
    assert bytes_over_legs(records) == records["bytes"].tolist()
    crossing = messages.bytes[crosses_network(messages, asked.fabric)]
    assert emulation.health.payload_bytes == round(int(crossing.sum()) * asked.dilation.volume)
    assert (records["start_s"] == 0.0).all()
    assert (records["end_s"] > 0.0).all()


def computed(asked: Experiment) -> dict[QueuePair, Path]:
    """Return the paths of an experiment's queue pairs by the controller's rules and the switches' hash."""
    queue_pairs = queue_pairs_of(asked)
    paths = paths_over(asked.fabric, datagrams=True)
    return {queue_pair: paths[queue_pair] for queue_pair in queue_pairs}


def bytes_over_legs(records: Records) -> list[int]:
    """Return what the legs of each message's path sum to; NVLink carries all of a message."""
    return [
        size if path == "nvlink" else sum(int(leg.partition("@")[0]) for leg in path.split())
        for size, path in zip(records["bytes"], records["path"], strict=True)
    ]


@pytest.mark.parametrize(
    "fabric", [fat_tree_fabric(4, gpus=1), leaf_spine_fabric(4, 2, 3)], ids=lambda f: f.name
)
def test_other_fabrics_carry_collectives_over_the_computed_ways(booted: Booted, fabric: Fabric) -> None:
    asked = experiment(fabric, "ecmp")
    with booted(fabric, DILATION.rate) as net:
        emulation = emulate(asked, net.network)
    assert_all_arrived(emulation, asked)
    assert emulation.paths == computed(asked)


@pytest.mark.parametrize("policy", ["minrtt", "plb", "reps"])
def test_reactive_schemes_move_all_bytes(booted: Booted, policy: str) -> None:
    asked = experiment(rail_fabric(4, 2, 2), policy)
    with booted(asked.fabric, DILATION.rate) as net:
        emulation = emulate(asked, net.network)
    assert_all_arrived(emulation, asked)
    firsts = [replace(pair, entropy=0) for pair in queue_pairs_of(asked)]
    assert set(emulation.paths) == set(firsts)
    paths = paths_over(asked.fabric, datagrams=True)
    seen = ((first, paths[first]) for first in firsts)
    assert emulation.paths == dict(seen)


@pytest.mark.parametrize("skips", [True, False])
def test_steps_follow_each_other_and_compute_stands_between(booted: Booted, skips: bool) -> None:
    fabric, compute_s = rail_fabric(2, 2), 0.003
    step = Step(sparse(fabric.gpus, 0.0, gating="gpu", tokens=128), compute_s)
    asked = Experiment(fabric, job_of_steps("two", (step, step)), "rails", DILATION, chunk_bytes=1 << 20)
    with booted(fabric, DILATION.rate) as net:
        began = time.monotonic()
        records = emulate(asked, net.network, skips=skips).run.records
        took_s = time.monotonic() - began
    first, second = (records[records["step"] == index] for index in (0, 1))
    assert second["start_s"].min() == pytest.approx(first["end_s"].max() + compute_s, rel=0.01)
    if not skips:
        assert took_s > 2 * compute_s * DILATION.time


def test_a_network_of_another_scale_is_refused(booted: Booted) -> None:
    asked = experiment(rail_fabric(2, 2), "rails")
    with (
        booted(asked.fabric, DILATION.rate / 2) as net,
        pytest.raises(ScenarioError, match="another experiment"),
    ):
        emulate(asked, net.network)


def test_a_queue_pair_that_finds_no_way_is_named(booted: Booted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traffic.transports.datagram_engine.PROBES_S", 3.0)  # for all that do find a path
    asked = experiment(rail_fabric(2, 2, spines=0), "minrtt")
    with booted(asked.fabric, DILATION.rate) as net, pytest.raises(NetworkError) as caught:
        emulate(asked, net.network)
    crossing = [qp for qp in queue_pairs_of(asked) if qp.source.nic != qp.destination.nic]
    named = replace(crossing[0], entropy=SPRAYED)
    assert caught.value.sentence.startswith(f"no packet of queue pair {named} arrived within 3 s")


def test_a_link_cut_in_the_middle_is_an_error_that_names_the_queue_pair(booted: Booted) -> None:
    fabric = rail_fabric(2, 1)
    demand = Demand("one way", np.array([[0, 40_000_000], [0, 0]]))
    asked = Experiment(fabric, single(demand), "rails", DILATION, chunk_bytes=1 << 20)
    device = interface(fabric, fabric.links[1].b)

    def cut() -> None:
        assert until(lambda: sent_bytes(device) > 2_000_000, MIDDLE_S)
        subprocess.run(["ip", "link", "set", device, "down"], check=True)

    with booted(fabric, DILATION.rate) as net, ThreadPoolExecutor() as pool:
        done = pool.submit(cut)
        with pytest.raises(StuckError) as caught:
            emulate(asked, net.network, stuck_s=2.0)
        done.result()
    queue_pair = queue_pairs_of(asked)[0]
    assert f"queue pair {queue_pair} made no progress for 2 s" in caught.value.sentence


def sent_bytes(device: str) -> int:
    """Return what a switch's port has sent."""
    return int(File(f"/sys/class/net/{device}/statistics/tx_bytes").read_text())
