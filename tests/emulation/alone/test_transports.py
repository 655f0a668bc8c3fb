"""Transports on a live network: hosts are set as asked, all bytes arrive, incasts queue where they should."""

import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pyroute2 import IPRoute

from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.machine.congestion import check_congestion_control, check_marks
from testbed.machine.datapath import default_datapath
from testbed.machine.kernel import inside_namespace
from testbed.machine.netlink import kernel_has_priority
from testbed.network.network import Network
from testbed.network.readback import port_settings, unmet
from testbed.network.wiring import RTAX_RTO_MIN
from testbed.trust.outcome import Outcome, bound_s
from testbed.trust.trial import tried
from tests.docs.pages import file_of
from tests.emulation.box import Box
from tests.emulation.machine import Machine
from tests.test_own_transport import PAGE
from topologies.errors import MachineError
from topologies.fabric import Fabric, Nic
from topologies.rail import rail_fabric
from traffic.demand import Demand
from traffic.packets import DEFAULT_MTU, frame_bytes
from traffic.spraying.policy import QueuePair
from traffic.steps import single
from traffic.transports.engine import Engine
from traffic.transports.host_settings import TransportSetup
from traffic.workloads.synthetic import uniform

pytestmark = [pytest.mark.emulation, pytest.mark.real_cpus]

FABRIC = rail_fabric(4, 2)
RATE = 2e-4
"""100 Gbit/s is 20 Mbit/s here."""
EMULATED_S = 0.8
SCHEMES = ["rails", "ecmp", "minrtt", "reps", "plb"]
STICKY = "tests.testbed.sticky:Sticky"


def asked(
    scheme: str, transport: TransportSetup, fabric: Fabric = FABRIC, demand: Demand | None = None
) -> Experiment:
    """Return an all-to-all that takes `EMULATED_S` at best; uniform if nothing else is given."""
    job = single(demand or uniform(fabric.gpus))
    real = Experiment(fabric, job, scheme, Dilation(1.0, 1.0), transport=transport)
    return replace(real, dilation=Dilation(RATE, EMULATED_S * RATE / bound_s(real)))


@contextmanager
def booted(experiment: Experiment) -> Iterator[Network]:
    """Boot an experiment's network."""
    scale = experiment.dilation.rate
    with Network(experiment.fabric, scale, host=experiment.host, mtu=experiment.mtu) as network:
        yield network


def assert_all_arrived(outcome: Outcome, machine: Machine) -> None:
    """Compare what arrived with what was owed, and see that the machine could do it."""
    assert outcome.emulated is not None
    emulated, predicted = outcome.emulated.records, outcome.predicted.records
    columns = ["source", "destination", "bytes"]
    assert emulated[columns].to_numpy().tolist() == predicted[columns].to_numpy().tolist()
    assert (emulated["end_s"] > 0).all()
    assert machine.busy or outcome.verdict.word != "void", outcome.verdict


def tcp_info(connection: socket.socket) -> dict[str, int]:
    """Return what the kernel says of a connection that has sent nothing (struct tcp_info)."""
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 200)
    return {"rto_us": struct.unpack_from("=I", info, 8)[0], "window": struct.unpack_from("=I", info, 80)[0]}


def route_metrics(network: Network, server: int) -> set[tuple[int, int, int]]:
    """Return the initial window, least timeout [ms] and locks of a server's routes."""
    with inside_namespace(network.wiring.namespaces[server]), IPRoute() as kernel:
        metrics = [route.get_attr("RTA_METRICS") for route in kernel.get_routes(family=socket.AF_INET)]
    return {
        tuple(found.get_attr(name) for name in ("RTAX_INITCWND", "RTAX_RTO_MIN", "RTAX_LOCK"))
        for found in metrics
        if found
    }


@pytest.mark.parametrize(
    "setup",
    [
        TransportSetup("credit"),
        TransportSetup("tcp"),
        TransportSetup("tcp:reno", initial_window_packets=7, least_timeout_s=0.321),
    ],
    ids=lambda setup: setup.name,
)
def test_hosts_are_set_as_the_transport_has_it(sandbox: Box | None, setup: TransportSetup) -> None:
    experiment = asked("rails", setup)
    host = experiment.host
    least_ms = round(1000 * host.least_timeout_s)
    with booted(experiment) as network, Engine(network.endpoints) as engine:
        for server in range(len(FABRIC.servers)):
            expected = (host.initial_window_packets, least_ms, 1 << RTAX_RTO_MIN)
            assert route_metrics(network, server) == {expected}
        number = engine.add(QueuePair(Nic(0, 0), Nic(1, 0)))
        engine.connect([number])
        sender = engine._pairs[number].sender
        assert sender is not None
        control = sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        found = tcp_info(sender)
    assert control.rstrip(b"\0").decode() == host.congestion_control
    assert found["window"] == host.initial_window_packets
    assert least_ms * 1000 <= found["rto_us"] <= least_ms * 1000 + 100_000


@pytest.mark.parametrize("transport", ["credit", "tcp"])
def test_every_scheme_moves_all_bytes_under_each_transport(
    sandbox: Box | None, machine: Machine, transport: str
) -> None:
    experiments = [asked(scheme, TransportSetup(transport)) for scheme in [*SCHEMES, STICKY]]
    with booted(experiments[0]) as network:
        outcomes = {each.scheme: tried(each, network) for each in experiments}
    for outcome in outcomes.values():
        assert_all_arrived(outcome, machine)
    if transport == "credit":
        assert machine.busy or 0.9 < outcomes["rails"].over_predicted < 1.15


def incast(senders: int, transport: str) -> Experiment:
    """Return an incast at a port that holds 40 packets."""
    fabric = rail_fabric(senders + 1, 1, 0).with_buffer(40 * frame_bytes(DEFAULT_MTU))
    matrix = np.zeros((senders + 1, senders + 1), dtype=np.int64)
    matrix[1:, 0] = 10_000_000
    return asked("rails", TransportSetup(transport), fabric, Demand("incast", matrix))


def test_receivers_that_grant_keep_an_incast_out_of_their_queues(
    sandbox: Box | None, machine: Machine
) -> None:
    experiment = incast(7, "credit")
    with booted(experiment) as network:
        outcome = tried(experiment, network)
    assert_all_arrived(outcome, machine)
    assert outcome.measures.queue_drops == 0
    assert outcome.measures.retransmits == 0


def test_tcp_fills_the_queue_of_an_incast(sandbox: Box | None, machine: Machine) -> None:
    experiment = incast(7, "tcp")
    with booted(experiment) as network:
        outcome = tried(experiment, network)
    assert_all_arrived(outcome, machine)
    assert outcome.measures.queue_drops > 0
    assert outcome.measures.retransmits > 0


@pytest.mark.parametrize("control", ["reno", "bbr"])
def test_other_congestion_controls_run_where_the_kernel_has_them(
    sandbox: Box | None, machine: Machine, control: str
) -> None:
    try:
        check_congestion_control(control)
    except MachineError as error:
        pytest.skip(str(error))
    experiment = asked("rails", TransportSetup(f"tcp:{control}"))
    with booted(experiment) as network:
        assert_all_arrived(tried(experiment, network), machine)


def test_marks_of_switches_keep_an_incast_of_dctcp_out_of_full_queues(
    sandbox: Box | None, machine: Machine
) -> None:
    experiment = replace(incast(7, "tcp:dctcp"), mtu=3000)
    try:
        check_congestion_control("dctcp")
        check_marks("tcp:dctcp", default_datapath(), experiment.mtu)
    except MachineError as error:
        pytest.skip(str(error))
    with booted(experiment) as network:
        outcome = tried(experiment, network)
        shapes = {port: setting.shape for port, setting in port_settings(network).items()}
    assert_all_arrived(outcome, machine)
    assert outcome.measures.queue_marks > 0
    assert outcome.measures.queue_drops == 0
    for port, shape in shapes.items():
        assert shape
        assert shape.mark_bytes == (experiment.host.mark_bytes if port.node == "leaf0" else 0)


def test_switches_mark_the_datagrams_of_an_incast(sandbox: Box | None, machine: Machine) -> None:
    setup = TransportSetup("tests.emulation.wide_window:WideWindow", marks="switches")
    experiment = replace(incast(7, setup.name), transport=setup, mtu=3000)
    try:
        check_marks(setup.marked_for, default_datapath(), experiment.mtu)
    except MachineError as error:
        pytest.skip(str(error))
    with booted(experiment) as network:
        outcome = tried(experiment, network)
        broken = unmet(network, port_settings(network))
    assert_all_arrived(outcome, machine)
    assert broken == []
    assert outcome.measures.queue_marks > 0
    assert outcome.measures.queue_drops == 0


def test_the_pages_own_transport_moves_all_bytes_at_their_rate(
    sandbox: Box | None, machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_transport.py").write_text(file_of(PAGE, "own_transport.py"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "own_transport", raising=False)
    experiment = asked("rails", TransportSetup("own_transport:Aimd"))
    with booted(experiment) as network:
        outcome = tried(experiment, network)
    assert_all_arrived(outcome, machine)
    assert machine.busy or 0.95 < outcome.over_predicted < 1.2


def test_packets_that_acknowledge_leave_before_data_where_the_kernel_can(
    sandbox: Box | None, machine: Machine
) -> None:
    experiment = asked("rails", TransportSetup("credit", ack_packets=True))
    with booted(experiment) as network:
        outcome = tried(experiment, network)
        broken = unmet(network, port_settings(network))
    assert_all_arrived(outcome, machine)
    assert broken == []
    assert outcome.queueing
    assert (acks := outcome.queueing.acks)
    assert acks.before_data == kernel_has_priority()
    assert acks.packets >= outcome.measures.packets_arrived
    assert 0.005 < acks.wire_share < 0.03, "one of 64 bytes for each of 9,000, and grants"
    # Every NIC sends data all the time, 12 packets at once; the shaper has looked at one of them.
    rate_bps = experiment.dilation.volume * FABRIC.nic_rate_bps(FABRIC.nics[0])
    assert machine.busy or not acks.before_data or acks.p50_s < 3 * 8 * frame_bytes(DEFAULT_MTU) / rate_bps
