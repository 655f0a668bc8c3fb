"""The emulation: an experiment carried out over a booted network."""

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

from controller.circuits.status import LogEntry
from testbed.core.event_log import EventLog
from testbed.core.run import Run
from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.experiment.running import simulation_of
from testbed.live.backend import LiveBackend
from testbed.live.light_log import LightLog
from testbed.live.sources import Queueing, ack_traffic, flow_table, queueing, source_table
from testbed.machine.garbage import no_garbage_collection
from testbed.machine.netlink import kernel_has_netem
from testbed.machine.wall_clock import STEP_S
from testbed.network.circuit_tap import CircuitTap, Crossings
from testbed.network.network import Network
from topologies.errors import MachineError, ScenarioError
from topologies.fabric import Fabric, Path
from traffic.faults import Fault
from traffic.metrics import communication_s
from traffic.spraying.policy import QueuePair
from traffic.transports.datagram_engine import DatagramEngine
from traffic.transports.loop import STUCK_S, Health, PacketCounts
from traffic.transports.reordering import Reordering

IDLE_S = 5.0
"""How long an OCS may take to go dark before an experiment."""


@dataclass(frozen=True, eq=False)
class EmulatedRun:
    """What was seen of an experiment over a network."""

    run: Run
    """In real seconds and bytes."""
    paths: dict[QueuePair, Path]
    """The path of each queue pair, read off the wire."""
    health: Health
    """How the engine fared, at emulated scale."""
    emulated_s: float
    """How long it took at emulated scale, without compute that was skipped [s]."""
    light: LightLog | None = None
    """What circuits did, if there were any."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """What a reactive policy counted, as shares."""
    logs: Mapping[str, list[LogEntry]] = field(default_factory=dict)
    """What each OCS that is reconfigured did [emulated seconds]."""
    crossings: Mapping[str, Crossings] | None = None
    """Packets that crossed each OCS where circuits follow the job, if none was missed nor the clock set."""
    inert: tuple[str, ...] = ()
    """What of a reactive policy could not act."""
    order: Reordering | None = None
    """How packets overtook each other, where they are datagrams."""
    queueing: Queueing | None = None
    """The queues that they met."""
    on_the_way: int = 0
    """The most that a lane, or a message that chooses, had on its way when asked [real bytes]."""

    @property
    def packets(self) -> PacketCounts | None:
        """What became of packets over packet switches, where they are datagrams and some were sent."""
        return self.health.packets if self.health.packets.sent else None

    @property
    def sent_over_granted(self) -> float:
        """All that was sent over what of it was granted; NaN where nothing was granted."""
        sources = self.run.tables.sources
        asked = sources[sources["granted_bytes"] >= 0]
        used = int(asked[["granted_bytes", "sent_bytes"]].min(axis=1).sum())
        return int(asked["sent_bytes"].sum()) / used if used else math.nan


def emulate(
    experiment: Experiment,
    network: Network,
    *,
    stuck_s: float = STUCK_S,
    skips: bool | None = None,
    log: EventLog | None = None,
) -> EmulatedRun:
    """Carry an experiment's job over a network that was booted at its scale.

    Parameters
    ----------
    experiment, network
        The network's fabric and rate are the experiment's.
    stuck_s
        After how long without progress a queue pair is an error, at emulated scale [s].
    skips
        Whether compute only shows in the tables, and is not waited for; by default in a chain, where
        nothing else runs meanwhile.
    log
        Where what happens is written down; by default nowhere.

    Raises
    ------
    MachineError
        If a fault has links lose packets, and this machine's kernel has no netem.
    ScenarioError
        If the network is another fabric's, or at another rate or MTU, or its hosts are set for another
        transport, or a link's delay cannot be honoured, or a fault slows a link to an OCS.
    StuckError, NetworkError
        If bytes do not arrive, a switch refuses circuits, or a part of the network died.
    """
    booted = network.fabric, network.rate_factor, network.mtu, network.host, network.routing
    wanted = experiment.fabric, experiment.dilation.rate, experiment.mtu, experiment.host
    if booted != (*wanted, experiment.bound_routing):
        raise ScenarioError("the network was booted for another experiment", "boot one for this")
    check_losses([fault.name for fault in experiment.faults if fault.loses])
    check_slowed_light(experiment.fabric, experiment.faults)
    fabric, dilation = experiment.fabric, experiment.dilation
    before = _prepare_ocses(experiment, network)
    skips = experiment.job.is_chain if skips is None else skips
    beside_packets = experiment.circuits and not experiment.over_circuits
    tapped = CircuitTap(fabric) if beside_packets else nullcontext()
    backed = LiveBackend(
        network,
        dilation,
        transport=experiment.transport,
        stuck_s=stuck_s,
        skips=skips,
        sending=experiment.sending,
        faults=experiment.faults,
        seed=experiment.seed,
    )
    with tapped as tap, backed as backend:
        simulation = simulation_of(experiment, backend, log=log)
        with no_garbage_collection():
            run = simulation.run()
        engine, health, shares, inert = backend.datagrams, backend.health, backend.shares, backend.inert
        queues = None
        if engine:
            run = _with_sources(run, engine, backend, dilation)
            acks = ack_traffic(engine, dilation, before_data=network.wiring.acks_first)
            queues = queueing(engine.sources, engine.marking, dilation, acks)
    emulated_s = dilation.emulated_s(communication_s(run.tables) if skips else run.iteration_s)
    logs = {
        name: [entry for entry in network.northbound.ocs_log(name) if entry.number > number]
        for name, number in before.items()
    }
    light = _light_log(experiment, backend, logs, run) if experiment.has_slots else None
    crossings = tap.crossings if tap and not (tap.missed or tap.stepped_s > STEP_S) else None
    return EmulatedRun(
        run,
        backend.packet_paths.seen,
        health,
        emulated_s,
        light,
        shares,
        logs,
        crossings,
        inert,
        order=engine.order if engine else None,
        queueing=queues,
        on_the_way=backend.on_the_way,
    )


def check_losses(lossy: Sequence[str]) -> None:
    """Raise MachineError if there are faults by which links lose packets, and the kernel has no netem."""
    if lossy and not kernel_has_netem():
        raise MachineError(
            f"this machine's kernel has no netem, which {lossy[0]!r} needs for the loss of links",
            "leave it out, or load or install its module sch_netem",
        )


def check_slowed_light(fabric: Fabric, faults: Sequence[Fault]) -> None:
    """Raise ScenarioError if a fault slows a link to an OCS, which shapes nothing: light does not queue."""
    for fault in faults:
        for port, state in fault.links.items():
            ends = {port.node, fabric.peer(port).node}
            if state.up and state.rate < 1 and not fabric.ocs_parts.keys().isdisjoint(ends):
                raise ScenarioError(
                    f"fault {fault.name!r} slows the link at {port}, which leads to an OCS, and an emulation "
                    "slows only what its NIC sends",
                    "predict it with --model-only, or let it fail",
                )


def _with_sources(run: Run, engine: DatagramEngine, backend: LiveBackend, dilation: Dilation) -> Run:
    """Return a run with its sources until now in its tables, and what they did when."""
    sources, tables = engine.sources, run.tables
    lanes = tuple(dict.fromkeys([*tables.lanes, *(source.lane.queue_pair for source in sources)]))
    of_sources = source_table(sources, sources.granted_bytes, lanes, dilation, backend.now_ps)
    flows = flow_table(engine.flow_log.samples, backend.past_ps, dilation)
    return Run(replace(tables, lanes=lanes, sources=of_sources, flows=flows))


def _prepare_ocses(experiment: Experiment, network: Network) -> dict[str, int]:
    """Tell OCSes how long they are dark, and have those begin dark that show nothing before the job starts.

    Returned is the number of each one's newest reconfiguration.
    """
    for name, delay in experiment.ocs_delays.items():
        if experiment.rule and not experiment.has_slots and name not in experiment.rule.first:
            # What an experiment before left lit would be there at once.
            network.northbound.light(name, "-", partial=False, busy="replace")
            network.northbound.wait_idle(name, IDLE_S)
        network.northbound.set_delay(name, delay.scaled(experiment.dilation.time), experiment.seed)
    return {name: network.northbound.ocs(name).number for name in experiment.ocs_delays}


def _light_log(
    experiment: Experiment,
    backend: LiveBackend,
    logs: dict[str, list[LogEntry]],
    run: Run,
) -> LightLog:
    programs = backend.programs
    datagrams, payload_bytes = programs.lanes.delivered
    return LightLog(
        experiment=experiment,
        cct_s=float(run.messages["end_s"].max()),
        undelivered_bytes=(*programs.left_over, 0),
        slots=tuple(programs.lanes.slots),
        logs=logs,
        start_s=programs.begun_at or 0.0,
        datagrams=datagrams,
        payload_bytes=payload_bytes,
    )
