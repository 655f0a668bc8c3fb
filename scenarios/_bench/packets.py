"""How near sprayed packets come to what they could, and what the engine takes that moves them."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

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
from traffic.compiled import engine
from traffic.job import Job
from traffic.packets import DEFAULT_MTU, frame_bytes, packet_bytes
from traffic.spraying.policy import Lanes, LaneState, Message
from traffic.spraying.subflows import Subflows
from traffic.steps import single
from traffic.transports.host_settings import TransportSetup
from traffic.workloads.synthetic import uniform

TREE = fat_tree_fabric(4)
RUNS = 5
TREE_BPS = 24e6
"""Of a NIC of the fat-tree, at emulated scale: a packet has up to six hops."""
SLOW_BPS, FAST_BPS = 8e6, 24e6
FLOW_PACKETS, INCAST_PACKETS, UNIFORM_PACKETS, LONG_PACKETS = 223, 3000, 500, 1500
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


@figure("packets/s", ">= 40000")
def engine_packets_s() -> tuple[float, str]:
    """Packets in a second of the engine's CPU, placed by RailS under receiver credits."""
    return _more_packets_s("credit", "rails")


@figure("packets/s", ">= 40000")
def chosen_packets_s() -> tuple[float, str]:
    """The same, where REPS chooses an entropy for each packet under NSCC."""
    return _more_packets_s("nscc", "reps")


@figure("packets/s", ">= 25000")
def own_packets_s() -> tuple[float, str]:
    """The same, where a policy in plain Python chooses, as a user's own does."""
    return _more_packets_s("credit", f"{__name__}:{LeastOwed.__name__}")


class LeastOwed:
    """A policy as users write one: each packet takes the lane that owes fewest, by its own count."""

    name = "least owed"
    steady = True
    per_packet = True

    def open(self, *, fabric: Fabric, rng: np.random.Generator) -> None:
        """Begin without a lane."""
        self._subflows = Subflows(fabric, rng)
        self._owed: dict[int, list[int]] = {}

    def admit(self, *, message: Message) -> Lanes:
        """Return a lane from every NIC of the source server to the NIC beside the destination."""
        lanes = self._subflows.from_server(message.source, message.destination)
        self._owed[message.number] = [0] * sum(map(len, lanes))
        return lanes

    def choose(self, *, message: int, states: Sequence[LaneState], now: float) -> int | None:
        """Return the lane that owes fewest of those that have room."""
        owed = self._owed[message]
        for lane in sorted(range(len(owed)), key=owed.__getitem__):
            if states[lane].room:
                owed[lane] += 1
                return lane
        return None

    def acknowledged(self, *, message: int, lane: int, rtt_s: float, marked: bool, now: float) -> None:
        """Have the lane owe one fewer."""
        self._owed[message][lane] -= 1

    def lost(self, *, message: int, lane: int, now: float) -> None:
        """Have the lane owe one fewer: it is sent again by a lane that is chosen anew."""
        self._owed[message][lane] -= 1

    def withdraw(self, *, message: int) -> None:
        """Forget a message."""
        del self._owed[message]


def _more_packets_s(transport: str, scheme: str) -> tuple[float, str]:
    """Return how many more packets a second more of CPU carries, medians of 3: a run's start is taken off."""
    job, setup = single(uniform(FABRIC.gpus)), TransportSetup(transport)
    runs = [
        replace(_at(FABRIC, job, scheme, FAST_BPS, packets), transport=setup)
        for packets in (UNIFORM_PACKETS, LONG_PACKETS)
    ]
    first, packets, cpu_s = runs[0], list[float](), list[float]()
    with Network(first.fabric, first.dilation.rate, host=first.host) as network:
        for each in runs:
            rows = [_counted(each, network) for _ in range(3)]
            packets.append(statistics.median(row[0] for row in rows))
            cpu_s.append(statistics.median(row[1] for row in rows))
    more_s = (packets[1] - packets[0]) / (cpu_s[1] - cpu_s[0])
    whole_s = packets[1] / cpu_s[1]
    return more_s, f"{engine()} engine; {whole_s:,.0f} with the start of a run of {packets[1]:,.0f} packets"


def _counted(experiment: Experiment, network: Network) -> tuple[int, float]:
    """Return how many packets arrived in a run, and the CPU time of this process [s]."""
    before_s = time.process_time()
    arrived = emulate(experiment, network).health.packets.arrived
    return arrived, time.process_time() - before_s
