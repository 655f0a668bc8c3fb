"""Failures of an mFabric in mid-step and all along, and what takes the place of what fails (section 5.4).

A GPU's place is taken by the backup GPU of the next server of its region, so that the sums of its
tensor-parallel rank cross servers; a server's by a spare one of the global pool, which has packet NICs only.
"""

from dataclasses import dataclass, replace
from typing import Literal

from testbed.experiment.experiment import Experiment
from topologies.errors import ScenarioError
from topologies.fabric import Fabric, Nic
from topologies.mfabric import regions
from topologies.packet_part import on_packet_switch
from traffic.bounds import busiest_server_s
from traffic.collectives.all_to_all import AllToAll
from traffic.faults import KnownRevision, Moves, Revisions, cut, moved

PACKET_NIC, PACKET_NICS, CIRCUIT_NIC = "one packet NIC", "all packet NICs", "one circuit NIC"
GPU, SERVER = "a GPU", "a server"
Failing = Literal["packet-nic", "packet-nics", "circuit-nic", "gpu", "server"]
FAILURES: dict[Failing, str] = {
    "packet-nic": PACKET_NIC,
    "packet-nics": PACKET_NICS,
    "circuit-nic": CIRCUIT_NIC,
    "gpu": GPU,
    "server": SERVER,
}
"""Parts that may fail, by their names among options, and their names in tables."""
STEP, STEADY = "mFabric", "mFabric, steady"
"""Names in tables of a step in which something fails, and of one from which it is gone all along."""


@dataclass(frozen=True)
class Failure:
    """NICs or GPUs that are gone."""

    name: str
    nics: tuple[Nic, ...] = ()
    moves: Moves = ()
    """The GPUs that are gone with the GPU that takes the place of each; none if NICs fail alone."""


def failure_of(name: str, fabric: Fabric, server: int, *, gpus: int, gpu: int = 0) -> Failure:
    """Return a failure of a server.

    Parameters
    ----------
    name
        Of `FAILURES`.
    fabric
        An mFabric; with backup GPUs, and spare servers, for those that need them.
    server
        In which it is, not the last of its region.
    gpus
        Of a job on each server, its first.
    gpu
        Which of them fails, where one does.
    """
    nics = [nic for nic in fabric.nics if nic.server == server]
    packets = [nic for nic in nics if on_packet_switch(fabric, nic)]
    first = fabric.gpu_offsets[server]
    if name == GPU:
        backup = fabric.gpu_offsets[server + 2] - 1
        return Failure(name, moves=((first + gpu, backup),))
    if name == SERVER:
        spare = fabric.gpu_offsets[sum(len(region.servers) for region in regions(fabric))]
        return Failure(name, tuple(nics), tuple((first + each, spare + each) for each in range(gpus)))
    own = {
        PACKET_NIC: packets[:1],
        PACKET_NICS: packets,
        CIRCUIT_NIC: [nic for nic in nics if nic not in packets][:1],
    }
    return Failure(name, tuple(own[name]))


def failing(experiment: Experiment, failure: Failure, node: str, share: float, detect_s: float) -> Experiment:
    """Return a step in which something fails in the middle of an all-to-all.

    Parameters
    ----------
    experiment
        The step without.
    failure
        What fails.
    node
        The all-to-all, for whose transpose before it circuits are lit: it waits for none.
    share
        When it fails, as a share of the least time that the all-to-all takes over all NICs, 0..1.
    detect_s
        How long until it is known [s].
    """
    pattern = next(each.pattern for each in experiment.job.collectives if each.name == node)
    if not isinstance(pattern, AllToAll):
        raise ScenarioError(f"{node!r} is not an all-to-all", "name a dispatch or a combine")
    takes_s = busiest_server_s(pattern.lower().moves, experiment.fabric)
    ports = tuple(map(experiment.fabric.nic_port, failure.nics))
    fault = cut(
        failure.name,
        ports,
        node,
        share * takes_s,
        detect_s,
        gpus=tuple(gpu for gpu, _ in failure.moves),
    )
    revisions = [KnownRevision(failure.name, moves=failure.moves)] if failure.moves else []
    return replace(experiment, faults=(fault,), revisions=Revisions(tuple(revisions)))


def steady(experiment: Experiment, failure: Failure) -> Experiment:
    """Return a step from which something is gone all along, and known to be."""
    if failure.moves:
        # The NICs of a server that is gone have nothing to carry.
        label = f"{STEADY}, {failure.name}"
        return replace(experiment, job=moved(experiment.job, failure.moves), label=label)
    fault = cut(failure.name, tuple(map(experiment.fabric.nic_port, failure.nics)))
    return replace(experiment, faults=(fault,), label=STEADY)
