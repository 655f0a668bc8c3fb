"""Which links of a booted network are down, whoever took them down, and both ends of links turned."""

from collections.abc import Iterable

from pyroute2 import IPRoute

from testbed.machine.netlink import IFF_UP
from testbed.network.wiring import turn_link
from topologies.addresses import interface
from topologies.fabric import Fabric, Link


def links_down(fabric: Fabric) -> list[Link]:
    """Return the links of which an end at a switch is down; a server's own ends stay up."""
    with IPRoute() as kernel:
        up = {link.get_attr("IFLA_IFNAME") for link in kernel.get_links() if link["flags"] & IFF_UP}
    return [
        link
        for link in fabric.links
        if any(
            end.node in fabric.switch_index and interface(fabric, end) not in up for end in (link.a, link.b)
        )
    ]


def turn_links(fabric: Fabric, links: Iterable[Link], *, works: bool) -> None:
    """Take links down at all their ends at switches, or up again."""
    for link in links:
        for end in (link.a, link.b):
            if end.node in fabric.switch_index:
                turn_link(fabric, end, works=works)
