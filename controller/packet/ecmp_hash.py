"""Which bucket of a ``select`` group Open vSwitch picks for a connection.

OpenFlow 1.3 leaves the choice to the switch, and Open vSwitch has two ways
(``group_set_selection_method`` in ``ofproto/ofproto-dpif.c``):

- Weights that fit a table of 256 hash values: the *datapath* hashes every packet. Each switch
  uses the same hash, so that a second tier repeats the first tier's choice (polarisation), and
  the kernel's datapath takes the kernel's own hash, which is unknown beforehand.
- Weights that do not fit: ``ovs-vswitchd`` hashes once per connection and writes the choice into
  the datapath. This hash is the same over either datapath, it covers the MAC addresses, and no
  packet is looked up twice.

Lightrail's groups are of the second kind: `forwarding_buckets` adds a bucket so light that the
weights do not fit.

The hash is symmetric: it takes the exclusive or of the two IP addresses, of the two ports and
of the two MAC addresses. With IP addresses alone, all pairs of NICs whose numbers differ in the
same bits would go one way. Therefore a packet keeps the MAC address of the NIC that sent it as
its source, which tells the sender apart, and every switch writes an address of its own as the
destination before it chooses, which tells the switches apart: the choices are as independent
as if each switch hashed the 5-tuple with a seed of its own, and all of them are known. The number of
the group is not in the hash: equal buckets choose alike under any (`controller.packet.changes.renumbered`).

UDP ports are not in the hash either (nor in the datapath's): all UDP packets between two addresses take one
path. Therefore datagrams have their entropy in the destination address (`topologies.addresses`).

References
----------
Open vSwitch 2.10 to 3.3: ``flow_hash_symmetric_l4`` in ``lib/flow.c``, ``group_best_live_bucket`` in
``ofproto/ofproto-dpif-xlate.c``, murmur hash in ``lib/hash.h`` (builds for any x86-64, as the
distributions', do not use the CRC instruction there); B. Jenkins, lookup3 (2006).
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from controller.packet.rules import IPV4, Bucket

TABLE_SIZE = 256
"""Open vSwitch's largest table of hash values: sum of the weights over the least weight."""
MOST_BUCKETS = 2047
"""How many buckets a group can have: OpenFlow's messages have at most 65,535 bytes, and a bucket takes 32."""
MOST_WRITING = 1364
"""The same of buckets that write a MAC address: such a one takes 48."""
PORT_WEIGHT = 1000
TCP, UDP = 6, 17
_WORD = 0xFFFFFFFF
_START = 0xDEADBEEF + 32
"""What lookup3 of 32 bytes begins with."""
_MIX, _FINAL = (4, 6, 8, 16, 19, 4), (14, 11, 25, 16, 4, 14, 24)
"""By how many bits lookup3 rotates."""
NO_MACS: Mapping[int, str] = {}
"""No port has a MAC address of its own."""
_Word = TypeVar("_Word", int, NDArray[np.integer])
"""A word of 32 bits, or an array of them."""


@dataclass(frozen=True, slots=True)
class Headers:
    """What of a packet the hash covers: an untagged IPv4 packet's addresses and ports."""

    eth_src: str
    eth_dst: str
    ip_src: IPv4Address
    ip_dst: IPv4Address
    source_port: int
    destination_port: int
    protocol: int = TCP


def forwarding_buckets(ports: Sequence[int], eth_dsts: Mapping[int, str] = NO_MACS) -> tuple[Bucket, ...]:
    """Return the buckets of a group that spreads connections evenly over ports.

    A port with a greater share is listed more than once: the highest product of hash and weight wins, so that
    of two buckets the one of 1.4 times the weight would win 64 % of connections and not 58 %. The last bucket
    makes the weights outgrow the datapath's table; it wins one connection in millions, and is a path like any
    other.

    Parameters
    ----------
    ports
        The ports, each as often as it has shares.
    eth_dsts
        The MAC address that a packet gets which leaves by a port, where that is not for the rule to write.
    """
    weights = [*((port, PORT_WEIGHT) for port in ports), (ports[0], 1)]
    return tuple(Bucket(port, weight, eth_dsts.get(port)) for port, weight in weights)


def chosen_bucket(headers: Headers, buckets: Sequence[Bucket], live: Sequence[bool]) -> Bucket | None:
    """Return the bucket that ``ovs-vswitchd`` chooses for a packet, None if none is live.

    Parameters
    ----------
    headers
        The packet as the group sees it, after the rule's earlier actions.
    buckets
        The group's buckets, among which the datapath does not choose (`datapath_chooses`).
    live
        Whether the link at each bucket's port is up.
    """
    word = _murmur_word(symmetric_hash(headers))
    best, best_score = None, 0
    for index, bucket in enumerate(buckets):
        if live[index]:
            score = (_bucket_hash(index, word) & 0xFFFF) * bucket.weight
            if score >= best_score:  # of equal scores the last wins
                best, best_score = bucket, score
    return best


def chosen_buckets(
    headers: Headers, ip_dsts: NDArray[np.uint32], buckets: Sequence[Bucket], live: Sequence[bool]
) -> NDArray[np.int64]:
    """Return which bucket ``ovs-vswitchd`` chooses for each of many packets: `chosen_bucket`, all at once.

    Parameters
    ----------
    headers
        What the packets have in common, after the rule's earlier actions.
    ip_dsts
        The destination address of each packet, which takes the place of the headers' own.
    buckets, live
        As of `chosen_bucket`.

    Returns
    -------
    NDArray
        The place of each packet's bucket in the group; -1 for all packets if no bucket is live.
    """
    places = np.flatnonzero(live)[::-1]  # of equal scores the last wins, and `argmax` takes the first
    if not len(places):
        return np.full(len(ip_dsts), -1)
    word = _murmur_word(_symmetric_hashes(headers, ip_dsts))
    weights = np.array([[buckets[place].weight] for place in places.tolist()])
    scores = (_bucket_hash(places[:, None].astype(np.uint32), word) & 0xFFFF) * weights
    chosen: NDArray[np.int64] = places[scores.argmax(axis=0)]
    return chosen


def datapath_chooses(buckets: Sequence[Bucket]) -> bool:
    """Return whether a group's weights fit the datapath's table of hash values."""
    weights = [bucket.weight for bucket in buckets]
    return sum(weights) <= TABLE_SIZE * min(weights)


def symmetric_hash(headers: Headers) -> int:
    """Return Open vSwitch's ``flow_hash_symmetric_l4`` of an untagged IPv4 packet."""
    words: tuple[int, ...] = struct.unpack("<8I", _hashed(headers))
    return _jhash(words, _START)


def _symmetric_hashes(headers: Headers, ip_dsts: NDArray[np.uint32]) -> NDArray[np.integer]:
    """Return the `symmetric_hash` of packets that differ in the destination address, as 32 bits each."""
    _, *others = np.frombuffer(_hashed(headers), dtype="<u4").astype(np.uint32)[:, None]
    words = [(ip_dsts ^ int(headers.ip_src)).byteswap(), *others]
    return _jhash(words, np.array([_START], dtype=np.uint32))


def _hashed(headers: Headers) -> bytes:
    """Return the 32 bytes that the hash covers; the first 4 are the addresses'."""
    has_ports = headers.protocol == TCP
    return struct.pack(
        "!I12xHHH6sB3x",
        int(headers.ip_src) ^ int(headers.ip_dst),
        IPV4,
        0,  # no VLAN
        headers.source_port ^ headers.destination_port if has_ports else 0,
        (_mac(headers.eth_src) ^ _mac(headers.eth_dst)).to_bytes(6),
        headers.protocol,
    )


def _mac(text: str) -> int:
    return int(text.replace(":", ""), 16)


def _jhash(words: Sequence[_Word], start: _Word) -> _Word:
    """Return Jenkins' lookup3 of eight words; sums are masked only where they are rotated next."""
    a = b = c = start
    for at in (0, 3):
        a, b, c = a + words[at] & _WORD, b + words[at + 1] & _WORD, c + words[at + 2] & _WORD
        for bits in _MIX:
            a = (a - c ^ (c << bits | c >> (32 - bits))) & _WORD
            a, b, c = b, c + b, a
    return jenkins_final(a + words[6] & _WORD, b + words[7] & _WORD, c & _WORD)


def jenkins_final(a: _Word, b: _Word, c: _Word) -> _Word:
    """Return the hash that the last mixing of lookup3 makes of three words of 32 bits."""
    for bits in _FINAL:
        c = ((c ^ b) - (b << bits | b >> (32 - bits))) & _WORD
        a, b, c = b, c, a
    return b


def _murmur_word(word: _Word) -> _Word:
    return _rotated(word * 0xCC9E2D51 & _WORD, 15) * 0x1B873593 & _WORD


def _bucket_hash(bucket: _Word, basis_word: _Word) -> _Word:
    """Return Open vSwitch's ``hash_int(bucket, basis)``, from the `_murmur_word` of the basis.

    Of one packet in plain Python, which is faster than numpy up to some 20 buckets.
    """
    value = (_rotated(bucket, 13) * 5 + 0xE6546B64) & _WORD
    value = (_rotated(value ^ basis_word, 13) * 5 + 0xE6546B64) & _WORD ^ 8
    value = (value ^ value >> 16) * 0x85EBCA6B & _WORD
    value = (value ^ value >> 13) * 0xC2B2AE35 & _WORD
    return value ^ value >> 16


def _rotated(word: _Word, bits: int) -> _Word:
    return (word << bits | word >> (32 - bits)) & _WORD
