"""The paths of queue pairs over packet switches, by the controller's rules and the switches' hash."""

from collections.abc import Callable, Sequence
from functools import lru_cache

from controller.packet.flow_table import FlowTables
from controller.packet.routing import forwarding_rules
from topologies.errors import NetworkError
from topologies.fabric import Fabric, Path
from traffic.spraying.policy import QueuePair
from traffic.transports.connections import SERVICE_PORT, source_port


def computed_paths(fabric: Fabric, queue_pairs: Sequence[QueuePair]) -> tuple[Path, ...]:
    """Return the path of each queue pair as the controller's rules and the switches' hash give it.

    Raises
    ------
    NetworkError
        If the rules lead a queue pair nowhere.
    """
    known = _paths_over(fabric)
    return tuple(known[queue_pair] for queue_pair in queue_pairs)


def seen_or_computed(
    fabric: Fabric, seen: dict[QueuePair, Path]
) -> Callable[[Sequence[QueuePair]], Sequence[Path]]:
    """Return what finds the paths of queue pairs: those that were seen, and computed ones, which it adds."""

    def paths_of(queue_pairs: Sequence[QueuePair]) -> Sequence[Path]:
        new = [queue_pair for queue_pair in queue_pairs if queue_pair not in seen]
        seen.update(zip(new, computed_paths(fabric, new), strict=True))
        return [seen[queue_pair] for queue_pair in queue_pairs]

    return paths_of


def optical_path(fabric: Fabric, queue_pair: QueuePair) -> Path:
    """Return the path of a queue pair over the circuits of one OCS."""
    near = fabric.nic_port(queue_pair.source)
    return near, fabric.peer(fabric.nic_port(queue_pair.destination))


@lru_cache(maxsize=2)
def _paths_over(fabric: Fabric) -> "_Paths":
    """Return the paths over a fabric: the points of a scenario share most of their queue pairs."""
    return _Paths(fabric)


class _Paths(dict[QueuePair, Path]):
    """The path of each queue pair, computed when it is first asked for."""

    def __init__(self, fabric: Fabric) -> None:
        self._name, self._tables = fabric.name, FlowTables(fabric, forwarding_rules(fabric))

    def __missing__(self, queue_pair: QueuePair) -> Path:
        ends = queue_pair.source, queue_pair.destination
        path = self._tables.path(*ends, source_port(queue_pair), SERVICE_PORT)
        if path is None:
            raise NetworkError(
                f"fabric {self._name!r} has no path for the queue pair {queue_pair}",
                "give it spines, or use a scheme that keeps to its rails",
            )
        self[queue_pair] = path
        return path
