"""Answers of schemes, checked: the bytes that any of them places, before one of these is sent.

A message's bytes are all placed, each once; a queue pair begins at a NIC of its source's server and ends at
one of its destination's. A scheme that breaks this is refused in a sentence, emulated or predicted.
"""

from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter, itemgetter

import numpy as np
from numpy.typing import NDArray

from topologies.events import View
from topologies.fabric import Fabric, Nic
from traffic.messages import Messages
from traffic.ops import OWN, Ops
from traffic.scheme import Choice, Lowers, Placement, Scheme, WhileLit, name_of
from traffic.spraying.checks import refusal
from traffic.spraying.policy import Lanes, LaneSet, QueuePair
from traffic.tables import CROSSES

HOME = "have it begin at a NIC of the source GPU's server, and end at one of the destination's"


def lowered_by(scheme: Lowers, ops: Ops, view: View) -> Ops:
    """Return what a scheme makes of operations.

    Raises
    ------
    ScenarioError
        If bytes are lost or made.
    """
    found = scheme.lower(ops, view)
    if found is not ops and _owed(found) != _owed(ops):
        said = f"lowered operations of {_owed(ops):,} bytes to others that bring {_owed(found):,}"
        raise refusal(name_of(scheme), said, "bring each byte once")
    return found


def _owed(ops: Ops) -> int:
    """Return how many bytes operations bring to where they go."""
    if ops.brought:
        return int(ops.brought.messages.bytes.sum())
    return sum(
        int(part.moves.bytes.sum()) for part in ops.parts if part.stage in (OWN, CROSSES) and part.hop < 1
    )


def placed_by(scheme: Scheme, view: View, messages: Messages) -> Placement | Choice | WhileLit:
    """Return what a scheme makes of messages that start together.

    Raises
    ------
    ScenarioError
        If it does not place each byte once, or on queue pairs between other servers, or on NICs that are not
        there.
    """
    placed = scheme.place(view, messages)
    if isinstance(placed, Placement):
        _check_placement(scheme, view.fabric, messages, placed)
    else:
        _check_lanes(scheme, view.fabric, messages, placed.lanes)
    return placed


def _check_placement(scheme: Scheme, fabric: Fabric, messages: Messages, placed: Placement) -> None:
    """Check parcels: 100,000 take 0.25 ms, where placing and posting them takes 33 to 73 ms."""
    count, of_message = len(messages), placed.message
    _check_range(scheme, "queue pair", placed.qp, len(placed.queue_pairs))
    _check_range(scheme, "message", of_message, count)
    if placed.bytes.min(initial=1) < 1:
        raise refusal(name_of(scheme), f"placed {placed.bytes.min()} bytes", "place a positive number")
    sent = np.zeros(count, dtype=np.int64)
    np.add.at(sent, of_message, placed.bytes)
    if (wrong := np.flatnonzero(sent != messages.bytes)).size:
        said = f"placed {sent[wrong[0]]:,} of {messages.bytes[wrong[0]]:,} bytes {_ends(messages, wrong[0])}"
        raise refusal(name_of(scheme), said, "place each chunk once")
    joins = _servers_joined(scheme, fabric, placed.queue_pairs)
    strays = joins.take(placed.qp) != _servers_of(fabric, messages).take(of_message)
    if strays.any():
        stray = int(strays.argmax())
        message, queue_pair = int(of_message[stray]), placed.queue_pairs[placed.qp[stray]]
        said = f"placed bytes {_ends(messages, message)} on {_named(queue_pair)}"
        raise refusal(name_of(scheme), said, HOME)


def _check_lanes(scheme: Scheme, fabric: Fabric, messages: Messages, lanes: Sequence[Lanes]) -> None:
    """Check what each message may use; that there is anything is checked when that is made."""
    if len(lanes) != len(messages):
        said = f"admitted {len(lanes)} of {len(messages)} messages to lanes"
        raise refusal(name_of(scheme), said, "admit each message to some")
    home = _servers_of(fabric, messages)
    for ends, sets in dict.fromkeys(zip(home.tolist(), lanes, strict=True)):  # many messages share them
        for each in sets:
            _check_home(scheme, fabric, messages, int((home == ends).argmax()), each)


def _check_home(scheme: Scheme, fabric: Fabric, messages: Messages, message: int, lanes: LaneSet) -> None:
    """Check that lanes join the servers of a message."""
    for nics in (lanes.sources, lanes.destinations):
        _check_nics(scheme, fabric, nics)
    home = [int(fabric.server_of_gpu[gpu[message]]) for gpu in (messages.source, messages.destination)]
    if any(nic.server != home[0] for nic in lanes.sources) or any(
        nic.server != home[1] for nic in lanes.destinations
    ):
        stray = next(each for each in lanes if [each.source.server, each.destination.server] != home)
        said = f"admitted the message {_ends(messages, message)} to {_named(stray)}"
        raise refusal(name_of(scheme), said, HOME)


def _check_range(scheme: Scheme, what: str, index: NDArray[np.int64], count: int) -> None:
    low, high = index.min(initial=0), index.max(initial=-1)
    if low < 0 or high >= count:
        said = f"placed bytes by {what} {low if low < 0 else high}, and there are {count}"
        raise refusal(name_of(scheme), said, "count from 0")


def _servers_joined(scheme: Scheme, fabric: Fabric, queue_pairs: Sequence[QueuePair]) -> NDArray[np.int64]:
    """Return which servers each queue pair joins, as one number; ScenarioError if it lacks a NIC."""
    joins = np.zeros(len(queue_pairs), dtype=np.int64)
    for end in ("source", "destination"):
        nics: list[Nic] = list(map(attrgetter(end), queue_pairs))
        _check_nics(scheme, fabric, nics)
        servers = np.fromiter(map(itemgetter(0), nics), np.int64, len(nics))
        joins = joins * len(fabric.servers) + servers
    return joins


def _check_nics(scheme: Scheme, fabric: Fabric, nics: Sequence[Nic]) -> None:
    if not _nics(fabric).issuperset(nics):
        nic = next(nic for nic in nics if nic not in _nics(fabric))
        raise refusal(name_of(scheme), f"used NIC {nic}, which is not there", "see Fabric.nics")


def _servers_of(fabric: Fabric, messages: Messages) -> NDArray[np.int64]:
    servers = fabric.server_of_gpu
    return np.asarray(servers[messages.source] * len(fabric.servers) + servers[messages.destination])


@lru_cache(maxsize=4)
def _nics(fabric: Fabric) -> frozenset[Nic]:
    return frozenset(fabric.nics)


def _ends(messages: Messages, message: int) -> str:
    return f"from GPU {messages.source[message]} to GPU {messages.destination[message]}"


def _named(queue_pair: QueuePair) -> str:
    near, far = queue_pair.source, queue_pair.destination
    return f"a queue pair from NIC {near.nic} of server {near.server} to NIC {far.nic} of server {far.server}"
