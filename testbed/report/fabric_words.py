"""A fabric in a sentence: its servers, its switches and its rates."""

import re
from collections import Counter
from collections.abc import Iterable

from matplotlib.ticker import EngFormatter

from topologies.fabric import Fabric, Server, Switch

SWITCHES = {
    "leaf": ("leaf", "leaves"),
    "spine": ("spine", "spines"),
    "edge": ("edge switch", "edge switches"),
    "agg": ("aggregation switch", "aggregation switches"),
    "core": ("core switch", "core switches"),
    "panel": ("patch panel", "patch panels"),
}
"""One and several switches of a kind, by the letters that their names begin with."""
KINDS = {"packet": ("packet switch", "packet switches"), "ocs": ("OCS", "OCSes")}
"""The same of all others."""
_rate = EngFormatter(unit="bit/s")


def rate_text(rate_bps: float) -> str:
    """Return a rate with its prefix.

    Examples
    --------
    >>> rate_text(100e9), rate_text(28e6), rate_text(100e9 / 3)
    ('100 Gbit/s', '28 Mbit/s', '33.3 Gbit/s')
    """
    return _rate(float(f"{rate_bps:.3g}"))


def fabric_text(fabric: Fabric) -> str:
    """Return the counts of a fabric.

    Examples
    --------
    >>> from topologies.rail import rail_fabric
    >>> fabric_text(rail_fabric(8, 4, 2))
    '8 servers x 4 GPUs, 4 NICs of 100 Gbit/s; 4 leaves, 2 spines'
    """
    servers, nics = {server.name for server in fabric.servers}, set[float]()
    between = set[float]()
    for link in fabric.links:
        (nics if link.a.node in servers or link.b.node in servers else between).add(link.rate_bps)
    parts = [
        f"{number(len(fabric.servers), 'server', 'servers')} x "
        f"{_range((server.gpus for server in fabric.servers), 'GPU')}, "
        f"{_range((server.nics for server in fabric.servers), 'NIC')} of {_rates(nics)}"
    ]
    if fabric.switches:
        parts.append(_switches(fabric.switches))
    if between - nics:
        parts.append(f"{_rates(between)} between switches")
    return "; ".join(parts)


def number(count: int, one: str, several: str) -> str:
    """Return a number of things: ``1 leaf``, ``32,768 leaves``."""
    return f"{count:,} {one if count == 1 else several}"


def words_of(node: Server | Switch) -> tuple[str, str]:
    """Return the words for a server or switch, and for several like it."""
    if isinstance(node, Server):
        return "server", "servers"
    stem = re.match("[A-Za-z]*", node.name)
    return SWITCHES.get(stem[0] if stem else "", KINDS[node.kind])


def _switches(switches: Iterable[Switch]) -> str:
    counts = Counter(map(words_of, switches))
    return ", ".join(number(count, *words) for words, count in counts.items())


def _range(counts: Iterable[int], noun: str) -> str:
    """Return one count of a noun, or the least and the most."""
    least, *_, most = sorted([*(every := set(counts)), *every])
    return number(most, noun, f"{noun}s") if least == most else f"{least:,} to {most:,} {noun}s"


def _rates(rates_bps: Iterable[float]) -> str:
    """Return up to three rates, or the least and the most of more."""
    texts = list(map(rate_text, sorted(rates_bps)))
    return " and ".join(texts) if len(texts) <= 3 else f"{texts[0]} to {texts[-1]}"
