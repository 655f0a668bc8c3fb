"""A run of an application: a network is booted and measured, and the application runs on its hosts.

It is what the emulation worker is called with (`testbed.study.worker`), and yields what the process outside
has to show or to write as soon as it is known; the last of that is the record of the run.

    boot, TCP of hosts, sampled links, a control       Told
    processes at a barrier, counters and tap           Began
    output, faults, progress                           Wrote, EndedProcess, AppEvent, Going
    all ended, what they left is killed, links mended
    a control, the generator beside the application    Told, AppRecord
"""

import math
import os
import select
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import datetime

from testbed.apps.against import AppScale, beside, heaviest, predicted_s, seen_of
from testbed.apps.app_faults import AppFault, FaultsInTime
from testbed.apps.app_light import light_table
from testbed.apps.app_processes import AppProcesses, EndedProcess, Place, Wrote
from testbed.apps.app_record import AppEvent, AppProcess, AppRecord, AppTables, Beside
from testbed.apps.app_verdict import app_verdict, worst_error
from testbed.apps.captures import Capture, capturing
from testbed.apps.counters import LinkCounters, host_counts, since
from testbed.apps.host_server import HostServer
from testbed.apps.launchers import Launch
from testbed.apps.phases import TrafficPhase, traffic_phases
from testbed.apps.traffic_tap import TrafficTap
from testbed.experiment.dilation import Dilation
from testbed.live.emulate import check_losses
from testbed.machine.congestion import check_congestion_control
from testbed.machine.datapath import Datapath, hashing_of
from testbed.machine.signals import said_of
from testbed.network.link_sample import worst_link_error
from testbed.network.network import Network
from testbed.network.readback import effective, port_settings, unmet
from testbed.trust.calibrate import CarriedLoad
from testbed.trust.control import Control, control, shift
from testbed.trust.evidence import Watch
from topologies.errors import LightrailError
from topologies.fabric import Fabric, Port
from traffic.packets import frame_bytes, packet_bytes
from traffic.transports.host_settings import HostSettings, TransportSetup, host_settings

GOING_S = 1.0
"""How often it is said what runs [s]."""


@dataclass(frozen=True)
class AppPlan:
    """An application that is to run, and over what."""

    fabric: Fabric
    """At real rates."""
    launch: Launch
    place: Place
    command: tuple[str, ...]
    """The command of the user, as typed behind ``--``."""
    command_line: tuple[str, ...]
    """How the run was begun."""
    launcher: str
    rate: float
    """Emulated rate over real rate."""
    transport: TransportSetup
    """The setting of the hosts' TCP."""
    mtu: int
    """Of the emulation's links [bytes]."""
    datapath: Datapath
    scheme: str
    """How the generator spreads what it carries beside the application (`testbed.apps.against.AppScale`)."""
    faults: tuple[AppFault, ...] = ()
    mptcp: bool = False
    """Whether sockets of MPTCP use all NICs."""
    against: bool = False
    """Whether the generator carries the heaviest phase again."""
    timeout_s: float = math.inf
    """After how long the application is ended [s]."""
    captures: tuple[Capture, ...] = ()
    """Whose packets are kept."""
    stop: int | None = None
    """A descriptor of which the number of a signal can be read once the application is to end."""

    @property
    def scale(self) -> AppScale:
        """How its bytes are carried again."""
        dilation, hashing = Dilation(self.rate, 1.0), hashing_of(self.datapath)
        return AppScale(self.fabric, dilation, self.transport, self.mtu, self.scheme, hashing)

    @property
    def host(self) -> HostSettings:
        """The settings of the hosts' TCP."""
        dilation = self.scale.dilation
        return host_settings(self.transport, self.fabric, dilation.rate, dilation.time, self.mtu)

    @property
    def failing(self) -> frozenset[Port]:
        """The ports at both ends of the links that faults change."""
        return self.fabric.both_ends(port for each in self.faults for port in each.fault.links)


@dataclass(frozen=True)
class Told:
    """A sentence for the user, beside the application's output."""

    sentence: str


@dataclass(frozen=True)
class Began:
    """The application's processes have begun."""


@dataclass(frozen=True)
class Going:
    """The state of an application while it runs."""

    at_s: float
    """Since its start [s]."""
    running: tuple[str, ...]
    """The labels of its processes that run."""
    bps: float
    """The rate at which hosts send [bit/s]."""


AppNews = Told | Began | Going | Wrote | EndedProcess | AppEvent | AppRecord


def applied(plan: AppPlan) -> Iterator[AppNews]:
    """Boot a network and run an application on it; the last that is yielded is the record of the run.

    Raises
    ------
    LightrailError
        If this machine cannot emulate it, the network breaks, or processes cannot be started.
    """
    fabric = plan.fabric
    check_losses([each.name for each in plan.faults if each.fault.loses])
    check_congestion_control(plan.host.congestion_control)
    network = Network(fabric, plan.rate, plan.datapath, plan.host, mtu=plan.mtu, hosts=True)
    with network, HostServer(network, scale=plan.place.scale):
        network.impair(plan.scale.dilation.time)
        if plan.mptcp:
            network.hosts.offer_mptcp()
        settings = port_settings(network)
        broken, effects = unmet(network, settings), effective(network, settings)
        yield Told(words_of(plan))
        hop_bps = full_load(fabric, plan.mtu).hop_bps * plan.rate
        link_error = worst_link_error(network, 0) if hop_bps else math.nan
        before = control(network, hop_bps) if hop_bps else None
        run = AppRun(plan, network)
        yield from run.carry_out()
        after = control(network, hop_bps) if hop_bps else None
        yield from map(Told, run.hold_against(link_error))
        yield run.record(link_error, [before, after], broken, effects)


def full_load(fabric: Fabric, mtu: int) -> CarriedLoad:
    """Return the load of hosts while all their NICs send; none without packet switches."""
    sent_bps = {path: fabric.nic_rate_bps(pair.source) for pair, path in shift(fabric, math.inf).items()}
    hop_bps = sum((len(path) - 1) * rate_bps for path, rate_bps in sent_bps.items())
    return CarriedLoad(sum(sent_bps.values()), hop_bps) * (packet_bytes(mtu) / frame_bytes(mtu))


def words_of(plan: AppPlan) -> str:
    """Return at which scale an application runs, and what its hosts' TCP is set to."""
    host, fabric = plan.host, plan.fabric
    real_bps = max(map(fabric.nic_rate_bps, fabric.nics))
    mptcp = ", sockets of MPTCP use all NICs" if plan.mptcp else ""
    has_light = any(switch.kind == "ocs" for switch in fabric.switches)
    dark = ". No circuit is lit until a program lights it, by import lightrail_host" if has_light else ""
    return (
        f"NICs of {real_bps / 1e9:g} Gbit/s are shaped to {real_bps * plan.rate / 1e6:.4g} Mbit/s, so that "
        f"1 s here is {plan.scale.dilation.real_s(1.0) * 1e3:.3g} ms; computing is not slowed down. TCP of "
        f"hosts: {host.congestion_control}, initial window {host.initial_window_packets} packets, least "
        f"timeout {host.least_timeout_s:.3g} s{mptcp}{dark}"
    )


class AppRun:
    """One application on a booted network, from its start to what is known of it.

    Parameters
    ----------
    plan
        What runs.
    network
        Booted for it, with hosts.
    """

    def __init__(self, plan: AppPlan, network: Network) -> None:
        self._plan, self._network = plan, network
        self._began_s, self._last_s = math.nan, 0.0
        self._started = datetime.now()
        self._stopped = ""
        self._events: list[AppEvent] = []
        self._ended: dict[int, EndedProcess] = {}
        self._beside: Beside | None = None
        self._predicted_s = math.nan

    def carry_out(self) -> Iterator[AppNews]:
        """Start the application, and yield what comes of it until nothing of it is left."""
        plan, network, fabric = self._plan, self._network, self._plan.fabric
        restarts = any(each.fault.daemon == "switches" for each in plan.faults)
        relit = bool(fabric.ocs_parts)
        with ExitStack() as stack:
            processes = stack.enter_context(AppProcesses(network, plan.launch, plan.place))
            missed = stack.enter_context(capturing(network, plan.captures))
            self._counters = stack.enter_context(LinkCounters(network.wiring))
            self._tap = stack.enter_context(TrafficTap(network.wiring))
            counted = host_counts(network)
            self._watch = Watch(network, plan.failing, restarts=restarts, relit=relit)
            stack.enter_context(self._watch)
            faults = FaultsInTime(network, plan.faults, lambda host: processes.end_on([host]))
            self._started, self._began_s = datetime.now(), processes.go()
            yield Began()
            yield from self._noted(self._heard(processes, faults))
            yield from self._noted(processes.rest())
            self._hosts = since(counted, host_counts(network))
            self._events += faults.missed
            faults.mend()
        for name, count in missed.items():
            yield Told(f"{name} lacks {count} packets, which came faster than they were written")
        self._logs = {
            switch.name: network.northbound.ocs_log(switch.name)
            for switch in fabric.switches
            if switch.kind == "ocs"
        }

    def hold_against(self, link_error: float) -> Iterator[str]:
        """Have the generator and the model carry what the application sent; yield why not where they do not.

        Parameters
        ----------
        link_error
            The worst relative error of a sampled link.
        """
        plan = self._plan
        phases, scale = self._phases(), self._scale()
        # Where one cannot be had, the application's own result stands all the same, and so does the other.
        if plan.faults or plan.against:
            try:
                self._predicted_s = predicted_s(scale, phases, self._last_s, plan.faults)
            except LightrailError as error:
                yield f"the application is not predicted: {error}"
        if plan.against and not self._stopped:
            try:
                phase = heaviest(phases)
                what = f"phase {phases.index(phase) + 1} of the application"
                took_s = float(phase.end_s - phase.start_s)
                self._beside = beside(self._network, scale, phase, what, link_error, took_s)
            except LightrailError as error:
                yield f"nothing stands beside the application: {error}"

    def record(
        self,
        link_error: float,
        controls: Sequence[Control | None],
        broken: Sequence[str],
        effects: Mapping[str, object],
    ) -> AppRecord:
        """Return the record of the run.

        Parameters
        ----------
        link_error
            The worst relative error of a sampled link.
        controls
            Before and after the application; None where one could not be carried out.
        broken
            Settings that had not taken effect before it, a sentence each.
        effects
            The network's effective settings.
        """
        plan = self._plan
        measures = replace(
            self._watch.of_machine(link_error),
            retransmits=sum(each.resent for each in self._hosts),
            control_error=worst_error(controls),
        )
        verdict = app_verdict(
            measures,
            self._watch.switch_wait,
            controls,
            has_packets=not math.isnan(link_error),
            duration_s=self._last_s,
            unmet=list(dict.fromkeys([*broken, *self._watch.unmet])),
            stopped=self._stopped,
        )
        began_s = self._began_s
        tables = AppTables(
            self._counters.links(began_s),
            self._tap.traffic(began_s),
            self._tap.flows(began_s),
            self._tap.paths(began_s),
            light_table(self._logs, began_s, self._last_s),
        )
        return AppRecord(
            fabric=plan.fabric,
            command_line=plan.command_line,
            command=plan.command,
            launcher=plan.launcher,
            transport=f"tcp:{plan.host.congestion_control}" + (", MPTCP" if plan.mptcp else ""),
            rate_factor=plan.rate,
            started=self._started,
            duration_s=self._last_s,
            processes=tuple(self._processes()),
            verdict=verdict,
            measures=measures,
            hosts=self._hosts,
            tap=self._tap.counts,
            tick_s=self._counters.tick_s,
            tables=tables,
            compute_scale=plan.place.scale,
            stopped=self._stopped,
            events=tuple(sorted(self._events, key=lambda event: event.at_s)),
            beside=self._beside,
            predicted_s=self._predicted_s,
            pcaps=tuple(capture.name for capture in plan.captures),
            settings={
                **effects,
                "hosts": asdict(plan.host),
                "mtu": plan.mtu,
                "controls": [asdict(each) for each in controls if each],
                "switch_wait": self._watch.switch_wait,
            },
        )

    @property
    def _now_s(self) -> float:
        """The time since the application's start [s]."""
        return time.monotonic() - self._began_s

    def _heard(
        self, processes: AppProcesses, faults: FaultsInTime
    ) -> Iterator[Going | Wrote | EndedProcess | AppEvent]:
        """Yield what comes of the application while it runs, and carry out what is due."""
        plan, going_s, sent_bytes = self._plan, GOING_S, 0
        if plan.stop is not None:
            processes.register(plan.stop)
        while processes.labels and not self._stopped:
            yield from processes.heard(self._began_s + min(going_s, faults.next_s, plan.timeout_s))
            yield from faults.carry_out(lambda: self._now_s)
            if self._now_s >= going_s:
                self._network.check_alive()
                now_bytes = self._tap.wire_bytes
                yield Going(self._now_s, tuple(processes.labels), 8 * (now_bytes - sent_bytes) / GOING_S)
                going_s, sent_bytes = going_s + GOING_S, now_bytes
            self._stopped = self._why_stopped()
        if self._stopped:
            yield from processes.end()

    def _why_stopped(self) -> str:
        """Return why the application has to end now, a sentence; empty if it has not to."""
        plan = self._plan
        if plan.stop is not None and select.select([plan.stop], [], [], 0)[0]:
            return f"the run was {said_of(os.read(plan.stop, 1)[0])} after {self._now_s:.1f} s"
        if self._now_s >= plan.timeout_s:
            return f"the application was ended after --timeout {plan.timeout_s:g}"
        return ""

    def _noted(
        self, news: Iterable[Going | Wrote | EndedProcess | AppEvent]
    ) -> Iterator[Going | Wrote | EndedProcess | AppEvent]:
        """Keep what the record needs of what happens, and yield all of it."""
        for each in news:
            if isinstance(each, EndedProcess):
                self._ended[each.number] = each
                self._last_s = max(self._last_s, each.at_s - self._began_s)
            elif isinstance(each, AppEvent):
                self._events.append(each)
            yield each

    def _processes(self) -> Iterator[AppProcess]:
        for number, planned in enumerate(self._plan.launch.processes):
            ended = self._ended.get(number)
            code, end_s = (ended.code, ended.at_s - self._began_s) if ended else (None, self._last_s)
            file = output_file(planned.label)
            yield AppProcess(planned.host, number, planned.argv, code, max(end_s, 0.0), file)

    def _scale(self) -> AppScale:
        """Return how its bytes are carried again: over the NICs that flows took where a hash spread them."""
        plan = self._plan
        if plan.scheme != "ecmp":
            return plan.scale
        flows, paths = self._tap.flows(self._began_s), self._tap.paths(self._began_s)
        until_s = min((each.begins_s for each in plan.faults), default=math.inf)
        return replace(plan.scale, seen=seen_of(flows, paths, plan.fabric, until_s))

    def _phases(self) -> list[TrafficPhase]:
        traffic, servers = self._tap.traffic(self._began_s), len(self._plan.fabric.servers)
        return traffic_phases(traffic, servers, self._tap.counts.bin_s)


def output_file(label: str) -> str:
    """Return where in the results the output of a process is."""
    return f"hosts/{label}.out"
