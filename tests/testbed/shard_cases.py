"""Rings on clusters in shards."""

from collections.abc import Sequence

from controller.circuits.shard_order import Shard
from controller.circuits.shards import Shards
from testbed.experiment.experiment import Experiment
from topologies.light import Circuit, duplex
from topologies.patch_panel import sharded_panel_fabric
from traffic.collectives.ring import Ring
from traffic.job import Collective, Job
from traffic.scheme_setup import ROUTED

RATE_BPS = 10e9
PANEL_S, FLIP_S = 0.5, 0.01


def ring_circuits(members: Sequence[int], nics: int = 2) -> tuple[Circuit, ...]:
    """Return the circuits of a ring: NIC 0 of each server to NIC 1 of the next."""
    after = (*members[1:], members[0])
    return duplex([(nics * a, nics * b + 1) for a, b in zip(members, after, strict=True)])


def ring(name: str, members: tuple[int, ...], lasts_s: float, after: tuple[str, ...] = ()) -> Collective:
    """Return an AllReduce over a ring both ways, that takes a time on its circuits."""
    count = len(members)
    size = round(lasts_s * RATE_BPS / 8 * count / (count - 1))
    return Collective(name, Ring((members, members[::-1]), size), after)


def shard(node: Collective) -> Shard:
    """Return a shard that is one AllReduce."""
    assert isinstance(node.pattern, Ring)
    return Shard(node.name, (node.name,), ring_circuits(node.pattern.rings[0]))


def sharded(
    *nodes: Collective, servers: int = 8, panel_s: float = PANEL_S, scheme: str = ROUTED
) -> Experiment:
    """Return AllReduces, each a shard."""
    fabric = sharded_panel_fabric(servers, nics=2, gpus=1, rate_bps=RATE_BPS)
    circuits = Shards(tuple(map(shard, nodes)), panel_s, FLIP_S)
    return Experiment(fabric, Job("shards", servers, nodes), scheme, circuits=circuits)


FIRST = ring("first", (0, 1, 2, 3), 1.2)
OTHER = ring("other", (4, 5, 6, 7), 2.4)
THIRD = ring("third", (0, 2, 1, 3), 0.6, ("first",))
