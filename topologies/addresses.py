"""Addresses, names and numbers that a fabric's parts have on the wire, all derived from the fabric.

A NIC's subnet is its switch's: NIC address ``10.<switch>.<port>`` (the port in two bytes), so
that a remote leaf is one prefix in a routing table. Of more than 256 switches each subnet is as much
smaller as it takes for all to have one. A packet switch is a router: a NIC sends
everything to its switch's gateway, and the last switch writes the destination's MAC address.
An OCS touches nothing, so NICs on an OCS know each other's MAC addresses instead.
"""

from ipaddress import IPv4Address, IPv4Network

from topologies.errors import FabricError
from topologies.fabric import Fabric, Nic, Port

FABRIC_NETWORK = IPv4Network("10.0.0.0/8")
GATEWAY_MAC = "02:00:00:00:00:01"
"""The MAC address to which NICs on packet switches send: every packet switch's."""
LEAST_SWITCH_BITS = 8
"""Bits of an address that say which switch; more of more than 256 switches."""


def subnet(fabric: Fabric, switch: str) -> IPv4Network:
    """Return the network of the NICs on a switch."""
    bits = max(LEAST_SWITCH_BITS, (len(fabric.switches) - 1).bit_length())
    length = FABRIC_NETWORK.prefixlen + bits
    first = int(FABRIC_NETWORK.network_address) + (fabric.switch_index[switch] << (32 - length))
    return IPv4Network((first, length))


def nic_ip(fabric: Fabric, nic: Nic) -> IPv4Address:
    """Return the address of a NIC.

    Raises
    ------
    FabricError
        If its switch has more ports than the switch's subnet has addresses.
    """
    port = fabric.peer(fabric.nic_port(nic))
    network = subnet(fabric, port.node)
    address = network.network_address + port.number + 1
    if address >= network.broadcast_address - 1:
        raise FabricError(
            f"port {port} has no address: of {len(fabric.switches)} switches each has "
            f"{network.num_addresses - 3}",
            "take fewer switches, or smaller ones",
        )
    return address


def gateway_ip(fabric: Fabric, nic: Nic) -> IPv4Address:
    """Return the address of a NIC's gateway, the last of its subnet."""
    return subnet(fabric, fabric.peer(fabric.nic_port(nic)).node).broadcast_address - 1


def nic_mac(nic: Nic) -> str:
    """Return the MAC address of a NIC: locally administered, server and NIC in it."""
    return f"02:01:{nic.server >> 8:02x}:{nic.server & 255:02x}:00:{nic.nic:02x}"


def switch_mac(fabric: Fabric, switch: str) -> str:
    """Return a packet switch's own MAC address: it differs from NICs' in other bytes than these do."""
    index = fabric.switch_index[switch]
    return f"02:{0x80 | index >> 8:02x}:00:00:{index & 255:02x}:00"


def interface(fabric: Fabric, port: Port) -> str:
    """Return the name of a port's network interface: ``h3-nic0`` or ``leaf0-p3``."""
    return f"{port.node}-{'nic' if port.node in fabric.server_index else 'p'}{port.number}"


def openflow_port(port: Port) -> int:
    """Return a switch port's OpenFlow number; these count from 1."""
    return port.number + 1


def datapath_id(fabric: Fabric, switch: str) -> int:
    """Return a switch's OpenFlow datapath id; these count from 1."""
    return fabric.switch_index[switch] + 1
