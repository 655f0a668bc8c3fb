"""Servers with packet NICs and circuit NICs, schedules that leave bytes over, and what the slots carry."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from controller.circuits.planned import Planned
from controller.schedulers.matching import heaviest_permutation
from controller.schedulers.registry import scheduler_named
from controller.schedulers.schedule import Schedule, Slot
from controller.schedulers.spectra import spectra
from testbed.core.backend import Backend
from testbed.core.run import Run
from testbed.core.simulation import Simulation
from topologies.fabric import Fabric, Link, Nic, Port, Switch, equal_servers
from traffic.collectives.all_to_all import AllToAll
from traffic.demand import Demand
from traffic.job import Collective, Job
from traffic.records import path_of
from traffic.scheme import OverCircuits, Sprayed
from traffic.spraying.registry import policy_named

OCSES = ("ocs0", "ocs1")
CIRCUIT_BPS, PACKET_BPS = 100e9, 50e9
SECOND = int(CIRCUIT_BPS / 8)
"""What a circuit carries in a second [bytes]."""
DELAY_S = 0.01
NICS_ON = ("eps0", "ocs1", "ocs0")
"""The switch that each NIC of a server is on: NIC k is not on OCS k."""


def mixed_fabric(servers: int = 4, *, gpus: int = 1, packets: bool = True) -> Fabric:
    """Return servers on two OCSes and, by default, on a packet switch by their first NIC."""
    names = NICS_ON if packets else NICS_ON[1:]
    return Fabric(
        "mixed",
        equal_servers(servers, len(names), gpus, 3.6e12),
        tuple(Switch(name, servers, "ocs" if name in OCSES else "packet") for name in sorted(names)),
        tuple(
            Link(Port(f"h{server}", nic), Port(name, server), PACKET_BPS if name == "eps0" else CIRCUIT_BPS)
            for server in range(servers)
            for nic, name in enumerate(names)
        ),
    )


def partly(demand: NDArray[np.float64], switches: int, delay: float) -> Schedule:
    """Return three quarters of the heaviest permutation on each switch, and nothing of all else."""
    slots = []
    for _ in range(switches):
        permutation = heaviest_permutation(demand)
        rows = np.arange(len(demand))
        slots.append((Slot(permutation, 0.75 * float(demand[rows, permutation].max())),))
        demand[rows, permutation] = 0
    return Schedule(tuple(slots), delay)


@dataclass(frozen=True, eq=False)
class Rest:
    """A demand between GPUs over a mixed fabric, and a schedule between servers."""

    fabric: Fabric
    matrix: NDArray[np.int64]
    schedule: Schedule
    policy: str | None = "ecmp"
    """What carries the rest; None for clean-up rounds."""

    @property
    def job(self) -> Job:
        """The demand as a job of one collective."""
        return Job("rest", len(self.matrix), (Collective("tokens", AllToAll(Demand("rest", self.matrix))),))

    @property
    def circuits(self) -> Planned:
        """The schedule as decisions; clean-up rounds are Spectra's."""
        return Planned(
            OCSES,
            self.schedule,
            lambda missing, ocses: spectra(missing * 8 / CIRCUIT_BPS, ocses, self.schedule.delay),
            rest=self.policy is not None,
        )

    def run(self, backend: Backend) -> Run:
        """Return what comes of it."""
        rest = Sprayed(partial(policy_named, self.policy)) if self.policy else None
        return Simulation(self.fabric, self.job, backend, OverCircuits(rest), circuits=self.circuits).run()

    @cached_property
    def served(self) -> NDArray[np.float64]:
        """What the slots have room for, slot by slot, shape (servers, servers) [bytes]."""
        room = np.zeros((len(self.fabric.servers),) * 2)
        for slots in self.schedule.switches:
            for slot in slots:
                for near, far in enumerate(slot.permutation.tolist()):
                    if far not in (-1, near):
                        room[near, far] += slot.weight * CIRCUIT_BPS / 8
        return room

    @property
    def light_s(self) -> float:
        """When all slots are over; an OCS without circuits in its next does not move before it [s]."""
        return max(
            sum(
                slot.weight + DELAY_S * any(slot.permutation != np.arange(len(slot.permutation)))
                for slot in slots
            )
            for slots in self.schedule.switches
        )

    @property
    def delay_s(self) -> dict[str, float]:
        """How long each OCS is dark before a slot."""
        return dict.fromkeys(OCSES, self.schedule.delay)


def partial_case(policy: str | None = "ecmp", *, packets: bool = True) -> Rest:
    """Return a uniform demand under a user's scheduler that leaves most of it over."""
    matrix = np.full((4, 4), SECOND // 10)
    np.fill_diagonal(matrix, 0)
    scheduler = scheduler_named("tests.testbed.rest_cases:partly", covering=False)
    plan = scheduler(matrix * 8 / CIRCUIT_BPS, len(OCSES), DELAY_S)
    return Rest(mixed_fabric(packets=packets), matrix, plan, policy)


def halves_case() -> Rest:
    """Return two servers on one OCS and two on another, all on a packet switch; 0 owes 1 and 2 alike."""
    links = [
        Link(Port(f"h{server}", 0), Port(OCSES[server // 2], server), CIRCUIT_BPS) for server in range(4)
    ]
    links += [Link(Port(f"h{server}", 1), Port("eps0", server), PACKET_BPS) for server in range(4)]
    switches = Switch("eps0", 4), *(Switch(ocs, 4, "ocs") for ocs in OCSES)
    matrix = np.zeros((4, 4), dtype=np.int64)
    matrix[0, 1] = matrix[0, 2] = SECOND // 10
    slots = ((Slot(np.array([1, 0, -1, -1]), 0.1),), (Slot(np.array([-1, -1, 3, 2]), 0.1),))
    fabric = Fabric("halves", equal_servers(4, 2, 1, 3.6e12), switches, tuple(links))
    return Rest(fabric, matrix, Schedule(slots, DELAY_S))


def legs_of(fabric: Fabric, path: str) -> list[tuple[int, Nic, Nic]]:
    """Return what each leg of a path carried, and between which NICs."""
    legs = []
    for leg in path.split(" "):
        size, _, ports = leg.partition("@")
        first, *_, last = path_of(ports)
        legs.append((int(size), fabric.nic_at(first), fabric.nic_at(fabric.peer(last))))
    return legs


def by_kind(fabric: Fabric, paths: Sequence[str]) -> NDArray[np.int64]:
    """Return what each message sent over circuits and over packets, shape (messages, 2) [bytes]."""
    sizes = np.zeros((len(paths), 2), dtype=np.int64)
    for message, path in enumerate(paths):
        for size, near, far in legs_of(fabric, path):
            switches = {fabric.peer(fabric.nic_port(nic)).node for nic in (near, far)}
            assert len(switches) == 1, path
            sizes[message, int("eps0" in switches)] += size
    return sizes
