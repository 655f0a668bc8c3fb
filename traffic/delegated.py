"""The scheme that delegates: all-to-alls go over lanes, gathered and scattered; all else over packets.

References
----------
mFabric, section 5.3.
"""

from dataclasses import dataclass
from functools import partial

from topologies.events import View
from topologies.fabric import Fabric
from topologies.packet_part import cut_off
from traffic.delegation import (
    DelegatedOps,
    Delegation,
    Lanes,
    Shapes,
    decides,
    delegation,
    in_stages,
    remembered,
)
from traffic.gathered import Gathered
from traffic.messages import Messages
from traffic.ops import LANES, Ops, Part
from traffic.relays import hop_by_hop
from traffic.scheme import Choice, Placement, Scheme, WhileLit, keeps_connections, memory_of, name_of


@dataclass(frozen=True)
class DelegatedSetup:
    """How all-to-alls go over the lanes of server pairs (`traffic.delegation`)."""

    pipelined: bool = False
    """Whether gather, transfer and scatter go at once."""
    spill: bool = False
    """Whether pairs put what their circuits cannot carry in time on packet NICs."""
    two_hops: bool = False
    """Whether pairs without a circuit go through a server that forwards."""
    rest: str = ""
    """The spraying policy of other collectives, over packets; by default evenly on packet NICs."""
    name = "delegated"
    by_bytes = True
    needs_all_gpus = True

    @property
    def words(self) -> list[str]:
        """The settings that are not as usual, as tables name them."""
        named = {"pipelined": self.pipelined, "spill": self.spill, "two hops": self.two_hops}
        return [word for word, is_so in named.items() if is_so] + [self.rest] * bool(self.rest)

    def scheme(self, rest: Scheme | None, *, over_circuits: bool) -> Scheme:
        """Return the scheme for one run."""
        return Delegated(self, rest or (Lanes() if over_circuits else None))


DELEGATED = DelegatedSetup()


class Delegated:
    """All-to-alls over lanes, gathered and scattered; all else over packets.

    Parameters
    ----------
    setup
        How they go.
    rest
        Places the messages of other collectives, those of pipelines and of data-parallel rings; by default
        evenly on the packet NICs of their servers, NIC m to NIC m.
    """

    def __init__(self, setup: DelegatedSetup = DELEGATED, rest: Scheme | None = None) -> None:
        self._packets = Lanes(light=False)
        self._rest: Scheme = rest or self._packets
        self._pipelined = setup.pipelined
        self.lanes = Lanes(spill=setup.spill, two_hops=setup.two_hops)
        self._known: dict[object, Delegation] = {}
        self._shapes = Shapes()
        self._lowered: dict[tuple[Delegation, bool], DelegatedOps] = {}

    @property
    def name(self) -> str:
        """That of the scheme of other collectives."""
        return name_of(self._rest)

    @property
    def keeps_connections(self) -> bool:
        """Whether the scheme of other collectives does."""
        return keeps_connections(self._rest)

    @property
    def memory(self) -> int:
        """That of the scheme of other collectives."""
        return memory_of(self._rest)

    def place(self, view: View, messages: Messages) -> Placement | Choice | WhileLit:
        """Return the placement of messages of other collectives, by the other scheme."""
        return self._rest.place(view, messages)

    def follow(self, fabric: Fabric) -> Gathered:
        """Return the whereabouts of the bytes of a run: they are scattered from where they arrived."""
        return Gathered(fabric, pipelined=self._pipelined)

    def lower(self, ops: Ops, view: View) -> Ops:
        """Return an all-to-all gathered, crossing and scattered, and what no lane joins by its hops."""
        if not ops.splits:
            return ops.each_under_way(partial(self._relayed, view))
        found = self.delegate(view, ops.moves)
        key = found, ops.coupled and not cut_off(view.fabric, view.failed)
        stages = partial(in_stages, found, pipelined=self._pipelined, coupled=ops.coupled, as_one=key[1])
        return remembered(self._lowered, key, stages)

    def _relayed(self, view: View, part: Part) -> Ops:
        lanes = self.lanes if part.medium == LANES else self._packets
        paths = lanes.paths(view, part.moves)
        return hop_by_hop(view, part, paths) if any(path or path is None for path in paths) else Ops((part,))

    def delegate(self, view: View, messages: Messages) -> Delegation:
        """Return the legs of an all-to-all; equal ones over equal circuits are equal objects.

        Raises
        ------
        ScenarioError
            If no lane joins two servers, and packet NICs of neither have failed.
        """
        key = decides(view, messages)
        return remembered(self._known, key, lambda: delegation(view, messages, self.lanes, self._shapes))
