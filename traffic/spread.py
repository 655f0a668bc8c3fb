"""Each message in equal parts over the paths that the routing gives its two servers.

A routing (`topologies.routing`) names, for a server, the NIC by which it sends to a NIC of another one. Each
such pair of NICs is a lane. So several shortest paths share a message, and so do parallel circuits.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from topologies.errors import ScenarioError
from topologies.events import View
from topologies.fabric import Nic
from topologies.routing import Table
from traffic.messages import Messages
from traffic.scheme import OverLight, Scheme, servers_of
from traffic.spraying.policy import QueuePair

Ends = tuple[int, int]
"""Two servers."""


@dataclass(frozen=True)
class SpreadSetup:
    """Messages over all paths of their servers that the routing names, or over the first of them."""

    most: int = 0
    """Paths that a message takes at most; 0 for all."""
    anew: bool = False
    """Whether what is left of messages is spread anew whenever other circuits are lit."""
    name = "spread"
    rest = ""
    by_bytes = False

    def __post_init__(self) -> None:
        """Refuse a number of paths that is none."""
        if self.most < 0:
            raise ScenarioError(f"messages over {self.most} paths", "give 1 or more, or 0 for all")

    @property
    def words(self) -> list[str]:
        """What of it is not as usual, as tables name it."""
        return [f"{self.most} paths"] * bool(self.most) + ["anew"] * self.anew

    def scheme(self, rest: Scheme | None, *, over_circuits: bool) -> Scheme:
        """Return the scheme for one run."""
        return Spread(self.most, anew=self.anew)


class Spread(OverLight):
    """Places messages over the paths of a routing.

    Parameters
    ----------
    most, anew
        As of `SpreadSetup`.
    """

    lacks = (
        "no path of the routing joins",
        "light circuits that do, or take a routing that has one",
    )

    def __init__(self, most: int = 0, *, anew: bool = False) -> None:
        self._most, self.spreads = most or None, anew
        self._known: tuple[Table, Mapping[Ends, list[QueuePair]]] | None = None

    def lanes_now(self, view: View, messages: Messages) -> Sequence[Sequence[QueuePair]]:
        """Return the lanes of each message; none where no path joins its servers."""
        lanes = self._lanes(view)
        return [list(islice(lanes.get(ends, ()), self._most)) for ends in servers_of(view.fabric, messages)]

    def _lanes(self, view: View) -> Mapping[Ends, list[QueuePair]]:
        """Return the lanes of each two servers; found once for what is lit and has failed."""
        if view.routing is None:
            raise ScenarioError(
                "messages are spread over the paths of a routing, and there is none",
                "give the experiment one, such as controller.schedulers.coin_change:KShortest",
            )
        table = view.routing.table(fabric=view.fabric, lit=view.lit, failed=view.failed)
        if self._known is None or self._known[0] is not table:
            self._known = table, _lanes_of(table)
        return self._known[1]


def _lanes_of(table: Table) -> dict[Ends, list[QueuePair]]:
    """Return the queue pairs that a table has leave by their own source NIC.

    What it says of a destination, whoever sends, counts first: flows beside it lead what comes back.
    """
    towards: dict[Ends, list[QueuePair]] = defaultdict(list)
    of_flows: dict[Ends, list[QueuePair]] = defaultdict(list)
    for (_, what), out in table.items():
        if isinstance(out, Nic) and isinstance(what, Nic):
            towards[out.server, what.server].append(QueuePair(out, what))
        elif isinstance(out, Nic) and what[0] == out:
            of_flows[out.server, what[1].server].append(QueuePair(out, what[1]))
    return {**of_flows, **towards}
