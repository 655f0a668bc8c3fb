"""Circuits as OpenFlow 1.3 bundles, packed by hand: all of a step's rules come into force at once.

The library's classes take 0.15 ms to encode a rule, 10 ms for 64; this takes 0.3 ms. A bundle can
also be brought to the switch ahead of time, so that when the light is due one message is left.
Without a bundle Open vSwitch takes rules one by one, and revalidates its datapath's flow cache after
the first of them, and for the others not before 5 ms later (`udpif_revalidator`).

References
----------
ONF EXT-230, "Bundle Extension Pack 1", for OpenFlow 1.3; OpenFlow 1.3.5, A.3.4.1 (flow mod).
"""

import struct
from collections.abc import Iterable, Sequence

from controller.circuits.circuits import Pair
from topologies.addresses import openflow_port

VERSION, EXPERIMENTER, FLOW_MOD = 4, 4, 14
ONF, BUNDLE_CONTROL, BUNDLE_ADD = 0x4F4E4600, 2300, 2301
OPEN, COMMIT, DISCARD = 0, 4, 6
ATOMIC_ORDERED = 0x3
ADD, DELETE, DELETE_STRICT = 0, 3, 4
CIRCUIT_PRIORITY = 100
COOKIE, ALL_BITS = 1, 0xFFFFFFFFFFFFFFFF
"""What marks circuits, so that all can go in one message and the table-miss rule stays."""
ANY, NO_BUFFER = 0xFFFFFFFF, 0xFFFFFFFF
IN_PORT = 0x80000004
"""OXM header of the match field: basic class, field 0, 4 bytes."""

_HEADER = struct.Struct("!BBHI")
_FLOW_MOD = struct.Struct("!QQBBHHHIIIHxx")
_ANY_MATCH = struct.pack("!HH4x", 1, 4)
_MATCH = struct.Struct("!HHII4x")
_OUTPUT = struct.Struct("!HH4xHHIH6x")


def coming(bundle: int, pairs: Iterable[Pair]) -> bytes:
    """Return the messages that bring a bundle of new circuits to a switch, not yet in force."""
    return _opened(bundle, [_flow_mod(ADD, pair, bundle) for pair in pairs])


def going(bundle: int, gone: Sequence[Pair], kept: Sequence[Pair]) -> bytes:
    """Return the messages that take circuits away at once: the fewer, the sooner it is dark.

    Open vSwitch reads 50 messages a round. So all circuits go in one message, and what is kept comes
    back in the same step, unless fewer go than are kept.
    """
    if not kept:
        return _flow_mod(DELETE, None, bundle)
    if len(gone) > len(kept):
        return remaining(bundle, kept)
    return _opened(bundle, [_flow_mod(DELETE_STRICT, pair, bundle) for pair in gone]) + committed(bundle)


def remaining(bundle: int, kept: Iterable[Pair]) -> bytes:
    """Return the messages that take all circuits away at once but those that are kept."""
    rules = [_flow_mod(DELETE, None, bundle), *(_flow_mod(ADD, pair, bundle) for pair in kept)]
    return _opened(bundle, rules) + committed(bundle)


def committed(bundle: int) -> bytes:
    """Return the message that puts a bundle in force."""
    return _of_bundle(BUNDLE_CONTROL, bundle, COMMIT)


def discarded(bundle: int) -> bytes:
    """Return the message that throws a bundle away."""
    return _of_bundle(BUNDLE_CONTROL, bundle, DISCARD)


def _opened(bundle: int, rules: Iterable[bytes]) -> bytes:
    added = (_of_bundle(BUNDLE_ADD, bundle, 0, rule) for rule in rules)
    return _of_bundle(BUNDLE_CONTROL, bundle, OPEN) + b"".join(added)


def _of_bundle(kind: int, bundle: int, step: int, message: bytes = b"") -> bytes:
    """Return a step of a bundle, or a message that it adds to it."""
    body = struct.pack("!IIIHH", ONF, kind, bundle, step, ATOMIC_ORDERED)
    return _message(EXPERIMENTER, bundle, body + message)


def _flow_mod(command: int, pair: Pair | None, transaction: int) -> bytes:
    """Return a flow mod for a circuit, or for all of them."""
    mask = ALL_BITS if command == DELETE else 0
    body = _FLOW_MOD.pack(COOKIE, mask, 0, command, 0, 0, CIRCUIT_PRIORITY, NO_BUFFER, ANY, ANY, 0)
    if pair is None:
        return _message(FLOW_MOD, transaction, body + _ANY_MATCH)
    in_port, out_port = map(openflow_port, pair)
    body += _MATCH.pack(1, 12, IN_PORT, in_port)
    if command == ADD:  # apply-actions, of 24 bytes, with one output, of 16
        body += _OUTPUT.pack(4, 24, 0, 16, out_port, 0)
    return _message(FLOW_MOD, transaction, body)


def _message(kind: int, transaction: int, body: bytes) -> bytes:
    return _HEADER.pack(VERSION, kind, _HEADER.size + len(body), transaction) + body
