"""All-to-alls over patch panels of few NICs, so that servers forward."""

import numpy as np

from controller.circuits.devices import ReconfigurationDelay
from controller.circuits.foreseen import Foreseen
from testbed.core.run import Run
from testbed.experiment.experiment import Experiment
from topologies.light import Circuit, duplex
from topologies.patch_panel import patch_panel_fabric
from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.point_to_point import PointToPoint
from traffic.collectives.ring import Ring
from traffic.delegated import DelegatedSetup
from traffic.demand import Demand
from traffic.job import Collective, Job

MEGABYTE = 1_000_000


def ring_and_chords(servers: int, nics: int) -> tuple[Circuit, ...]:
    """Return circuits from NIC 0 of each server to NIC 1 of the next, and of NICs 2 to the one opposite."""
    ring = [(nics * server, nics * ((server + 1) % servers) + 1) for server in range(servers)]
    chords = [(nics * server + 2, nics * (server + servers // 2) + 2) for server in range(servers // 2)]
    return duplex(ring + chords * (nics > 2))


def took_s(run: Run, node: str) -> float:
    """Return how long a collective took [s]."""
    (task,) = run.tasks[run.tasks["node"] == node].to_dict("records")
    return float(task["end_s"] - task["start_s"])


def panel_step(
    seed: int, servers: int = 6, nics: int = 3, gpus: int = 2, *, sends: bool = True
) -> Experiment:
    """Return an all-to-all, then a ring over the servers and a send across them, over circuits that stay."""
    matrix = np.random.default_rng(seed).integers(1, 20, (servers * gpus,) * 2) * MEGABYTE
    fabric = patch_panel_fabric(servers, nics=nics, gpus=gpus, rate_bps=10e9)
    nodes: tuple[Collective, ...] = (Collective("all-to-all", AllToAll(Demand("drawn", matrix))),)
    if sends:
        ring = Ring((tuple(range(0, servers * gpus, gpus)),), 30 * MEGABYTE)
        across = PointToPoint(((0, gpus * (servers // 2), 20 * MEGABYTE),))
        nodes += (Collective("ring", ring, ("all-to-all",)), Collective("send", across, ("ring",)))
    circuits = (("panel0", ring_and_chords(servers, nics)),)
    lit = Foreseen(circuits, (), ReconfigurationDelay("stays"), stays=True)
    return Experiment(
        fabric,
        Job("panel", fabric.gpus, nodes),
        DelegatedSetup(),
        circuits=lit,
    )
