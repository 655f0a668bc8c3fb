"""Servers that forward between circuits: packets cross their kernels, and routes follow the circuits."""

from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path

import numpy as np
import pytest

from controller.circuits.devices import ReconfigurationDelay
from testbed.core.run import Run
from testbed.experiment.dilation import Dilation
from testbed.live.backend import LiveBackend
from testbed.machine.commands import output_of
from testbed.machine.kernel import inside_namespace
from testbed.model.backend import FluidBackend
from testbed.network.network import Network
from tests.emulation.box import Box
from tests.emulation.machine import Machine
from tests.testbed.forwarding_cases import (
    Forwarding,
    LongWay,
    around,
    becomes_direct,
    long_way,
    ring_fabric,
    stride_circuits,
)
from tests.testbed.run_cases import DELAY_S
from tests.testbed.tables import check_tables
from topologies.addresses import interface, nic_ip
from topologies.fabric import Nic
from topologies.parallel_ocs import parallel_ocs_fabric
from topologies.routes import Routes

pytestmark = pytest.mark.emulation

DILATION = Dilation(rate=1e-4, volume=4e-3)
"""10 Mbit/s; 10 ms of an OCS are 0.4 s."""


def live(case: Forwarding) -> tuple[Run, dict[Nic, int]]:
    """Run a case over a network; return what came of it, and the bytes that each NIC sent."""
    with Network(case.fabric, DILATION.rate) as network:
        network.northbound.set_delay("ocs0", ReconfigurationDelay("drawn", DILATION.emulated_s(DELAY_S)))
        with LiveBackend(network, DILATION) as backend:
            run = case.run(backend)
            assert backend.health.retransmits == 0
        check_tables(run.tables)
        return run, {nic: sent_bytes(network, nic) for nic in case.fabric.nics}


def sent_bytes(network: Network, nic: Nic) -> int:
    """Return what a NIC's kernel counts as sent, headers included."""
    name = interface(network.fabric, network.fabric.nic_port(nic))
    with inside_namespace(network.wiring.namespaces[nic.server]), open("/proc/thread-self/net/dev") as table:
        (line,) = (line for line in table if line.strip().startswith(f"{name}:"))
    return int(line.split(":")[1].split()[8])


def legs(run: Run) -> list[dict[str, int]]:
    """Return the bytes that each message had over each route."""
    paths = [[leg.split("@") for leg in path.split(" ")] for path in run.messages["path"]]
    return [{route: int(size) for size, route in path} for path in paths]


def ratio(run: Run, fluid: Run) -> float:
    """Return how long messages took over how long they were predicted to take."""
    took_s = [(each.messages["end_s"] - each.messages["start_s"]).max() for each in (run, fluid)]
    return float(took_s[0] / took_s[1])


def test_a_message_goes_through_a_server_until_a_circuit_makes_its_route_direct(
    sandbox: Box | None, machine: Machine
) -> None:
    case = becomes_direct(500_000_000)
    fluid = case.run(FluidBackend(case.fabric, case.delay_s))
    run, sent = live(case)
    assert machine.busy or 0.9 < ratio(run, fluid) < 1.15
    (emulated,), (predicted,) = legs(run), legs(fluid)
    assert list(emulated) == list(predicted)
    through, direct = emulated.values()
    assert through + direct == 500_000_000
    assert through * DILATION.volume < sent[Nic(1, 0)] < 1.05 * through * DILATION.volume
    assert 500_000_000 * DILATION.volume < sent[Nic(0, 0)] < 1.05 * 500_000_000 * DILATION.volume


@pytest.mark.real_cpus
def test_hops_of_a_ring_share_its_circuits(sandbox: Box | None, machine: Machine) -> None:
    messages = tuple((server, (server + 3) % 8, 50_000_000) for server in range(8))
    case = Forwarding(ring_fabric(8), messages, stride_circuits(8, 1))
    fluid = case.run(FluidBackend(case.fabric, case.delay_s))
    run, sent = live(case)
    assert machine.busy or 0.9 < ratio(run, fluid) < 1.15
    assert legs(run) == legs(fluid)
    carried = 3 * 50_000_000 * DILATION.volume
    assert all(carried < sent[Nic(server, 0)] < 1.05 * carried for server in range(8))


def test_a_flow_takes_a_path_of_its_own_and_others_the_shortest(
    sandbox: Box | None, machine: Machine
) -> None:
    case = long_way(100_000_000)
    fluid = case.run(FluidBackend(case.fabric, case.delay_s))
    run, sent = live(case)
    assert machine.busy or 0.9 < ratio(run, fluid) < 1.15
    assert legs(run) == legs(fluid)
    each = 100_000_000 * DILATION.volume
    carried = {0: each, 4: each, 3: 2 * each, 2: each}
    assert all(size < sent[Nic(server, 1)] < 1.05 * size for server, size in carried.items())
    assert sent[Nic(0, 0)] < 0.05 * each, "acknowledgements go back the same way"


def test_what_a_failed_server_does_not_forward_goes_round_the_other_half_of_the_ring(
    sandbox: Box | None, machine: Machine
) -> None:
    case = around(400_000_000)
    fluid = case.run(FluidBackend(case.fabric, case.delay_s))
    run, _ = live(case)
    assert machine.busy or 0.9 < ratio(run, fluid) < 1.15
    (emulated,), (predicted,) = legs(run), legs(fluid)
    assert list(emulated) == list(predicted)
    assert sum(emulated.values()) == 400_000_000


def test_rules_of_flows_come_and_go_with_them(sandbox: Box | None) -> None:
    routing, fabric = LongWay(5), ring_fabric(5)
    lit = {"ocs0": stride_circuits(5, 1)}
    there, back = routing.flow, routing.flow[::-1]
    by_flow = Routes(fabric, lit, routing=routing)
    with Network(fabric, DILATION.rate) as network:
        assert network.routes is not None
        for routes, flows in ((by_flow, [there, back]), (by_flow, [there]), (Routes(fabric, lit), [there])):
            network.routes.follow(routes, flows)
            rules = {
                (server, flow)
                for server in range(5)
                for flow in (there, back)
                if flow_rule(network, server, flow)
            }
            assert rules == {(s, flow) for s in (2, 3, 4) for flow in flows if routes is by_flow}


def flow_rule(network: Network, server: int, flow: tuple[Nic, Nic]) -> bool:
    """Return whether a server's kernel has a rule for a flow."""
    source, destination = (nic_ip(network.fabric, nic) for nic in flow)
    with inside_namespace(network.wiring.namespaces[server]):
        rules = output_of(["ip", "rule"])
    return f"from {source} to {destination} lookup" in rules


def forwarded(network: Network, server: int) -> dict[IPv4Address, tuple[str, IPv4Address]]:
    """Return the interface and the next address of each single destination in a server's main table."""
    with inside_namespace(network.wiring.namespaces[server]):
        _, *lines = Path("/proc/thread-self/net/route").read_text().splitlines()
    rows = [line.split() for line in lines]
    return {_address(row[1]): (row[0], _address(row[2])) for row in rows if row[7] == "FFFFFFFF"}


def _address(text: str) -> IPv4Address:
    return IPv4Address(bytes.fromhex(text)[::-1])


def test_kernels_have_the_routes_over_what_is_lit_and_no_others(sandbox: Box | None) -> None:
    fabric = replace(parallel_ocs_fabric(5, 2), servers_forward=True)
    rng = np.random.default_rng(1)
    with Network(fabric, DILATION.rate) as network:
        assert network.routes is not None
        for lit_circuits in (5, 3, 4, 0, 5):
            lit = {
                ocs: tuple(enumerate(rng.permutation(5).tolist()))[:lit_circuits] for ocs in ("ocs0", "ocs1")
            }
            lit = {ocs: tuple((a, b) for a, b in pairs if a != b) for ocs, pairs in lit.items()}
            routes = Routes(fabric, lit)
            network.routes.follow(routes, [(nic, nic) for nic in fabric.nics[2:]])
            for server in range(5):
                expected = {}
                for nic in fabric.nics[2:]:
                    out = routes.forwarding(nic).get(server)
                    if out is not None:
                        far = Nic(dict(lit[f"ocs{out.nic}"])[server], out.nic)
                        expected[nic_ip(fabric, nic)] = f"nic{out.nic}", nic_ip(fabric, far)
                assert forwarded(network, server) == expected
