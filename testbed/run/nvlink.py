"""NVLink: the links out of and into each GPU, inside servers; modelled, never emulated.

Messages share each GPU's rate out and in, max-min fairly. In the model NVLink's links are links of its
network like others; beside a booted network they have one of their own, on that network's clock.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from testbed.run.movers import NVLINK, Arrived, Chosen, Flows
from topologies.fabric import Fabric
from traffic.clock import NEVER
from traffic.fluid.bundles import Bundle, Bundles, Crossed, Over, crossed
from traffic.fluid.network import FluidNetwork

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
        self._pairs: dict[Pair, Crossed] = {}
        """What a move between two GPUs crosses."""
        self._known: dict[tuple[int, int], tuple[Flows, Crossed]] = {}
        """What moves together cross, by the identity of their ends, which are kept."""

    def path(self, source: int, destination: int) -> list[int]:
        """Return the links between two GPUs of a server."""
        return [self._first + source, self._first + self._gpus + destination]

    def add(
        self, network: FluidNetwork, several: Sequence[Over], communicator: Callable[[int], int]
    ) -> list[tuple[range, range]]:
        """Return the flows and pools of new bundles of a network; single ones are added at once.

        ``communicator`` is that of a pool.
        """
        found = dict[Over, tuple[range, range]]()
        if singles := [over for over in several if len(over) == 1]:
            pools = range(network.pools, network.pools + len(singles))
            paths = [self.path(*ends) for (ends,) in singles]  # type: ignore[misc]
            flows = network.add_flows(paths, communicator=list(map(communicator, pools)))
            for place, over in enumerate(singles):
                found[over] = flows[place : place + 1], pools[place : place + 1]
        for strands in (over for over in several if len(over) > 1):
            pools = range(network.pools, network.pools + len(strands))
            paths = [self.path(*ends) for ends in strands]  # type: ignore[misc]
            flows = network.add_flows(paths, coupled_weight=1.0, communicator=communicator(pools[0]))
            found[strands] = flows, pools
        return [found[over] for over in several]

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

    def _pair(self, pair: Pair) -> Crossed:
        if pair not in self._pairs:
            self._pairs[pair] = crossed([self.path(*pair)])
        return self._pairs[pair]

    def _together(self, flows: Flows) -> Crossed:
        key = id(flows.source), id(flows.destination)
        if key not in self._known:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            ends = np.concatenate([self._first + flows.source, self._first + self._gpus + flows.destination])
            links, of = np.unique(ends, return_inverse=True)
            strand = np.tile(np.arange(len(flows.source)), 2)
            self._known[key] = flows, Crossed(links.tolist(), of, strand)
        return self._known[key][1]


def _ends(flows: Flows) -> tuple[Pair, ...]:
    return tuple(zip(flows.source.tolist(), flows.destination.tolist(), strict=True))


def _one(pair: Pair) -> tuple[Pair, ...]:
    return (pair,)


class NvlinkMover:
    """Moves what stays inside servers, on the clock of another mover.

    Parameters
    ----------
    fabric
        Its servers' ``nvlink_bps`` is the rate of each GPU in each direction.
    now_ps
        Returns the time.
    """

    def __init__(self, fabric: Fabric, now_ps: Callable[[], int]) -> None:
        self._now_ps = now_ps
        self._network = FluidNetwork(nvlink_rates_bps(fabric))
        self._paths = NvlinkPaths(0, fabric.gpus)
        self._bundles = Bundles(self._network, self._add)
        self._early: list[Arrived] = []
        """What has arrived, and was not yet reported."""

    def _add(self, several: Sequence[Over]) -> list[tuple[range, range]]:
        return self._paths.add(self._network, several, lambda _pool: 0)

    @property
    def due_ps(self) -> int:
        """When the next operation arrives if nothing changes [ps]; `NEVER` if none is on its way."""
        if self._early:
            return self._network.now_ps
        return min(self._bundles.next_ps, self._network.next_ps)

    def start(self, flows: Sequence[Flows | Chosen], *, first: bool = False) -> None:
        """Send operations between GPUs of one server."""
        self._pass(self._now_ps())
        for each in flows:
            assert isinstance(each, Flows)
            self._bundles.start(self._paths.bundles(each), may_be_alone=True)

    def advance(self, to_ps: int) -> list[Arrived]:
        """Let time pass; return what arrived."""
        self._pass(to_ps)
        arrived, self._early = self._early, []
        return arrived

    def _pass(self, to_ps: int) -> None:
        found: list[tuple[int, Bundle]] = []
        while (next_ps := min(self._bundles.next_ps, to_ps)) < NEVER:
            tags = self._network.advance(next_ps)
            ended = [(at_ps, bundle) for at_ps, tag, _ in tags if (bundle := self._bundles.arrived(tag))]
            found += ended + self._bundles.ended()
            if not tags and next_ps == to_ps:
                break
        self._early += [Arrived(op, to_ps, NVLINK) for _, bundle in found for op in bundle.ops]
