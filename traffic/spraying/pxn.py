"""PXN: a message leaves its server by the rail of the GPU that it is for, and crosses that rail's leaf alone.

NCCL does so by default where NVLink joins the GPUs of a server (PCI x NVLink, 2.12 and later): the bytes of
GPU a for GPU b of another server go over NVLink to the GPU of their own server on b's rail, whose NIC sends
them to the NIC beside b. On a rail fabric no spine is crossed. A server's NICs are even if what it sends is
even over rails; where bytes arrive nobody chooses.

All that a server sends to a GPU shares one connection (NCCL_NET_SHARED_COMMS), kept for the job.

The NVLink hop before the NIC costs nothing here. The two of RailS' chunks, before and behind their NICs, do
not either.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from topologies.fabric import Fabric, Nic
from traffic.messages import Messages
from traffic.spraying.connections import OnConnections


class Pxn(OnConnections):
    """A connection from each server to each GPU that it owes something, on that GPU's rail.

    Where the source server has no NIC that works on that rail, a message leaves by the one beside its GPU.

    Parameters
    ----------
    qps
        Queue pairs of a connection (NCCL_IB_QPS_PER_CONNECTION).

    References
    ----------
    NVIDIA, "Doubling all2all performance with NVIDIA Collective Communication Library 2.12", 2022; NCCL's
    documentation of NCCL_PXN_DISABLE and NCCL_NET_SHARED_COMMS.
    """

    name = "pxn"

    def connections(
        self, fabric: Fabric, messages: Messages
    ) -> tuple[Sequence[tuple[Nic, Nic]], NDArray[np.int64]]:
        """Return the NICs of each connection, and the connection of each message."""
        nic_on = [fabric.rails(server) for server in range(len(fabric.servers))]
        rail_of = [{nic: rail for rail, nic in own.items()} for own in nic_on]
        number: dict[tuple[Nic, int], int] = {}
        of_message = np.zeros(len(messages), dtype=np.int64)
        ends = zip(messages.source.tolist(), messages.destination.tolist(), strict=True)
        for message, (source, destination) in enumerate(ends):
            near, far = fabric.gpu_servers[source], fabric.pinned_nic(destination)
            nic = nic_on[near].get(rail_of[far.server][far.nic])
            leaves_by = fabric.pinned_nic(source) if nic is None else Nic(near, nic)
            of_message[message] = number.setdefault((leaves_by, destination), len(number))
        pairs = [(leaves_by, fabric.pinned_nic(destination)) for leaves_by, destination in number]
        return pairs, of_message
