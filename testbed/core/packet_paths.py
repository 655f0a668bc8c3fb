"""The paths of queue pairs over packet switches, by the controller's rules and the switches' hash."""

from collections.abc import Sequence
from functools import cached_property, lru_cache

from controller.packet.flow_table import FlowTables, Hashing
from controller.packet.routing import forwarding_rules
from topologies.addresses import ENTROPIES
from topologies.errors import NetworkError
from topologies.fabric import Fabric, Link, Nic, Path, Port
from topologies.own_routing import CheckedRouting
from topologies.packet_part import on_packet_switch
from traffic.spraying.policy import SPRAYED, QueuePair
from traffic.transports.connections import ports


def path_now(fabric: Fabric, paths: "PacketPaths", queue_pair: QueuePair) -> Path:
    """Return the path of a queue pair over packet switches, or over the circuits of one OCS."""
    ends = queue_pair.source, queue_pair.destination
    near, far = map(fabric.nic_port, ends)
    return paths[queue_pair] or (near, fabric.peer(far))


class PacketPaths:
    """The paths that queue pairs over packet switches have now, around what is known to have failed.

    Parameters
    ----------
    fabric
        Whose.
    routing, datagrams, hashing
        As of `paths_over`.
    seen
        The paths that queue pairs were seen to take while nothing had failed; by default none. Those of
        others are computed, and added.
    """

    def __init__(
        self,
        fabric: Fabric,
        routing: CheckedRouting | None = None,
        *,
        datagrams: bool = False,
        hashing: Hashing = "openvswitch",
        seen: dict[QueuePair, Path] | None = None,
    ) -> None:
        self._fabric, self._routing, self._hashing = fabric, routing, hashing
        self.sprays = datagrams
        """Whether packets of any entropy may go by one queue pair: what chooses opens one for two NICs."""
        self.seen = {} if seen is None else seen
        """The path of each queue pair that was opened while nothing had failed."""
        self.failed: frozenset[Port] = frozenset()
        """All ports that are known to have failed."""
        self._around = self._paths_around(self.failed)
        self._now: dict[QueuePair, Path] = {}

    def open(self, queue_pairs: Sequence[QueuePair]) -> Sequence[Path]:
        """Return the paths of queue pairs that are opened now.

        Raises
        ------
        NetworkError
            If switches lead one nowhere.
        """
        paths = [self._first(queue_pair) or self._around[queue_pair] for queue_pair in queue_pairs]
        self.saw(queue_pairs, paths)
        return paths

    def _first(self, queue_pair: QueuePair) -> Path | None:
        """Return the path that a queue pair was seen to take, while nothing has failed."""
        return None if self.failed else self.seen.get(queue_pair)

    def saw(self, queue_pairs: Sequence[QueuePair], paths: Sequence[Path]) -> None:
        """Record the paths that queue pairs were seen to take."""
        found = dict(zip(queue_pairs, paths, strict=True))
        self._now |= found
        if not self.failed:
            self.seen |= found

    def avoid(self, failed: frozenset[Port]) -> dict[QueuePair, Path]:
        """Lead queue pairs around failed ports, which are all of them; return those whose paths change.

        Where there is no path around, the one from before stays.
        """
        self.failed, self._around = failed, self._paths_around(failed)
        found = {each: self._first(each) or self._around.find(each) for each in self._now}
        moved = {each: path for each, path in found.items() if path and path != self._now[each]}
        self._now |= moved
        return moved

    def __getitem__(self, queue_pair: QueuePair) -> Path:
        """Return the path that a queue pair takes now; empty if it does not go over packet switches."""
        return self._now.get(queue_pair, ())

    def crossed(self, queue_pair: QueuePair) -> frozenset[Port]:
        """Return the ports that send a queue pair's bytes and acknowledgements over packet switches."""
        if queue_pair not in self._now:
            return frozenset()
        return self._around.crossed(queue_pair).union(self._now[queue_pair])

    def by_entropy(self, queue_pair: QueuePair, failed: frozenset[Port]) -> Sequence[Path]:
        """Return the path of each entropy between the NICs of a queue pair by which packets of any go.

        Parameters
        ----------
        queue_pair
            Its NICs are on packet switches.
        failed
            What rules lead around.
        """
        return self._paths_around(failed).by_entropy(queue_pair)

    def _paths_around(self, failed: frozenset[Port]) -> "Paths":
        return paths_over(self._fabric, failed, self._routing, self.sprays, self._hashing)


@lru_cache(maxsize=16)
def paths_over(
    fabric: Fabric,
    failed: frozenset[Port] = frozenset(),
    routing: CheckedRouting | None = None,
    datagrams: bool = False,
    hashing: Hashing = "openvswitch",
) -> "Paths":
    """Return the paths over a fabric as the controller's rules and the switches' hash give them.

    They are kept: points of a scenario share most queue pairs.

    Parameters
    ----------
    fabric
        Whose.
    failed
        Ports that have failed, which the rules lead around.
    routing
        By which ports switches send on before the shortest path; by default nothing else.
    datagrams
        Whether packets are datagrams, which have their entropy in the destination's address, or TCP's, which
        have it in a port.
    hashing
        Whose hash chooses.
    """
    links = frozenset(fabric.link_at[port] for port in failed)
    return Paths(fabric, links, routing, datagrams=datagrams, hashing=hashing)


class Paths:
    """The path of each queue pair, computed when it is first asked for, as is all that it is asked."""

    def __init__(
        self,
        fabric: Fabric,
        failed: frozenset[Link],
        routing: CheckedRouting | None,
        *,
        datagrams: bool,
        hashing: Hashing,
    ) -> None:
        self._fabric, self._failed, self._routing = fabric, failed, routing
        self._datagrams, self._hashing = datagrams, hashing
        self._found: dict[QueuePair, Path | None] = {}
        self._by_entropy: dict[tuple[Nic, Nic], Sequence[Path]] = {}
        self._crossed: dict[QueuePair, frozenset[Port]] = {}

    def find(self, queue_pair: QueuePair) -> Path | None:
        """Return the path of a queue pair; None if there is none."""
        if queue_pair not in self._found:
            ends = queue_pair.source, queue_pair.destination
            self._found[queue_pair] = self._over_one_switch(*ends) or self._hashed(queue_pair)
        return self._found[queue_pair]

    def __getitem__(self, queue_pair: QueuePair) -> Path:
        """Return the path of a queue pair; NetworkError if the rules lead it nowhere."""
        if (path := self.find(queue_pair)) is None:
            raise NetworkError(
                f"fabric {self._fabric.name!r} has no path for the queue pair {queue_pair}",
                self._hint(),
            )
        return path

    def _hint(self) -> str:
        if any(switch.kind == "ocs" for switch in self._fabric.switches):
            return "light its OCSes by a rule, as by --circuits of job.py (docs/howto/own_circuits.md)"
        return "give it spines, or use a scheme that keeps to its rails"

    def _hashed(self, queue_pair: QueuePair) -> Path | None:
        ends = queue_pair.source, queue_pair.destination
        if self._datagrams:
            return self._tables.datagram_path(*ends, queue_pair.entropy)
        return self._tables.path(*ends, *ports(queue_pair))

    def by_entropy(self, queue_pair: QueuePair) -> Sequence[Path]:
        """Return the path of each entropy between two NICs; empty for one that leads nowhere.

        Where there is no path around what has failed, it is the one from before.
        """
        ends = queue_pair.source, queue_pair.destination
        if ends not in self._by_entropy:
            over_one = self._over_one_switch(*ends)
            found = [over_one] * ENTROPIES if over_one else self._tables.datagram_paths(*ends)
            before: Sequence[Path] = [()] * ENTROPIES
            if self._failed and not all(found):
                whole = paths_over(self._fabric, frozenset(), self._routing, self._datagrams, self._hashing)
                before = whole.by_entropy(queue_pair)
            self._by_entropy[ends] = [path or old for path, old in zip(found, before, strict=True)]
        return self._by_entropy[ends]

    @cached_property
    def _tables(self) -> FlowTables:
        """The tables of all switches, made when needed: those of thousands of switches take a minute."""
        rules = forwarding_rules(self._fabric, self._failed, self._routing)
        return FlowTables(self._fabric, rules, self._failed, self._hashing)

    def _over_one_switch(self, source: Nic, destination: Nic) -> Path | None:
        """Return the path between two NICs of one packet switch, which has a rule for each of its own."""
        if self._routing:
            return None
        near, far = map(self._fabric.nic_port, (source, destination))
        at, out = map(self._fabric.peer, (near, far))
        if at.node != out.node or source == destination or not on_packet_switch(self._fabric, source):
            return None
        fails = not self._failed.isdisjoint({self._fabric.link_at[near], self._fabric.link_at[far]})
        return None if fails else (near, out)

    def crossed(self, queue_pair: QueuePair) -> frozenset[Port]:
        """Return the ports that send a queue pair's bytes, and its acknowledgements if packets are TCP's."""
        if queue_pair.entropy == SPRAYED:
            return frozenset()  # it goes by others as soon as that is known
        if self._datagrams:
            return frozenset(self.find(queue_pair) or ())
        if queue_pair not in self._crossed:
            ends = queue_pair.destination, queue_pair.source
            back = self._over_one_switch(*ends) or self._tables.path(*ends, *reversed(ports(queue_pair)))
            self._crossed[queue_pair] = frozenset((*(self.find(queue_pair) or ()), *(back or ())))
        return self._crossed[queue_pair]
