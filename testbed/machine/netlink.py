"""Many netlink requests in one go: encoded by pyroute2, sent in bulk, each answer checked.

pyroute2's own IPRoute asks and awaits one request at a time, and its IPBatch runs an event
loop for each one it encodes (0.3 ms): here its message classes are used directly (0.03 ms).
"""

import errno
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from functools import cache
from ipaddress import IPv4Address, IPv4Network
from socket import AF_INET
from typing import NamedTuple

from pyroute2.netlink import NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, nlmsg
from pyroute2.netlink.rtnl import (
    RTM_DELLINK,
    RTM_DELROUTE,
    RTM_DELRULE,
    RTM_NEWADDR,
    RTM_NEWLINK,
    RTM_NEWNEIGH,
    RTM_NEWQDISC,
    RTM_NEWROUTE,
    RTM_NEWRULE,
    RTM_NEWTCLASS,
    RTM_NEWTFILTER,
)
from pyroute2.netlink.rtnl.fibmsg import fibmsg
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.ndmsg import ndmsg

from testbed.machine.kernel import inside_namespace, new_network_namespace
from topologies.errors import NetworkError
from traffic.transports.datagram_sockets import EXPEDITED

Attributes = Sequence[tuple[str, object]]
IFF_UP = 1
LOOPBACK = 1
HEADER = struct.Struct("=IHHII")
NLMSG_ERROR = 2
INDEX_OFFSET = 20
BURST = 64
TICK_NS = 64
"""The kernel's packet scheduler counts time in ticks of 64 ns (PSCHED_SHIFT)."""
CERTAIN = (1 << 32) - 1
"""A probability of 1 as netem counts it."""
ROOT, NETEM_HANDLE, BELOW_NETEM = 0xFFFFFFFF, 0x10000, 0x10001
"""An interface's own queueing discipline, a netem 1:, and below that in its class 1:1 (see tc(8))."""
SHAPER_HANDLE, BELOW_SHAPER, MARKER_HANDLE = 0x100000, 0x100001, 0x200000
"""A shaper 10: wherever it is: a netem takes its place only if their handles differ (tc_modify_qdisc in
net/sched/sch_api.c); and a marker 20: below it."""
PRIORITY_HANDLE, FIRST_CLASS, LAST_CLASS, FIFO_HANDLE = 0x300000, 0x300001, 0x300002, 0x310000
"""A priority queue 30: below a shaper, its classes for acknowledgements and all else, and 31: for these."""
TC_MESSAGE = struct.Struct("=4xiIII")
"""struct tcmsg: interface, handle, parent, info."""
TCA_KIND, TCA_OPTIONS = 1, 2
RED = struct.Struct("=IIIBBBB")
"""struct tc_red_qopt: limit, least and most threshold [bytes], three logarithms, flags."""
RED_COUNTS = struct.Struct("=4I")
"""struct tc_red_xstats: packets dropped early, dropped for room, dropped otherwise, marked."""
ATTRIBUTE_BYTES = 4
"""Of an attribute, before its value."""
TCA_TBF_PARMS, TCA_TBF_BURST, TC_LINKLAYER_ETHERNET = 1, 6, 1
RATE_SPEC = struct.Struct("=BBHhHI")
"""struct tc_ratespec: cell_log, link layer, overhead, cell_align, mpu, rate [bytes/s]."""
TBF = struct.Struct("=III")
"""What struct tc_tbf_qopt has after its two rates: limit [bytes], buffer [ticks], mtu [ticks]."""
NETEM = struct.Struct("=6I")
"""struct tc_netem_qopt: latency [ticks], limit [packets], loss, gap, duplicate, jitter."""
TCA_RED_PARMS, TCA_RED_STAB, TCA_RED_MAX_P, TCA_RED_FLAGS = 1, 2, 3, 4
TC_RED_ECN, TC_RED_NODROP = 2**0, 2**3
SPACED = 0.87
"""RED's probability at the upper threshold. Linux spaces marks evenly, by how many packets there were since
the last one (Floyd and Jacobson, ToN 1993, section 7, method 2), so that about 2 p / (1 + p) of them are
marked and not p. With this the share is within 0.12 of a line from 0 to 1, with 1 within 0.17."""
TCA_HTB_PARMS, TCA_HTB_INIT, TCA_U32_CLASSID, TCA_U32_SEL = 1, 2, 1, 5
TC_U32_TERMINAL, ETH_P_ALL = 1, 3
HTB = struct.Struct("=5I")
"""struct tc_htb_glob: version, divisor of quantums, class of what no filter takes, flags, a count; of a class
what struct tc_htb_opt has after its two rates: two bursts [ticks], quantum [bytes], level, priority."""
U32 = struct.Struct("=BBB13x")
"""struct tc_u32_sel: flags, a shift, how many keys; the rest is for offsets that vary."""
U32_KEY = struct.Struct("!II8x")
"""struct tc_u32_key: mask and value, in the first four bytes of the IP header."""
TYPE_OF_SERVICE, DSCP = 16, 0xFC
"""Place of the type of service there [bits from the right], and its bits that name a class (RFC 2474)."""
FASTEST_BYTES_S, QUANTUM_BYTES = (1 << 32) - 1, 60_000
"""A rate above that of any shaper here [bytes/s]; and a share of turns that no class needs."""
FORGOTTEN_AT_ONCE = bytes([31] * 256)
"""By which powers of 2 RED divides what it remembers of a queue that has been empty for so long."""
ROUTE = struct.Struct("=BBBBBBBBI")
"""struct rtmsg: family, lengths of destination and source, tos, table, protocol, scope, type, flags."""
RT_TABLE_UNSPEC, RT_TABLE_MAIN, RT_TABLE_LOCAL, RTPROT_STATIC = 0, 254, 255, 4
THROUGH, BESIDE, HERE, NOWHERE, ANY = (1, 0, 4), (1, 253, 0), (2, 254, 0), (7, 0, 0), (0, 255, 0)
"""Type, scope and flags (RTNH_F_ONLINK) of a route through a neighbour, to neighbours, to this server, of one
that refuses what it is for, and of any of these."""
RTA_DST, RTA_OIF, RTA_GATEWAY, RTA_PREFSRC, RTA_METRICS, RTA_MULTIPATH, RTA_TABLE = 1, 4, 5, 7, 8, 9, 15
NEXT_HOP = struct.Struct("=HBBi")
"""struct rtnexthop: length, flags, weight less 1, interface."""
METRICS = {"RTAX_LOCK": 1, "RTAX_INITCWND": 11, "RTAX_RTO_MIN": 13, "RTAX_INITRWND": 14, "RTAX_CC_ALGO": 16}
Metrics = Mapping[str, int | str]
"""Values that TCP begins with, by the names of `METRICS`."""
KINDS: dict[int, type[nlmsg]] = {
    RTM_NEWLINK: ifinfmsg,
    RTM_DELLINK: ifinfmsg,
    RTM_NEWADDR: ifaddrmsg,
    RTM_NEWNEIGH: ndmsg,
    RTM_NEWRULE: fibmsg,
    RTM_DELRULE: fibmsg,
}


class NextHop(NamedTuple):
    """A neighbour through which a route leads."""

    interface: int
    """The number of the interface by which it is reached."""
    gateway: IPv4Address
    weight: int = 1
    """Its share of connections over the sum of all, 1 to 256."""


class Batch:
    """Requests to the kernel, each with the words for what it attempts."""

    def __init__(self) -> None:
        self._requests: list[tuple[str, bytes]] = []

    def add(self, attempt: str, kind: int, fields: Mapping[str, object], attributes: Attributes = ()) -> None:
        """Add a request to create, change or delete: a message's fields and attributes (see rtnetlink(7))."""
        message = KINDS[kind]()
        message["header"]["type"] = kind
        message["header"]["flags"] = NLM_F_REQUEST | NLM_F_ACK
        # To a request to delete these flags mean something else.
        is_new = kind not in (RTM_DELLINK, RTM_DELRULE)
        if (is_new and "index" not in fields) or kind == RTM_NEWADDR:
            # A neighbour may be known already: an interface that is up is taken up.
            message["header"]["flags"] |= NLM_F_CREATE | (
                NLM_F_REPLACE if kind == RTM_NEWNEIGH else NLM_F_EXCL
            )
        for name, value in fields.items():
            message[name] = value
        message["attrs"] = list(attributes)
        message.encode()
        self._requests.append((attempt, bytes(message.data)))

    def add_qdisc(self, attempt: str, request: bytes, index: int) -> None:
        """Add what `shaper_request`, `priority_requests` or the like made, for an interface."""
        stamped = bytearray(request)
        struct.pack_into("=i", stamped, INDEX_OFFSET, index)
        self._requests.append((attempt, bytes(stamped)))

    def add_route(self, attempt: str, request: bytes) -> None:
        """Add what `route_request` made."""
        self._requests.append((attempt, request))

    def commit(self, *, ignored: int = 0) -> None:
        """Send all requests in order to the network namespace this thread is in.

        Parameters
        ----------
        ignored
            The error number (errno(3)) of a refusal that is none here.

        Raises
        ------
        NetworkError
            For the first request that the kernel refuses: what was attempted, and the kernel's word.
        """
        requests, self._requests = self._requests, []
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as channel:
            channel.bind((0, 0))
            channel.settimeout(30.0)
            # The kernel answers each request, and the answers of some hundreds fill the socket.
            for start in range(0, len(requests), BURST):
                burst = requests[start : start + BURST]
                channel.send(b"".join(_numbered(r, start + i) for i, (_, r) in enumerate(burst)))
                _check_answers(channel, requests, len(burst), ignored)


def kernel_takes(*qdiscs: bytes) -> bool:
    """Return whether the kernel has queueing disciplines; they are tried in a new namespace."""
    namespace, batch = new_network_namespace(), Batch()
    for request in qdiscs:
        batch.add_qdisc("try it", request, LOOPBACK)
    try:
        with inside_namespace(namespace):
            batch.commit()
    except NetworkError:
        return False
    finally:
        os.close(namespace)
    return True


@cache
def kernel_has_priority() -> bool:
    """Return whether a shaper can send acknowledgements before all else that waits."""
    return kernel_takes(shaper_request(1 << 20, 1 << 20, 1 << 20), *priority_requests(1 << 20))


@cache
def kernel_has_netem() -> bool:
    """Return whether netem can be put on an interface; the kernel loads its module for that if it has one."""
    return kernel_takes(netem_request(0.0, 0.0, 1))


def shaper_request(
    rate_bytes_s: int, burst_bytes: int, queue_bytes: int, *, below_netem: bool = False, change: bool = False
) -> bytes:
    """Return the request for a token bucket filter (tc-tbf(8)) on an interface yet to be filled in.

    It is the interface's own queue, or below a netem that `netem_request` makes first. One that is there can
    be changed: what waits in it stays, and its bucket is full (tbf_change in net/sched/sch_tbf.c).

    Encoded here: pyroute2 gives the bucket as a time, which is rounded by the rate. A packet that a slower
    shaper took would then be larger than the whole bucket of a faster one, which would never pass it.
    """
    rate = RATE_SPEC.pack(0, TC_LINKLAYER_ETHERNET, 0, 0, 0, rate_bytes_s)
    ticks = -(-burst_bytes * 10**9 // (rate_bytes_s * TICK_NS))
    options = _attribute(TCA_TBF_PARMS, rate + bytes(RATE_SPEC.size) + TBF.pack(queue_bytes, ticks, 0))
    options += _attribute(TCA_TBF_BURST, struct.pack("=I", burst_bytes))
    handles = SHAPER_HANDLE, BELOW_NETEM if below_netem else ROOT
    return _qdisc(b"tbf\0", handles, options, 0 if change else NLM_F_CREATE | NLM_F_EXCL)


def priority_requests(queue_bytes: int) -> list[bytes]:
    """Return the requests to send acknowledgements before all else, their interface yet to be filled in.

    Below a shaper, an HTB (tc-htb(8)) whose classes are faster than any shaper: it then goes by their
    priority alone (htb_dequeue in net/sched/sch_htb.c), as tc-prio(8) does, which not every kernel with
    HTB has. A packet that the shaper has looked at goes first all the same, as on a wire.

    Parameters
    ----------
    queue_bytes
        What may wait but for acknowledgements [bytes].
    """
    flags, whole = NLM_F_CREATE | NLM_F_EXCL, DSCP << TYPE_OF_SERVICE
    rate = RATE_SPEC.pack(0, TC_LINKLAYER_ETHERNET, 0, 0, 0, FASTEST_BYTES_S)
    bursts = [10**9 // TICK_NS] * 2  # a second's
    options = _attribute(TCA_HTB_INIT, HTB.pack(3, 1, LAST_CLASS - PRIORITY_HANDLE, 0, 0))
    requests = [_qdisc(b"htb\0", (PRIORITY_HANDLE, BELOW_SHAPER), options, flags)]
    for priority, handle in enumerate((FIRST_CLASS, LAST_CLASS)):
        options = _attribute(TCA_HTB_PARMS, 2 * rate + HTB.pack(*bursts, QUANTUM_BYTES, 0, priority))
        requests.append(_qdisc(b"htb\0", (handle, PRIORITY_HANDLE), options, flags, RTM_NEWTCLASS))
    limit = struct.pack("=I", queue_bytes)
    requests.append(_qdisc(b"bfifo\0", (FIFO_HANDLE, LAST_CLASS), limit, flags))
    selected = U32.pack(TC_U32_TERMINAL, 0, 1) + U32_KEY.pack(whole, EXPEDITED << TYPE_OF_SERVICE)
    options = _attribute(TCA_U32_CLASSID, struct.pack("=I", FIRST_CLASS)) + _attribute(TCA_U32_SEL, selected)
    info = 1 << 16 | socket.htons(ETH_P_ALL)
    requests.append(_qdisc(b"u32\0", (0, PRIORITY_HANDLE), options, flags, RTM_NEWTFILTER, info))
    return requests


def marker_request(mark_bytes: int, rise_bytes: int, queue_bytes: int, *, is_last: bool = False) -> bytes:
    """Return the request for what marks packets (ECN) in a shaper's queue, its interface yet to be filled in.

    A RED (tc-red(8)) whose average is the queue as it is: the share of packets that are marked rises with
    what they find waiting, and none is dropped while there is room. Encoded here: pyroute2 knows no RED.

    Parameters
    ----------
    mark_bytes
        Behind how much packets are marked [bytes].
    rise_bytes
        Over how much more the share rises to all [bytes]; 0 for all at once.
    queue_bytes
        What may wait [bytes].
    is_last
        Whether it marks what waits behind acknowledgements (`priority_requests`).
    """
    parameters = RED.pack(queue_bytes, mark_bytes, mark_bytes + rise_bytes, 0, 0, 0, 0)
    # A struct nla_bitfield32: the values of flags, and which flags are given.
    flags = struct.pack("=II", *[TC_RED_ECN | TC_RED_NODROP] * 2)
    options = _attribute(TCA_RED_PARMS, parameters) + _attribute(TCA_RED_STAB, FORGOTTEN_AT_ONCE)
    options += _attribute(TCA_RED_MAX_P, struct.pack("=I", round(SPACED * CERTAIN)))
    options += _attribute(TCA_RED_FLAGS, flags)
    parent = LAST_CLASS if is_last else BELOW_SHAPER
    return _qdisc(b"red\0", (MARKER_HANDLE, parent), options, NLM_F_CREATE | NLM_F_REPLACE)


def netem_request(
    delay_s: float, loss: float, limit_packets: int, *, change: bool = False, replace: bool = False
) -> bytes:
    """Return the request for a netem (tc-netem(8)) on an interface yet to be filled in.

    Encoded here: pyroute2's own encoder knows whole microseconds only.

    Parameters
    ----------
    delay_s
        How long each packet waits before it reaches the queue below [s]; what is not 0 is at least a
        tick of 64 ns. Packets that wait are no longer charged to their sender's socket (skb_orphan_partial
        in net/sched/sch_netem.c), so that the queue below fills instead of pushing back on the sender.
    loss
        The probability that a packet is dropped instead.
    limit_packets
        How many packets may wait at once; more are dropped.
    change
        Whether to change the netem that the interface has, instead of adding one.
    replace
        Whether it takes the place of the queue that the interface has, which is dropped.
    """
    ticks = max(round(delay_s * 1e9 / TICK_NS), int(delay_s > 0))
    options = NETEM.pack(ticks, limit_packets, round(loss * CERTAIN), 0, 0, 0)
    flags = 0 if change else NLM_F_CREATE | (NLM_F_REPLACE if replace else NLM_F_EXCL)
    return _qdisc(b"netem\0", (NETEM_HANDLE, ROOT), options, flags)


def route_request(
    destination: IPv4Network,
    gateway: IPv4Address | None,
    index: int,
    table: int,
    *,
    source: IPv4Address | None = None,
    metrics: Metrics | None = None,
    delete: bool = False,
) -> bytes:
    """Return the request for a route, which replaces the one that is there.

    Encoded here: routes follow circuits while senders wait, and pyroute2 takes 0.4 ms for each.

    Parameters
    ----------
    destination, gateway
        Where it leads, and through which neighbour; it need not be in a subnet of the interface. None where
        each destination is a neighbour, or in RT_TABLE_LOCAL the server itself.
    index, table
        The interface, and the routing table.
    source
        The address that packets of the server's own get.
    metrics
        What TCP begins with, by the names of `METRICS`.
    delete
        Whether to delete the route instead.
    """
    how = THROUGH if gateway else HERE if table == RT_TABLE_LOCAL else BESIDE
    body = _route(destination, table, how) + _attribute(RTA_OIF, struct.pack("=I", index))
    if gateway:
        body += _attribute(RTA_GATEWAY, gateway.packed)
    body += _begun(source, metrics or {})
    if delete:
        return _message(RTM_DELROUTE, 0, body)
    return _message(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, body)


def spread_request(
    destination: IPv4Network,
    hops: Sequence[NextHop],
    table: int,
    *,
    source: IPv4Address | None,
    metrics: Metrics,
) -> bytes:
    """Return the request for a route by which connections spread over neighbours; of none it refuses them.

    It replaces the route that is there. A neighbour whose interface has no carrier is left out meanwhile if
    the interface ignores such routes (ignore_routes_with_linkdown).

    Parameters
    ----------
    destination, table, source, metrics
        As of `route_request`.
    hops
        The neighbours.
    """
    body = _route(destination, table, THROUGH if hops else NOWHERE)
    parts = [_attribute(RTA_GATEWAY, hop.gateway.packed) for hop in hops]
    if len(hops) == 1:
        body += _attribute(RTA_OIF, struct.pack("=I", hops[0].interface)) + parts[0]
    elif hops:
        flags = THROUGH[2]
        packed = (
            NEXT_HOP.pack(NEXT_HOP.size + len(part), flags, hop.weight - 1, hop.interface) + part
            for hop, part in zip(hops, parts, strict=True)
        )
        body += _attribute(RTA_MULTIPATH, b"".join(packed))
    return _message(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, body + _begun(source, metrics))


def no_route_request(destination: IPv4Network, table: int) -> bytes:
    """Return the request to delete a route, wherever it leads."""
    return _message(RTM_DELROUTE, 0, _route(destination, table, ANY))


def _route(destination: IPv4Network, table: int, how: tuple[int, int, int]) -> bytes:
    """Return a request for a route but for where it leads."""
    kind, scope, flags = how
    protocol = RTPROT_STATIC if kind else 0
    lengths = destination.prefixlen, 0  # of the destination, of the source
    body = ROUTE.pack(AF_INET, *lengths, 0, RT_TABLE_UNSPEC, protocol, scope, kind, flags)
    body += _attribute(RTA_DST, destination.network_address.packed)
    return body + _attribute(RTA_TABLE, struct.pack("=I", table))


def _begun(source: IPv4Address | None, metrics: Metrics) -> bytes:
    """Return the attributes of how packets of the server's own begin."""
    packed = {
        name: struct.pack("=I", value) if isinstance(value, int) else f"{value}\0".encode()
        for name, value in metrics.items()
    }
    nested = (_attribute(METRICS[name], value) for name, value in packed.items())
    body = _attribute(RTA_PREFSRC, source.packed) if source else b""
    return body + (_attribute(RTA_METRICS, b"".join(nested)) if metrics else b"")


def _qdisc(
    kind: bytes, handles: tuple[int, int], options: bytes, flags: int, made: int = RTM_NEWQDISC, info: int = 0
) -> bytes:
    """Return the request for a queueing discipline, class or filter, without its interface.

    ``handles`` are its own and its parent's.
    """
    body = TC_MESSAGE.pack(1, *handles, info) + _attribute(TCA_KIND, kind) + _attribute(TCA_OPTIONS, options)
    return _message(made, flags, body)


def _message(kind: int, flags: int, body: bytes) -> bytes:
    return HEADER.pack(HEADER.size + len(body), kind, NLM_F_REQUEST | NLM_F_ACK | flags, 0, 0) + body


def _attribute(kind: int, value: bytes) -> bytes:
    """Return an attribute, which fills a multiple of 4 bytes."""
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def delete_links(group: int) -> None:
    """Delete all links of a group in one request; a group without links is left as it is."""
    batch = Batch()
    batch.add(f"delete the links of group {group}", RTM_DELLINK, {}, [("IFLA_GROUP", group)])
    batch.commit(ignored=errno.ENODEV)


def _numbered(request: bytes, sequence: int) -> bytes:
    length, kind, flags, _, _ = HEADER.unpack_from(request)
    return HEADER.pack(length, kind, flags, sequence, 0) + request[HEADER.size :]


def _check_answers(
    channel: socket.socket, requests: list[tuple[str, bytes]], count: int, ignored: int
) -> None:
    while count > 0:
        answers = channel.recv(1 << 18)
        while answers:
            length, kind, _, sequence, _ = HEADER.unpack_from(answers)
            if kind == NLMSG_ERROR:
                (code,) = struct.unpack_from("=i", answers, HEADER.size)
                if -code not in (0, ignored):
                    raise NetworkError(f"{requests[sequence][0]}: {os.strerror(-code)}")
                count -= 1
            answers = answers[(length + 3) & ~3 :]
