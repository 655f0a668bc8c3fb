"""Traffic between hosts, from the heads of their packets: bytes over time, and flows.

A packet is counted once: where its host's NIC hands it to a switch, before any queue of the network. TCP's
sequence numbers say which payload is sent for the first time, also where the tap missed a packet. Payload of
UDP counts as sent for the first time; MPTCP sends some again on another subflow, which counts anew. Fragments
behind the first of a datagram have no ports: those between two hosts are a flow of their own.
"""

from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from testbed.apps.app_record import FLOWS, TRAFFIC
from testbed.network.packet_ring import Frames, frame_of
from topologies.addresses import host_ip, nic_network
from topologies.fabric import Fabric
from traffic.tables import empty

HEADS = frame_of(
    version=("u1", 14),
    length=(">u2", 16),
    id=(">u2", 18),
    fragment=(">u2", 20),
    protocol=("u1", 23),
    source=(">u4", 26),
    destination=(">u4", 30),
    ports=(">u4", 34),
    sequence=(">u4", 38),
    datagram_sum=(">u2", 40),
    offset=("u1", 46),
    flags=("u1", 47),
    segment_sum=(">u2", 50),
)
"""A frame with what is read of the headers of IP, and of TCP or UDP behind an IP header without options."""
HEAD_BYTES = 54
"""Of a packet, Ethernet's header among it, up to the end of TCP's without options."""
PLAIN_IP = 0x45
"""The first byte of an IP header without options."""
FRAGMENT_OFFSET = 0x1FFF
"""Where in its datagram a fragment lies: 0 for the first, which alone has a header of TCP or UDP."""
ICMP, TCP, UDP = 1, 6, 17
PROTOCOLS = {ICMP: "icmp", TCP: "tcp", UDP: "udp"}
IP_BYTES, UDP_BYTES = 20, 8
SYN = 2
BIN_S = 0.01
"""Width of the bins of time, as long as rows are few [s]."""
MOST_ROWS = 1 << 21
"""Rows of bins that are kept; of more the bins become twice as wide."""
MOST_FLOWS = 50_000
"""Flows that a table has, those with the most bytes."""
APART = 1 << 33
"""More than sequence numbers can be apart."""
COUNTS = "packets", "wire_bytes", "payload_bytes"
"""The counts of a bin."""
FLOW = np.dtype(
    [("first_s", "f8"), ("last_s", "f8"), ("packets", "i8"), ("wire_bytes", "i8"), ("payload_bytes", "i8"),
     ("resent_bytes", "i8"), ("next", "i8")]
)  # fmt: skip
"""Counts of a flow; ``next`` is the sequence number behind all that it sent, -1 before it sent any."""
Key = tuple[int, int]
"""Of a flow: its addresses, and its protocol and ports, as one number each."""
Numbers = NDArray[np.int64]


class HostAddresses:
    """The server of each address that a host of a fabric has: its own, and those of its NICs."""

    def __init__(self, fabric: Fabric) -> None:
        servers = range(len(fabric.servers))
        ranges = [(int(host_ip(server)), int(host_ip(server)), server) for server in servers]
        for nic in fabric.nics:
            network = nic_network(fabric, nic)
            ranges.append((int(network.network_address), int(network.broadcast_address), nic.server))
        self._first, self._last, self._server = np.array(sorted(ranges), dtype=np.int64).T

    def servers(self, addresses: Numbers) -> Numbers:
        """Return the server of each address, -1 where no host has it."""
        near = (np.searchsorted(self._first, addresses, side="right") - 1).clip(min=0)
        is_in = (addresses >= self._first[near]) & (addresses <= self._last[near])
        return np.where(is_in, self._server[near], -1)


class SeenFlows:
    """All flows so far; each has a number.

    A connection that takes the addresses and ports of an earlier one is another flow.
    """

    def __init__(self) -> None:
        self._numbers: dict[Key, int] = {}
        self._first_sequence: dict[Key, int] = {}
        """Of connections whose begin was seen."""
        self.keys: list[Key] = []
        self._rows = np.zeros(1024, FLOW)

    @property
    def rows(self) -> Frames:
        """The counts of each flow, an array of `FLOW`."""
        return self._rows[: len(self.keys)]

    def begin(self, key: Key, sequence: int) -> bool:
        """Note that a connection begins; return whether another one before it had its key."""
        before = self._first_sequence.get(key, sequence)
        self._first_sequence[key] = sequence
        return before != sequence

    def forget(self, key: Key) -> None:
        """Have the next packet of a key begin another flow."""
        self._numbers.pop(key, None)

    def numbers(self, addresses: Numbers, ports: Numbers) -> Numbers:
        """Return the number of each packet's flow; new flows are added."""
        of_addresses, all_addresses = pd.factorize(addresses)
        of_ports, all_ports = pd.factorize(ports)
        of_both, both = pd.factorize(of_addresses * len(all_ports) + of_ports)
        found = [
            self._number((int(all_addresses[each // len(all_ports)]), int(all_ports[each % len(all_ports)])))
            for each in both.tolist()
        ]
        return np.array(found, dtype=np.int64)[of_both]

    def _number(self, key: Key) -> int:
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.keys)
            self.keys.append(key)
            if number == len(self._rows):
                self._rows = np.concatenate([self._rows, np.zeros(number, FLOW)])
            self._rows[number]["first_s"], self._rows[number]["next"] = np.inf, -1
        return number

    def first_sent(
        self, number: Numbers, sequence: Numbers, size: Numbers, opens: NDArray[np.bool_]
    ) -> Numbers:
        """Return how much of each segment's payload is sent for the first time [bytes].

        It counts what lies before a segment and was not seen.

        Parameters
        ----------
        number, sequence, size
            Of each segment: its flow, its first sequence number, its payload [bytes]; in order of time.
        opens
            Whether it opens its connection, which takes a sequence number.
        """
        order = np.argsort(number, kind="stable")
        number, sequence, size = number[order], sequence[order], size[order]
        starts = np.flatnonzero(np.diff(number, prepend=-1))
        flows = number[starts]
        begun = self._rows["next"][flows]
        begun = np.where(begun < 0, (sequence + opens[order])[starts], begun)
        group = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(number))))
        # A difference of sequence numbers as 32 bits with a sign: they begin again from 0.
        ahead = (sequence + size - begun[group]).astype(np.uint32).astype(np.int32).astype(np.int64)
        ahead[size == 0] = 0  # the end of a connection takes a sequence number too
        most = np.maximum.accumulate(np.maximum(ahead, 0) + group * APART) - group * APART
        before = np.where(np.isin(np.arange(len(most)), starts), 0, np.roll(most, 1))
        last = np.append(starts[1:], len(number)) - 1
        self._rows["next"][flows] = (begun + most[last]) % (1 << 32)
        new = np.empty_like(most)
        new[order] = most - before
        return new

    def count(self, number: Numbers, at_s: NDArray[np.float64], **columns: Numbers) -> None:
        """Add packets and bytes to flows."""
        rows = self.rows
        np.minimum.at(rows["first_s"], number, at_s)
        np.maximum.at(rows["last_s"], number, at_s)
        np.add.at(rows["packets"], number, 1)
        for name, values in columns.items():
            np.add.at(rows[name], number, values)


class TrafficLog:
    """Bytes between hosts over time, and flows.

    Parameters
    ----------
    fabric
        Whose hosts send.
    origin_s
        Where the first bin begins [s, monotonic clock].
    """

    def __init__(self, fabric: Fabric, origin_s: float) -> None:
        self.bin_s = BIN_S
        """Width of the bins [s]."""
        self.packets = 0
        """How many were counted."""
        self.wire_bytes = 0
        """Their IP lengths [bytes]."""
        self.flows = SeenFlows()
        self._origin_s, self._count = origin_s, len(fabric.servers)
        self._addresses = HostAddresses(fabric)
        self._parts = [np.zeros((1 + len(COUNTS), 0), dtype=np.int64)]
        """Rows of bins: bin and pair of hosts as one number, and `COUNTS`."""
        self._size = 0

    def add(self, frames: Frames, at_s: NDArray[np.float64], from_server: Numbers) -> Numbers:
        """Count packets that NICs handed to switches; return the number of each one's flow.

        Parameters
        ----------
        frames
            An array of `HEADS`, in order of time.
        at_s, from_server
            When each was seen [s, monotonic clock], and the server of the NIC.

        Returns
        -------
        ndarray
            -1 for a packet that the server passes on for another, or that is of no hosts.
        """
        source, destination = (
            self._addresses.servers(frames[name].astype(np.int64)) for name in ("source", "destination")
        )
        own = np.flatnonzero((source == from_server) & (destination >= 0))
        number = np.full(len(frames), -1)
        for part in self._parted(frames, own):
            number[part] = self._add(frames[part], at_s[part], source[part], destination[part])
        return number

    def _parted(self, frames: Frames, own: Numbers) -> Iterator[Numbers]:
        """Yield which packets to count, divided where a connection takes an earlier one's ports."""
        is_tcp = has_ports(frames) & (frames["protocol"] == TCP)
        opening = own[is_tcp[own] & (frames["flags"][own] & SYN > 0)]
        begun = 0
        for index, key in zip(opening.tolist(), keys_of(frames[opening]), strict=True):
            if self.flows.begin(key, int(frames["sequence"][index])):
                until = int(np.searchsorted(own, index))
                yield own[begun:until]
                begun = until
                self.flows.forget(key)
        yield own[begun:]

    def _add(
        self, frames: Frames, at_s: NDArray[np.float64], source: Numbers, destination: Numbers
    ) -> Numbers:
        if not len(frames):
            return np.empty(0, dtype=np.int64)
        length = frames["length"].astype(np.int64)
        number = self.flows.numbers(*numbers_of(frames))
        size = _payload_bytes(frames, length)
        new, resent = size.copy(), np.zeros_like(size)
        tcp = np.flatnonzero(has_ports(frames) & (frames["protocol"] == TCP))
        if len(tcp):
            sequence = frames["sequence"][tcp].astype(np.int64)
            opens = frames["flags"][tcp] & SYN > 0
            new[tcp] = self.flows.first_sent(number[tcp], sequence, size[tcp], opens)
            resent[tcp] = np.maximum(size[tcp] - new[tcp], 0)
        self.flows.count(number, at_s, wire_bytes=length, payload_bytes=new, resent_bytes=resent)
        self.packets += len(frames)
        self.wire_bytes += int(length.sum())
        at = np.floor((at_s - self._origin_s) / self.bin_s).astype(np.int64)
        pair = (at * self._count + source) * self._count + destination
        self._keep(_summed(np.array([pair, np.ones_like(pair), length, new])))
        return number

    def _keep(self, rows: Numbers) -> None:
        self._parts.append(rows)
        self._size += rows.shape[1]
        if self._size > MOST_ROWS and self._compact().shape[1] > MOST_ROWS // 2:
            self._widen()

    def _compact(self) -> Numbers:
        """Have one row for each bin and pair of hosts; return all rows."""
        self._parts = [_summed(np.concatenate(self._parts, axis=1))]
        self._size = self._parts[0].shape[1]
        return self._parts[0]

    def _widen(self) -> None:
        """Have bins that are twice as wide."""
        at, pair = np.divmod(self._parts[0][0], self._count**2)
        self._parts[0][0] = at // 2 * self._count**2 + pair
        self._compact()
        self.bin_s *= 2

    def traffic(self, start_s: float) -> pd.DataFrame:
        """Return `TRAFFIC`; times since ``start_s`` [s, monotonic clock]."""
        place, *counts = self._compact()
        at, pair = np.divmod(place, self._count**2)
        table = pd.DataFrame(dict(zip(COUNTS, counts, strict=True)))
        table["source"], table["destination"] = np.divmod(pair, self._count)
        table["at_s"] = at * self.bin_s + (self._origin_s - start_s)
        return table[list(TRAFFIC)].astype(TRAFFIC)

    def flow_table(self, start_s: float) -> pd.DataFrame:
        """Return `FLOWS`, at most `MOST_FLOWS`; times since ``start_s`` [s, monotonic clock]."""
        rows, keys = self.flows.rows, self.flows.keys
        kept = np.sort(np.argsort(-rows["wire_bytes"], kind="stable")[:MOST_FLOWS])
        if not len(kept):
            return empty(FLOWS)
        addresses, ports = np.array([keys[number] for number in kept], dtype=np.int64).T
        ends = {"source": addresses >> 32 & 0xFFFFFFFF, "destination": addresses & 0xFFFFFFFF}
        found = {name: rows[name][kept] for name in rows.dtype.fields or () if name != "next"}
        table = pd.DataFrame({"flow": kept, **found})
        for name, address in ends.items():
            table[name] = self._addresses.servers(address)
            table[f"{name}_address"] = [str(IPv4Address(each)) for each in address.tolist()]
        table["protocol"] = [PROTOCOLS.get(each, str(each)) for each in (ports >> 32).tolist()]
        table["source_port"], table["destination_port"] = ports >> 16 & 0xFFFF, ports & 0xFFFF
        table[["first_s", "last_s"]] -= start_s
        return table[list(FLOWS)].astype(FLOWS)


def numbers_of(frames: Frames) -> tuple[Numbers, Numbers]:
    """Return the key of each packet's flow as two arrays; without ports where none can be read."""
    addresses = frames["source"].astype(np.int64) << 32 | frames["destination"]
    ports = np.where(has_ports(frames), frames["ports"].astype(np.int64), 0)
    return addresses, frames["protocol"].astype(np.int64) << 32 | ports


def has_ports(frames: Frames) -> NDArray[np.bool_]:
    """Return whether each packet begins with a header of TCP or UDP that can be read."""
    protocol, is_first = frames["protocol"], frames["fragment"] & FRAGMENT_OFFSET == 0
    return np.asarray(((protocol == TCP) | (protocol == UDP)) & (frames["version"] == PLAIN_IP) & is_first)


def keys_of(frames: Frames) -> Sequence[Key]:
    """Return the key of each packet's flow."""
    addresses, ports = numbers_of(frames)
    return list(zip(addresses.tolist(), ports.tolist(), strict=True))


def _payload_bytes(frames: Frames, length: Numbers) -> Numbers:
    """Return the payload of each packet that is TCP or UDP, 0 of others [bytes].

    Fragments behind the first are payload as a whole; of TCP the sequence numbers say what they carry.
    """
    protocol, begins = frames["protocol"], has_ports(frames)
    head = np.where(protocol == TCP, 4 * (frames["offset"].astype(np.int64) >> 4), UDP_BYTES)
    follows = (protocol == UDP) & (frames["version"] == PLAIN_IP) & ~begins
    size = np.maximum(length - IP_BYTES - np.where(begins, head, 0), 0)
    return np.where(begins | follows, size, 0)


def _summed(rows: Numbers) -> Numbers:
    """Return the sums of rows with the same first number."""
    place, group = np.unique(rows[0], return_inverse=True)
    sums = [np.bincount(group, counts, len(place)).astype(np.int64) for counts in rows[1:]]
    return np.array([place, *sums])
