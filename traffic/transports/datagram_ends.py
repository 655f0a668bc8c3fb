"""The ends of datagrams: how packets of a queue pair are addressed.

Switches hash no UDP ports, so the entropy is in the destination address (`topologies.addresses`), and all
datagrams go to one port.
"""

from topologies.addresses import entropy_ip, nic_ip
from topologies.fabric import Fabric
from traffic.spraying.policy import QueuePair
from traffic.transports.connections import Ends

DATAGRAM_PORT = 4793
"""To which datagrams are sent: beside RoCEv2's, 4791, and no service's of `connections`."""
DATAGRAM_SOURCE_PORT = 4794
"""From which they are: a NIC's own address would else receive on the socket that sends."""


def datagram_ends(fabric: Fabric, queue_pair: QueuePair) -> Ends:
    """Return the addresses and ports of a queue pair's datagrams; they leave from the NIC's own address."""
    near = nic_ip(fabric, queue_pair.source)
    far = entropy_ip(fabric, queue_pair.destination, queue_pair.entropy)
    return str(near), DATAGRAM_SOURCE_PORT, str(far), DATAGRAM_PORT
