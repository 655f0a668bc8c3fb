"""The costs of TopoOpt's interconnects: NICs, transceivers, ports, 1x2 switches and fibres (Figure 10).

    n   servers
    d   interfaces of a server
    B   rate of an interface [bit/s]

TopoOpt has d NICs a server, and for each a transceiver, a 1x2 switch, a port of the active and one of the
look-ahead panel, and a fibre. OCS-reconfig has an OCS port instead of 1x2 switch and panel ports: there is no
look-ahead. That is also what TopoOpt over OCSes costs. An expander's circuits are fibres from NIC
to NIC. A fat-tree of k-port switches has 5 k^3 / 4 switch ports, each with a transceiver, and a NIC, a
transceiver and a fibre a server. The ideal switch stands for d such trees of rate B, its *planes*.

The paper buys two 2-port NICs for one of 4 ports: a NIC port costs half of the NIC that it lists, here as
everywhere. It counts a fibre per interface, or per server and plane (two at 200 Gbit/s, which is twice 100):
of the countings tried that alone meets both of its averages, over 100 and 200 Gbit/s. Ratios do not depend on
n and d where the trees are full. So at 4,394 servers ideal over TopoOpt is 3.16 too, where the paper has 3.0;
its 3.6 after discounts follows from prices that it does not state. SiP-ML's prices are not stated either: it
is not computed.

References
----------
TopoOpt, section 5.2 and Figure 10, appendix G and Table 2.
"""

import math
from itertools import product
from statistics import fmean
from typing import NamedTuple

import pandas as pd

from scenarios._topoopt.fabrics import (
    EXPANDER,
    FAT_TREE,
    IDEAL,
    OCS_RECONFIG,
    SIP_ML,
    TOPOOPT,
    check_size,
    fat_tree_bps,
)
from topologies.cost import Bill, BillItem
from topologies.errors import ScenarioError
from topologies.fat_tree import least_k

SOURCE = "TopoOpt, Table 2"
NIC_PORTS = 2
"""Ports of a NIC that is listed."""
TWO_LINKS_BPS = 200e9
"""Two links of 100 Gbit/s where a packet switch is at one end: two fibres."""


class Prices(NamedTuple):
    """The prices of parts of one rate [USD]."""

    transceiver: float
    nic: float
    """Of `NIC_PORTS` ports."""
    switch_port: float


PRICES = {
    10e9: Prices(20, 185, 94),
    25e9: Prices(39, 185, 144),
    40e9: Prices(39, 354, 144),
    100e9: Prices(99, 678, 187),
    200e9: Prices(198, 815, 374),
}
"""By the rate of a link [bit/s]."""
PANEL_PORT = BillItem("patch-panel port", 100, f"{SOURCE}: Telescent")
OCS_PORT = BillItem("OCS port", 520, f"{SOURCE}: Polatis, less 40 %")
FLIP = BillItem("1x2 switch", 25, SOURCE)
FIBRE = BillItem("fibre", 150, "TopoOpt, appendix G: $0.30 a metre, even between 0 and 1000 m")
CIRCUITS: dict[str, tuple[tuple[float, BillItem], ...]] = {
    TOPOOPT: ((1, FLIP), (1, FIBRE), (2, PANEL_PORT)),
    OCS_RECONFIG: ((1, OCS_PORT), (1, FIBRE)),
    EXPANDER: ((0.5, FIBRE),),
}
"""How many of each part an interface needs beside its NIC and transceiver, where servers have circuits."""
KINDS = (TOPOOPT, IDEAL, FAT_TREE, OCS_RECONFIG, EXPANDER)
"""The interconnects, in the order in which they are shown."""
AVERAGE_BPS = (100e9, 200e9)
"""The rates whose mean ratio is the paper's 1.33 and 3.2."""
FIGURE_SERVERS, FIGURE_DEGREE = (128, 432, 1024, 2000, 3456, 4394), 4
"""Sizes of full fat-trees of 8 to 26 ports (k^3 / 4); d."""


def interconnect_bill(kind: str, servers: int, degree: int, rate_bps: float) -> Bill:
    """Return the parts of an interconnect.

    Parameters
    ----------
    kind
        A name of `scenarios._topoopt.fabrics`: TopoOpt, the ideal switch, the fat-tree of similar cost,
        OCS-reconfig (and TopoOpt over OCSes), or the expander.
    servers, degree
        n and d.
    rate_bps
        B, a key of `PRICES`; the fat-tree has one NIC of d B / 4 a server.

    Raises
    ------
    ScenarioError
        If there is no such interconnect, no server or interface, a rate has no price, or it is SiP-ML, whose
        prices are not stated.

    Examples
    --------
    >>> interconnect_bill(TOPOOPT, 128, 4, 100e9).usd
    416256.0
    """
    check_size(servers, degree)
    if kind == SIP_ML:
        raise ScenarioError(
            "the cost of SiP-ML is not computed: the paper does not state the prices of its parts",
            "take another interconnect; the paper only says that SiP-ML is the dearest",
        )
    if kind not in KINDS:
        raise ScenarioError(f"unknown interconnect {kind!r}", f"take one of {', '.join(KINDS)}")
    if kind == IDEAL:
        parts = _planes(servers, rate_bps, degree)
    elif kind == FAT_TREE:
        parts = _tree_parts(servers, fat_tree_bps(degree, rate_bps))
    else:
        each = (*((1, part) for part in _interface(rate_bps)), *CIRCUITS[kind])
        parts = tuple((int(servers * degree * count), part) for count, part in each)
    return Bill(kind, servers, degree * rate_bps, parts)


def fat_tree_cost(servers: int, nic_bps: float) -> float:
    """Return the cost of a full-bisection fat-tree, one NIC a server [USD].

    Parameters
    ----------
    servers
        n; the tree has the fewest ports per switch that have room for them, and all its switches.
    nic_bps
        Rate of a NIC [bit/s]; where it has no price it is that of several planes, of the fastest rate that
        divides it.

    Raises
    ------
    ScenarioError
        If no rate with a price divides it.
    """
    return math.fsum(count * part.price_usd for count, part in _tree_parts(servers, nic_bps))


def cost_table() -> pd.DataFrame:
    """Return Figure 10: a row per rate, size and interconnect, with its cost.

    Returns
    -------
    DataFrame
        Columns ``interconnect``, ``servers``, ``degree``, ``rate_gbps``, ``usd`` (NaN for SiP-ML) and
        ``over_topoopt``, the cost over TopoOpt's.
    """
    rows = []
    for rate_bps, size in product(PRICES, FIGURE_SERVERS):
        topoopt_usd = interconnect_bill(TOPOOPT, size, FIGURE_DEGREE, rate_bps).usd
        for kind in (*KINDS, SIP_ML):
            usd = math.nan if kind == SIP_ML else interconnect_bill(kind, size, FIGURE_DEGREE, rate_bps).usd
            rows.append(
                {"interconnect": kind, "servers": size, "degree": FIGURE_DEGREE, "rate_gbps": rate_bps / 1e9,
                 "usd": usd, "over_topoopt": usd / topoopt_usd}
            )  # fmt: skip
    return pd.DataFrame(rows)


def mean_over_topoopt(kind: str, servers: int, degree: int) -> float:
    """Return an interconnect's cost over TopoOpt's, mean of `AVERAGE_BPS`."""
    of = servers, degree
    return fmean(
        interconnect_bill(kind, *of, bps).usd / interconnect_bill(TOPOOPT, *of, bps).usd
        for bps in AVERAGE_BPS
    )


Parts = tuple[tuple[int, BillItem], ...]


def _interface(rate_bps: float) -> tuple[BillItem, BillItem]:
    """Return the NIC port and the transceiver of a server's interface."""
    prices = _prices(rate_bps)
    nic = BillItem("NIC port", prices.nic / NIC_PORTS, SOURCE, rate_bps=rate_bps)
    return nic, BillItem("transceiver", prices.transceiver, SOURCE, rate_bps=rate_bps)


def _tree_parts(servers: int, nic_bps: float) -> Parts:
    check_size(servers, 1)
    for rate_bps in sorted(PRICES, reverse=True):
        if nic_bps >= rate_bps and not nic_bps % rate_bps:
            return _planes(servers, rate_bps, round(nic_bps / rate_bps))
    raise _no_price(nic_bps)


def _planes(servers: int, rate_bps: float, planes: int) -> Parts:
    """Return the parts of fat-trees beside each other, each with a NIC of every server."""
    nic, transceiver = _interface(rate_bps)
    switch_ports, hosts = planes * 5 * least_k(servers) ** 3 // 4, planes * servers
    port = BillItem("switch port", _prices(rate_bps).switch_port, SOURCE, rate_bps=rate_bps)
    return (
        (hosts, nic),
        (hosts + switch_ports, transceiver),
        (switch_ports, port),
        (hosts * (2 if rate_bps >= TWO_LINKS_BPS else 1), FIBRE),
    )


def _prices(rate_bps: float) -> Prices:
    if rate_bps not in PRICES:
        raise _no_price(rate_bps)
    return PRICES[rate_bps]


def _no_price(rate_bps: float) -> ScenarioError:
    known = ", ".join(f"{rate / 1e9:g}" for rate in PRICES)
    return ScenarioError(
        f"TopoOpt's Table 2 has no prices for {rate_bps / 1e9:g} Gbit/s", f"take one of {known}"
    )
