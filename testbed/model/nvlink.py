"""NVLink: the links out of and into each GPU, inside servers; modelled, never emulated.

Messages share each GPU's rate out and in, max-min fairly. In the model NVLink's links are links of its
network like others; beside a booted network they have one of their own, on that network's clock.
"""

from functools import cache, partial

import numpy as np

from testbed.core.backend import NVLINK, Flows
from topologies.fabric import Fabric
from traffic.fluid.bundles import Bundle, CrossedLinks, crossed

Pair = tuple[int, int]
"""A source and a destination GPU of one server."""
MOST_KNOWN = 4096
"""So many sets of links are remembered."""


def nvlink_rates_bps(fabric: Fabric) -> list[float]:
    """Return the rate of the link out of each GPU, then of the link into each [bit/s]."""
    return [fabric.servers[server].nvlink_bps for server in fabric.gpu_servers] * 2


class NvlinkPaths:
    """The links that moves inside servers cross, looked up once for equal ends.

    Parameters
    ----------
    first
        The number of the link out of GPU 0; those out of the others follow, then those into them.
    gpus
        How many.
    """

    def __init__(self, first: int, gpus: int) -> None:
        self._first, self._gpus = first, gpus
        self._pair = cache(lambda pair: crossed([self.path(*pair)]))
        """Returns what a move between two GPUs crosses."""
        self._known: dict[tuple[int, int], tuple[Flows, CrossedLinks]] = {}
        """What moves together cross, by the identity of their ends, which are kept."""

    def path(self, source: int, destination: int) -> list[int]:
        """Return the links between two GPUs of a server."""
        return [self._first + source, self._first + self._gpus + destination]

    def bundles(self, flows: Flows) -> list[Bundle]:
        """Return what moves inside servers as bundles: one, or one for each move."""
        if flows.together:
            over = partial(_ends, flows)
            op = int(flows.op[0])
            return [Bundle((op,), flows.bytes, self._together(flows), over, lane=NVLINK, meets_others=False)]
        sizes = flows.bytes.reshape(-1, 1)
        return [
            Bundle((op,), size, self._pair(pair), partial(_one, pair), lane=NVLINK, meets_others=False)
            for op, size, pair in zip(flows.op.tolist(), sizes, _ends(flows), strict=True)
        ]

    def _together(self, flows: Flows) -> CrossedLinks:
        key = id(flows.source), id(flows.destination)
        if key not in self._known:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            ends = np.concatenate([self._first + flows.source, self._first + self._gpus + flows.destination])
            links, of = np.unique(ends, return_inverse=True)
            strand = np.tile(np.arange(len(flows.source)), 2)
            self._known[key] = flows, CrossedLinks(links.tolist(), of, strand)
        return self._known[key][1]


def _ends(flows: Flows) -> tuple[Pair, ...]:
    return tuple(zip(flows.source.tolist(), flows.destination.tolist(), strict=True))


def _one(pair: Pair) -> tuple[Pair, ...]:
    return (pair,)
