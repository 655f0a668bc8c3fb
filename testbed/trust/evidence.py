"""The evidence: what a run did to the machine, from the machine's own counters; what is missing is NaN."""

import math
import os
import re
import resource
import time
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path

import pandas as pd

from testbed.core.run import Run
from testbed.live.emulate import EmulatedRun
from testbed.live.light_log import LightLog
from testbed.machine.pulse import PulseWatch
from testbed.machine.stalls import StallWatch, cpu_s, run_delay_s
from testbed.machine.wall_clock import wall_ahead_s
from testbed.network.network import Network
from testbed.network.readback import PortSetting, port_settings, unmet
from testbed.trust.outcome import Measures
from topologies.errors import NetworkError
from topologies.fabric import Port
from traffic.packets import frame_bytes, packet_bytes
from traffic.tables import PACKET_COUNTS, WIRE
from traffic.transports.loop import PacketCounts

FORWARDING = "softirq_s"
PRESSURE, STAT = Path("/proc/pressure/cpu"), Path("/proc/stat")


class Watch:
    """Counts what happens to the machine between entering and leaving; a context manager.

    Parameters
    ----------
    network
        What runs.
    failing
        The ports of links that are to fail, or to be slower. What is lost there is the fault's, not the
        machine's, and so is what meets a switch without a rule.
    restarts
        Whether the switches' daemon is to be killed: what it counts begins anew then, and is not known.
    relit
        Whether circuits change: what meets a switch without a rule is then mostly what the old rules
        carried (`_of_datagrams`). What is lost between circuits is sent again, which is counted.
    """

    def __init__(
        self,
        network: Network,
        failing: Collection[Port] = (),
        *,
        restarts: bool = False,
        relit: bool = False,
    ) -> None:
        self._network = network
        self._before_settings, self._settings = dict[Port, PortSetting](), dict[Port, PortSetting]()
        """What was read of the ports last but one, and last."""
        self._failing = frozenset(failing)
        self._restarts, self._relit = restarts, relit
        routers = network.wiring.routers
        self._has_daemon = any(switch.name not in routers for switch in network.fabric.switches)
        self._pid = 0 if restarts or not self._has_daemon else network.openvswitch.pid
        """The switches' daemon; 0 if it is not to be watched."""
        self._of_daemon = math.nan if self._has_daemon else 0.0
        """Each of the daemon's figures where it is not watched."""
        self._stalls = StallWatch(self._pid) if self._pid else None
        self._pulse = PulseWatch() if routers else None
        self._stack = ExitStack()

    def __enter__(self) -> "Watch":
        """Note all counters."""
        self._before = self._counters()
        for watch in (self._stalls, self._pulse):
            if watch:
                self._stack.enter_context(watch)
        return self

    def __exit__(self, kind: object, *_error: object) -> None:
        """Note them again, unless the run failed, and perhaps what counts with it."""
        self._stack.close()
        if kind is None:
            self._after = self._counters()

    @property
    def unmet(self) -> list[str]:
        """What the ports' settings no longer are when the run has ended, a sentence each."""
        return unmet(self._network, self._settings)

    def measures(self, emulation: EmulatedRun, worst_link_error: float) -> Measures:
        """Return what the run did to the machine."""
        light, change = emulation.light, self._change
        seconds = max(change["seconds"], 1e-9)
        own_cpu_s = change["engine_cpu_s"] + (change["switch_cpu_s"] if self._pid else 0.0)
        payload_bytes = light.payload_bytes if light else emulation.health.payload_bytes
        measures = replace(
            self.of_machine(worst_link_error),
            retransmits=emulation.health.retransmits,
            packets=math.ceil(payload_bytes / packet_bytes(self._network.mtu)),
            engine_cpu=change["engine_cpu_s"] / seconds,
            other_cpu=max(change["all_cpu_s"] - own_cpu_s, 0.0) / seconds,
            stall_s=emulation.health.stall_s,
            lateness_s=emulation.health.lateness_s,
            late_packets=0.0,
            away=emulation.health.away,
            aggregate_bps=8.0 * payload_bytes / max(emulation.emulated_s, 1e-9),
            sent_over_granted=emulation.sent_over_granted,
        )
        if packets := emulation.packets:
            counts = {f"packets_{name}": count for name, count in asdict(packets).items()}
            late_packets = emulation.health.lateness_s / self._packet_s
            measures = replace(measures, late_packets=late_packets, **counts)
        return _of_datagrams(measures, light) if light else measures

    def of_machine(self, worst_link_error: float) -> Measures:
        """Return the machine's own counters, whatever sends the packets; all else is unknown."""
        change = self._change
        seconds = max(change["seconds"], 1e-9)
        switch_cpu_s = change["switch_cpu_s"] if self._pid else 0.0
        sent = [each for port, each in self._sent.items() if port.node in self._network.fabric.server_index]
        return Measures(
            packets=sum(packets for packets, _ in sent),
            queue_drops=change["queue_drops"],
            queue_marks=change["queue_marks"],
            socket_drops=change["socket_drops"],
            switch_drops=change["switch_drops"],
            cpu_pressure=change["pressure_s"] / seconds,
            switch_cpu=self._switch_cpu,
            other_cpu=max(change["all_cpu_s"] - switch_cpu_s, 0.0) / seconds,
            switch_stall_s=max(
                self._stalls.longest_s if self._stalls else self._of_daemon,
                self._pulse.longest_s if self._pulse else 0.0,
            ),
            clock_step_s=change["wall_ahead_s"],
            aggregate_bps=8.0 * sum(size for _, size in sent) / seconds,
            worst_link_error=worst_link_error,
        )

    @property
    def _packet_s(self) -> float:
        """Time of a packet at the fastest NIC, at emulated scale, not rounded up as transports do [s]."""
        network = self._network
        fastest_bps = max(map(network.fabric.nic_rate_bps, network.fabric.nics)) * network.rate_factor
        return 8 * frame_bytes(network.mtu) / fastest_bps

    @property
    def _switch_cpu(self) -> float:
        """CPUs that the switches' daemon used; if packet switches route, the busiest CPU's share of that.

        The daemon has one thread, and the kernel forwards on any CPU.
        """
        change = self._change
        busiest_s = max((change[name] for name in change if name.startswith(FORWARDING)), default=0.0)
        return max(change["switch_cpu_s"], busiest_s) / max(change["seconds"], 1e-9)

    @property
    def switch_wait(self) -> float:
        """The share of the time in which switches waited for a CPU; NaN if unknown, 0..1."""
        change = self._change
        waited_s = max(change["switch_wait_s"], self._pulse.late_s if self._pulse else 0.0)
        return waited_s / max(change["seconds"], 1e-9)

    @property
    def _sent(self) -> dict[Port, tuple[int, int]]:
        """The packets and the bytes that each port sent meanwhile."""
        return {
            port: (after.sent_packets - before.sent_packets, after.sent_bytes - before.sent_bytes)
            for port, after in self._settings.items()
            for before in [self._before_settings[port]]
        }

    def wired(self, run: Run) -> Run:
        """Return a run with what each port sent meanwhile in its tables, by the interfaces' counters."""
        ports = tuple(dict.fromkeys([*run.tables.ports, *sorted(self._settings)]))
        rows = [
            (
                ports.index(port),
                sent_bytes,
                sent_packets,
                after.drops + after.unsent - before.drops - before.unsent,
            )
            for port, (sent_packets, sent_bytes) in sorted(self._sent.items())
            for before, after in [(self._before_settings[port], self._settings[port])]
        ]
        wire = pd.DataFrame(rows, columns=list(WIRE)).astype(WIRE)
        return Run(replace(run.tables, wire=wire, ports=ports))

    def with_packets(self, run: Run, packets: PacketCounts | None) -> Run:
        """Return a run with what became of its packets in its tables, where they are datagrams.

        What switches dropped is known only if all packets that meet no rule count among it.
        """
        if packets is None:
            return run
        drops = {name: self._change[name] for name in ("queue_drops", "socket_drops", "switch_drops")}
        if self._failing or self._relit:
            drops["switch_drops"] = math.nan
        known = {name: -1 if math.isnan(count) else round(count) for name, count in drops.items()}
        table = pd.DataFrame([asdict(packets) | known]).astype(PACKET_COUNTS)
        return Run(replace(run.tables, packets=table))

    @property
    def _change(self) -> dict[str, float]:
        """By how much each counter grew meanwhile."""
        return {name: self._after[name] - self._before[name] for name in self._before}

    def _counters(self) -> dict[str, float]:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        self._before_settings, self._settings = self._settings, port_settings(self._network)
        settings = [setting for port, setting in self._settings.items() if port not in self._failing]
        switches, pid = self._network.fabric.switches, self._pid
        forwarding_s = softirq_s() if self._network.wiring.routers else ()
        return {
            **{f"{FORWARDING} {cpu}": used_s for cpu, used_s in enumerate(forwarding_s)},
            "seconds": time.monotonic(),
            "wall_ahead_s": wall_ahead_s(),
            "pressure_s": cpu_pressure_s(),
            "engine_cpu_s": usage.ru_utime + usage.ru_stime,
            "all_cpu_s": all_cpu_s(),
            "switch_cpu_s": cpu_s(pid) if pid else self._of_daemon,
            "switch_wait_s": run_delay_s(pid) if pid else self._of_daemon,
            "queue_drops": sum(setting.drops for setting in settings),
            "queue_marks": sum(setting.marked for setting in settings),
            "socket_drops": sum(s.lost for s in settings) + self._daemon_drops,
            "switch_drops": sum(self._switch_drops(switch.name) for switch in switches),
        }

    @property
    def _daemon_drops(self) -> float:
        return self._network.openvswitch.packet_drops() if self._has_daemon else 0

    def _switch_drops(self, switch: str) -> float:
        if self._restarts:
            return math.nan
        if switch in self._network.wiring.routers:
            return 0 if self._failing else self._network.switches.dropped(switch)
        try:
            status = self._network.northbound.ports(switch)
        except NetworkError:  # it is not connected
            return math.nan
        works = [port for port in status.ports if Port(switch, port.port) not in self._failing]
        missed = 0 if self._failing or self._relit else status.table_miss_packets
        return missed + sum(port.rx_dropped + port.tx_dropped for port in works)


def _of_datagrams(measures: Measures, light: LightLog) -> Measures:
    """Return measures over circuits, where what was lost is known datagram by datagram.

    Open vSwitch's own count of packets without a rule is of no use there: when rules change it counts
    what the old ones carried, some hundred packets that all arrived. Nor is there a rate to sample: light
    does not queue.
    """
    return replace(
        measures,
        retransmits=-(-light.lost_bytes * light.datagrams // max(light.payload_bytes, 1)),
        packets=light.datagrams,
        switch_drops=math.nan,
        stall_s=math.nan,
        lateness_s=light.lateness_s,
    )


def cpu_pressure_s() -> float:
    """Return for how long so far some process waited for a CPU; NaN where the kernel does not say."""
    try:
        text = PRESSURE.read_text()
    except OSError:
        return math.nan
    return int(text.split("total=")[1].split()[0]) / 1e6


def softirq_s() -> tuple[float, ...]:
    """Return how long each CPU has done the kernel's deferred work, forwarding among it [s] (proc(5))."""
    lines = [line.split() for line in STAT.read_text().splitlines() if re.match(r"cpu\d", line)]
    return tuple(int(words[7]) / os.sysconf("SC_CLK_TCK") for words in lines)


def all_cpu_s() -> float:
    """Return the CPU time that all processes of the machine have used, or its host took [s] (proc(5))."""
    user, nice, system, _idle, _waits, irq, softirq, stolen = map(int, STAT.read_text().split()[1:9])
    return (user + nice + system + irq + softirq + stolen) / os.sysconf("SC_CLK_TCK")
