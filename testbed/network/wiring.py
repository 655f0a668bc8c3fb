"""A fabric's namespaces, interfaces, addresses and shapers, made in bulk over netlink.

Each server is a network namespace held by a file descriptor, and so is each packet switch that routes
(`testbed.machine.datapath`); the ports of other switches are in the network's namespace. Each link is a veth
pair. Both ends of a link are shaped: a token bucket of the link's rate, whose queue is the port's buffer.
Where a link has delay or loss, a netem stands in front of it (`testbed.network.netem`).
"""

import os
import socket
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from socket import AF_INET

from pyroute2 import IPRoute
from pyroute2.ethtool.ioctl import IoctlEthtool
from pyroute2.netlink.rtnl import (
    RTM_NEWADDR,
    RTM_NEWLINK,
    RTM_NEWNEIGH,
    RTM_NEWRULE,
)

from controller.packet.kernel_hash import HASH_FIELDS, HASH_POLICY, hash_seed
from testbed.machine.datapath import HASH_SEED
from testbed.machine.kernel import inside_namespace, new_network_namespace
from testbed.machine.netlink import (
    IFF_UP,
    LOOPBACK,
    RT_TABLE_LOCAL,
    RT_TABLE_MAIN,
    Batch,
    delete_links,
    kernel_has_priority,
    marker_request,
    priority_requests,
    route_request,
    shaper_request,
)
from testbed.network.mark import Mark
from testbed.network.netem import Netem
from topologies.addresses import (
    FABRIC_NETWORK,
    GATEWAY_MAC,
    HOST_INTERFACE,
    gateway_ip,
    host_ip,
    interface,
    nic_ip,
    nic_mac,
    nic_network,
    subnet,
)
from topologies.errors import ScenarioError
from topologies.fabric import Fabric, Nic, Port
from topologies.light import light_peers
from topologies.packet_part import on_packet_switch
from traffic.packets import DEFAULT_MTU, burst_bytes
from traffic.transports.host_settings import HostSettings

Requests = Sequence[tuple[str, bytes]]
"""About the queues of a port: what each attempts, and the request, its interface yet to be filled in."""
SERVER_QUEUE_BYTES = 4 << 20
FIRST_TABLE = 1000
RECEIVE_WINDOW_PACKETS = 100
"""What a receiver lets a connection start with: more than any transport's first window."""
UP = {"flags": IFF_UP, "change": IFF_UP}
FR_ACT_TO_TBL, NUD_PERMANENT, RTAX_RTO_MIN = 1, 0x80, 13
OFFLOADS = (
    "tx-checksumming",
    "tcp-segmentation-offload",
    "generic-segmentation-offload",
    "generic-receive-offload",
)
SERVER_SYSCTLS = {
    "net/ipv4/conf/all/rp_filter": "0",
    "net/ipv4/conf/default/rp_filter": "0",
    # Without this a connection starts with what an earlier one to the same address learnt.
    "net/ipv4/tcp_no_metrics_save": "1",
    # A window of a packet or two looks like a lost tail to TCP: 8 % of the packets were probes for it.
    "net/ipv4/tcp_early_retrans": "0",
    "net/ipv4/tcp_slow_start_after_idle": "0",
    "net/ipv4/tcp_rmem": "4096 4194304 8388608",
    # Servers and switches that forward count hops, and Linux' 64 are too few for a long row of them.
    "net/ipv4/ip_default_ttl": "255",
}
LOSSY_SYSCTLS = {"net/ipv4/tcp_early_retrans": "3"}
"""Where links lose packets, a probe for a lost tail is worth its packet."""

FORWARDING_SYSCTLS = {
    "net/ipv4/ip_forward": "1",
    # What comes over a one-way circuit may leave through the NIC that it came by.
    "net/ipv4/conf/all/send_redirects": "0",
    "net/ipv4/conf/default/send_redirects": "0",
}
"""Where servers forward."""

HOST_SYSCTLS = {
    # Connections spread over NICs by addresses and ports.
    "net/ipv4/fib_multipath_hash_policy": "1",
    # A NIC without a link carries nothing, and carries again as soon as it has one.
    "net/ipv4/conf/all/ignore_routes_with_linkdown": "1",
}
"""Where servers are hosts."""
SWITCH_SYSCTLS = FORWARDING_SYSCTLS | {
    "net/ipv4/conf/all/rp_filter": "0",
    "net/ipv4/conf/default/rp_filter": "0",
    "net/ipv4/fib_multipath_hash_policy": str(HASH_POLICY),
    "net/ipv4/fib_multipath_hash_fields": str(HASH_FIELDS),
    # A next hop whose link is dead is left out at once.
    "net/ipv4/conf/all/ignore_routes_with_linkdown": "1",
    # A packet without a route is dropped in silence: one error message in 28 hours per address [ms].
    "net/ipv4/icmp_ratelimit": "100000000",
}
"""Of packet switches that route."""
IFA_F_NOPREFIXROUTE = 0x200


@dataclass(frozen=True)
class Shape:
    """How one end of a link is shaped, at emulated scale."""

    rate_bps: float
    """Rate [bit/s]."""
    burst_bytes: int
    """Token bucket [bytes]: what may leave at once after a pause."""
    queue_bytes: int
    """What may wait [bytes]; more is dropped, and counted."""
    mark_bytes: int = 0
    """Behind how much that waits packets are marked (ECN) [bytes]; 0 for none."""
    mark_rise_bytes: int = 0
    """Over how much more the share of them rises to all [bytes]."""
    acks_first: bool = False
    """Whether acknowledgements leave before what else waits."""

    @property
    def refill_s(self) -> float:
        """How long the rate takes to fill the bucket [s]."""
        return 8 * self.burst_bytes / self.rate_bps

    def request(self, *, below_netem: bool, change: bool = False) -> bytes:
        """Return the request to the kernel for its token bucket: for a new one, or to change it."""
        rate_bytes_s, sizes = round(self.rate_bps / 8), (self.burst_bytes, self.queue_bytes)
        return shaper_request(rate_bytes_s, *sizes, below_netem=below_netem, change=change)


@dataclass(frozen=True)
class Wiring:
    """The wired fabric: where everything is."""

    fabric: Fabric
    namespaces: tuple[int, ...]
    """A file descriptor per server that holds its network namespace."""
    shapes: dict[Port, Shape]
    """The shaper of each port's egress, as it was asked for; an OCS has none: light does not queue."""
    mark: Mark
    """What its links carry, and those of no other boot."""
    netems: Mapping[Port, Netem]
    """The netem of each port that has one, as it began."""
    host: HostSettings
    """What the servers' TCP is set to, and what it needs of switches."""
    mtu: int
    """Of every interface, as it was asked for [bytes]."""
    has_hosts: bool = False
    """Whether servers are hosts, whose routes over packet switches are `testbed.network.host_routes`'s."""
    routers: Mapping[str, int] = field(default_factory=dict)
    """A file descriptor per packet switch that routes, which holds its network namespace."""

    @contextmanager
    def inside(self, node: str) -> Iterator[None]:
        """Run the block in the network namespace that a node's interfaces are in."""
        namespace = self.namespace_of(node)
        if namespace is None:
            yield
            return
        with inside_namespace(namespace):
            yield

    def together(self, ports: Iterable[Port]) -> list[list[Port]]:
        """Return ports in groups, each of those whose interfaces are in one network namespace."""
        groups = defaultdict[int | None, list[Port]](list)
        for port in ports:
            groups[self.namespace_of(port.node)].append(port)
        return list(groups.values())

    def namespace_of(self, node: str) -> int | None:
        """Return the namespace that a node's interfaces are in; None for that of the network."""
        if (server := self.fabric.server_index.get(node)) is not None:
            return self.namespaces[server]
        return self.routers.get(node)

    @property
    def refill_s(self) -> float:
        """How long all token buckets take to fill at their links' rates, which the slowest decides [s]."""
        return max(shape.refill_s for shape in self.shapes.values())

    @property
    def acks_first(self) -> bool:
        """Whether all ports send acknowledgements before data."""
        return all(shape.acks_first for shape in self.shapes.values())

    def close(self) -> None:
        """Delete all links at once, and close the nodes' namespaces in any case.

        One request for the whole group shares the kernel's grace periods: deleted one by one,
        256 links take seconds.
        """
        try:
            delete_links(self.mark.group)
        finally:
            for namespace in (*self.namespaces, *self.routers.values()):
                os.close(namespace)


def wire(
    fabric: Fabric,
    rate_factor: float,
    private: bool,
    netems: Mapping[Port, Netem],
    host: HostSettings,
    mark: Mark,
    mtu: int = DEFAULT_MTU,
    *,
    hosts: bool = False,
    routed: bool = False,
) -> Wiring:
    """Make a fabric's servers and links, shaped at ``rate_factor`` times their real rate.

    Parameters
    ----------
    fabric
        What to wire.
    rate_factor
        Emulated rate over real rate.
    private
        Whether this namespace is the run's own, so that its defaults may be changed.
    netems
        The netem of each port that has one; `set_netems` changes them.
    host
        What the servers' TCP is set to, and what it needs of switches.
    mark
        What the links are to carry.
    mtu
        Of every interface [bytes].
    hosts
        Whether servers get addresses of hosts, and no routes over packet switches yet.
    routed
        Whether packet switches are namespaces that route.

    Raises
    ------
    NetworkError
        If the kernel refuses something; nothing that was made is left then.
    """
    if private:
        _set_sysctls({"net/ipv6/conf/default/disable_ipv6": "1"})
    ocses = {switch.name for switch in fabric.switches if switch.kind == "ocs"}
    shapes = {
        port: _shape(fabric, port, rate_factor, mtu, host)
        for port in fabric.link_at
        if port.node not in ocses
    }
    with ExitStack() as undo:
        sysctls = SERVER_SYSCTLS | (LOSSY_SYSCTLS if fabric.lossy else {})
        sysctls |= FORWARDING_SYSCTLS if fabric.servers_forward else {}
        sysctls |= HOST_SYSCTLS if hosts else {}
        namespaces = tuple(_new_namespace(undo, sysctls) for _ in fabric.servers)
        routing = [switch.name for switch in fabric.switches if routed and switch.kind == "packet"]
        routers = {
            name: _new_namespace(undo, SWITCH_SYSCTLS | {HASH_SEED: str(hash_seed(fabric, name))})
            for name in routing
        }
        wiring = Wiring(fabric, namespaces, shapes, mark, netems, host, mtu, hosts, routers)
        undo.callback(delete_links, mark.group)
        _make_links(wiring)
        if not private:  # IPv6 would look for neighbours, which Open vSwitch counts as packets without a rule
            switched = fabric.switch_index.keys() - routers.keys()
            ends = [interface(fabric, port) for port in fabric.link_at if port.node in switched]
            _set_sysctls({f"net/ipv6/conf/{name}/disable_ipv6": "1" for name in ends})
        for server, namespace in enumerate(wiring.namespaces):
            with inside_namespace(namespace):
                _set_up_server(wiring, server)
        for switch in routers:
            with wiring.inside(switch):
                _set_up_router(wiring, switch)
        undo.pop_all()
    return wiring


def shape_switch_ports(wiring: Wiring) -> None:
    """Shape the switches' egress, once Open vSwitch has the ports: it clears queues as it takes them."""
    switches = wiring.fabric.switch_index
    ports = [port for port in wiring.fabric.link_at if port.node in switches]
    _send(wiring, {port: _qdiscs(port, wiring.shapes.get(port), wiring.netems.get(port)) for port in ports})


def set_netems(wiring: Wiring, netems: Mapping[Port, Netem]) -> None:
    """Give ports that have a netem another delay and loss; packets that wait there keep theirs."""
    _send(
        wiring,
        {port: [(f"change the netem of {port}", each.request(change=True))] for port, each in netems.items()},
    )


def put_netems(wiring: Wiring, netems: Mapping[Port, Netem], shares: Mapping[Port, float]) -> None:
    """Put a netem in front of the shapers of ports that have none; what waits there is lost.

    A queue cannot be moved below another one. ``shares`` says what of their rate the shapers pass, where that
    is not all.
    """
    shapes = {port: _shape_at(wiring, port, shares.get(port, 1.0)) for port in netems}
    _send(wiring, {port: _qdiscs(port, shapes[port], each, replaces=True) for port, each in netems.items()})


def reshape(wiring: Wiring, shares: Mapping[Port, float], netems: Collection[Port]) -> None:
    """Have the shapers of ports pass a share of the rate that they began with; what waits there stays.

    ``netems`` are the ports that have a netem.
    """
    shapes = {port: _shape_at(wiring, port, share) for port, share in shares.items()}
    _send(
        wiring,
        {
            port: [(f"reshape {port}", shape.request(below_netem=port in netems, change=True))]
            for port, shape in shapes.items()
            if shape
        },
    )


def _send(wiring: Wiring, requests: Mapping[Port, Requests]) -> None:
    """Send requests about ports' queues, each in the namespace that the port's interface is in."""
    for mine in wiring.together(requests):
        with wiring.inside(mine[0].node):
            batch, indices = Batch(), interface_indices()
            for port in mine:
                for attempt, request in requests[port]:
                    batch.add_qdisc(attempt, request, indices[interface(wiring.fabric, port)])
            batch.commit()


def adopt_taps(wiring: Wiring) -> None:
    """Have the bridges' own interfaces end with the links: the userspace datapath's outlive its daemon."""
    batch = Batch()
    for index, name in socket.if_nameindex():
        if name in (*wiring.fabric.switch_index, "ovs-netdev"):
            batch.add(f"adopt {name}", RTM_NEWLINK, {"index": index}, [("IFLA_GROUP", wiring.mark.group)])
    batch.commit()


def ports_down(wiring: Wiring) -> set[Port]:
    """Return the switches' ports that are down."""
    fabric, down = wiring.fabric, set[Port]()
    for ports in wiring.together(port for port in fabric.link_at if port.node in fabric.switch_index):
        with wiring.inside(ports[0].node), IPRoute() as kernel:
            up = {link.get_attr("IFLA_IFNAME") for link in kernel.get_links() if link["flags"] & IFF_UP}
        down |= {port for port in ports if interface(fabric, port) not in up}
    return down


def turn_ports(wiring: Wiring, ports: Iterable[Port], *, works: bool) -> None:
    """Take ports down, or up again."""
    for mine in wiring.together(ports):
        with wiring.inside(mine[0].node):
            batch, indices = Batch(), interface_indices()
            for port in mine:
                index, flags = indices[interface(wiring.fabric, port)], IFF_UP * works
                batch.add(f"turn {port}", RTM_NEWLINK, {"index": index, "flags": flags, "change": IFF_UP})
            batch.commit()


def _new_namespace(undo: ExitStack, sysctls: dict[str, str]) -> int:
    namespace = new_network_namespace()
    undo.callback(os.close, namespace)
    with inside_namespace(namespace):
        _set_sysctls(sysctls | {"net/ipv6/conf/default/disable_ipv6": "1"})
    return namespace


def _shape(fabric: Fabric, port: Port, rate_factor: float, mtu: int, host: HostSettings) -> Shape:
    rate_bps = fabric.link_at[port].rate_bps * rate_factor
    burst, acks_first = burst_bytes(rate_bps, mtu), host.acks_first and kernel_has_priority()
    if port.node in fabric.server_index:
        return Shape(rate_bps, burst, SERVER_QUEUE_BYTES, acks_first=acks_first)
    return Shape(rate_bps, burst, fabric.buffer_bytes, host.mark_bytes, host.mark_rise_bytes, acks_first)


def _set_sysctls(values: dict[str, str]) -> None:
    for name, value in values.items():
        path = Path("/proc/sys") / name
        if path.exists():
            path.write_text(value)


def _make_links(wiring: Wiring) -> None:
    batch = Batch()
    for link in wiring.fabric.links:
        near, far = (link.b, link.a) if link.b.node in wiring.fabric.switch_index else (link.a, link.b)
        _add_link(batch, wiring, near, far)
    batch.commit()


def _add_link(batch: Batch, wiring: Wiring, near: Port, far: Port) -> None:
    """Make a veth pair, each end in the namespace of its node; the far one cannot be born up."""
    data = {"attrs": [("VETH_INFO_PEER", {"attrs": _end(wiring, far)})]}
    info = {"attrs": [("IFLA_INFO_KIND", "veth"), ("IFLA_INFO_DATA", data)]}
    attributes = [*_end(wiring, near), ("IFLA_GROUP", wiring.mark.group), ("IFLA_LINKINFO", info)]
    batch.add(f"create the link {near} - {far}", RTM_NEWLINK, UP, attributes)
    if wiring.namespace_of(far.node) is None:
        name = interface(wiring.fabric, far)
        batch.add(f"raise {far}", RTM_NEWLINK, {**UP, "index": 0}, [("IFLA_IFNAME", name)])


def _end(wiring: Wiring, port: Port) -> list[tuple[str, object]]:
    """Return the attributes of the interface that a port is to have."""
    fabric = wiring.fabric
    attributes: list[tuple[str, object]] = [
        ("IFLA_IFNAME", interface(fabric, port)),
        ("IFLA_MTU", wiring.mtu),
    ]
    if (server := fabric.server_index.get(port.node)) is not None:
        attributes.append(("IFLA_ADDRESS", nic_mac(Nic(server, port.number))))
    elif port.node in wiring.routers:
        attributes.append(("IFLA_ADDRESS", GATEWAY_MAC))
    if (namespace := wiring.namespace_of(port.node)) is not None:
        attributes.append(("IFLA_NET_NS_FD", namespace))
    return attributes


def _set_up_router(wiring: Wiring, switch: str) -> None:
    batch, indices = Batch(), interface_indices()
    # Without a table of local addresses, which it makes, the kernel takes all gateways for broadcast.
    batch.add("raise lo", RTM_NEWLINK, {**UP, "index": LOOPBACK})
    for port in wiring.fabric.used_ports(switch):
        batch.add(f"raise {port}", RTM_NEWLINK, {**UP, "index": indices[interface(wiring.fabric, port)]})
    batch.commit()


def _set_up_server(wiring: Wiring, server: int) -> None:
    batch = Batch()
    batch.add("raise lo", RTM_NEWLINK, {**UP, "index": LOOPBACK})
    if wiring.has_hosts:
        _add_host(batch, server)
    indices = interface_indices()
    for number in range(wiring.fabric.servers[server].nics):
        _set_up_nic(batch, wiring, Nic(server, number), indices)
    batch.commit()
    names = [
        interface(wiring.fabric, port)
        for port in wiring.fabric.used_ports(wiring.fabric.servers[server].name)
    ]
    _switch_offloads_off(names)


def _add_host(batch: Batch, server: int) -> None:
    """Give a server the address of a host, and a hash of its own.

    OpenMPI leaves loopback interfaces out. So the address is on a bridge without ports: not every kernel has
    interfaces that are made for that (dummy).
    """
    _set_sysctls({HASH_SEED: str(1 + server)})
    kind = ("IFLA_LINKINFO", {"attrs": [("IFLA_INFO_KIND", "bridge")]})
    batch.add(f"create {HOST_INTERFACE}", RTM_NEWLINK, UP, [("IFLA_IFNAME", HOST_INTERFACE), kind])
    batch.commit()
    index = socket.if_nametoindex(HOST_INTERFACE)
    _add_address(batch, f"address host {server}", index, host_ip(server), 32)


def _set_up_nic(batch: Batch, wiring: Wiring, nic: Nic, indices: dict[str, int]) -> None:
    """Address a NIC and give it routing of its own: what leaves from its address leaves through it."""
    fabric, port = wiring.fabric, wiring.fabric.nic_port(nic)
    index, table, address = indices[interface(fabric, port)], FIRST_TABLE + nic.nic, nic_ip(fabric, nic)
    routed = on_packet_switch(fabric, nic)
    batch.add(f"raise {port}", RTM_NEWLINK, {**UP, "index": index})
    # Programs pair NICs by their subnets. All else goes through the gateway all the same.
    length = subnet(fabric, fabric.peer(port).node).prefixlen if routed else 32
    _add_address(batch, f"address {port}", index, address, length)
    rule = {"family": AF_INET, "src_len": 32, "action": FR_ACT_TO_TBL}
    batch.add(f"rule of {port}", RTM_NEWRULE, rule, [("FRA_SRC", str(address)), ("FRA_TABLE", table)])
    if routed:
        # The server takes what is sent to any address of the NIC's network (AnyIP, "local" in ip-route(8)).
        entropies = route_request(nic_network(fabric, nic), None, LOOPBACK, RT_TABLE_LOCAL)
        batch.add_route(f"local network of {port}", entropies)
        add_neighbour(batch, port, index, str(gateway_ip(fabric, nic)), GATEWAY_MAC)
    else:
        # Light may cross OCSes in series: whoever it reaches is a neighbour, whatever its address.
        for peer in light_peers(fabric, nic):
            add_neighbour(batch, port, index, str(nic_ip(fabric, peer)), nic_mac(peer))
    if not (routed and wiring.has_hosts):
        _add_routes(batch, wiring, nic, index)
    for attempt, request in _qdiscs(port, wiring.shapes.get(port), wiring.netems.get(port)):
        batch.add_qdisc(attempt, request, index)


def _add_address(batch: Batch, attempt: str, index: int, address: IPv4Address, length: int) -> None:
    """Give an interface an address in a subnet, to which it adds no route."""
    fields = {"family": AF_INET, "prefixlen": length, "index": index}
    attributes = [
        ("IFA_LOCAL", str(address)),
        ("IFA_ADDRESS", str(address)),
        ("IFA_FLAGS", IFA_F_NOPREFIXROUTE),
    ]
    batch.add(attempt, RTM_NEWADDR, fields, attributes)


def _add_routes(batch: Batch, wiring: Wiring, nic: Nic, index: int) -> None:
    """Add the route of a NIC's own table, and to the main table what no NIC before it has there."""
    fabric, port, routed = wiring.fabric, wiring.fabric.nic_port(nic), on_packet_switch(wiring.fabric, nic)
    batch.add_route(f"route of {port}", _route(wiring, nic, index, FIRST_TABLE + nic.nic))
    if wiring.has_hosts and not fabric.servers_forward:
        return  # a host's main table has the NICs that its light reaches
    if nic.nic == 0 or (not routed and _is_first_on_switch(fabric, nic)):
        network = FABRIC_NETWORK if routed else subnet(fabric, fabric.peer(port).node)
        batch.add_route(f"main route of {port}", _route(wiring, nic, index, RT_TABLE_MAIN, network))


def _route(wiring: Wiring, nic: Nic, index: int, table: int, network: IPv4Network = FABRIC_NETWORK) -> bytes:
    """Return the request for a route by which a NIC's own packets leave, as its server's TCP begins."""
    fabric, metrics = wiring.fabric, route_metrics(wiring.host)
    gateway = gateway_ip(fabric, nic) if on_packet_switch(fabric, nic) else None
    return route_request(network, gateway, index, table, source=nic_ip(fabric, nic), metrics=metrics)


def with_hosts(wiring: Wiring, host: HostSettings) -> Wiring:
    """Have connections over packet switches begin otherwise from now on; return the wiring with that.

    Raises
    ------
    ScenarioError
        If ports would have to mark packets otherwise (ECN), or send others first: that takes other queues.
    """
    queues, before = (
        (each.mark_bytes, each.mark_rise_bytes, each.acks_first) for each in (host, wiring.host)
    )
    if queues != before:
        raise ScenarioError(
            "ports mark packets (ECN), or send acknowledgements first, for one of the two transports alone",
            "start anew with that --transport",
        )
    wiring = replace(wiring, host=host)
    for server, namespace in enumerate(wiring.namespaces):
        with inside_namespace(namespace):
            batch, indices = Batch(), interface_indices()
            for nic in (Nic(server, number) for number in range(wiring.fabric.servers[server].nics)):
                if on_packet_switch(wiring.fabric, nic) and not wiring.has_hosts:
                    port = wiring.fabric.nic_port(nic)
                    index = indices[interface(wiring.fabric, port)]
                    batch.add_route(f"route of {port}", _route(wiring, nic, index, FIRST_TABLE + nic.nic))
            batch.commit()
    return wiring


def route_metrics(host: HostSettings) -> dict[str, int]:
    """Return what a route has TCP begin with: windows, and the least timeout."""
    return {
        "RTAX_INITCWND": host.initial_window_packets,
        "RTAX_INITRWND": RECEIVE_WINDOW_PACKETS,
        "RTAX_RTO_MIN": round(1000 * host.least_timeout_s),
        # The kernel heeds a least timeout only if it is locked.
        "RTAX_LOCK": 1 << RTAX_RTO_MIN,
    }


def interface_indices() -> dict[str, int]:
    """Return the number of each interface in this thread's namespace by its name."""
    return {name: index for index, name in socket.if_nameindex()}


def add_neighbour(batch: Batch, port: Port, index: int, address: str, mac: str) -> None:
    """Have whoever has a port know a neighbour there for good, by the number of the port's interface."""
    entry = {"family": AF_INET, "ifindex": index, "state": NUD_PERMANENT}
    batch.add(f"neighbour of {port}", RTM_NEWNEIGH, entry, [("NDA_DST", address), ("NDA_LLADDR", mac)])


def _is_first_on_switch(fabric: Fabric, nic: Nic) -> bool:
    """Return whether no lower NIC of the server is on the same switch."""
    node = fabric.peer(fabric.nic_port(nic)).node
    return all(fabric.peer(fabric.nic_port(Nic(nic.server, n))).node != node for n in range(nic.nic))


def _qdiscs(port: Port, shape: Shape | None, netem: Netem | None, *, replaces: bool = False) -> Requests:
    """Return what shapes a port's egress, behind its netem if it has one; what marks packets is last."""
    requests = [(f"put a netem on {port}", netem.request(replace=replaces))] if netem else []
    if shape:  # light does not queue
        requests.append((f"shape {port}", shape.request(below_netem=netem is not None)))
    if shape and shape.acks_first:
        made = priority_requests(shape.queue_bytes)
        requests += [(f"send acknowledgements first at {port}", request) for request in made]
    if shape and shape.mark_bytes:
        sizes = shape.mark_bytes, shape.mark_rise_bytes, shape.queue_bytes
        requests.append((f"mark packets at {port}", marker_request(*sizes, is_last=shape.acks_first)))
    return requests


def _shape_at(wiring: Wiring, port: Port, share: float) -> Shape | None:
    """Return the shape of a port at a share of the rate that it began with; None if it has none."""
    if (shape := wiring.shapes.get(port)) is None:
        return None
    # Its bucket stays as large: what the shaper has let wait must fit it, or would wait for ever.
    return replace(shape, rate_bps=shape.rate_bps * share)


def _switch_offloads_off(names: list[str]) -> None:
    """Have NICs checksum and cut in software: the userspace datapath sees packets as they are on a wire."""
    tool = IoctlEthtool()
    for name in names:
        tool.change_ifname(name)
        for offload in OFFLOADS:
            tool.set_offload_flag(offload, 0)
    tool.close()
