"""Which next hop the Linux kernel picks for a packet that it forwards by a route with several.

A switch that is a network namespace hashes the packet's addresses, ports and protocol with SipHash-2-4 under
a key that is the namespace's own seed (``net.ipv4.fib_multipath_hash_seed``, since Linux 6.11), and the hash
of 31 bits falls into one of the ranges that next hops have by their weights. With a seed of its own each
switch chooses independently of the others, and all choices are known.

Of the kernel's policies the third is taken (``fib_multipath_hash_policy=3``), with the fields of the 5-tuple.
The first covers the same fields, but a packet that comes out of a connected socket of this machine brings
that socket's random hash along through a veth pair, and the kernel takes it in place of its own: of 200 TCP
connections 64 went as computed, with three next hops; by the third policy all did.

The hash is symmetric: the lesser address, as a number in the machine's order of bytes, comes first, and so
does the lesser port. UDP's ports are in it, too.

From Linux 6.11 to 6.18 all this is the same for packets that a namespace forwards. Since 6.16 a next hop is
preferred whose interface has the packet's source address, but only for packets that a machine sends itself.
Later kernels may hash otherwise: `testbed.machine.multipath` asks before a network boots.

References
----------
Linux 6.11 to 6.18: ``fib_multipath_custom_hash_outer`` and ``ip_mkroute_input`` in ``net/ipv4/route.c``,
``__flow_hash_from_keys`` in ``net/core/flow_dissector.c`` with ``struct flow_keys``, ``fib_rebalance`` and
``fib_select_multipath`` in ``net/ipv4/fib_semantics.c``, as compiled for machines with little-endian words;
Aumasson and Bernstein, SipHash (Indocrypt 2012).
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from controller.packet.ecmp_hash import PORT_WEIGHT, Headers, jenkins_final
from controller.packet.rules import Bucket
from topologies.addresses import datapath_id
from topologies.fabric import Fabric

HASH_POLICY, HASH_FIELDS = 3, 0x37
"""The sysctls ``fib_multipath_hash_policy``, which is the fields that are named, and
``fib_multipath_hash_fields``, which are both addresses, both ports and the protocol."""
_LONG, _WORD = (1 << 64) - 1, (1 << 32) - 1
_INITIAL = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
"""SipHash's state before the key."""
_KEYS_BYTES = 48
"""Of struct flow_keys what the hash covers: from ``basic`` on, with IPv4 addresses."""
_JENKINS_START = 0xDEADBEEF + 8
"""The state of lookup3 before two words."""
_Long = TypeVar("_Long", int, NDArray[np.integer])
"""A word of 64 bits, or an array of them."""
_State = tuple[_Long, _Long, _Long, _Long]


def hash_seed(fabric: Fabric, switch: str) -> int:
    """Return the seed of a switch's hash: its datapath id, which is never 0, the kernel's word for none."""
    return datapath_id(fabric, switch)


def next_hops(buckets: Sequence[Bucket]) -> tuple[Bucket, ...]:
    """Return the next hops by which the kernel does what a group of `forwarding_buckets` does: one a port."""
    shares = Counter(bucket.port for bucket in buckets if bucket.weight == PORT_WEIGHT)
    of_port = {bucket.port: bucket for bucket in buckets}
    return tuple(replace(of_port[port], weight=share) for port, share in shares.items())


def kernels_bucket(
    headers: Headers, buckets: Sequence[Bucket], live: Sequence[bool], seed: int
) -> Bucket | None:
    """Return the bucket whose port the kernel chooses for a packet, None if none is live.

    Parameters
    ----------
    headers
        The packet; MAC addresses do not count.
    buckets
        The route's `next_hops`, in its order; shares are as the weights.
    live
        Whether the link at each bucket's port is up.
    seed
        Of the switch.
    """
    some = [bucket for bucket, is_live in zip(buckets, live, strict=True) if is_live]
    return some[bisect_left(_bounds(some), multipath_hash(headers, seed))] if some else None


def kernels_buckets(
    headers: Headers, ip_dsts: NDArray[np.uint32], buckets: Sequence[Bucket], live: Sequence[bool], seed: int
) -> NDArray[np.int64]:
    """Return which bucket the kernel chooses for each of many packets: `kernels_bucket`, all at once.

    Parameters
    ----------
    headers
        What the packets have in common.
    ip_dsts
        The destination address of each packet, which takes the place of the headers' own.
    buckets, live, seed
        As of `kernels_bucket`.

    Returns
    -------
    NDArray
        The place of each packet's bucket; -1 for all packets if no bucket is live.
    """
    places = np.flatnonzero(live)
    if not len(places):
        return np.full(len(ip_dsts), -1)
    bounds = np.array(_bounds([buckets[place] for place in places.tolist()]), dtype=np.uint64)
    chosen: NDArray[np.int64] = places[np.searchsorted(bounds, multipath_hashes(headers, ip_dsts, seed))]
    return chosen


def multipath_hash(headers: Headers, seed: int) -> int:
    """Return the kernel's hash of an IPv4 packet with a user's seed, 0 to 2^31 - 1."""
    ends = (int.from_bytes(address.packed, "little") for address in (headers.ip_src, headers.ip_dst))
    lesser, greater = sorted(ends)
    return _hash(lesser, greater, _state_before_addresses(headers, seed))


def multipath_hashes(headers: Headers, ip_dsts: NDArray[np.uint32], seed: int) -> NDArray[np.integer]:
    """Return the `multipath_hash` of packets that differ in the destination address."""
    source = np.uint64(int.from_bytes(headers.ip_src.packed, "little"))
    destinations = ip_dsts.byteswap().astype(np.uint64)
    lesser, greater = np.minimum(source, destinations), np.maximum(source, destinations)
    v0, v1, v2, v3 = np.array(_state_before_addresses(headers, seed), dtype=np.uint64)[:, None]
    return _hash(lesser, greater, (v0, v1, v2, v3))


def _bounds(buckets: Sequence[Bucket]) -> list[int]:
    """Return the greatest hash for which each bucket is chosen: a share of 2^31, rounded to the nearest."""
    sums = list(accumulate(bucket.weight for bucket in buckets))
    return [((each << 31) + sums[-1] // 2) // sums[-1] - 1 for each in sums]


def _state_before_addresses(headers: Headers, seed: int) -> _State[int]:
    ports = headers.source_port, headers.destination_port
    lesser, greater = sorted(int.from_bytes(port.to_bytes(2), "little") for port in ports)
    return _state_of(headers.protocol, greater << 16 | lesser, seed)


@lru_cache(maxsize=1 << 14)
def _state_of(protocol: int, ports: int, seed: int) -> _State[int]:
    """Return the state after the words before the addresses: protocol, two VLANs, a key and ports."""
    key = seed << 32 | seed
    one, two, three, four = (word ^ key for word in _INITIAL)
    state = one, two, three, four
    for word in (protocol << 16, 0, 0, ports << 32):
        state = _with(state, word)
    return state


def _hash(lesser: _Long, greater: _Long, state: _State[_Long]) -> _Long:
    """Return the hash of packets from the state before their addresses, in the machine's order of bytes."""
    v0, v1, v2, v3 = _with(_with(_with(state, lesser << 32), greater), _KEYS_BYTES << 56)
    v2 = v2 ^ 0xFF
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    word: _Long = (v0 ^ v1 ^ v2 ^ v3) & _WORD
    word = word + (word == 0)  # a hash of 0 is none to the kernel, which takes 1
    # The third policy mixes it with the hash of what is encapsulated: 0 here.
    start: _Long = word * 0 + _JENKINS_START
    return jenkins_final(word + start & _WORD, start, start) >> 1


def _with(state: _State[_Long], word: _Long | int) -> _State[_Long]:
    """Return SipHash's state after one word more."""
    v0, v1, v2, v3 = state
    v3 = v3 ^ word
    for _ in range(2):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return v0 ^ word, v1, v2, v3


def _round(v0: _Long, v1: _Long, v2: _Long, v3: _Long) -> _State[_Long]:
    v0, v2 = v0 + v1 & _LONG, v2 + v3 & _LONG
    v1, v3 = _rotated(v1, 13) ^ v0, _rotated(v3, 16) ^ v2
    v0, v2 = _rotated(v0, 32) + v3 & _LONG, v2 + v1 & _LONG
    return v0, _rotated(v1, 17) ^ v2, _rotated(v2, 32), _rotated(v3, 21) ^ v0


def _rotated(word: _Long, bits: int) -> _Long:
    return (word << bits | word >> (64 - bits)) & _LONG
