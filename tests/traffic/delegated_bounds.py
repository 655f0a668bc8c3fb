"""What each leg of a delegated all-to-all takes at best: what runs are held to."""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from topologies.events import View
from topologies.fabric import Fabric, Port
from topologies.packet_part import on_packet_switch
from traffic.delegation import Delegation
from traffic.messages import Messages
from traffic.spraying.policy import QueuePair


class Bounds(NamedTuple):
    """What the legs take [s]."""

    gather_s: float
    transfer_s: float
    inside_s: float
    scatter_s: float

    @property
    def in_turn_s(self) -> float:
        """CCT of legs that do not overlap but for transfer and inside."""
        return self.gather_s + max(self.transfer_s, self.inside_s) + self.scatter_s

    @property
    def pipelined_s(self) -> float:
        """CCT of chunks that flow on at once; no less, since NVLink carries three of the legs."""
        return max(self)


def bounds(view: View, found: Delegation) -> Bounds:
    """Return the bounds of an all-to-all's legs; packet switches are taken for non-blocking."""
    load = defaultdict[Port, float](float)
    for qp, size in zip(found.lanes.qp.tolist(), found.lanes.bytes.tolist(), strict=True):
        for port in sending_ports(view, found.lanes.queue_pairs[qp]):
            load[port] += size
    links = view.fabric.link_at
    transfer_s = max((8 * size / links[port].rate_bps for port, size in load.items()), default=0.0)
    inside_s = [nvlink_s(view.fabric, leg) for leg in (found.gather, found.inside, found.scatter)]
    return Bounds(inside_s[0], transfer_s, *inside_s[1:])


def sending_ports(view: View, lane: QueuePair) -> Sequence[Port]:
    """Return the ports at NICs that send what goes over a lane."""
    fabric = view.fabric
    if not on_packet_switch(fabric, lane.source) and (
        route := view.routes().sending(lane.source, lane.destination)
    ):
        return route.ports
    return fabric.nic_port(lane.source), fabric.peer(fabric.nic_port(lane.destination))


def nvlink_s(fabric: Fabric, messages: Messages) -> float:
    """Return what messages inside servers take: the busiest GPU, sending or receiving [s]."""
    rates = np.array([fabric.servers[server].nvlink_bps for server in fabric.gpu_servers])
    loads = (
        np.bincount(ends, messages.bytes, fabric.gpus) for ends in (messages.source, messages.destination)
    )
    return float(max((8 * load / rates).max() for load in loads))
