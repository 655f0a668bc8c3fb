"""How near sprayed packets come to what they could, and what the engine takes that moves them."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from scenarios._bench.figure import figure
from scenarios._bench.transports import FABRIC, listed_ratios, outcomes_of, over_bound
from scenarios.spray_permutation import PatternName, made_up
from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.live.emulate import emulate
from testbed.network.network import Network
from testbed.trust.outcome import Outcome, bound_s
from topologies.fabric import Fabric
from topologies.fat_tree import fat_tree_fabric
from traffic.job import Job
from traffic.packets import DEFAULT_MTU, frame_bytes, packet_bytes
from traffic.steps import single
from traffic.transports.host_settings import TransportSetup
from traffic.workloads.synthetic import uniform

TREE = fat_tree_fabric(4)
RUNS = 5
TREE_BPS = 24e6
"""Of a NIC of the fat-tree, at emulated scale: a packet has up to six hops."""
SLOW_BPS, FAST_BPS = 8e6, 24e6
FLOW_PACKETS, INCAST_PACKETS, UNIFORM_PACKETS = 223, 3000, 500
"""Bytes that the busiest NIC sends or receives, about: a flow is htsim's 2 MB, at its own size."""


def _at(fabric: Fabric, job: Job, scheme: str, nic_bps: float, packets: int) -> Experiment:
    """Return an experiment at a rate of its NICs, whose bound takes so many packets of one."""
    full = Experiment(fabric, job, scheme, Dilation(1.0, 1.0))
    real_bps = fabric.nic_rate_bps(fabric.nics[0])
    carried = bound_s(full) * real_bps / 8
    return Experiment(
        fabric, job, scheme, Dilation(nic_bps / real_bps, packets * frame_bytes(DEFAULT_MTU) / carried)
    )


def _in_tree(
    scheme: str, pattern: PatternName, packets: int, value: Callable[[Outcome], float]
) -> tuple[float, str]:
    """Return the median of what came of five seeds over the fat-tree."""
    drawn = [made_up(pattern, TREE.gpus, n) for n in range(RUNS)]
    found = list(map(value, outcomes_of([_at(TREE, job, scheme, TREE_BPS, packets) for job in drawn])))
    return statistics.median(found), f"seeds 0 to {RUNS - 1}: {listed_ratios(found)}"


@figure("ratio", "<= 1.30")
def spray_permutation() -> tuple[float, str]:
    """Permutations of 16 servers over a fat-tree, sprayed: CCT over bound, median of 5."""
    return _in_tree("spray", "permutation", FLOW_PACKETS, over_bound)


@figure("ratio", "<= 1.30")
def reps_permutation() -> tuple[float, str]:
    """The same under REPS: CCT over bound, median of 5."""
    return _in_tree("reps", "permutation", FLOW_PACKETS, over_bound)


@figure("ratio", "0.95 .. 1.08")
def ecmp_permutation() -> tuple[float, str]:
    """The same under ECMP: CCT over prediction, median of 5."""
    return _in_tree("ecmp", "permutation", FLOW_PACKETS, lambda each: each.over_predicted)


@figure("ratio", "<= 1.02")
def credit_incast() -> tuple[float, str]:
    """Fifteen servers send to one: CCT over bound, median of 5."""
    return _in_tree("spray", "incast", INCAST_PACKETS, over_bound)


@figure("ratio", "0.97 .. 1.03")
def credit_scales() -> tuple[float, str]:
    """A uniform all-to-all at 24 and at 8 Mbit/s a NIC: its CCT over bound at one over the other."""
    job = single(uniform(FABRIC.gpus))
    fast, slow = (
        statistics.median(
            map(over_bound, outcomes_of([_at(FABRIC, job, "rails", bps, UNIFORM_PACKETS)] * RUNS))
        )
        for bps in (FAST_BPS, SLOW_BPS)
    )
    return fast / slow, f"{fast:.3f} at {FAST_BPS / 1e6:g}, {slow:.3f} at {SLOW_BPS / 1e6:g} Mbit/s"


@figure("ratio", ">= 0.4")
def packets_of_cpu() -> tuple[float, str]:
    """Packets sent and received in a second of CPU, datagrams over plain TCP; median of 5."""
    job = single(uniform(FABRIC.gpus))
    each = [_at(FABRIC, job, "rails", FAST_BPS, UNIFORM_PACKETS)] * RUNS
    datagrams, streams = (_packets_s(each, transport) for transport in ("credit", "tcp"))
    return datagrams / streams, f"{datagrams:,.0f} and {streams:,.0f} packets a second of CPU"


def _packets_s(experiments: Sequence[Experiment], transport: str) -> float:
    first, found = experiments[0], list[float]()
    setup = TransportSetup(transport)
    with Network(first.fabric, first.dilation.rate, host=replace(first, transport=setup).host) as network:
        for each in experiments:
            before_s = time.process_time()
            health = emulate(replace(each, transport=setup), network).health
            packets = health.payload_bytes / packet_bytes(DEFAULT_MTU)
            found.append(packets / (time.process_time() - before_s))
    return statistics.median(found)
