"""Tap and counters are held against the bytes of real connections."""

import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pandas as pd
import pytest

from testbed.apps.counters import LinkCounters, host_counts, since
from testbed.apps.traffic_tap import TrafficTap
from testbed.machine.datapath import Datapath
from testbed.machine.kernel import inside_namespace
from testbed.machine.residue import until
from testbed.network.network import Network
from topologies.addresses import host_ip
from topologies.leaf_spine import leaf_spine_fabric
from topologies.rail import rail_fabric

pytestmark = pytest.mark.emulation

RATE_FACTOR, PORT, WAIT_S = 1e-3, 5001, 30.0
SIZES = {(0, 1): 2_000_003, (0, 2): 500_000, (1, 0): 1_234_567, (2, 1): 17}
"""Bytes that hosts send each other."""
ETHERNET_BYTES = 14
LAST, SMALL = 4, 80
"""Packets without payload that may be sent last, and their bytes."""


class Hosts:
    """Hosts of a network that send each other bytes, each two over one connection."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self.listeners = {host: self._socket(host) for host in range(len(network.fabric.servers))}
        for host, listener in self.listeners.items():
            listener.bind((str(host_ip(host)), PORT))
            listener.listen(64)

    def _socket(self, host: int) -> socket.socket:
        with inside_namespace(self._network.wiring.namespaces[host]):
            return socket.socket(socket.AF_INET, socket.SOCK_STREAM)

    def connected(self, source: int, destination: int) -> tuple[socket.socket, socket.socket]:
        """Return both ends of a new connection."""
        near = self._socket(source)
        near.settimeout(WAIT_S)
        near.connect((str(host_ip(destination)), PORT))
        far, _ = self.listeners[destination].accept()
        far.settimeout(WAIT_S)
        return near, far

    def carry(self, sizes: Mapping[tuple[int, int], int]) -> None:
        """Have all of it arrive."""
        pairs = [(*self.connected(*ends), size) for ends, size in sizes.items()]
        senders = [threading.Thread(target=near.sendall, args=(bytes(size),)) for near, _, size in pairs]
        for sender in senders:
            sender.start()
        for near, far, size in pairs:
            receive(far, size)
            near.close()
            far.close()
        for sender in senders:
            sender.join()


@contextmanager
def hosts_of(network: Network) -> Iterator[Hosts]:
    """Have the hosts of a network listen."""
    hosts = Hosts(network)
    try:
        yield hosts
    finally:
        for listener in hosts.listeners.values():
            listener.close()


def between(table: pd.DataFrame, column: str) -> dict[tuple[int, int], int]:
    """Return the sums of a column from host to host."""
    sums = table.groupby(["source", "destination"], as_index=False)[column].sum()
    return {(a, b): value for a, b, value in sums.to_numpy().tolist() if value}


@pytest.mark.parametrize("datapath", ["netdev", "route"])
def test_payload_packets_and_paths_are_those_that_were_sent(sandbox: object, datapath: Datapath) -> None:
    fabric = rail_fabric(3, 2, 2)
    with Network(fabric, RATE_FACTOR, datapath, hosts=True) as network, hosts_of(network) as hosts:
        before = host_counts(network)
        with LinkCounters(network.wiring) as counters, TrafficTap(network.wiring) as tap:
            start_s = time.monotonic()
            hosts.carry(SIZES)
            took_s = time.monotonic() - start_s
        counted = since(before, host_counts(network))
    traffic, flows, links = tap.traffic(start_s), tap.flows(start_s), counters.links(start_s)
    assert tap.counts.missed == 0
    assert between(traffic, "payload_bytes") == SIZES == between(flows, "payload_bytes")
    assert traffic["at_s"].min() > -tap.counts.bin_s
    assert traffic["at_s"].max() <= took_s
    framed = traffic.assign(bytes=traffic["wire_bytes"] + ETHERNET_BYTES * traffic["packets"])
    on_links = links.groupby("port")[["bytes", "packets"]].sum()
    for host, server in enumerate(fabric.servers):
        nics = [str(port) for port in fabric.used_ports(server.name) if str(port) in on_links.index]
        sent = framed[framed["source"] == host][["bytes", "packets"]].sum()
        # Counters are read after the tap has stopped: acknowledgements of an end may come between.
        more = on_links.loc[nics].sum() - sent
        assert 0 <= more["packets"] <= LAST
        assert more["bytes"] <= LAST * SMALL
        segments = counted[host].segments + counted[host].resent
        assert 0 <= segments - sent["packets"] <= LAST
    paths = tap.paths(start_s)
    assert set(flows["flow"]) == set(paths["flow"])
    ends = paths["path"].str.split()
    servers = flows.set_index("flow").loc[paths["flow"]]
    assert [path[0].partition(":")[0] for path in ends] == [f"h{each}" for each in servers["source"]]


@pytest.mark.parametrize("datapath", ["netdev", "route"])
def test_a_flow_that_is_rerouted_is_seen_on_both_paths(sandbox: object, datapath: Datapath) -> None:
    fabric = leaf_spine_fabric(2, 2, 2)
    with Network(fabric, RATE_FACTOR, datapath, hosts=True) as network, hosts_of(network) as hosts:
        near, far = hosts.connected(0, 1)
        with near, far:
            with TrafficTap(network.wiring) as tap:
                moved(near, far, 1_000_000)
            (before,) = paths_from(tap, "h0:0")["path"]
            uplink = next(port for port in fabric.link_at if str(port) == before.split()[1])
            with TrafficTap(network.wiring) as tap:
                sender = threading.Thread(target=near.sendall, args=(bytes(8_000_000),))
                sender.start()
                assert until(lambda: tap.wire_bytes > 1_000_000, WAIT_S)
                failed_s = time.monotonic()
                network.turn_links([fabric.link_at[uplink]], works=False)
                network.follow([uplink])
                receive(far, 8_000_000)
                sender.join()
    first, second = paths_from(tap, "h0:0").to_dict("records")
    assert first["path"] == before
    assert str(uplink) not in second["path"]
    assert first["last_s"] < failed_s < second["first_s"] + 0.01
    assert second["first_s"] - first["last_s"] < WAIT_S


def test_an_error_in_reading_is_raised_by_the_tap(sandbox: object, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("not read")

    monkeypatch.setattr(TrafficTap, "_add", broken)
    fabric = rail_fabric(2, 1)
    with (
        Network(fabric, RATE_FACTOR, hosts=True) as network,
        hosts_of(network) as hosts,
        pytest.raises(ValueError, match="not read"),
        TrafficTap(network.wiring),
    ):
        hosts.carry({(0, 1): 1000})


def moved(near: socket.socket, far: socket.socket, size: int) -> None:
    """Have bytes cross a connection."""
    sender = threading.Thread(target=near.sendall, args=(bytes(size),))
    sender.start()
    receive(far, size)
    sender.join()


def receive(far: socket.socket, size: int) -> None:
    """Receive so many bytes."""
    while size:
        size -= len(far.recv(1 << 20))


def paths_from(tap: TrafficTap, nic: str) -> pd.DataFrame:
    """Return the paths of what a NIC sent, in order of time."""
    paths = tap.paths(0.0)
    return paths[paths["path"].str.startswith(f"{nic} ")]
