"""InfiniteHBD's orchestration: which nodes form TP groups, so that their other traffic stays under ToRs.

The paper's letters, with nodes, ToRs and domains counted from 0:

    n, p, d   nodes of the cluster, under a ToR, in a domain of the aggregation layer
    K         hops: the farthest neighbour on the line of nodes that a bundle reaches
    m         nodes of a TP group, its TP size over the GPUs of a node
    F         faulty nodes
    S         the line: the order in which nodes are wired to each other
    c         how many constraints hold: 0 for none, n p / d to keep every TP group inside a domain,
              and n / d more to count all nodes of a ToR as faulty where one is

With all constraints the p sub-lines of a domain hold the same groups: rank k of p TP groups lies
under one ToR. Those p groups form a CP group, whose traffic is what the DCN carries. The search gives
up constraints, alignment first, until the job fits.

Printed and corrected here: Algorithm 3's third loop would repeat nodes; the number of sub-lines in
Algorithm 4 is n p / d, not n d / p, and its faults start anew in every call; the search returns the
last placement that fitted, not the last that it tried.
"""

from bisect import bisect_left
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain, count

import networkx as nx
import numpy as np

from topologies.errors import DemandError

GPUS_PER_NODE, TOR_NODES, DOMAIN_NODES = 8, 2, 256
"""The setting of the paper's figures 17a to 17c, which it does not state: fitted to the paper. Only ToRs of
two nodes keep 85 % of the GPUs aligned up to 7 % faults; domains are of 2,048 GPUs."""
Group = tuple[int, ...]
"""The nodes of a TP group, in the order of its ring."""
CpGroup = tuple[Group, ...]
"""TP groups whose equal ranks exchange bytes over the DCN: p of them, fewer in a job's last."""


@dataclass(frozen=True)
class FatTree:
    """The DCN as the orchestration sees it: node v is under ToR v // p, in domain v // d.

    Raises
    ------
    DemandError
        If the ToRs do not fill the domains, or the domains the cluster.
    """

    nodes: int
    """n, how many nodes there are."""
    tor_nodes: int
    """p, how many nodes a ToR has."""
    domain_nodes: int
    """d, how many nodes a domain has."""

    def __post_init__(self) -> None:
        """Refuse parts that do not fill the whole."""
        n, p, d = self.nodes, self.tor_nodes, self.domain_nodes
        if min(n, p, d) < 1 or d % p or n % d:
            raise DemandError(
                f"{n} nodes in domains of {d} under ToRs of {p}",
                "let a ToR's nodes divide a domain's, and those the cluster's",
            )

    @property
    def sublines(self) -> int:
        """How many sub-lines the domains have together: p in each."""
        return self.nodes * self.tor_nodes // self.domain_nodes

    @property
    def domains(self) -> int:
        """How many domains there are."""
        return self.nodes // self.domain_nodes

    @property
    def all_constraints(self) -> int:
        """The largest number of constraints."""
        return self.sublines + self.domains


def orchestrate(
    tree: FatTree, faulty: AbstractSet[int], *, hops: int, gpus_per_node: int, tp_gpus: int, job_gpus: int
) -> tuple[Group, ...] | None:
    """Return the groups that keep the most constraints of those that have room for a job, None if none have.

    Parameters
    ----------
    tree
        The nodes, and how the DCN joins them.
    faulty
        F, the nodes that no group may use.
    hops
        K, how far a bundle reaches along the line.
    gpus_per_node
        R, the GPUs of a node.
    tp_gpus
        t, the GPUs of a TP group; a multiple of R.
    job_gpus
        s, the GPUs that the job asks for.

    Raises
    ------
    DemandError
        If a faulty node does not exist, the TP size is no multiple of a node, or a number is under 1.

    Notes
    -----
    The number of groups never grows with the constraints, so a binary search finds the most. It takes
    O(n log n).

    References
    ----------
    InfiniteHBD, section 4.3 and appendix D, algorithms 1 and 5.

    Examples
    --------
    >>> tree = FatTree(nodes=16, tor_nodes=4, domain_nodes=8)
    >>> found = orchestrate(tree, {5}, hops=2, gpus_per_node=4, tp_gpus=8, job_gpus=32)
    >>> found
    ((8, 12), (9, 13), (10, 14), (11, 15))
    """
    if gpus_per_node < 1 or tp_gpus % gpus_per_node:
        raise DemandError(
            f"TP groups of {tp_gpus} GPUs on nodes of {gpus_per_node}", "let the TP size be whole nodes"
        )
    if job_gpus < 1:
        raise DemandError(f"a job of {job_gpus} GPUs", "ask for at least one")
    group_nodes = tp_gpus // gpus_per_node
    _check(tree, faulty, hops, group_nodes)
    groups = cache(partial(fat_tree_groups, tree, faulty, hops, group_nodes))
    constraints = range(tree.all_constraints + 1)
    most = bisect_left(constraints, True, key=lambda c: len(groups(c)) * tp_gpus < job_gpus) - 1
    return tuple(groups(most)) if most >= 0 else None


def unconstrained(tree: FatTree, faulty: AbstractSet[int], hops: int, group_nodes: int) -> tuple[Group, ...]:
    """Return the baseline: the groups that the line has room for, wherever ToRs and domains end.

    Notes
    -----
    The paper's greedy baseline "randomly selects nodes and uses the first permutation that meets the
    requirements" and says no more. This is Algorithm 4 with no constraint.

    References
    ----------
    InfiniteHBD, section 6.4.
    """
    _check(tree, faulty, hops, group_nodes)
    return tuple(fat_tree_groups(tree, faulty, hops, group_nodes, 0))


def fat_tree_groups(
    tree: FatTree, faulty: AbstractSet[int], hops: int, group_nodes: int, constraints: int
) -> list[Group]:
    """Return the groups that keep the first ``constraints`` constraints.

    References
    ----------
    InfiniteHBD, appendix D, algorithm 4.
    """
    aligned, confined = max(0, constraints - tree.sublines), min(tree.sublines, constraints)
    avoided = faulty | _tor_mates(tree, faulty, aligned * tree.domain_nodes)
    line = deployment_line(tree)
    length = tree.domain_nodes // tree.tor_nodes
    groups = []
    for start in range(0, confined * length, length):
        groups += line_groups(line[start : start + length], avoided, hops, group_nodes)
    return groups + line_groups(line[confined * length :], avoided, hops, group_nodes)


def line_groups(line: Sequence[int], faulty: AbstractSet[int], hops: int, group_nodes: int) -> list[Group]:
    """Return groups cut one after the other off the connected parts of a line.

    Two healthy nodes are connected if they stand at most ``hops`` apart; what is left of a part, less
    than a group, is idle. No group goes on through a node that `cut_nodes` names: the one that reaches it is
    given up, and the next starts there, which loses the fewest.

    References
    ----------
    InfiniteHBD, section 4.3, algorithm 2 (Orchestration-DCN-free).

    Examples
    --------
    >>> line_groups(range(8), {2}, 2, 3)
    [(0, 1, 3), (4, 5, 6)]
    """
    groups: list[Group] = []
    group: list[int] = []
    for position in _healthy(line, faulty):
        if group and position - group[-1] > hops:
            group = []
        elif len(group) > 1 and _clash(hops, group[-2], group[-1], position):
            group = group[-1:]
        group.append(position)
        if len(group) == group_nodes:
            groups.append(tuple(line[each] for each in group))
            group = []
    return groups


def cut_nodes(line: Sequence[int], faulty: AbstractSet[int], hops: int) -> list[int]:
    """Return the nodes of a line through which no group can pass: one bundle would light both its paths.

    With an odd number of hops, three or more, the paths over the most hops either way are in one bundle.
    A node needs both between two runs of K - 1 faulty nodes. The paper's graph model ignores that.

    Examples
    --------
    >>> cut_nodes(range(7), {1, 2, 4, 5}, 3)
    [3]
    """
    at = _healthy(line, faulty)
    around = zip(at, at[1:], at[2:], strict=False)
    return [line[node] for before, node, after in around if _clash(hops, before, node, after)]


def deployment_line(tree: FatTree) -> list[int]:
    """Return the order in which nodes are wired: sub-line i has node i of every ToR.

    References
    ----------
    InfiniteHBD, section 4.3 and appendix D, algorithm 3.

    Examples
    --------
    >>> deployment_line(FatTree(8, 2, 4))
    [0, 2, 4, 6, 1, 3, 5, 7]
    """
    return [node for index in range(tree.tor_nodes) for node in range(index, tree.nodes, tree.tor_nodes)]


def whole_tp_groups(tree: FatTree, gpus: int, tp_gpus: int) -> int:
    """Return how many TP groups a number of GPUs holds in whole CP groups.

    One TP group more can cost a constraint: with 115 of them instead of 114 on 90 % of 4,096 GPUs, 5 %
    of the nodes faulty, the least crossing share is 3.4 instead of 0.7 % (mean of 40 seeds).

    Raises
    ------
    DemandError
        If a TP group has no GPU.

    Examples
    --------
    >>> whole_tp_groups(FatTree(512, 2, 256), 4096 * 90 // 100, 32)
    114
    """
    if tp_gpus < 1:
        raise DemandError(f"TP groups of {tp_gpus} GPUs", "let the TP size be whole nodes")
    return gpus // tp_gpus // tree.tor_nodes * tree.tor_nodes


def cp_groups(tree: FatTree, placement: Sequence[Group], tp_groups: int) -> list[CpGroup]:
    """Return a job on a placement in CP groups, those that fill their ToRs first.

    Parameters
    ----------
    tree
        What the placement was made for.
    placement
        Where TP groups can be: groups that share no node.
    tp_groups
        G, how many of them the job takes.

    Raises
    ------
    DemandError
        If the placement does not have as many.

    Notes
    -----
    The paper does not define which groups a job takes. Here the g-th groups of a domain's p sub-lines
    form a CP group; groups without partners are paired in the order of their ToRs. Whole CP groups are
    taken, those first that leave the fewest nodes under their ToRs to others; only where p does not
    divide G is the last one incomplete.
    """
    _check_size(placement, tp_groups)
    rows: dict[tuple[int, int], list[Group]] = {}
    seen: dict[tuple[int, int], count[int]] = {}
    for group in placement:
        domain, subline = group[0] // tree.domain_nodes, group[0] % tree.tor_nodes
        rank = next(seen.setdefault((domain, subline), count()))
        rows.setdefault((domain, rank), []).append(group)
    whole = [tuple(row) for row in rows.values() if len(row) == tree.tor_nodes]
    single = chain.from_iterable(row for row in rows.values() if len(row) < tree.tor_nodes)
    in_order = sorted(single, key=lambda group: (group[0] // tree.tor_nodes, group))
    found = [*whole, *_paired(in_order, tree.tor_nodes)]
    found.sort(key=lambda cp: (tree.tor_nodes - len(cp), _others(tree, cp)))
    return _first(found, tp_groups)


def shuffled_cp_groups(
    tree: FatTree, placement: Sequence[Group], tp_groups: int, rng: np.random.Generator
) -> list[CpGroup]:
    """Return a job of groups in random order, paired as they come: what no selection gives.

    Parameters
    ----------
    tree, placement, tp_groups
        As of `cp_groups`.
    rng
        Draws the order.
    """
    _check_size(placement, tp_groups)
    drawn = rng.permutation(len(placement))[:tp_groups]
    return _paired([placement[index] for index in drawn.tolist()], tree.tor_nodes)


def best_cp_groups(tree: FatTree, job: Sequence[CpGroup]) -> list[CpGroup]:
    """Return a job's TP groups paired and their ranks ordered so that the least CP traffic leaves its ToR.

    Two TP groups keep under ToRs as many ranks as they share ToRs, since ranks can be numbered in any order:
    the ring inside the HBD is of nodes, not of ranks. The best pairs are a matching of the largest weight.

    Parameters
    ----------
    tree
        Which node is under which ToR, of two nodes each.
    job
        The job's CP groups, whose TP groups are paired anew.

    Raises
    ------
    DemandError
        If ToRs do not have two nodes: CP groups of more TP groups are edges of a hypergraph.
    """
    if tree.tor_nodes != 2:
        raise DemandError(f"the best pairs of TP groups under ToRs of {tree.tor_nodes}", "take ToRs of two")
    groups = [group for cp in job for group in cp]
    shared = _shared_tors(tree, groups)
    # Part by part: on 1,024 nodes three times as fast as all at once.
    parts = [shared.subgraph(part).copy() for part in nx.connected_components(shared)]
    pairs = [pair for part in parts for pair in nx.max_weight_matching(part)]
    paired = {index for pair in pairs for index in pair}
    left = [group for index, group in enumerate(groups) if index not in paired]
    best = [(groups[a], _beside(tree, groups[a], groups[b])) for a, b in map(sorted, pairs)]
    return [*sorted(best), *_paired(left, tree.tor_nodes)]


def least_crossing_share(tree: FatTree, job: Sequence[CpGroup]) -> float:
    """Return X_mate, which no numbering of ranks is below: the least share of CP rings' edges that cross.

    Least, not attainable: a ring leaves each ToR that the job does not fill, at least once, but the nodes of
    a ToR are rarely in TP groups that all share their ToRs. It is 0 if the job fills its ToRs.

    Parameters
    ----------
    tree
        Which node is under which ToR.
    job
        The job's CP groups, whole ones.

    Notes
    -----
    With two nodes under a ToR it is the share of the job's nodes whose mate is not in the job.
    """
    tors = np.array([node for cp in job for group in cp for node in group]) // tree.tor_nodes
    if not len(tors):
        return 0.0
    _, nodes = np.unique(tors, return_counts=True)
    return float((nodes < tree.tor_nodes).sum() / len(tors))


def rank_crossing_share(tree: FatTree, job: Sequence[CpGroup]) -> float:
    """Return X_rank: the share of the CP rings' edges that join nodes under different ToRs; 0 of none.

    In a CP group rank k of each TP group sends to rank k of the next, and of the last to the first. Of
    `best_cp_groups` it is X_best.

    Parameters
    ----------
    tree, job
        As of `least_crossing_share`.
    """
    pairs = rank_pairs(job)
    crossing = sum(a // tree.tor_nodes != b // tree.tor_nodes for a, b in pairs)
    return crossing / len(pairs) if pairs else 0.0


def rank_pairs(job: Sequence[CpGroup]) -> list[tuple[int, int]]:
    """Return which node sends to which in the CP rings: rank k of a TP group to rank k of the next."""
    return [
        pair
        for cp in job
        if len(cp) > 1
        for group, following in zip(cp, (*cp[1:], cp[0]), strict=True)
        for pair in zip(group, following, strict=True)
    ]


def _healthy(line: Sequence[int], faulty: AbstractSet[int]) -> list[int]:
    """Return the positions of the healthy nodes of a line."""
    return [position for position, node in enumerate(line) if node not in faulty]


def _clash(hops: int, before: int, position: int, after: int) -> bool:
    """Return whether a node would light the paths over the most hops both ways, and they share a bundle."""
    return hops % 2 == 1 and hops > 1 and position - before == after - position == hops


def _tor_mates(tree: FatTree, faulty: AbstractSet[int], below: int) -> set[int]:
    """Return all nodes of the ToRs that have a faulty node, of nodes under a number."""
    tors = {node // tree.tor_nodes for node in faulty if node < below}
    return {node for tor in tors for node in range(tor * tree.tor_nodes, (tor + 1) * tree.tor_nodes)}


def _others(tree: FatTree, cp: CpGroup) -> int:
    """Return how many nodes under its ToRs a CP group leaves to others."""
    nodes = [node // tree.tor_nodes for group in cp for node in group]
    return len(set(nodes)) * tree.tor_nodes - len(nodes)


def _shared_tors(tree: FatTree, groups: Sequence[Group]) -> "nx.Graph[int]":
    """Return which groups share ToRs, joined with the number of these as weight."""
    under: dict[int, list[int]] = {}
    for index, group in enumerate(groups):
        for node in group:
            under.setdefault(node // tree.tor_nodes, []).append(index)
    shared: nx.Graph[int] = nx.Graph()
    for a, b in (held for held in under.values() if len(set(held)) == 2):
        weight = shared.get_edge_data(a, b, {"weight": 0})["weight"]
        shared.add_edge(a, b, weight=weight + 1)
    return shared


def _beside(tree: FatTree, group: Group, other: Group) -> Group:
    """Return another group's nodes in the order of those under whose ToRs they are; the rest fills up."""
    left = list(other)
    mates: list[int | None] = []
    for node in group:
        mate = next((each for each in left if each // tree.tor_nodes == node // tree.tor_nodes), None)
        mates.append(mate)
        if mate is not None:
            left.remove(mate)
    return tuple(left.pop(0) if mate is None else mate for mate in mates)


def _paired(groups: Sequence[Group], size: int) -> list[CpGroup]:
    """Return the groups in CP groups, as they come."""
    return [tuple(groups[start : start + size]) for start in range(0, len(groups), size)]


def _first(found: Sequence[CpGroup], tp_groups: int) -> list[CpGroup]:
    """Return the first CP groups of a number of TP groups, the last cut where it is too many."""
    taken: list[CpGroup] = []
    left = tp_groups
    for cp in found:
        if not left:
            break
        taken.append(cp[:left])
        left -= len(taken[-1])
    return taken


def _check(tree: FatTree, faulty: AbstractSet[int], hops: int, group_nodes: int) -> None:
    if hops < 1 or group_nodes < 1:
        raise DemandError(
            f"groups of {group_nodes} nodes over {hops} hops", "ask for at least one node and one hop"
        )
    for node in faulty:
        if not 0 <= node < tree.nodes:
            raise DemandError(f"faulty node {node} of nodes 0 to {tree.nodes - 1}")


def _check_size(placement: Sequence[Group], tp_groups: int) -> None:
    if not 1 <= tp_groups <= len(placement):
        raise DemandError(
            f"a job of {tp_groups} TP groups on a placement of {len(placement)}",
            "ask for at least one and for no more than there are",
        )
