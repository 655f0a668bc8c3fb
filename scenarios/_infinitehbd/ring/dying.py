"""AllReduces over a TP group on a K-hop ring whose nodes die: what is run, as experiments."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, product, takewhile

from controller.circuits.devices import device_named, real_delay
from controller.circuits.foreseen import Foreseen
from controller.circuits.ring_circuits import Group, place
from controller.circuits.ring_faults import Mode, foreseen_rings, node_fault, surviving_groups
from testbed.experiment.experiment import Experiment
from testbed.study.options import known_after_s, share_at, size_bytes
from topologies.errors import ScenarioError
from topologies.fabric import Fabric
from topologies.khop_ring import KHopRing, TrxBundle, khop_ring_fabric
from topologies.light import light_rings
from traffic.collectives.ring import Ring
from traffic.faults import Fault, KnownRevision, Revisions, cut
from traffic.job import Collective, chain
from traffic.rings_over import closed_form_s
from traffic.scheme_setup import ONCE_LIT

DEVICE = "ocstrx"
STEADIES = 3
"""AllReduces that nothing disturbs before and after a fault, of which the median counts: of one, a machine
that was busy for a second showed 0.926 of the ring before. Each takes 9 s at emulated scale."""


@dataclass(frozen=True)
class Dying:
    """Nodes that die one after the other, each in the middle of an AllReduce."""

    nodes: tuple[int, ...]
    """In the order in which they die."""
    mode: Mode
    """Fate of their TP group."""
    share: float
    """When, as a share of the time that an undisturbed AllReduce takes, 0..1."""
    known_s: float
    """How long until it is known [s]."""
    steadies: int
    """How many AllReduces nothing disturbs before the first, and after each; at least one."""


@dataclass(frozen=True)
class RingStage:
    """A TP group between two faults."""

    group: Group
    """Its nodes in wiring order."""
    gpus: tuple[int, ...]
    """Its GPUs as light joins them."""

    @property
    def edges(self) -> frozenset[frozenset[int]]:
        """The GPUs that follow each other in the ring."""
        return frozenset(
            frozenset(pair) for pair in zip(self.gpus, (*self.gpus[1:], self.gpus[0]), strict=True)
        )


def steady(number: int, repeat: int) -> str:
    """Return the name of an AllReduce after so many faults that nothing disturbs; repeats count from 1."""
    return f"steady {number}.{repeat}"


def hit(number: int) -> str:
    """Return the name of the AllReduce in which the fault of that number, from 1, comes."""
    return f"hit {number}"


def again(number: int) -> str:
    """Return the name of the AllReduce that is begun again after that fault."""
    return f"again {number}"


def dying_rings(
    nodes: int,
    node_gpus: int,
    hops: list[int],
    tp: list[int],
    after: list[Mode],
    mb: list[float],
    dying: list[str],
    at: float,
    known_us: float,
    rate_bps: float,
) -> list[Experiment]:
    """Return each `dying_ring` of some lists.

    Parameters
    ----------
    nodes
        Nodes of the K-hop ring.
    node_gpus
        R, GPUs of a node; it has as many bundles.
    hops
        K: bundles that leave a node, and how far its links reach.
    tp
        GPUs of the TP group whose ring is used; the other nodes are spare.
    after
        What becomes of the TP group: shrink (its ring closes without the node) or replace (a spare node
        takes part).
    mb
        Size of each AllReduce [MB].
    dying
        Nodes that die, one after the other, each in an AllReduce of its own: 2+0 is node 2, then node 0.
    at
        When a node dies, as a share of an undisturbed AllReduce [%].
    known_us
        How long after a node dies everybody knows, at real scale [us].
    rate_bps
        A GPU's rate, over its two half-bundles [bit/s].
    """
    dies_at, known_s = share_at(at), known_after_s(known_us, "--known-us")
    return [
        dying_ring(
            KHopRing(nodes, node_gpus, bundles),
            gpus,
            size_bytes(size_mb, most_mb=1e9),
            Dying(case, mode, dies_at, known_s, STEADIES),
            gpu_bps=rate_bps,
        )
        for bundles, gpus, mode, size_mb, case in product(hops, tp, after, mb, map(_case, dying))
    ]


def _case(text: str) -> tuple[int, ...]:
    """Return the nodes that die."""
    try:
        return tuple(map(int, text.split("+")))
    except ValueError as error:
        raise ScenarioError(f"{text[:20]} names no nodes that die", "write it like 2+0") from error


def dying_ring(ring: KHopRing, tp_gpus: int, size_bytes: int, dying: Dying, *, gpu_bps: float) -> Experiment:
    """Return ring AllReduces over the first TP group of a K-hop ring, both ways round, while nodes die.

    AllReduces that nothing disturbs are followed by one in which a node dies. Once that is known it is
    begun again on the ring that is left, then come some that nothing disturbs, and so on for each node.

    Parameters
    ----------
    ring
        Which nodes are joined; their GPUs are endpoints.
    tp_gpus
        Of the TP group: a multiple of a node's.
    size_bytes
        Of each AllReduce [bytes].
    dying
        Which nodes die, and what becomes of the group.
    gpu_bps
        A GPU's rate, of its two half-bundles together [bit/s].

    Raises
    ------
    ScenarioError
        If the group is not of whole nodes, or a node that dies is not in it.
    DemandError
        If no group survives a node.

    References
    ----------
    InfiniteHBD, sections 4.2 and 5.2; what becomes of the collective under way the paper does not say.
    """
    if tp_gpus % ring.gpus_per_node or tp_gpus < ring.gpus_per_node:
        raise ScenarioError(
            f"a TP group of {tp_gpus} GPUs on nodes of {ring.gpus_per_node}", "take a multiple of a node's"
        )
    placed = place(ring, frozenset(), tp_gpus // ring.gpus_per_node)
    if not placed:
        raise ScenarioError(f"a TP group of {tp_gpus} GPUs on {ring.nodes} nodes", "take more nodes")
    groups = surviving_groups(ring, placed[0], dying.nodes, dying.mode)
    for node, group in zip(dying.nodes, groups, strict=False):
        if node not in group:
            raise ScenarioError(
                f"node {node} is in no TP group when it dies", f"let one of {', '.join(map(str, group))} die"
            )
    fabric = khop_ring_fabric(ring, gpu_bps=gpu_bps)
    foreseen = foreseen_rings(ring, groups, dying.nodes, real_delay(device_named(DEVICE)))
    gpu_rings = _gpu_rings(ring, fabric, foreseen, groups)
    patterns = [Ring((gpus, gpus[::-1]), size_bytes) for gpus in gpu_rings]
    faults = [
        _fault(ring, fabric, number, dying, closed_form_s(pattern, fabric))
        for number, pattern in enumerate(patterns[:-1], start=1)
    ]
    nodes = [_nodes(number, dying, pattern) for number, pattern in enumerate(patterns)]
    revisions = [
        KnownRevision(fault.name, (hit(number),), chain(fault.name, fabric.gpus, nodes[number]))
        for number, fault in enumerate(faults, start=1)
    ]
    return Experiment(
        fabric,
        chain(f"TP-{tp_gpus}, {size_bytes / 1e6:g} MB", fabric.gpus, nodes[0]),
        ONCE_LIT,
        label=f"K={ring.bundles}, {dying.mode}",
        faults=tuple(faults),
        circuits=foreseen,
        revisions=Revisions(tuple(revisions)),
    )


def stages_of(experiment: Experiment) -> list[RingStage]:
    """Return the TP group of an experiment of `dying_ring` at first, and after each fault."""
    patterns = {node.name: node.pattern for node in experiment.whole_job.collectives}
    per_node = len(experiment.faults[0].gpus)
    stages = []
    for number in range(len(experiment.faults) + 1):
        pattern = patterns[steady(number, 1)]
        assert isinstance(pattern, Ring)
        gpus = pattern.rings[0]
        stages.append(RingStage(tuple(sorted({gpu // per_node for gpu in gpus})), gpus))
    return stages


def steadies_of(experiment: Experiment, number: int) -> list[str]:
    """Return the names of the AllReduces after so many faults that nothing disturbs."""
    names = {node.name for node in experiment.whole_job.collectives}
    return list(takewhile(names.__contains__, (steady(number, repeat) for repeat in count(1))))


def foreseen_of(experiment: Experiment) -> Foreseen:
    """Return the circuits of an experiment of `dying_ring`."""
    assert isinstance(experiment.circuits, Foreseen)
    return experiment.circuits


def _gpu_rings(
    ring: KHopRing, fabric: Fabric, foreseen: Foreseen, groups: Sequence[Group]
) -> list[tuple[int, ...]]:
    """Return the GPUs of each group as light joins them."""
    lit, found = dict(foreseen.first), []
    for group, circuits in zip(groups, [(), *(change.circuits for change in foreseen.changes)], strict=True):
        lit |= dict(circuits)
        rings = light_rings(fabric, lit)
        found.append(next(gpus for gpus in rings if group[0] * ring.gpus_per_node in gpus))
    return found


def _nodes(number: int, dying: Dying, pattern: Ring) -> tuple[Collective, ...]:
    """Return the AllReduces from a fault, after so many, to the next."""
    names = [again(number)] * (number > 0)
    names += [steady(number, repeat) for repeat in range(1, dying.steadies + 1)]
    names += [hit(number + 1)] * (number < len(dying.nodes))
    return tuple(Collective(name, pattern) for name in names)


def _fault(ring: KHopRing, fabric: Fabric, number: int, dying: Dying, takes_s: float) -> Fault:
    """Return the fault of a number, which darkens all ports of its node's OCSes."""
    node, per_node = dying.nodes[number - 1], ring.gpus_per_node
    ports = tuple(
        port for bundle in range(per_node) for port in fabric.used_ports(str(TrxBundle(node, bundle)))
    )
    gpus = tuple(range(node * per_node, (node + 1) * per_node))
    return cut(node_fault(node), ports, hit(number), dying.share * takes_s, dying.known_s, gpus=gpus)
