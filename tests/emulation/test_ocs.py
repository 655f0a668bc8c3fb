"""Circuits on the wire: light goes where it should and nowhere else, and a schedule delivers all bytes."""

import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
from mininet.cli import CLI

from controller.circuits.devices import ReconfigurationDelay
from controller.schedulers.registry import SCHEDULERS
from controller.schedulers.schedule import Schedule
from controller.schedulers.schedule import Slot as ScheduleSlot
from testbed.cli.cli import FabricCLI
from testbed.experiment.dilation import Dilation
from testbed.experiment.ocs_plan import plan_of
from testbed.live.emulate import emulate
from testbed.machine.residue import until
from testbed.network.network import READY_S
from testbed.network.openvswitch import vsctl
from testbed.trust.trial import tried
from tests.emulation.conftest import Booted
from tests.emulation.live import Live
from tests.testbed.ocs_cases import light_of, partially, planned
from topologies.addresses import nic_ip
from topologies.errors import DemandError, NetworkError, ScenarioError
from topologies.fabric import Nic
from topologies.parallel_ocs import parallel_ocs_fabric
from traffic.demand import Demand

pytestmark = pytest.mark.emulation

OCS, DELAY_S, LIT_S = "ocs0", 0.02, 20.0
HEARD_S = 3.0
PORT = 9000
DELAY = ReconfigurationDelay("delay", 0.5e-3)


def light(net: Live, circuits: str, **options: bool) -> None:
    """Light circuits and wait until they are lit."""
    net.network.northbound.light(OCS, circuits, **options)  # type: ignore[arg-type]  # flags
    net.network.northbound.wait_idle(OCS, LIT_S)


def heard(net: Live, source: int) -> set[int]:
    """Return which servers a server's light reaches, whoever it was sent to."""
    servers = range(len(net.fabric.servers))
    sender = net.open(source, socket.SOCK_DGRAM)
    listeners = {server: net.open(server, socket.SOCK_DGRAM) for server in servers if server != source}
    for server, listener in listeners.items():
        listener.bind((str(nic_ip(net.fabric, Nic(server, 0))), PORT))
        listener.setblocking(False)
        sender.sendto(b"light", (str(nic_ip(net.fabric, Nic(server, 0))), PORT))
    deadline = time.monotonic() + HEARD_S
    reached: set[int] = set()
    while time.monotonic() < deadline and not reached:
        for server, listener in listeners.items():
            try:
                listener.recv(16)
                reached.add(server)
            except BlockingIOError:
                continue
    for each in (sender, *listeners.values()):
        each.close()
    return reached


def test_light_goes_one_way_to_one_port(booted: Booted) -> None:
    with booted(parallel_ocs_fabric(4, 1)) as net:
        assert heard(net, 0) == set()
        light(net, "0>2 2>1")
        assert (heard(net, 0), heard(net, 1), heard(net, 2)) == ({2}, set(), {1})
        assert net.network.northbound.ports(OCS).table_miss_packets > 0  # what fell into the dark is counted


def test_what_cannot_be_lit_is_refused_and_changes_nothing(booted: Booted) -> None:
    with booted(parallel_ocs_fabric(4, 1)) as net:
        light(net, "0>2")
        for circuits in ("0>1 0>2", "0>4", "0>1 2>1"):
            with pytest.raises(DemandError):
                net.network.northbound.light(OCS, circuits)
        assert net.network.northbound.ocs(OCS).circuits == ((0, 2),)
        assert heard(net, 0) == {2}


def test_the_log_keeps_the_delay(booted: Booted) -> None:
    with booted(parallel_ocs_fabric(4, 1)) as net:
        net.network.northbound.set_delay(OCS, ReconfigurationDelay("test", DELAY_S))
        light(net, "0>2")
        light(net, "0>1")
        entry = net.network.northbound.ocs_log(OCS)[-1]
        assert entry.command_s <= (entry.dark_s or 0) <= (entry.lit_s or 0) - DELAY_S


def refuse_circuits() -> None:
    """Have the OCS' table be full with the rule for packets that miss all others."""
    vsctl(
        "--",
        "--id=@one",
        "create",
        "Flow_Table",
        "flow_limit=1",
        "--",
        "set",
        "bridge",
        OCS,
        "flow_tables:0=@one",
    )


REFUSAL = f"switch {OCS} refused a message: OFPET_FLOW_MOD_FAILED(5), OFPFMFC_TABLE_FULL(1)"


def test_what_open_vswitch_refuses_is_dark_in_the_log_and_on_the_wire(booted: Booted) -> None:
    with booted(parallel_ocs_fabric(4, 1)) as net:
        refuse_circuits()
        with pytest.raises(NetworkError, match=re.escape(REFUSAL)):
            light(net, "0>2")
        entry = net.network.northbound.ocs_log(OCS)[-1]
        assert (entry.circuits, entry.lit_s, entry.error) == (((0, 2),), None, REFUSAL)
        assert net.network.northbound.ocs(OCS).circuits == ()
        assert heard(net, 0) == set()
        vsctl("clear", "bridge", OCS, "flow_tables")
        light(net, "0>2")
        assert heard(net, 0) == {2}


def test_a_schedule_that_open_vswitch_refuses_ends_in_its_sentence(booted: Booted) -> None:
    fabric, demand = parallel_ocs_fabric(4, 2), np.where(np.eye(4, dtype=bool), 0, 20_000_000)
    experiment = planned(fabric, Demand("even", demand), "spectra", DELAY, Dilation(2e-4, 4e-3))
    with booted(fabric, experiment.dilation.rate) as net:
        refuse_circuits()
        with pytest.raises(NetworkError, match=re.escape(REFUSAL)):
            emulate(experiment, net.network)


def test_equal_seeds_draw_equal_delays_whatever_ran_before_in_the_same_boot(booted: Booted) -> None:
    fabric, demand = parallel_ocs_fabric(4, 2), np.where(np.eye(4, dtype=bool), 0, 20_000_000)
    first = planned(
        fabric,
        Demand("even", demand),
        "spectra",
        ReconfigurationDelay("delay", 1e-3, 2e-3),
        Dilation(2e-4, 4e-3),
        seed=1,
    )
    slots = [len(slots) for slots in plan_of(first.rule).schedule.switches]
    with booted(fabric, first.dilation.rate) as net:
        runs = [light_of(tried(each, net.network)) for each in (first, replace(first, seed=2), first)]
    one, other, again = ([d[:n] for d, n in zip(run.delays_s.values(), slots, strict=True)] for run in runs)
    assert sum(map(len, one)) == sum(slots)
    assert one == again
    assert not set(chain(*one)) & set(chain(*other))
    assert not set(one[0]) & set(one[1])


def test_a_schedule_keeps_unchanged_circuits_lit_only_with_partial_reconfigurations(
    booted: Booted, monkeypatch: pytest.MonkeyPatch
) -> None:
    slots = tuple(ScheduleSlot(np.array(outputs), 10e-3) for outputs in ([1, 2, 0], [1, 0, -1]))
    monkeypatch.setitem(SCHEDULERS, "rotor", lambda _line_s, _ocses, delay_s: Schedule((slots,), delay_s))
    line_s = np.array([[0, 17.5e-3, 0], [2e-3, 0, 5e-3], [5e-3, 0, 0]])
    demand = Demand("kept", np.rint(line_s * 100e9 / 8).astype(np.int64))
    fabric, delay = parallel_ocs_fabric(3, 1), ReconfigurationDelay("delay", 5e-3)
    experiment = planned(fabric, demand, "rotor", delay, Dilation(2e-4, 4e-3))
    dark, kept = experiment, partially(experiment)
    with booted(fabric, experiment.dilation.rate) as net:
        results = [tried(each, net.network) for each in (dark, kept)]
    lights = [light_of(outcome) for outcome in results]
    for outcome, shown, darkened, cct_s in zip(results, lights, (3, 2), (27.5e-3, 22.5e-3), strict=True):
        of_the_schedule = [entry for entry in shown.logs[OCS] if entry.circuits][:2]
        assert [entry.darkened for entry in of_the_schedule] == [0, darkened]
        assert outcome.predicted_s == pytest.approx(cct_s)
        assert cct_s < shown.cct_s
    assert lights[1].cct_s < lights[0].cct_s


def test_an_ocs_that_loses_its_controller_goes_dark_and_delivers_the_rest_later(booted: Booted) -> None:
    fabric, demand = parallel_ocs_fabric(4, 2), np.where(np.eye(4, dtype=bool), 0, 20_000_000)
    long = Dilation(2e-4, 4e-2)
    experiment = planned(fabric, Demand("even", demand), "spectra", DELAY, long)
    with booted(fabric, experiment.dilation.rate) as net, ThreadPoolExecutor() as pool:

        def reconnect() -> None:
            assert until(lambda: net.network.northbound.ocs(OCS).circuits != (), LIT_S)
            controller = vsctl("get-controller", OCS).strip()
            vsctl("del-controller", OCS)
            vsctl("set-controller", OCS, controller)

        reconnected = pool.submit(reconnect)
        outcome = tried(experiment, net.network)
        reconnected.result()
    shown = light_of(outcome)
    assert outcome.verdict.word == "void"
    assert f"the connection to OCS {OCS} was lost" in outcome.verdict.reasons[0]
    assert len(shown.undelivered_bytes) > 1, "the program ended with the connection"
    assert shown.undelivered_bytes[-1] == 0


def test_an_ocs_that_loses_its_controller_in_a_long_reconfiguration_says_so_and_comes_back_dark(
    booted: Booted, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CLI, "__init__", lambda self, mininet: None)  # it would read lines at once
    with booted(parallel_ocs_fabric(4, 1)) as net:
        northbound, cli = net.network.northbound, FabricCLI(net.network, {})
        light(net, "1>3")
        northbound.set_delay(OCS, ReconfigurationDelay("slow", 10.0))
        northbound.light(OCS, "0>2 1>3")
        assert heard(net, 1) == {3}, "what is kept carries on"
        controller = vsctl("get-controller", OCS).strip()
        vsctl("del-controller", OCS)
        with pytest.raises(NetworkError, match=f"OCS {OCS} is not connected"):
            northbound.wait_idle(OCS, LIT_S)
        cli.onecmd(f"light {OCS} 0>1")
        said = " ".join(capsys.readouterr().out.split())
        absent = f"OCS {OCS} is not connected, or not proved to be dark yet; wait until its switch is back"
        assert said == absent, "one sentence"
        vsctl("set-controller", OCS, controller)
        northbound.wait_ready(READY_S)
        assert northbound.ocs(OCS).circuits == ()
        assert (heard(net, 0), heard(net, 1)) == (set(), set())
        assert "was lost" in northbound.ocs_log(OCS)[-1].error


def test_a_delay_that_the_machine_cannot_honour_is_refused_with_what_would_do() -> None:
    with pytest.raises(ScenarioError, match="a volume dilation of V = "):
        planned(
            parallel_ocs_fabric(2, 1),
            Demand("small", np.array([[0, 1], [1, 0]])),
            "spectra",
            ReconfigurationDelay("delay", 1e-5),
            Dilation(1e-3, 1e-3),
        )
