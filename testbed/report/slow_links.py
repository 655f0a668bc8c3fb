"""Links far slower than any of the field: mostly a rate in Gbit/s where bit/s are expected."""

from collections.abc import Iterable

from topologies.fabric import Fabric

SLOW_BPS = 1e6
"""Below it a link is named [bit/s]."""


def slow_text(fabrics: Iterable[Fabric]) -> str:
    """Return a sentence on the slowest link or NVLink of some fabrics; nothing where none is slow.

    Examples
    --------
    >>> from topologies.rail import rail_fabric
    >>> slow_text([rail_fabric(2, 1, rate_bps=100)])
    'Slow: h0:0 - leaf0:0 has 100 bit/s; rates of a Fabric are in bit/s, 100 Gbit/s is 100e9.'
    >>> slow_text([rail_fabric(2, 1)])
    ''
    """
    rates = dict[str, float]()
    for fabric in fabrics:
        link = min(fabric.links, key=lambda link: link.rate_bps)
        rates[str(link)] = link.rate_bps
        rates |= {f"the NVLink of {each.name}": each.nvlink_bps for each in fabric.servers if each.gpus > 1}
    where = min(rates, key=rates.__getitem__)
    if rates[where] >= SLOW_BPS:
        return ""
    return f"Slow: {where} has {rates[where]:g} bit/s; rates of a Fabric are in bit/s, 100 Gbit/s is 100e9."
