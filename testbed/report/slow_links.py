"""Links far slower than any of the field: mostly a rate in Gbit/s where bit/s are expected."""

from collections.abc import Collection

from testbed.report.page import counted
from topologies.fabric import Fabric

SLOW_BPS = 1e6
"""Below it a link is named [bit/s]."""


def slow_text(fabrics: Collection[Fabric]) -> str:
    """Return a sentence on the slow links and NVLinks of some fabrics; nothing where none is slow."""
    rates = [(link.rate_bps, str(link)) for fabric in fabrics for link in fabric.links]
    servers = [server for fabric in fabrics for server in fabric.servers if server.gpus > 1]
    rates += [(server.nvlink_bps, f"the NVLink of {server.name}") for server in servers]
    slow = sorted(rate for rate in rates if rate[0] < SLOW_BPS)
    if not slow:
        return ""
    (rate_bps, where), many = slow[0], counted(len(slow), "link")
    return (
        f"Slow: {many} under 1 Mbit/s, the slowest is {where} with {rate_bps:g} bit/s; rates of a Fabric "
        "are in bit/s (100 Gbit/s is 100e9), --rate and rate_gbps in Gbit/s."
    )
