"""TopoOpt's TopologyFinder: which servers a job's circuits join, for its whole training.

    n        servers; d ports of each
    S_k      bytes that the members of AllReduce group k sum, g_k of them
    W_k      2 (g_k - 1) S_k: what they send in a ring; W_A of all groups together
    T        model-parallel (MP) bytes from server to server in one iteration; W_MP of all together
    d_A      ports of each server for rings, d_MP for matchings by T
    coin     a jump that every server has a circuit for

The classes of groups divide d_A (`controller.schedulers.ring_classes`), and each puts the rings on its share
that `controller.schedulers.totient` selects. d_MP goes to `controller.schedulers.blossom_rounds`.

A duplex circuit joins two ports both ways: a ring takes two ports of each member and is led in both
directions; one port and one direction, if there are two members. A simplex circuit goes one way, and a ring
takes one port. Algorithms 1 to 3 read as simplex; the artifact, the prototype and the published path lengths
are duplex.

The paper leaves open what follows. Rings step through the list of a group's members, ascending, so these
need not be strided by n / g. A class without ports runs one ring over the coins of others, that of the
fewest hops. With fewer different rings than a class has ports for, they are taken again as parallel circuits.

References
----------
TopoOpt (NSDI 2023), sections 4.2 and 4.3 and Algorithm 1; its artifact FlexNet, ``network.cc``.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle, islice
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from controller.circuits.foreseen import OcsCircuits
from controller.schedulers.blossom_rounds import Pair, blossom_rounds
from controller.schedulers.coin_change import coin_change
from controller.schedulers.demand import Matrix, checked_matrix
from controller.schedulers.ring_classes import RingClass, ring_classes, ring_counts, ring_degree
from controller.schedulers.totient import Rule, ring_over, selected_jumps, totient_jumps
from topologies.errors import DemandError, ScenarioError
from topologies.fabric import Fabric, Nic

Ring = tuple[int, ...]
"""Servers, each followed by that to which it sends, the last by the first."""
PRIMES_ABOVE = 2048
"""Of groups with more members only prime steps are candidates."""


@dataclass(frozen=True)
class Group:
    """Servers that sum gradients by AllReduce."""

    members: tuple[int, ...]
    """Its servers."""
    bytes: int
    """S, what each has and all sum [bytes]."""


@dataclass(frozen=True)
class Plan:
    """The circuits of a job, and the rings that its AllReduces take."""

    servers: int
    """n, numbered from 0."""
    degree: int
    """d, ports of each server."""
    duplex: bool
    """Whether a circuit goes both ways."""
    pairs: tuple[Pair, ...]
    """The circuits: duplex two servers, simplex who sends and who receives. Those of rings come first, each
    ring from server to server; parallel circuits are there several times."""
    coins: tuple[int, ...]
    """The jumps for which every server has a circuit of a ring, ascending; duplex with p also n - p."""
    rings: tuple[tuple[Group, tuple[Ring, ...]], ...]
    """The rings of each group, members ascending; one that is there twice has two circuits at each hop."""

    def rings_of(self, members: Sequence[int]) -> tuple[Ring, ...]:
        """Return the directed rings of a group, whatever the order of its members.

        Raises
        ------
        DemandError
            If the plan was not made for such a group.
        """
        found = self._rings.get(tuple(sorted(members)))
        if found is None:
            raise DemandError(
                f"no rings over servers {', '.join(map(str, members))} were planned",
                "plan with this group among the others",
            )
        return found

    @cached_property
    def _rings(self) -> dict[tuple[int, ...], tuple[Ring, ...]]:
        return {group.members: rings for group, rings in self.rings}


def topology_finder(
    groups: Sequence[Group],
    transfers: ArrayLike,
    *,
    servers: int,
    degree: int,
    duplex: bool = True,
    mp_degree: Literal["proportional"] | int = "proportional",
    rule: Rule = "projected",
    count_allreduce: bool = True,
) -> Plan:
    """Return the circuits for a job's AllReduce groups and its model-parallel transfers (TopologyFinder).

    Parameters
    ----------
    groups
        Who sums how much. Groups of the same members are added up, those of one member left out.
    transfers
        T, shape (n, n) [bytes].
    servers
        n.
    degree
        d.
    duplex
        Whether circuits go both ways.
    mp_degree
        d_MP: in proportion to W_MP, or fixed. Duplex, it is rounded down so that d_A is even.
    rule
        How jumps are selected. With ``artifact`` classes are also served as its ``network.cc`` does, whose
        quotient is upside down: the heaviest takes all ports but those of the ring +1.
    count_allreduce
        Whether the circuits of rings discount the MP demand of the servers that they join.

    Raises
    ------
    DemandError
        If transfers or groups are not of these servers, or make no sense.
    ScenarioError
        If there are too few ports for a ring.

    References
    ----------
    TopoOpt, Algorithm 1.
    """
    matrix = _checked_transfers(transfers, servers)
    sums = _summed(groups, servers)
    if servers == 1:
        return Plan(1, degree, duplex, (), (), ())
    classes = ring_classes(sums)
    ring_bytes, mp_bytes = sum(each.ring_bytes for each in classes), float(matrix.sum())
    share = ring_degree(ring_bytes, mp_bytes, servers, degree, duplex=duplex, mp_degree=mp_degree)
    counts, reserved = ring_counts(classes, share, servers, duplex=duplex, rule=rule)
    steps = [_steps(each.size, count, duplex, rule) for each, count in zip(classes, counts, strict=True)]
    pairs = RingClass([tuple(range(servers))], 0).circuits(1, duplex) if reserved else []
    for each, chosen in zip(classes, steps, strict=True):
        pairs += [pair for step in chosen for pair in each.circuits(step, duplex)]
    joined = _circuits_between(pairs, servers, duplex)
    coins = _coins(joined)
    rings = [
        (Group(members, sums[members]), _directed(members, chosen, duplex))
        for each, own in zip(classes, steps, strict=True)
        for chosen in [own or [_multi_hop_step(each, coins, servers, duplex)]]
        for members in each.groups
    ]
    pairs += blossom_rounds(matrix, joined, degree, duplex=duplex, discounted=count_allreduce)
    return Plan(servers, degree, duplex, tuple(pairs), coins, tuple(rings))


def panel_circuits(
    fabric: Fabric,
    plan_or_pairs: Plan | Sequence[Pair],
    *,
    duplex: bool = True,
    among: Sequence[int] | None = None,
) -> tuple[OcsCircuits, ...]:
    """Return circuits between servers as those of a patch panel, to be foreseen as its first.

    Each circuit takes the lowest free NIC at either end. A duplex ring takes two NICs of each member, the
    lower towards the next, the other towards the one before: with coins 1 and 5 NICs 0 to 3 lead to
    servers s + 1, s - 1, s + 5 and s - 5.

    Parameters
    ----------
    fabric
        All NICs are on one OCS, as of `topologies.patch_panel.patch_panel_fabric`.
    plan_or_pairs
        A plan; or circuits, as `Plan.pairs`.
    duplex
        Whether circuits go both ways, where no plan says so.
    among
        The servers of a shard: server i of the plan is the i-th of these. By default the first of the fabric.

    Raises
    ------
    ScenarioError
        If NICs are not on one OCS, or a server is not there or has fewer NICs than circuits.
    """
    if isinstance(plan_or_pairs, Plan):
        pairs, duplex = plan_or_pairs.pairs, plan_or_pairs.duplex
    else:
        pairs = tuple(plan_or_pairs)
    if [switch.kind for switch in fabric.switches] != ["ocs"]:
        raise ScenarioError(f"the NICs of {fabric.name!r} are not on one OCS", "take topologies.patch_panel")
    place = range(len(fabric.servers)) if among is None else among
    if len(set(place)) < len(place) or any(a == b for a, b in pairs):
        raise ScenarioError(
            "a server is in a shard twice, or joined to itself",
            "name each server once, and join it to others",
        )
    sends = Counter[int]()
    receives = sends if duplex else Counter[int]()
    lit: list[Pair] = []
    for run in _rings_whole(pairs):
        tails = [_free_port(fabric, place, sends, a) for a, _ in run]
        heads = [_free_port(fabric, place, receives, b) for _, b in run]
        for a, b in zip(tails, heads, strict=True):
            lit += [(a, b), (b, a)] if duplex else [(a, b)]
    return ((fabric.switches[0].name, tuple(lit)),)


def _checked_transfers(transfers: ArrayLike, servers: int) -> Matrix:
    matrix = checked_matrix(transfers)
    if len(matrix) != servers:
        raise DemandError(f"transfers between {len(matrix)} servers in a job of {servers}")
    np.fill_diagonal(matrix, 0.0)
    return matrix


def _summed(groups: Sequence[Group], servers: int) -> dict[tuple[int, ...], int]:
    """Return how much the members of each group sum, those of two members and more."""
    sums: dict[tuple[int, ...], int] = {}
    for group in groups:
        members = tuple(sorted(group.members))
        if len(set(members)) < len(members) or not set(members) <= set(range(servers)) or group.bytes < 0:
            raise DemandError(
                f"a group of servers {', '.join(map(str, group.members))} that sum {group.bytes} bytes",
                f"take each of servers 0 to {servers - 1} once at most, and no negative number of bytes",
            )
        if len(members) > 1:
            sums[members] = sums.get(members, 0) + group.bytes
    return sums


def _steps(size: int, count: int, duplex: bool, rule: Rule) -> list[int]:
    """Return the steps of a class's rings, taken again from the first where there are too few."""
    candidates = totient_jumps(size, size, duplex=duplex, primes_only=size > PRIMES_ABOVE)
    return list(islice(cycle(selected_jumps(candidates, count, size, rule=rule)), count))


def _circuits_between(pairs: Sequence[Pair], servers: int, duplex: bool) -> NDArray[np.intp]:
    """Return how many circuits lead from server to server."""
    counts = np.zeros((servers, servers), dtype=np.intp)
    np.add.at(counts, tuple(np.array(pairs).T), 1)
    return counts + counts.T if duplex else counts


def _coins(joined: NDArray[np.intp]) -> tuple[int, ...]:
    """Return the jumps for which every server has a circuit."""
    server = np.arange(len(joined))
    jumps = np.flatnonzero(joined[0]).tolist()
    return tuple(jump for jump in jumps if joined[server, (server + jump) % len(joined)].all())


def _directed(members: Sequence[int], steps: Sequence[int], duplex: bool) -> tuple[Ring, ...]:
    """Return the rings of a group: duplex both directions of each, but of two members there is one."""
    size = len(members)
    both = [(step, size - step) if duplex and size > 2 else (step,) for step in steps]
    return tuple(ring_over(members, step) for each in both for step in each)


def _multi_hop_step(each: RingClass, coins: tuple[int, ...], servers: int, duplex: bool) -> int:
    """Return the step whose rings take the fewest hops over circuits of others."""
    hops = coin_change(servers, coins).relays + 1
    members = np.array(each.groups)
    steps = totient_jumps(each.size, each.size, duplex=duplex, primes_only=each.size > PRIMES_ABOVE)
    offsets = [(np.roll(members, -step, axis=1) - members) % servers for step in steps]
    return steps[int(np.argmin([hops[along].sum() for along in offsets]))]


def _rings_whole(pairs: Sequence[Pair]) -> Iterator[Sequence[Pair]]:
    """Yield circuits one by one, but those of a ring together."""
    start = 0
    while start < len(pairs):
        end = start + 1
        while end < len(pairs) and pairs[end][0] == pairs[end - 1][1] != pairs[start][0]:
            end += 1
        if end - start < 3 or pairs[end - 1][1] != pairs[start][0]:
            end = start + 1
        yield pairs[start:end]
        start = end


def _free_port(fabric: Fabric, place: Sequence[int], taken: Counter[int], server: int) -> int:
    """Return the panel's port of the lowest free NIC of a server of the plan, which is taken from now on."""
    if not (0 <= server < len(place) and 0 <= place[server] < len(fabric.servers)):
        raise ScenarioError(
            f"circuits of server {server} on {len(place)} servers", "take a larger fabric or shard"
        )
    nic = Nic(place[server], taken[server])
    if nic.nic >= fabric.servers[nic.server].nics:
        raise ScenarioError(f"server {nic.server} has {nic.nic} NICs and more circuits", "give it more")
    taken[server] += 1
    return fabric.peer(fabric.nic_port(nic)).number
