"""What a run did to the machine, by counters that are made up before and after it."""

import math
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from controller.circuits.status import PortCounters, PortStatus
from testbed.live.emulate import EmulatedRun
from testbed.machine.processes import beside
from testbed.machine.wall_clock import STEP_S, wall_ahead_s
from testbed.model.predict import predict
from testbed.network.network import Network
from testbed.network.readback import PortSetting
from testbed.trust import evidence
from testbed.trust.evidence import Watch
from testbed.trust.fidelity import verdict
from tests.testbed.cases import HEALTHY, experiment_of, small_fabric
from tests.traffic.relay import taken_back
from topologies.fabric import Port
from traffic.packets import DEFAULT_MTU, frame_bytes
from traffic.transports.loop import Health, PacketCounts
from traffic.workloads.synthetic import uniform

FABRIC = small_fabric()
RUN = predict(experiment_of(FABRIC, uniform(4), "rails"))
RATE = 2e-3
COUNTS = PacketCounts(sent=1000, arrived=950, anew=40, late=7)
PORTS = sorted(FABRIC.link_at)
SETTING = PortSetting(None, None, DEFAULT_MTU, 0, 0, 0, 0, 0, 0)


class Machine:
    """A machine whose counters stand still while nothing happens, and move when it is told to drop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.queue = self.late = self.refused = self.missed = 0
        """What queues dropped, sockets were too slow for, switches dropped, and no rule was for."""
        monkeypatch.setattr(evidence, "port_settings", self._settings)
        self.network = cast(
            Network,
            SimpleNamespace(
                fabric=FABRIC,
                mtu=DEFAULT_MTU,
                rate_factor=RATE,
                wiring=SimpleNamespace(routers={}),
                openvswitch=SimpleNamespace(pid=0, packet_drops=lambda: self.late),
                northbound=SimpleNamespace(ports=self._ports),
            ),
        )

    def drops(self, **counts: int) -> None:
        """Have counters grow."""
        vars(self).update({name: getattr(self, name) + count for name, count in counts.items()})

    def _settings(self, _network: Network) -> dict[Port, PortSetting]:
        first, *others = PORTS
        return {first: replace(SETTING, drops=self.queue), **dict.fromkeys(others, SETTING)}

    def _ports(self, switch: str) -> PortStatus:
        is_first = switch == FABRIC.switches[0].name
        counters = PortCounters(0, 0, 0, 0, 0, self.refused if is_first else 0, 0)
        return PortStatus((counters,), self.missed if is_first else 0)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return a machine that has dropped something before."""
    made = Machine(monkeypatch)
    made.drops(queue=11, late=22, refused=33, missed=44)
    return made


def rows_of(watch: Watch, packets: PacketCounts | None = COUNTS) -> list[tuple[int, ...]]:
    """Return the rows of the table of packets: sent, arrived, anew, late, and three kinds of drops."""
    table = watch.with_packets(RUN, packets).tables.packets
    return [tuple(map(int, row)) for row in table.itertuples(index=False, name=None)]


def test_packets_stand_beside_what_was_dropped_meanwhile(machine: Machine) -> None:
    with Watch(machine.network) as watch:
        machine.drops(queue=20, late=5, refused=3, missed=1)
    assert rows_of(watch) == [(1000, 950, 40, 7, 20, 5, 4)]
    assert rows_of(watch, None) == []


@pytest.mark.parametrize("how", [{"relit": True}, {"failing": PORTS[-1:]}, {"restarts": True}])
def test_what_switches_dropped_is_unknown_where_not_all_of_it_counts(
    machine: Machine, how: dict[str, bool]
) -> None:
    with Watch(machine.network, **how) as watch:  # type: ignore[arg-type]
        machine.drops(queue=20, late=5, refused=3, missed=1)
    assert rows_of(watch) == [(1000, 950, 40, 7, 20, 5, -1)]


class Pulses:
    """Stands for pulses that were late."""

    longest_s, late_s = 0.2, 1e6

    def __enter__(self) -> "Pulses":
        return self

    def __exit__(self, *_error: object) -> None:
        pass


def test_switches_that_route_are_judged_by_the_kernels_counts(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    switches = [switch.name for switch in FABRIC.switches]
    dropped = SimpleNamespace(dropped=lambda switch: machine.missed if switch == switches[0] else 0)
    routing = SimpleNamespace(routers=dict.fromkeys(switches, 0))
    vars(machine.network).update(wiring=routing, switches=dropped)
    monkeypatch.setattr(evidence, "PulseWatch", Pulses)
    monkeypatch.setattr(evidence, "STAT", tmp_path / "stat")
    (tmp_path / "stat").write_text(stat(0, 0))
    with Watch(machine.network) as watch:
        machine.drops(queue=20, late=5, refused=3, missed=7)
        (tmp_path / "stat").write_text(stat(10, 10**6))
    assert rows_of(watch) == [(1000, 950, 40, 7, 20, 0, 7)], "Open vSwitch's own counts are none of theirs"
    seen = watch.of_machine(0.0)
    assert seen.switch_stall_s == Pulses.longest_s
    assert seen.switch_cpu > 1000, "of the CPU that forwarded most"
    assert watch.switch_wait > 1000


def stat(*softirq_ticks: int) -> str:
    """Return a /proc/stat in which CPUs did so much of the kernel's deferred work."""
    rows = [f"cpu{number} 0 0 0 0 0 0 {ticks} 0 0 0" for number, ticks in enumerate(softirq_ticks)]
    return "\n".join([f"cpu 0 0 0 0 0 0 {sum(softirq_ticks)} 0 0 0", *rows, "intr 0"])


def test_measures_have_what_became_of_packets_where_that_is_known(machine: Machine) -> None:
    with Watch(machine.network) as watch:
        pass
    known, unknown = (
        watch.measures(EmulatedRun(RUN, {}, health, 1.0), 0.0)
        for health in (Health(packets=COUNTS), Health())
    )
    names = ("packets_sent", "packets_arrived", "packets_anew", "packets_late")
    assert [getattr(known, name) for name in names] == [1000, 950, 40, 7]
    assert all(math.isnan(getattr(unknown, name)) for name in names)


@pytest.mark.parametrize(("packets", "late"), [(COUNTS, 3.0), (PacketCounts(), 0.0)])
def test_lateness_counts_in_packets_of_a_nic_where_the_engine_sends_them(
    machine: Machine, packets: PacketCounts, late: float
) -> None:
    with Watch(machine.network) as watch:
        pass
    a_packet_s = 8 * frame_bytes(DEFAULT_MTU) / (RATE * FABRIC.nic_rate_bps(FABRIC.nics[0]))
    health = Health(packets=packets, lateness_s=3 * a_packet_s)
    seen = watch.measures(EmulatedRun(RUN, {}, health, 1.0), 0.0)
    assert seen.late_packets == pytest.approx(late)


@pytest.mark.parametrize("step_s", [0.0, 1e-5, 3.0, -3600.0, 0.002])
def test_a_wall_clock_that_is_set_during_a_run_makes_it_strained_and_slewing_does_not(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, step_s: float
) -> None:
    ahead_s = iter([1.7e9, 1.7e9 + step_s])
    monkeypatch.setattr(evidence, "wall_ahead_s", lambda: next(ahead_s))
    with Watch(machine.network) as watch:
        pass
    seen = watch.measures(EmulatedRun(RUN, {}, Health(packets=COUNTS), 1.0), 0.0)
    assert seen.clock_step_s == pytest.approx(step_s, abs=1e-6)
    judged = verdict(replace(HEALTHY, clock_step_s=seen.clock_step_s), measured_s=1.0, bound_s=1.0)
    reason = f"this machine's clock was set by {abs(step_s):.3f} s during the run, or it was suspended"
    strained = ("strained", (reason,))
    assert (judged.word, judged.reasons) == (strained if abs(step_s) > 1e-3 else ("faithful", ()))


def test_what_other_processes_use_of_cpus_is_counted(machine: Machine) -> None:
    burnt_s = 0.5
    with Watch(machine.network) as watch, beside(partial(burn, burnt_s)):
        began_at = time.monotonic()
        time.sleep(burnt_s)
    seen = watch.measures(EmulatedRun(RUN, {}, Health(packets=COUNTS), 1.0), 0.0)
    assert seen.engine_cpu < 0.5 * burnt_s
    assert seen.other_cpu * (time.monotonic() - began_at) > 0.1 * burnt_s


def burn(seconds: float) -> None:
    """Use a CPU for some time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


def test_the_wall_clock_is_as_far_ahead_a_moment_later_and_later_where_it_was_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = wall_ahead_s()
    assert abs(wall_ahead_s() - before) < STEP_S
    now_ns = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now_ns() - 2 * 10**9)
    assert wall_ahead_s() - before == pytest.approx(-2, abs=STEP_S)


def test_an_engine_of_datagrams_says_what_became_of_its_packets() -> None:
    assert EmulatedRun(RUN, {}, Health(packets=COUNTS), 1.0).packets == COUNTS
    assert EmulatedRun(RUN, {}, Health(), 1.0).packets is None  # nothing went over packet switches
    assert taken_back(COUNTS) == 10
