"""High-bandwidth domains (HBDs) with faulty nodes: which healthy GPUs no tensor-parallel (TP) group can use.

Every function takes states of faulty nodes, an array of booleans whose last axis is the nodes in
wiring order, and returns the wasted GPUs of each state. A TP group needs ``tp_gpus`` healthy GPUs
that the architecture can join. Of nR GPUs in nodes of R, with F faulty nodes and groups that use
U GPUs, nR - R|F| - U are wasted. The waste ratio is over all nR GPUs, the faulty ones included.

The architectures differ in which GPUs a group may take:

* *big switch*: any; what is left is the remainder of the healthy GPUs, and no architecture wastes less.
* *InfiniteHBD*: nodes of one component. Node i has links to i +- 1 .. K, so K or more consecutive
  faulty nodes cut the line, and fewer do not. The paper's graph model lets a node use any two links; with
  *one path a bundle* it does not use -K and +K at once where K is odd, for they are in one bundle.
* *islands* (NVL-H): GPUs of one HBD of H. With H = 64 this is also the paper's formula for a TPUv4 cube.
* *blocks* (TPUv4): a cube of 64 GPUs is cut into fixed blocks; larger groups take whole healthy cubes.
* *SiP-Ring*: fixed rings of as many GPUs as a group has; a ring with a fault carries no group.

References
----------
InfiniteHBD, sections 2.1, 4.2 and 6.2, and appendix C. The paper defines neither TPUv4's blocks
nor SiP-Ring further; by these definitions they are equal up to 64 GPUs.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from controller.schedulers.infinitehbd import line_groups
from topologies.errors import FabricError

States = NDArray[np.bool_]
"""Which nodes are faulty: states x nodes, or the nodes of one state."""
Gpus = NDArray[np.int64]
"""GPUs, of each state."""
Waste = Callable[[States, int, int], Gpus]
"""From states, GPUs per node and GPUs of a TP group to the wasted GPUs of each state."""

CUBE_GPUS = 64
"""GPUs of a TPUv4 cube of 4 x 4 x 4."""


def big_switch_waste(faulty: States, node_gpus: int, tp_gpus: int) -> Gpus:
    """Return the remainder where any healthy GPUs form groups: a lower bound for every architecture."""
    _check(faulty, node_gpus, tp_gpus)
    return _healthy(faulty, node_gpus) % tp_gpus


def infinitehbd_waste(
    faulty: States, node_gpus: int, tp_gpus: int, *, hops: int, closed: bool = True
) -> Gpus:
    """Return the waste in the components of a K-hop ring, or of a K-hop line.

    Parameters
    ----------
    faulty, node_gpus, tp_gpus
        As for every architecture; a group takes whole nodes.
    hops
        K: a node has links to the K nodes on either side.
    closed
        Whether the ends are joined to a ring.

    Raises
    ------
    FabricError
        If the sizes do not fit each other, or a ring has fewer than 2K + 1 nodes.
    """
    _check(faulty, node_gpus, tp_gpus)
    left = component_sizes(faulty, hops, closed=closed) % (tp_gpus // node_gpus)
    return _of_gpus(left.sum(axis=-1) * node_gpus)


def one_path_waste(faulty: States, node_gpus: int, tp_gpus: int, *, hops: int) -> Gpus:
    """Return the waste in a K-hop ring whose bundles light one path each, K odd and three or more.

    A node with K - 1 faulty ones on either side would need -K and +K, which are in one bundle: it ends a
    group. A ring with such a node is opened before it, or behind it, whichever leaves less; the rest is the
    placement that the planner makes (`line_groups`).

    Raises
    ------
    FabricError
        As `infinitehbd_waste`.
    """
    wasted = np.atleast_1d(infinitehbd_waste(faulty, node_gpus, tp_gpus, hops=hops))
    states = faulty.reshape(-1, faulty.shape[-1])
    ends = _between_runs(states, hops)
    for index in np.flatnonzero(ends.any(axis=1)).tolist():
        groups = _most_groups(states[index], int(ends[index].argmax()), hops, tp_gpus // node_gpus)
        wasted.reshape(-1)[index] = _healthy(states[index], node_gpus) - groups * tp_gpus
    return wasted.reshape(faulty.shape[:-1])


def island_waste(faulty: States, node_gpus: int, tp_gpus: int, *, hbd_gpus: int) -> Gpus:
    """Return the waste in separate HBDs of consecutive nodes: the remainder of each one's healthy GPUs."""
    _check(faulty, node_gpus, tp_gpus)
    healthy = _healthy(_islands(faulty, node_gpus, hbd_gpus), node_gpus)
    return _of_gpus((healthy % tp_gpus).sum(axis=-1))


def block_waste(faulty: States, node_gpus: int, tp_gpus: int) -> Gpus:
    """Return the waste in TPUv4's cubes: blocks with a fault, or whole cubes for groups above 64 GPUs.

    Raises
    ------
    FabricError
        If the sizes do not fit each other, or groups up to 64 GPUs do not divide a cube.
    """
    if tp_gpus <= CUBE_GPUS:
        _islands(faulty, node_gpus, CUBE_GPUS)
        if tp_gpus <= 0 or CUBE_GPUS % tp_gpus:
            raise FabricError(f"blocks of {tp_gpus} GPUs do not divide a cube of 64", "take 8, 16, 32 or 64")
        return sip_ring_waste(faulty, node_gpus, tp_gpus)
    _check(faulty, node_gpus, tp_gpus)
    cubes = (~_islands(faulty, node_gpus, CUBE_GPUS).any(axis=-1)).sum(axis=-1)
    return _of_gpus(_healthy(faulty, node_gpus) - CUBE_GPUS * cubes // tp_gpus * tp_gpus)


def sip_ring_waste(faulty: States, node_gpus: int, tp_gpus: int) -> Gpus:
    """Return the healthy GPUs of fixed rings, each of one group, that have a fault."""
    return island_waste(faulty, node_gpus, tp_gpus, hbd_gpus=tp_gpus)


def component_sizes(faulty: States, hops: int, *, closed: bool = True) -> Gpus:
    """Return the healthy nodes of each component of a K-hop ring or line.

    Returns
    -------
    NDArray
        States x components, in wiring order, filled up with zeros; in a ring the component that
        runs over node 0 comes first.

    Raises
    ------
    FabricError
        If K is below 1, or a ring has fewer than 2K + 1 nodes.

    Examples
    --------
    >>> component_sizes(np.isin(np.arange(12), [3, 4, 9, 10]), 2, closed=False).tolist()
    [3, 4, 1]
    """
    nodes = faulty.shape[-1]
    if hops < 1 or (closed and nodes < 2 * hops + 1):
        raise FabricError(
            f"a {hops}-hop {'ring' if closed else 'line'} of {nodes} nodes",
            "take K of at least 1, and at least 2K + 1 nodes in a ring",
        )
    states = faulty.reshape(-1, nodes)
    cut = _cut(states, hops, closed)
    # Few states of a trace are cut: to number the components of those alone is 8x faster (13 ms, 1.7 ms).
    parted = cut.any(axis=1)
    parts = _parts(states[parted], cut[parted], closed)
    sizes = np.zeros((len(states), parts.shape[1]), dtype=np.int64)
    sizes[:, 0] = _healthy(states, 1)
    sizes[parted] = parts
    return sizes.reshape(*faulty.shape[:-1], -1)


def waste_bound(fault_probability: float, node_gpus: int, tp_gpus: int, hops: int) -> float:
    """Return the paper's upper bound of the waste ratio that cuts cause: 2 (t - R) P^K.

    Notes
    -----
    It counts a cut from both sides, a whole group at each, and a cut's loss of t - R GPUs R times.
    The remainder that every architecture has is not in it.

    References
    ----------
    InfiniteHBD, appendix C, table 7.
    """
    return 2 * (tp_gpus - node_gpus) * fault_probability**hops


def expected_waste(fault_probability: float, node_gpus: int, tp_gpus: int, hops: int) -> float:
    """Return the expected waste ratio of a long K-hop line whose nodes fail independently.

    Notes
    -----
    P probability that a node is faulty, m nodes of a group, q = 1 - P^K. After each healthy node a cut
    follows with probability P^K, so a component has j nodes with probability q^(j-1) P^K. Components per
    node, (1-P) P^K, times the mean of j mod m: (1-P) P^K sum(r q^(r-1)) / sum(q^r), r = 0 .. m-1.
    """
    cut = fault_probability**hops
    left = np.arange(tp_gpus // node_gpus)
    powers = (1 - cut) ** left
    return float((1 - fault_probability) * cut * (left * powers).sum() / (1 - cut) / powers.sum())


ONE_PATH = "K=3, one path a bundle"
ARCHITECTURES: dict[str, Waste] = {
    "InfiniteHBD K=2": partial(infinitehbd_waste, hops=2),
    "InfiniteHBD K=3": partial(infinitehbd_waste, hops=3),
    ONE_PATH: partial(one_path_waste, hops=3),
    "InfiniteHBD K=4": partial(infinitehbd_waste, hops=4),
    "big switch": big_switch_waste,
    "NVL-36": partial(island_waste, hbd_gpus=36),
    "NVL-72": partial(island_waste, hbd_gpus=72),
    "NVL-576": partial(island_waste, hbd_gpus=576),
    "TPUv4 mod": partial(island_waste, hbd_gpus=CUBE_GPUS),
    "TPUv4 blocks": block_waste,
    "SiP-Ring": sip_ring_waste,
}
"""Every architecture of the paper's fault study by its name; InfiniteHBD as a ring."""


def _check(faulty: States, node_gpus: int, tp_gpus: int) -> None:
    if faulty.dtype != np.bool_ or faulty.ndim < 1 or faulty.shape[-1] < 1:
        raise FabricError(
            "faulty nodes are not an array of booleans", "give states x nodes, at least one node"
        )
    if node_gpus < 1 or tp_gpus < 1 or tp_gpus % node_gpus:
        raise FabricError(
            f"TP groups of {tp_gpus} GPUs on nodes of {node_gpus}", "take a multiple of a node's GPUs"
        )


def _healthy(faulty: States, node_gpus: int) -> Gpus:
    # As a sum of integers: to count booleans in rows of 8 nodes takes 6x longer (4.5 ms, 0.7 ms).
    faults = np.einsum("...n->...", faulty.astype(np.int32))
    return _of_gpus((faulty.shape[-1] - faults) * node_gpus)


def _islands(faulty: States, node_gpus: int, gpus: int) -> States:
    """Return states x islands x nodes, for islands of so many GPUs."""
    nodes, odd = divmod(gpus, node_gpus)
    if odd or nodes < 1 or faulty.shape[-1] % nodes:
        raise FabricError(
            f"{faulty.shape[-1]} nodes of {node_gpus} GPUs cannot be divided into HBDs of {gpus} GPUs",
            "take a number of nodes that can",
        )
    return faulty.reshape(*faulty.shape[:-1], -1, nodes)


def _parts(states: States, cut: States, closed: bool) -> Gpus:
    """Return the healthy nodes of each component of states that are cut, in wiring order."""
    starts = cut & ~_shifted(cut, 1, closed)
    component = np.cumsum(starts, axis=1, dtype=np.int64)
    if closed:  # what follows the last cut is joined to what precedes the first
        component %= np.maximum(component[:, -1:], 1)
    width = int(component.max(initial=0)) + 1
    component += width * np.arange(len(states))[:, None]
    return np.bincount(component[~states], minlength=width * len(states)).reshape(len(states), width)


def _between_runs(states: States, hops: int) -> States:
    """Return which healthy nodes of rings have K - 1 faulty ones, and then a healthy one, on either side."""
    found = ~states
    for way in (1, -1):
        for distance in range(1, hops):
            found &= np.roll(states, way * distance, axis=1)
        found &= ~np.roll(states, way * hops, axis=1)
    return found


def _most_groups(state: States, end: int, hops: int, group_nodes: int) -> int:
    """Return how many groups a ring has room for that no group passes at one node."""
    faulty, line = set(np.flatnonzero(state).tolist()), np.arange(len(state))
    opened = (np.roll(line, -end).tolist(), np.roll(line, -end - 1).tolist())
    return max(len(line_groups(nodes, faulty, hops, group_nodes)) for nodes in opened)


def _cut(states: States, hops: int, closed: bool) -> States:
    """Return which nodes belong to a run of K or more consecutive faulty nodes."""
    ends = states.copy()
    for back in range(1, hops):
        ends &= _shifted(states, back, closed)
    cut = ends.copy()
    for ahead in range(1, hops):
        cut |= _shifted(ends, -ahead, closed)
    return cut


def _shifted(states: States, places: int, closed: bool) -> States:
    """Return states with every node moved; on a line healthy nodes come in at the end."""
    moved = np.roll(states, places, axis=1)
    if not closed:
        moved[:, slice(places) if places > 0 else slice(places, None)] = False
    return moved


def _of_gpus(counts: "NDArray[np.signedinteger]") -> Gpus:
    return np.asarray(counts, dtype=np.int64)
