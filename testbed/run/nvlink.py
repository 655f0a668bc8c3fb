"""NVLink: the links out of and into each GPU, inside servers; modelled, never emulated.

Messages share each GPU's rate out and in, max-min fairly. In the model NVLink's links are links of its
network like others; beside a booted network they have one of their own, on that network's clock.
"""

from collections.abc import Callable, Sequence

import numpy as np

from testbed.run.movers import NVLINK, Arrived, Chosen, Flows
from topologies.fabric import Fabric
from traffic.clock import NEVER
from traffic.fluid.bundles import Bundle, Bundles, Crossed, Over
from traffic.fluid.network import FluidNetwork

MOST_KNOWN = 1 << 16
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
        self._known: dict[tuple[bytes, bytes], Crossed] = {}

    def path(self, source: int, destination: int) -> list[int]:
        """Return the links between two GPUs of a server."""
        return [self._first + source, self._first + self._gpus + destination]

    def bundles(self, flows: Flows) -> list[Bundle]:
        """Return what moves inside servers as bundles: one, or one for each move."""
        if flows.together:
            return [self._bundle(flows, slice(None))]
        return [self._bundle(flows, slice(move, move + 1)) for move in range(len(flows.op))]

    def _bundle(self, flows: Flows, mine: slice) -> Bundle:
        source, destination = flows.source[mine], flows.destination[mine]
        key = source.tobytes(), destination.tobytes()
        if (found := self._known.get(key)) is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            ends = np.concatenate([self._first + source, self._first + self._gpus + destination])
            links, of = np.unique(ends, return_inverse=True)
            found = self._known[key] = Crossed(links.tolist(), of, np.tile(np.arange(len(source)), 2))

        def over() -> Over:
            return tuple(zip(source.tolist(), destination.tolist(), strict=True))

        return Bundle(
            (int(flows.op[mine][0]),), flows.bytes[mine], found, over, lane=NVLINK, meets_others=False
        )


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

    def _add(self, over: Over) -> range:
        paths = [self._paths.path(*ends) for ends in over]  # type: ignore[misc]
        return self._network.add_flows(paths, coupled_weight=1.0)

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
            for bundle in self._paths.bundles(each):
                self._bundles.start(bundle, may_be_alone=True)

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
