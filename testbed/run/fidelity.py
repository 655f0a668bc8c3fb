"""Fidelity: whether this machine carried an emulation as the model says, and how one can tell.

Before a run a sample of links is measured against its nominal rate (`testbed.network.link_sample`). During
the run the machine's own counters say whether something waited for a CPU, and whether packets were
lost where no queue was full. Afterwards the result must be near its prediction, not far above and
not far below, and must not beat its lower bound.
"""

import math
import os
import resource
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from testbed.network.network import Network
from testbed.network.readback import port_settings
from testbed.run.emulate import Emulation
from testbed.run.light_log import LightLog
from testbed.run.outcome import Measures, Verdict, Word
from traffic.packets import packet_bytes

VOID_LINK_ERROR, STRAINED_LINK_ERROR = 0.10, 0.04
VOID_SOCKET_LOSS, VOID_SWITCH_LOSS = 1e-3, 1e-3
STRAINED_RETRANSMITS = 0.02
VOID_LATENESS_S, STRAINED_LATENESS_S = 0.05, 0.01
VOID_PRESSURE, STRAINED_PRESSURE = 0.80, 0.60
BELOW_BOUND = 0.98
VOID_RATIO, STRAINED_RATIO = 1.5, 1.15
VOID_SHORTER, STRAINED_SHORTER = 0.67, 0.90
"""Measured over predicted CCT. On a quiet machine proactive schemes took 0.98 to 1.03 of it, reactive ones
0.98 to 1.24, schedules over OCSes 0.98 to 1.16; what a token bucket lends is 1 or 2 %."""
LONGER_OR_SHORTER = "it took {:.2f} times the prediction"
SHORT_S = 0.1
"""What takes less at emulated scale shows how a run starts, and little else [s]."""
ADVICE: dict[Word, str] = {
    "void": "lower --emulated-rate, or end what else runs on this machine",
    "strained": "repeat it on an idle machine, or lower --emulated-rate",
}
LIGHT_ADVICE: dict[Word, str] = {
    "void": ADVICE["void"],
    "strained": "raise --slot-ms, or repeat it on an idle machine",
}
LOSSY_ADVICE = (
    "lower --loss or --link-delay-us: with each loss TCP lowers its window, as the ideal transport would not"
)


class Watch:
    """Counts what happens to the machine between entering and leaving; a context manager."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def __enter__(self) -> "Watch":
        """Note all counters."""
        self._before = self._counters()
        return self

    def __exit__(self, *_error: object) -> None:
        """Note them again."""
        self._after = self._counters()

    def measures(self, emulation: Emulation, worst_link_error: float) -> Measures:
        """Return what the run did to the machine."""
        light = emulation.light
        change = {name: self._after[name] - self._before[name] for name in self._before}
        seconds = max(change["seconds"], 1e-9)
        payload_bytes = light.payload_bytes if light else emulation.health.payload_bytes
        measures = Measures(
            retransmits=emulation.health.retransmits,
            packets=int(payload_bytes / packet_bytes(self._network.mtu)) + 1,
            queue_drops=int(change["queue_drops"]),
            socket_drops=int(change["socket_drops"]),
            switch_drops=int(change["switch_drops"]),
            cpu_pressure=change["pressure_s"] / seconds,
            switch_cpu=change["switch_cpu_s"] / seconds,
            engine_cpu=change["engine_cpu_s"] / seconds,
            lateness_s=emulation.health.lateness_s,
            aggregate_bps=8.0 * payload_bytes / max(emulation.emulated_s, 1e-9),
            worst_link_error=worst_link_error,
        )
        return _of_datagrams(measures, light) if light else measures

    def _counters(self) -> dict[str, float]:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        settings = port_settings(self._network).values()
        return {
            "seconds": time.monotonic(),
            "pressure_s": _cpu_pressure_s(),
            "engine_cpu_s": usage.ru_utime + usage.ru_stime,
            "switch_cpu_s": _cpu_s(self._network.openvswitch.pid),
            "queue_drops": sum(setting.drops for setting in settings),
            "socket_drops": self._network.openvswitch.packet_drops() + sum(s.lost for s in settings),
            "switch_drops": sum(_switch_drops(self._network, s.name) for s in self._network.fabric.switches),
        }


def _of_datagrams(measures: Measures, light: LightLog) -> Measures:
    """Return measures over circuits, where what was lost is known datagram by datagram.

    Open vSwitch's own count of packets without a rule is of no use there: when rules change it counts
    what the old ones carried, some hundred packets that all arrived.
    """
    return replace(
        measures,
        retransmits=-(-light.lost_bytes * light.datagrams // max(light.payload_bytes, 1)),
        packets=light.datagrams,
        switch_drops=0,
        lateness_s=light.lateness_s,
    )


def verdict_of_light(
    measures: Measures,
    light: LightLog,
    *,
    measured_s: float,
    predicted_s: float,
    unmet: Sequence[str] = (),
) -> Verdict:
    """Return whether a schedule's result can be believed; senders who do not drain lose light by choice.

    How late the engine heard of light decides too. It is void where a reconfiguration failed or a connection
    was lost, also if all bytes came later. Parameters are those of `verdict`.
    """
    failed = [entry.error for log in light.logs.values() for entry in log if entry.error]
    judged = verdict(
        replace(measures, retransmits=0),
        measured_s=measured_s,
        predicted_s=predicted_s,
        bound_s=light.lower_bound_s,
        unmet=[*unmet, *failed],
    )
    lost = measures.retransmits / max(measures.packets, 1)
    drains = light.experiment.plan.setup.meeting == "drain"
    if drains and lost > STRAINED_RETRANSMITS and judged.word == "faithful":
        judged = Verdict("strained", (f"{lost:.1%} of the datagrams were lost although senders drained",))
    return replace(judged, advice=LIGHT_ADVICE.get(judged.word, ""))


def verdict(
    measures: Measures,
    *,
    measured_s: float,
    predicted_s: float,
    bound_s: float,
    emulated_s: float = math.inf,
    unmet: Sequence[str] = (),
    loss: float = 0.0,
) -> Verdict:
    """Return whether a result can be believed, and if not why and what to change.

    Parameters
    ----------
    measures
        What was seen of the machine; NaN where nothing was measured.
    measured_s, predicted_s, bound_s
        The CCT, its prediction and its lower bound [real seconds].
    emulated_s
        The prediction at emulated scale [s]; a short run is advised of that.
    unmet
        Settings that did not take effect, a sentence each.
    loss
        Share of packets that links are to lose on the worst path.
    """
    ratio = _over_predicted(measured_s, predicted_s, bound_s)
    void = [*unmet[:3], *_exceeded(measures, ratio, loss, void=True)]
    if math.isnan(ratio):
        void.append(
            f"it took {measured_s:g} s, the prediction is {predicted_s:g} s and the bound {bound_s:g} s, "
            "which cannot be compared"
        )
    if measured_s < BELOW_BOUND * bound_s:
        void.append(
            f"it took {measured_s / bound_s:.2f} of the least time possible, so something was not measured"
        )
    if void:
        return Verdict("void", tuple(void), _advice("void", emulated_s, ratio, loss))
    strained = _exceeded(measures, ratio, loss, void=False)
    if strained:
        return Verdict("strained", tuple(strained), _advice("strained", emulated_s, ratio, loss))
    return Verdict("faithful")


def _over_predicted(measured_s: float, predicted_s: float, bound_s: float) -> float:
    """Return the measured time over the predicted: 1 if nothing was owed, NaN if there is no such number."""
    if measured_s == predicted_s == bound_s == 0:
        return 1.0
    comparable = math.isfinite(measured_s) and 0 < predicted_s < math.inf and math.isfinite(bound_s)
    return measured_s / predicted_s if comparable else math.nan


def _advice(word: Word, emulated_s: float, ratio: float, loss: float) -> str:
    """Return what to change; a trace that is too small is so at any rate, and a lossy path at any."""
    if emulated_s < SHORT_S:
        return f"send more bytes: these take under {SHORT_S:g} s here, too little to be timed"
    return LOSSY_ADVICE if loss and ratio > STRAINED_RATIO else ADVICE[word]


def _exceeded(measures: Measures, ratio: float, loss: float, void: bool) -> list[str]:
    """Return a sentence for each measure outside its limits."""
    packets = max(measures.packets, 1)
    limits: list[tuple[float, float, float, str]] = [
        (
            abs(measures.worst_link_error),
            VOID_LINK_ERROR,
            STRAINED_LINK_ERROR,
            "a sampled link is {:.1%} off its rate",
        ),
        (
            measures.socket_drops / packets,
            VOID_SOCKET_LOSS,
            0.0,
            "Open vSwitch was too slow for {:.2%} of the packets",
        ),
        (
            measures.switch_drops / packets,
            VOID_SWITCH_LOSS,
            0.0,
            "Open vSwitch dropped {:.2%} of the packets",
        ),
        (measures.lateness_s, VOID_LATENESS_S, STRAINED_LATENESS_S, "the engine was {:.3f} s late"),
        (
            measures.cpu_pressure,
            VOID_PRESSURE,
            STRAINED_PRESSURE,
            "something waited for a CPU {:.0%} of the time",
        ),
        (
            measures.retransmits / packets,
            1.0,
            STRAINED_RETRANSMITS + loss,
            "TCP sent {:.1%} of the packets again",
        ),
        (ratio, VOID_RATIO, STRAINED_RATIO, LONGER_OR_SHORTER),
    ]
    exceeded = [
        words.format(value)
        for value, void_limit, strained_limit, words in limits
        if value > (void_limit if void else strained_limit)
    ]
    if ratio < (VOID_SHORTER if void else STRAINED_SHORTER):
        exceeded.append(LONGER_OR_SHORTER.format(ratio))
    return exceeded


def _cpu_pressure_s() -> float:
    """Return for how long so far some process waited for a CPU; 0 where the kernel does not say."""
    try:
        text = Path("/proc/pressure/cpu").read_text()
    except OSError:
        return 0.0
    return int(text.split("total=")[1].split()[0]) / 1e6


def _cpu_s(pid: int) -> float:
    if not pid:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _switch_drops(network: Network, switch: str) -> int:
    ports = network.northbound.ports(switch)
    return ports.table_miss_packets + sum(p.rx_dropped + p.tx_dropped for p in ports.ports)
