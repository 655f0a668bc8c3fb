"""What a fabric costs: its NICs, transceivers, fibres and the ports that are used, at mFabric's prices.

Of packet switches only ports that can be used count: a switch needs no more uplinks than it has
downlinks in use, so a fat-tree with room for more NICs than there are costs five ports a NIC as a full one
does (edge 2, aggregation 2, core 1), and one whose edge is oversubscribed o to 1 costs 1 + 4 / o.
A NIC and a port of a packet switch need a transceiver each, a port of an OCS or of a patch panel
none; every link is a fibre.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Literal

from topologies.cost import Bill, BillItem
from topologies.errors import FabricError
from topologies.fabric import Fabric, Link

CircuitPort = Literal["OCS port", "patch-panel port"]
OCS_PORT_USD, PANEL_PORT_USD = 520.0, 100.0
FIBRE_USD = 150.0
"""$0.30 per metre; lengths are even between 0 and 1000 m (TopoOpt, appendix G)."""
DAC_USD = 300.0
"""Price of a copper or active optical cable at 400 Gbit/s: assumed, the paper does not state it."""
SOURCE = "mFabric, Table 4"


PRICES: dict[float, dict[str, float]] = {
    100e9: {"NIC": 659.0, "transceiver": 99.0, "packet-switch port": 187.0},
    200e9: {"NIC": 1079.0, "transceiver": 239.0, "packet-switch port": 374.0},
    400e9: {"NIC": 1499.0, "transceiver": 659.0, "packet-switch port": 1090.0},
    800e9: {"NIC": 2248.0, "transceiver": 1399.0, "packet-switch port": 1400.0},
}
"""By the rate of a link [bit/s] what parts cost [USD]; the NIC of 800 Gbit/s is 1.5 times that of 400."""


def fabric_bill(
    fabric: Fabric,
    *,
    circuit_port: CircuitPort = "OCS port",
    server_cable_usd: float | None = None,
) -> Bill:
    """Return the bill of a fabric: NICs, transceivers, used ports, fibres.

    Parameters
    ----------
    fabric
        What is wired; every link has a rate of `PRICES`.
    circuit_port
        What a port of its OCSes is.
    server_cable_usd
        Price of a cable (DAC, AOC) between a server and its packet switch, in place of two transceivers and
        a fibre; by default there are none. The paper's Figure 24 has them at a price that it does not state;
        `DAC_USD` is assumed for 400 Gbit/s.

    Returns
    -------
    Bill
        Its bandwidth of a GPU is that of all NICs over all GPUs.

    Raises
    ------
    FabricError
        If a link's rate has no price.

    References
    ----------
    mFabric, section 7.2, appendix D.2 and Table 4; TopoOpt, appendix G, for ports and fibres.
    """
    counts: dict[float, Counter[str]] = {rate_bps: Counter() for rate_bps in PRICES}
    circuit_ports, fibres, cables = 0, 0, 0
    kinds = {switch.name: switch.kind for switch in fabric.switches}
    for link in _used_links(fabric):
        count = counts[_priced(link)]
        ends = [kinds.get(port.node, "server") for port in (link.a, link.b)]
        count["NIC"] += ends.count("server")
        count["packet-switch port"] += ends.count("packet")
        circuit_ports += ends.count("ocs")
        if server_cable_usd is not None and set(ends) == {"server", "packet"}:
            cables += 1
        else:
            count["transceiver"] += ends.count("server") + ends.count("packet")
            fibres += 1
    port_usd = OCS_PORT_USD if circuit_port == "OCS port" else PANEL_PORT_USD
    parts = [
        *(
            (counts[rate_bps][name], BillItem(name, prices[name], SOURCE, rate_bps=rate_bps))
            for name in ("NIC", "transceiver", "packet-switch port")
            for rate_bps, prices in PRICES.items()
        ),
        (circuit_ports, BillItem(circuit_port, port_usd, SOURCE)),
        (fibres, BillItem("fibre", FIBRE_USD, "TopoOpt, appendix G")),
        (cables, BillItem("cable to a server", server_cable_usd or 0.0, "assumed")),
    ]
    nic_bps = math.fsum(rate_bps * count["NIC"] for rate_bps, count in counts.items())
    used = tuple((quantity, part) for quantity, part in parts if quantity)
    return Bill(fabric.name, fabric.gpus, nic_bps / fabric.gpus, used)


def _used_links(fabric: Fabric) -> Iterator[Link]:
    """Yield the links that count: from tier to tier, of a packet switch no more up than used down."""
    tiers = {switch.name: switch.tier for switch in fabric.switches if switch.kind == "packet"}
    up: dict[str, list[tuple[str, Link]]] = defaultdict(list)
    down = Counter[str]()
    for link in fabric.links:
        low, high = sorted((link.a.node, link.b.node), key=lambda node: tiers.get(node, -1))
        if low in tiers:
            up[low].append((high, link))
        else:
            down[high] += 1
            yield link
    for switch in sorted(up, key=tiers.__getitem__):
        for above, link in up[switch][: down[switch]]:
            down[above] += 1
            yield link


def _priced(link: Link) -> float:
    if link.rate_bps not in PRICES:
        known = ", ".join(f"{rate_bps / 1e9:g}" for rate_bps in PRICES)
        raise FabricError(
            f"no price for the link {link} of {link.rate_bps / 1e9:g} Gbit/s",
            f"build it with links of {known} Gbit/s",
        )
    return link.rate_bps
