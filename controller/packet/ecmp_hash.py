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
as if each switch hashed the 5-tuple with a seed of its own, and all of them are known. UDP
ports are not in the hash (nor in the datapath's): all UDP packets between two NICs go one way. Nor is
the group's number: equal buckets choose alike under any number (`controller.packet.changes.renumbered`).

References
----------
Open vSwitch 2.10 to 3.3: ``flow_hash_symmetric_l4`` in ``lib/flow.c``, ``group_best_live_bucket`` in
``ofproto/ofproto-dpif-xlate.c``, murmur hash in ``lib/hash.h`` (builds for any x86-64, as the
distributions', do not use the CRC instruction there); B. Jenkins, lookup3 (2006).
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address

from controller.packet.rules import IPV4, Bucket

TABLE_SIZE = 256
"""Open vSwitch's largest table of hash values: sum of the weights over the least weight."""
MOST_BUCKETS = 2047
"""How many buckets a group can have: OpenFlow's messages have at most 65,535 bytes, and a bucket takes 32."""
PORT_WEIGHT = 1000
TCP = 6
_WORD = 0xFFFFFFFF


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


def forwarding_buckets(ports: Sequence[int]) -> tuple[Bucket, ...]:
    """Return the buckets of a group that spreads connections evenly over ports.

    A port with a greater share is listed more than once: the highest product of hash and weight wins, so that
    of two buckets the one of 1.4 times the weight would win 64 % of connections and not 58 %. The last bucket
    makes the weights outgrow the datapath's table; it wins one connection in millions, and is a path like any
    other.
    """
    return (*(Bucket(port, PORT_WEIGHT) for port in ports), Bucket(ports[0], 1))


def chosen_bucket(headers: Headers, buckets: Sequence[Bucket], live: Sequence[bool]) -> Bucket | None:
    """Return the bucket that ``ovs-vswitchd`` chooses for a packet, None if none is live.

    Parameters
    ----------
    headers
        The packet as the group sees it, after the rule's earlier actions.
    buckets
        The group's buckets.
    live
        Whether the link at each bucket's port is up.

    Raises
    ------
    ValueError
        If the datapath would choose, because the weights fit its table.
    """
    if datapath_chooses(buckets):
        raise ValueError(f"the datapath would choose among these buckets, unknown how: {buckets}")
    word = _murmur_word(symmetric_hash(headers))
    best, best_score = None, 0
    for index, bucket in enumerate(buckets):
        if live[index]:
            score = (_bucket_hash(index, word) & 0xFFFF) * bucket.weight
            if score >= best_score:  # of equal scores the last wins
                best, best_score = bucket, score
    return best


def datapath_chooses(buckets: Sequence[Bucket]) -> bool:
    """Return whether a group's weights fit the datapath's table of hash values."""
    weights = [bucket.weight for bucket in buckets]
    return sum(weights) <= TABLE_SIZE * min(weights)


def symmetric_hash(headers: Headers) -> int:
    """Return Open vSwitch's ``flow_hash_symmetric_l4`` of an untagged IPv4 packet."""
    has_ports = headers.protocol == TCP
    fields = struct.pack(
        "!I12xHHH6sB3x",
        int(headers.ip_src) ^ int(headers.ip_dst),
        IPV4,
        0,  # no VLAN
        headers.source_port ^ headers.destination_port if has_ports else 0,
        (_mac(headers.eth_src) ^ _mac(headers.eth_dst)).to_bytes(6),
        headers.protocol,
    )
    return _jhash(fields)


def _mac(text: str) -> int:
    return int(text.replace(":", ""), 16)


def _jhash(data: bytes) -> int:
    """Return Jenkins' lookup3 of bytes, read as little-endian words and padded with zeros."""
    words = struct.unpack(f"<{len(data) // 4}I", data)
    a = b = c = (0xDEADBEEF + len(data)) & _WORD
    whole = len(words) // 3 * 3
    for start in range(0, whole, 3):
        a, b, c = ((old + new) & _WORD for old, new in zip((a, b, c), words[start:], strict=False))
        for bits in (4, 6, 8, 16, 19, 4):
            a = ((a - c) & _WORD) ^ _rotated(c, bits)
            a, b, c = b, (c + b) & _WORD, a
    if whole < len(words):
        rest = (*words[whole:], 0, 0)
        a, b, c = ((old + new) & _WORD for old, new in zip((a, b, c), rest, strict=False))
        for bits in (14, 11, 25, 16, 4, 14, 24):
            c = ((c ^ b) - _rotated(b, bits)) & _WORD
            a, b, c = b, c, a
        c = b
    return c


def _murmur_word(word: int) -> int:
    return _rotated(word * 0xCC9E2D51 & _WORD, 15) * 0x1B873593 & _WORD


def _bucket_hash(bucket: int, basis_word: int) -> int:
    """Return Open vSwitch's ``hash_int(bucket, basis)``, from the `_murmur_word` of the basis.

    In plain Python, which is faster than numpy up to some 20 buckets.
    """
    value = (_rotated(bucket, 13) * 5 + 0xE6546B64) & _WORD
    value = (_rotated(value ^ basis_word, 13) * 5 + 0xE6546B64) & _WORD ^ 8
    value = (value ^ value >> 16) * 0x85EBCA6B & _WORD
    value = (value ^ value >> 13) * 0xC2B2AE35 & _WORD
    return value ^ value >> 16


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> (32 - bits)) & _WORD
