"""Addresses, names and numbers that a fabric's parts have on the wire, all derived from the fabric.

A NIC's subnet is its switch's: NIC address ``10.<switch>.<port>`` (the port in two bytes), so
that a remote leaf is one prefix in a routing table. Of more than 256 switches each subnet is as much
smaller as it takes for all to have one; where ports have no room then, those have one that have NICs.
A packet switch is a router: a NIC sends everything to its switch's gateway, and the last switch writes
the destination's MAC address.
An OCS touches nothing, so NICs on an OCS know each other's MAC addresses instead.

A NIC on a packet switch has a network of its own: the port's number is shifted by 6 bits, and the low
6 bits of a destination address are the packet's entropy. Switches hash addresses, and all datagrams have the
same ports, so that those to one NIC take different paths by their entropies. A NIC on an OCS has one address,
since nothing is hashed there.

A server that is a host, on which applications run, has an address of its own beside those of its NICs,
``172.16.0.1`` and up: whichever of its NICs a packet comes by.
"""

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network

from topologies.errors import FabricError
from topologies.fabric import SERVER_PORT, SWITCH_PORT, Fabric, Nic, Port
from topologies.packet_part import on_packet_switch

FABRIC_NETWORK = IPv4Network("10.0.0.0/8")
HOSTS_NETWORK = IPv4Network("172.16.0.0/12")
"""Where the addresses of hosts are."""
HOST_INTERFACE = "host"
"""The interface that has a host's own address, on every host."""
GATEWAY_MAC = "02:00:00:00:00:01"
"""The MAC address to which NICs on packet switches send: every packet switch's."""
ENTROPIES = 64
"""Entropies that the address of a NIC on a packet switch has: its bits below the port's number."""
DATAGRAM_PORT = 4793
"""To which datagrams are sent: beside RoCEv2's, 4791, and no service's of connections."""
DATAGRAM_SOURCE_PORT = DATAGRAM_PORT + 1
"""From which they are: a NIC's own address would else receive on the socket that sends."""
USUAL_SWITCH_BITS = 8
"""Bits of an address that say which switch; more of more than 256 switches."""


def subnet(fabric: Fabric, switch: str) -> IPv4Network:
    """Return the network of the NICs on a switch that has some."""
    length = FABRIC_NETWORK.prefixlen + _switch_bits(fabric)
    first = int(FABRIC_NETWORK.network_address) + (fabric.switch_index[switch] << (32 - length))
    return IPv4Network((first, length))


def nic_network(fabric: Fabric, nic: Nic) -> IPv4Network:
    """Return the network of a NIC: an address for each entropy, or a single one if the NIC is on an OCS.

    Raises
    ------
    FabricError
        If its switch has more ports than the switch's subnet has room for.
    """
    port = fabric.peer(fabric.nic_port(nic))
    network = subnet(fabric, port.node)
    size = _addresses(fabric, nic)
    first = int(network.network_address) + (port.number + 1) * size
    usable = network.num_addresses - 2  # without the gateway and the broadcast address, the last two
    if first + size > int(network.network_address) + usable:
        raise FabricError(
            f"port {port} has no address: of {1 << network.prefixlen - FABRIC_NETWORK.prefixlen} switches"
            f" each has addresses for {max(usable // size - 1, 0)} ports",
            "take fewer switches that have NICs and let them stand first, or smaller ones",
        )
    return IPv4Network((first, 32 - (size - 1).bit_length()))


@lru_cache(maxsize=16)
def _switch_bits(fabric: Fabric) -> int:
    """Return how many bits of an address say which switch."""
    usual = max(USUAL_SWITCH_BITS, (len(fabric.switches) - 1).bit_length())
    ports = {nic: fabric.peer(fabric.nic_port(nic)) for nic in fabric.nics}
    # The port's own addresses, one port's below it, and three: the first, the gateway and the broadcast one.
    least = max((port.number + 2) * _addresses(fabric, nic) + 2 for nic, port in ports.items())
    if least <= 1 << 32 - FABRIC_NETWORK.prefixlen - usual:
        return usual
    return max(fabric.switch_index[port.node] for port in ports.values()).bit_length()


def _addresses(fabric: Fabric, nic: Nic) -> int:
    """Return how many addresses a NIC has: of one on a packet switch one for each entropy."""
    return ENTROPIES if on_packet_switch(fabric, nic) else 1


def nic_ip(fabric: Fabric, nic: Nic) -> IPv4Address:
    """Return the address of a NIC, that of entropy 0; FabricError as `nic_network`."""
    return nic_network(fabric, nic).network_address


def entropy_ip(fabric: Fabric, nic: Nic, entropy: int) -> IPv4Address:
    """Return the address of a NIC to which datagrams of an entropy go; FabricError as `nic_network`.

    Larger ones count from 0 again: entropy 64 has the address of 0, and on an OCS all have one.
    """
    return in_network(nic_network(fabric, nic), entropy)


def in_network(network: IPv4Network, entropy: int) -> IPv4Address:
    """Return the address of a NIC's network to which datagrams of an entropy go."""
    return network.network_address + entropy % network.num_addresses


def gateway_ip(fabric: Fabric, nic: Nic) -> IPv4Address:
    """Return the address of a NIC's gateway, the last of its subnet."""
    return subnet(fabric, fabric.peer(fabric.nic_port(nic)).node).broadcast_address - 1


def host_ip(server: int) -> IPv4Address:
    """Return the address of a host, which all its NICs take: the first is 172.16.0.1."""
    return HOSTS_NETWORK.network_address + 1 + server


def nic_mac(nic: Nic) -> str:
    """Return the MAC address of a NIC: locally administered, server and NIC in it."""
    return f"02:01:{nic.server >> 8:02x}:{nic.server & 255:02x}:00:{nic.nic:02x}"


def switch_mac(fabric: Fabric, switch: str) -> str:
    """Return a packet switch's own MAC address: it differs from NICs' in other bytes than these do."""
    index = fabric.switch_index[switch]
    return f"02:{0x80 | index >> 8:02x}:00:00:{index & 255:02x}:00"


def interface(fabric: Fabric, port: Port) -> str:
    """Return the name of a port's network interface: ``leaf0-p3``, or ``nic0`` on every server.

    A server's interfaces are in its own network namespace, a switch's in that of the network.
    """
    if port.node in fabric.server_index:
        return f"{SERVER_PORT}{port.number}"
    return f"{port.node}-{SWITCH_PORT}{port.number}"


def nic_name(fabric: Fabric, nic: Nic) -> str:
    """Return the name by which all hosts know a NIC: ``h3-nic0``."""
    return f"{fabric.servers[nic.server].name}-{SERVER_PORT}{nic.nic}"


def openflow_port(number: int) -> int:
    """Return the OpenFlow number of a switch's port; these count from 1."""
    return number + 1


def datapath_id(fabric: Fabric, switch: str) -> int:
    """Return a switch's OpenFlow datapath id; these count from 1."""
    return fabric.switch_index[switch] + 1
