"""Light paths: where the light of a NIC goes through the circuits of one OCS or of several in series."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from topologies.fabric import Fabric, Nic, Port

Circuit = tuple[int, int]
"""The input port and the output port that an OCS joins."""
Configuration = Mapping[str, tuple[Circuit, ...]]
"""The circuits of each OCS."""


def duplex(pairs: Iterable[tuple[int, int]]) -> tuple[Circuit, ...]:
    """Return the circuits that join ports both ways, so that acknowledgements come back."""
    return tuple(circuit for a, b in pairs for circuit in ((a, b), (b, a)))


@dataclass(frozen=True)
class LightPath:
    """Where the light of a NIC goes through the circuits that are lit."""

    ports: tuple[Port, ...]
    """The ports that send on the way: the NIC, then an output port of each OCS."""
    circuits: tuple[tuple[str, Circuit], ...]
    """The OCSes on the way and the circuit in each."""
    end: Port | None
    """The NIC that the light reaches; None if it ends at a port without a circuit."""


def light_path(fabric: Fabric, lit: Configuration, nic: Nic) -> LightPath:
    """Return where a NIC's light goes; it may cross several OCSes."""
    ports = [fabric.nic_port(nic)]
    circuits: list[tuple[str, Circuit]] = []
    at = fabric.peer(ports[0])
    while at.node in lit:
        outputs = dict(lit[at.node])
        if at.number not in outputs or len(circuits) > len(fabric.links):
            return LightPath(tuple(ports), tuple(circuits), None)
        circuits.append((at.node, (at.number, outputs[at.number])))
        out = Port(at.node, outputs[at.number])
        ports.append(out)
        if out not in fabric.link_at:
            return LightPath(tuple(ports), tuple(circuits), None)
        at = fabric.peer(out)
    return LightPath(tuple(ports), tuple(circuits), at)


def light_peers(fabric: Fabric, nic: Nic) -> list[Nic]:
    """Return the other NICs that some circuits would join a NIC to, over one OCS or several in series."""
    ocses = {switch.name for switch in fabric.switches if switch.kind == "ocs"}
    reached, left = set[str](), [fabric.peer(fabric.nic_port(nic)).node]
    while left:
        node = left.pop()
        if node in ocses and node not in reached:
            reached.add(node)
            left += [fabric.peer(port).node for port in fabric.used_ports(node)]
    return [
        other for other in fabric.nics if other != nic and fabric.peer(fabric.nic_port(other)).node in reached
    ]


def light_rings(fabric: Fabric, lit: Configuration) -> list[tuple[int, ...]]:
    """Return the rings that light forms of servers with two NICs, into each by one and out by the other.

    Each begins at its first server, goes on from NIC 0 of that, and is lit all the way round; of one through
    which light goes both ways, that is one of the two directions.
    """
    rings: list[tuple[int, ...]] = []
    seen = set[int]()
    for first, server in enumerate(fabric.servers):
        if first in seen or server.nics != 2:
            continue
        ring, at = [first], _far_nic(fabric, lit, Nic(first, 0))
        while at and at.server not in ring and fabric.servers[at.server].nics == 2:
            ring.append(at.server)
            at = _far_nic(fabric, lit, Nic(at.server, 1 - at.nic))
        if at == Nic(first, 1):
            rings.append(tuple(ring))
            seen.update(ring)
    return rings


def _far_nic(fabric: Fabric, lit: Configuration, nic: Nic) -> Nic | None:
    """Return the NIC that a NIC's light reaches; None if it ends at a port without a circuit."""
    end = light_path(fabric, lit, nic).end
    return fabric.nic_at(end) if end else None
