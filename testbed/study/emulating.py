"""The points of one network, emulated one after the other: what a worker in a sandbox does.

It yields what the run has to know as soon as it is known, and holds no results. Each point is judged by the
known-answer controls before and after it.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

from testbed.core.event_log import EventLog
from testbed.experiment.experiment import Experiment
from testbed.live.emulate import check_losses
from testbed.machine.congestion import check_congestion_control, check_marks
from testbed.machine.datapath import Datapath, check_datapath
from testbed.model.predict import predict
from testbed.network.link_sample import worst_link_error
from testbed.network.netem import check_netem, link_netems
from testbed.network.network import Network
from testbed.network.readback import effective, port_settings, unmet
from testbed.report.finished import Finished, finished
from testbed.trust.calibrate import CALIBRATIONS, Calibration, CarriedLoad, ContradictedError
from testbed.trust.constants import constant_numbers, constants
from testbed.trust.control import Control, control
from testbed.trust.fidelity import with_control
from testbed.trust.light_control import light_control
from testbed.trust.outcome import Outcome
from testbed.trust.scale import BY_TCP, load_of
from testbed.trust.similitude import Number, facts_of, similitude
from testbed.trust.trial import tried
from topologies.fabric import Fabric
from traffic.transports.host_settings import TransportSetup
from traffic.transports.registry import congestion_control

GROWN = 1.5
"""A point that forwards so many times what was controlled needs another control."""


@dataclass(frozen=True)
class Asked:
    """A point that is to be carried out."""

    experiment: Experiment
    traced: bool
    """Whether its trace is kept."""
    logged: bool = False
    """Whether what happens in its runs is written down (`testbed.core.event_log`)."""

    def logs(self, *runs: str) -> dict[str, EventLog]:
        """Return a log for each of some runs, by their names, if they are wanted."""
        each, names = self.experiment, runs if self.logged else ()
        words = each.job.name, each.name, each.transport_name, f"seed {each.seed}"
        return {name: EventLog(f"{name}: {', '.join(words)}") for name in names}


@dataclass(frozen=True)
class Described:
    """More is known of the network."""

    settings: Mapping[str, object]
    """Its effective settings, read back from the machine, or its controls."""


@dataclass(frozen=True)
class Begun:
    """A point begins."""

    words: str


@dataclass(frozen=True)
class Emulated:
    """A point was carried out."""

    point: Finished
    numbers: Mapping[str, Sequence[Number]]
    """Its dimensionless numbers, by what they are listed under."""


Event = Described | Begun | Control | Emulated
"""By a control all points since the last one are judged too."""


def emulated(
    points: Sequence[Asked],
    datapath: Datapath,
    real_link_delay_s: float,
    doubtful: Calibration | None,
    begun: bool,
) -> Iterator[Event]:
    """Boot the network that some points share, and carry out one after the other.

    Parameters
    ----------
    points
        At the scale of one network.
    datapath
        Which of Open vSwitch's forwards.
    real_link_delay_s
        Of a link of the real network [s].
    doubtful
        The calibration by which the points are scaled, if a control may contradict it.
    begun
        Whether the run has points already.

    Raises
    ------
    ContradictedError
        As of `ControlledPoints.before`.
    """
    first = points[0].experiment
    with network_of(first, datapath) as network:
        found = port_settings(network)
        broken, settings = unmet(network, found), effective(network, found)
        yield Described({**_scale_of([each.experiment for each in points]), **settings})
        worst = math.nan if first.over_circuits else worst_link_error(network, first.seed)
        controlled = ControlledPoints(network, doubtful, begun=begun)
        for asked in points:
            experiment = asked.experiment
            words = experiment.job.name, experiment.name, experiment.transport_name
            yield Begun(f"{', '.join(words)}, seed {experiment.seed}")
            yield from controlled.before(experiment)
            logs = asked.logs("emulated", "predicted", "free")
            outcome = tried(experiment, network, worst, broken, logs)
            facts, timeout_s = facts_of(experiment, outcome.predicted), experiment.host.least_timeout_s
            outcome = replace(outcome, numbers=similitude(experiment, facts, timeout_s, real_link_delay_s))
            point = finished(controlled.judged(outcome), traced=asked.traced, logs=logs)
            moved_by = {constants_of(experiment): constant_numbers(experiment)}
            yield Emulated(point, {workload_of(experiment): outcome.numbers, **moved_by})
        yield from controlled.end()


class ControlledPoints:
    """Carries controls out between the points of a network.

    A point is judged by the control before it at once, so that a run that is interrupted keeps every point,
    judged by what was known. A schedule's control is one over its OCSes (`testbed.trust.light_control`); the
    circuits of a rule have none.

    Parameters
    ----------
    network
        The network.
    doubtful
        The calibration by which the points are scaled, if a control may contradict it.
    begun
        Whether the run has points already.
    """

    def __init__(self, network: Network, doubtful: Calibration | None = None, *, begun: bool = False) -> None:
        self._network, self._doubtful, self._begun = network, doubtful, begun
        self._known: set[tuple[str, str, bool]] = set()
        self._done: list[Control] = []
        self._most_bps = {True: 0.0, False: 0.0}
        """At what rate the network was controlled, by whether datagrams or TCP carried the bytes."""
        self._again: Callable[[], Control | None] = lambda: None
        """Carries out the last control once more."""

    def before(self, experiment: Experiment) -> Iterator[Event]:
        """Carry out a control if an experiment forwards more than its engine was controlled at.

        Seeds forward alike.

        Before a schedule one is carried out in any case, once for all seeds.

        A calibration that it contradicts is forgotten: the next run takes it anew.

        Raises
        ------
        ContradictedError
            If it does so before a point is finished, so that nothing is lost by beginning again.
        """
        datagrams = experiment.transport.sprays is not None
        about = experiment.job.name, experiment.name, datagrams
        if experiment.is_once_lit or about in self._known:
            return
        self._known.add(about)
        if experiment.has_slots:
            yield from self._by(partial(light_control, self._network, experiment))
            return
        load = load_of(experiment, predict(experiment)) * experiment.dilation.rate
        hop_bps = load.hop_bps / (1.0 if datagrams else BY_TCP)  # TCP acknowledges a control by itself
        if hop_bps > GROWN * self._most_bps[datagrams]:
            self._most_bps[datagrams] = hop_bps
            yield from self._by(partial(control, self._network, hop_bps, datagrams=datagrams))
            self._check(load, experiment.mtu)

    def judged(self, outcome: Outcome) -> Outcome:
        """Return an outcome, judged by the last control so far."""
        self._begun = True
        return with_control(outcome, self._done[-1] if self._done else None)

    def end(self) -> Iterator[Event]:
        """Carry out the last control, if there was a first."""
        if self._done:
            yield from self._by(self._again)

    def _by(self, carry_out: Callable[[], Control | None]) -> Iterator[Event]:
        """Carry out a control, which is repeated from then on; none where no two servers have a path."""
        self._again = carry_out
        if found := carry_out():
            self._done.append(found)
            yield Described(
                {"controls": {str(number): asdict(each) for number, each in enumerate(self._done)}}
            )
            yield found

    def _check(self, load: CarriedLoad, mtu: int) -> None:
        """Hold the calibration against the last control, which carried a load or less."""
        if not (self._doubtful and self._done):
            return
        if said := self._doubtful.contradiction(self._done[-1], self._doubtful.share(load, mtu)):
            CALIBRATIONS.forget(self._doubtful)
            if not self._begun:
                raise ContradictedError(said)


def check_able(
    wired: Sequence[tuple[Fabric, bool]],
    transports: Sequence[tuple[TransportSetup, int]],
    lossy: Sequence[str],
    datapath: Datapath,
) -> Iterator[None]:
    """Raise MachineError if this machine lacks what an emulation needs, before anything is predicted for it.

    Parameters
    ----------
    wired
        What is booted, and whether its links delay packets where they have a delay.
    transports
        And MTUs.
    lossy
        The faults by which links lose packets.
    datapath
        Which of Open vSwitch's forwards.
    """
    check_datapath(datapath)
    for fabric, delays in wired:
        check_netem(link_netems(fabric, None, delays=delays))
    check_losses(lossy)
    for transport, mtu in transports:
        check_congestion_control(congestion_control(transport.name))
        check_marks(transport.marked_for, datapath, mtu)
    yield None


def network_of(experiment: Experiment, datapath: Datapath, *, hosts: bool = False) -> Network:
    """Return a network at an experiment's scale; ``hosts`` as of `Network`."""
    rate, host, mtu = experiment.dilation.rate, experiment.host, experiment.mtu
    routing = experiment.bound_routing
    return Network(experiment.fabric, rate, datapath, host, mtu=mtu, routing=routing, hosts=hosts)


def where_of(experiments: Sequence[Experiment]) -> str:
    """Return what the settings of a network are listed under."""
    fabric = experiments[0].fabric
    nics = len(fabric.nics) // len(fabric.servers)
    transports = ", ".join(dict.fromkeys(each.transport_name for each in experiments))
    return f"{fabric.name}, {len(fabric.servers)} servers x {nics} NICs, {transports}"


def workload_of(experiment: Experiment) -> str:
    """Return what the numbers of an experiment are listed under."""
    return f"{experiment.job.name}, {where_of([experiment])}"


def constants_of(experiment: Experiment) -> str:
    """Return what the constants of a transport and a scheme are listed under."""
    return f"{experiment.transport_name}, {experiment.name}"


def _scale_of(experiments: Sequence[Experiment]) -> dict[str, object]:
    """Return at which scale experiments are emulated, their constants, and what OCSes stand for."""
    experiment = experiments[0]
    scale = experiment.dilation
    said: dict[str, object] = {"dilation": {"rate": scale.rate, "volume": scale.volume, "time": scale.time}}
    said |= {"mtu": experiment.mtu, "hosts": asdict(experiment.host)}
    said |= {"constants": {of.name: asdict(of) for each in experiments for of in constants(each)}}
    if delays := list(experiment.ocs_delays.values()):
        delay = delays[0]
        said["ocs"] = {
            "device": delay.device,
            "delay_varies": delay.varies,
            "delay_s": delay.mean_s,
            "emulated_delay_s": scale.emulated_s(delay.mean_s),
        }
    return said
