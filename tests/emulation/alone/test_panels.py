"""Forty-eight panels that change together while TCP flows: no packet loops, and none is lost by it."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from controller.circuits.devices import ReconfigurationDelay
from testbed.core.backend import Backend
from testbed.core.run import Run
from testbed.core.simulation import Simulation
from testbed.experiment.dilation import Dilation
from testbed.live.backend import LiveBackend
from testbed.machine.kernel import inside_namespace
from testbed.machine.residue import END_S, until
from testbed.model.backend import FluidBackend
from testbed.network.network import Network
from tests.emulation.box import Box
from tests.emulation.machine import Machine
from tests.testbed.run_cases import When
from topologies.events import (
    Event,
    Flip,
    Hold,
    NodeStarted,
    Order,
    Provision,
    Reconfigure,
    SetTimer,
    TimerFired,
)
from topologies.fabric import SERVER_PORT, Fabric, Link, Port, Switch, equal_servers
from topologies.light import Circuit, duplex
from traffic.collectives.point_to_point import PointToPoint
from traffic.job import Collective, Compute, chain
from traffic.scheme import Routed

pytestmark = pytest.mark.emulation

SERVERS, PANELS = 8, 48
DILATION = Dilation(rate=2e-4, volume=5e-3)
"""20 Mbit/s."""
TTL = 3
"""As many light paths as the longest route has."""


def panels_fabric() -> Fabric:
    """Return servers that forward, NIC k of each on panel k."""
    names = [f"p{panel}" for panel in range(PANELS)]
    links = tuple(
        Link(Port(f"h{server}", panel), Port(name, server), 100e9)
        for server in range(SERVERS)
        for panel, name in enumerate(names)
    )
    switches = tuple(Switch(name, SERVERS, "ocs") for name in names)
    return Fabric("panels", equal_servers(SERVERS, PANELS, 1, 1e12), switches, links, servers_forward=True)


def matching(turn: int) -> tuple[Circuit, ...]:
    """Return the duplex circuits of a turn of a round-robin tournament: each server has one partner."""
    last, others = SERVERS - 1, SERVERS - 1
    pairs = [(turn % others, last)]
    pairs += [((turn + k) % others, (turn - k) % others) for k in range(1, SERVERS // 2)]
    return duplex(pairs)


SPARSE = {f"p{panel}": matching(panel // 2 % 3) if panel % 2 == 0 else () for panel in range(PANELS)}
"""Half of the panels are dark: most servers reach each other through others."""
DENSE = {f"p{panel}": SPARSE[f"p{panel}"] or matching(panel) for panel in range(PANELS)}
"""The others are lit as well: routes become shorter, and no circuit ends."""
OTHERS = {f"p{panel}": matching(panel + 1) for panel in range(PANELS)}
"""All circuits are others."""


def counted(network: Network) -> Counter[str]:
    """Return what the servers' kernels and NICs have counted, all together."""
    found: Counter[str] = Counter()
    for namespace in network.wiring.namespaces:
        with inside_namespace(namespace):
            words = [line.split() for line in Path("/proc/thread-self/net/snmp").read_text().splitlines()]
            nics = Path("/proc/thread-self/net/dev").read_text().splitlines()
        for names, values in zip(words[::2], words[1::2], strict=True):
            found.update(
                {f"{names[0]}{name}": int(value) for name, value in zip(names[1:], values[1:], strict=True)}
            )
        for words_of in (line.split() for line in nics if line.lstrip().startswith(SERVER_PORT)):
            found.update(received=int(words_of[2]), sent=int(words_of[10]), sent_bytes=int(words_of[9]))
    return found


def landed(network: Network, before: Counter[str]) -> Counter[str]:
    """Return what has been counted since then, once what was under way has landed, or should have."""
    found = counted(network) - before

    def has_landed() -> bool:
        nonlocal found
        found = counted(network) - before
        return found["sent"] == found["received"]

    until(has_landed, END_S)
    return found


LOOPS_AND_LOSSES = (
    "Icmp:OutTimeExcds", "Ip:InHdrErrors", "Ip:InAddrErrors", "Ip:InDiscards", "Ip:OutDiscards",
    "Ip:OutNoRoutes", "Tcp:RetransSegs",
)  # fmt: skip


DELAY_S, FLIP_S = 0.004, 0.001
EVERY = tuple(SPARSE)


def reconfigured(circuits: Mapping[str, tuple[Circuit, ...]]) -> tuple[Order, ...]:
    """Return the order that has panels carry circuits."""
    return (Reconfigure(circuits),)


def provisioned(circuits: Mapping[str, tuple[Circuit, ...]]) -> tuple[Order, ...]:
    """Return the orders that have panels set circuits beside those that they show."""
    return tuple(Provision(panel, pairs) for panel, pairs in circuits.items())


CHANGES: dict[str, dict[Event, tuple[Order, ...]]] = {
    "reconfigured": {
        NodeStarted("warm up"): reconfigured(SPARSE),
        TimerFired("1"): reconfigured(DENSE),
        TimerFired("3"): reconfigured(OTHERS),
        TimerFired("5"): reconfigured(DENSE),
    },
    "flipped": {
        NodeStarted("warm up"): (*reconfigured(SPARSE), *provisioned(DENSE)),
        TimerFired("1"): (Flip(EVERY),),
        TimerFired("2"): provisioned(OTHERS),
        TimerFired("3"): (Flip(EVERY),),
        TimerFired("5"): (Flip(EVERY),),
    },
}
TURNS = tuple(SetTimer(str(turn), 0.01 * turn) for turn in range(1, 6))


@pytest.mark.parametrize("how", CHANGES)
def test_no_packet_loops_or_is_lost_when_panels_change_together(
    sandbox: Box | None, machine: Machine, how: str
) -> None:
    fabric, orders = panels_fabric(), CHANGES[how] | {NodeStarted("send"): (Hold("send", EVERY), *TURNS)}
    messages = tuple((a, (a + step) % SERVERS, 300_000_000) for a in range(SERVERS) for step in (1, 3))
    nodes = (Compute("warm up", (0,), 2 * DELAY_S), Collective("send", PointToPoint(messages)))
    job = chain("panels", SERVERS, nodes)

    def run(backend: Backend) -> Run:
        return Simulation(fabric, job, backend, Routed(), circuits=When(orders)).run()

    predicted = run(FluidBackend(fabric, dict.fromkeys(EVERY, DELAY_S), flip_s=dict.fromkeys(EVERY, FLIP_S)))
    delay = ReconfigurationDelay("drawn", DELAY_S, flip_s=FLIP_S).scaled(DILATION.time)
    with Network(fabric, DILATION.rate) as network:
        for panel in EVERY:
            network.northbound.set_delay(panel, delay)
        for namespace in network.wiring.namespaces:
            with inside_namespace(namespace):
                Path("/proc/sys/net/ipv4/ip_default_ttl").write_text(str(TTL))
        with LiveBackend(network, DILATION) as backend:
            before = counted(network)
            emulated = run(backend)
            found = landed(network, before)
    assert {name: found[name] for name in LOOPS_AND_LOSSES if found[name]} == {}
    assert found["sent"] == found["received"]
    legs, paths = emulated.tables.legs, emulated.tables.paths
    hops = [len(paths[path]) / 2 for path in legs["path"]]  # a NIC and an output port of an OCS each
    carried = float((legs["bytes"] * hops).sum()) * DILATION.volume
    assert carried < found["sent_bytes"] < 1.05 * carried
    ratio = emulated.messages["end_s"].max() / predicted.messages["end_s"].max()
    assert machine.busy or 0.9 < ratio < 1.3, ratio
