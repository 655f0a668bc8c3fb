"""mFabric's Algorithm 1: which servers of a region get how many circuits, and on which NICs.

    n            servers of the region
    D            demand, n x n: bytes from server to server in one all-to-all; its diagonal stays on NVLink
    U_ij         D_ij + D_ji, i < j: a circuit is duplex, and one topology serves D and its transpose
    alpha        circuit NICs of a server; n_e its packet NICs
    C            circuits, n x n: symmetric, whole numbers, no row above alpha
    T_ij         U_ij / C_ij, what the slowest pair takes; infinite while a pair has no circuit

Each circuit goes to the pair of greatest T. Since all pairs start at infinity, every pair with demand gets
its first circuit before any gets a second: with alpha >= n - 1 and demand everywhere the topology is
the full mesh, whatever the demand.

The paper leaves open the order of ties, and prints an end that its own counts contradict (`Variant`). With
alpha < n - 1 ties decide which servers get circuits: by demand alone, 8 servers of 6 NICs that all send as
much become a clique of seven, and the eighth has no circuit. So servers without a circuit come first.
The paper does not say how circuits are put on NICs either, but that those of a pair are spread over NUMA
nodes; here circuits that stay also keep their NICs, so that fewer ports go dark (`nic_mapping`).

References
----------
mFabric, section 5.2 and Algorithm 1 as published (MixNet, SIGCOMM 2025); the artifact's ``mixnet-htsim``.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from controller.circuits.circuits import Circuits
from controller.schedulers.demand import Matrix, checked_matrix
from topologies.errors import DemandError
from topologies.fabric import Fabric, Nic
from topologies.light import duplex
from topologies.mfabric import Region, numa_node

Pair = tuple[int, int]
"""Two servers of a region, by their place in it, the lower first."""
Counts = NDArray[np.intp]
"""C, shape (n, n)."""


@dataclass(frozen=True)
class Variant:
    """How Algorithm 1 is read where its text allows several readings."""

    rule: Literal["paper", "artifact"] = "paper"
    """``artifact``: T starts as U and is divided by 100 m after the m-th circuit of a pair, so that further
    circuits go round by round in order of U."""
    first: Literal["infinity", "eps"] = "infinity"
    """T of a pair without a circuit under the rule ``paper``: infinite, or ``eps`` what its bytes take over
    the packet NICs, U / n_e."""
    stop: Literal["exhausted", "printed"] = "exhausted"
    """``printed``: at the first bottleneck with a server that has no free NIC. With the artifact's 8 x 8
    matrix and 6 NICs that makes 6 circuits; going on, as the artifact does, makes the paper's 24."""
    ties: Literal["free", "demand"] = "free"
    """Which of the pairs of equal T is first: ``free`` that of a server without a circuit, then that whose
    scarcer end has most free NICs, then that of greater U, then that with more free NICs at its other end;
    ``demand``, as in the artifact, that of greater U. Then that of the lower servers."""


class NicCircuit(NamedTuple):
    """A duplex circuit between two circuit NICs, that of the lower server first."""

    a: Nic
    b: Nic


NicMapping = tuple[NicCircuit, ...]
"""The circuits of a region."""
PUBLISHED = Variant()


def region_circuits(
    fabric: Fabric,
    region: Region,
    demand: ArrayLike,
    *,
    last: NicMapping = (),
    failed: AbstractSet[Nic] = frozenset(),
    variant: Variant = PUBLISHED,
) -> NicMapping:
    """Return the circuits of a region for a demand: Algorithm 1 from the servers' matrix to NICs.

    Parameters
    ----------
    fabric, region
        What is wired.
    demand
        D, bytes between the region's servers: of the gate's matrix what `server_demand` makes.
    last
        The circuits that are lit.
    failed
        NICs that get no circuit.
    variant
        How the algorithm is read.

    Raises
    ------
    DemandError
        If the demand makes no sense.
    """
    alpha = [len(set(nics) - failed) for nics in region.nics]
    eps_nics = min(
        fabric.servers[server].nics - len(nics)
        for server, nics in zip(region.servers, region.nics, strict=True)
    )
    order = circuit_order(demand, alpha, eps_nics, variant)
    counts = circuit_counts(order, len(region.servers))
    return nic_mapping(fabric, region, counts, demand, last=last, failed=failed)


def server_demand(gpu_demand: ArrayLike, gpus: Sequence[int]) -> Matrix:
    """Return D: a demand between GPUs, summed over those of each server, without what stays in a server.

    Parameters
    ----------
    gpu_demand
        Bytes from GPU to GPU.
    gpus
        How many of the GPUs each server has, in order.

    Raises
    ------
    DemandError
        If the demand makes no sense, or is between other GPUs.
    """
    matrix = checked_matrix(gpu_demand)
    if len(matrix) != sum(gpus):
        raise DemandError(f"a demand between {len(matrix)} GPUs in a region of {sum(gpus)}")
    starts = np.cumsum([0, *gpus[:-1]])
    demand: Matrix = np.add.reduceat(np.add.reduceat(matrix, starts, axis=0), starts, axis=1)
    np.fill_diagonal(demand, 0.0)
    return demand


def circuit_order(
    demand: ArrayLike,
    alpha: int | Sequence[int],
    eps_nics: int = 0,
    variant: Variant = PUBLISHED,
) -> tuple[Pair, ...]:
    """Return the pairs that get circuits, one after the other; a pair with two circuits is there twice.

    Parameters
    ----------
    demand
        D; any unit.
    alpha
        Circuit NICs of every server, or of each.
    eps_nics
        n_e, for ``first="eps"`` only.
    variant
        How the algorithm is read.

    Raises
    ------
    DemandError
        If the demand makes no sense, or a number of NICs is negative.

    """
    matrix = checked_matrix(demand)
    free = np.broadcast_to(np.asarray(alpha, dtype=np.intp), len(matrix)).copy()
    if eps_nics < 0 or (free < 0).any():
        raise DemandError(f"servers of {alpha} circuit and {eps_nics} packet NICs", "give none or more")
    rows, columns = np.triu_indices(len(matrix), 1)
    owed = (matrix + matrix.T)[rows, columns]
    time = _times_without_circuit(owed, eps_nics, variant)
    made = np.zeros(len(owed), dtype=np.intp)
    whole = free.copy()
    going_on = variant.stop == "exhausted"
    if going_on:
        time[(free[rows] == 0) | (free[columns] == 0)] = -np.inf
    order: list[Pair] = []
    while len(time) and (longest := time.max()) > -np.inf:
        tied = np.flatnonzero(time == longest)
        near, far = rows[tied], columns[tied]
        pair = int(tied[_first_of_equals((near, far), owed[tied], free, free == whole, variant)])
        ends = int(rows[pair]), int(columns[pair])
        if not (free[ends[0]] and free[ends[1]]):
            break
        order.append(ends)
        made[pair] += 1
        time[pair] = _with_circuit(time[pair], owed[pair], made[pair], variant)
        for server in ends:
            free[server] -= 1
            if going_on and not free[server]:
                time[(rows == server) | (columns == server)] = -np.inf
    return tuple(order)


def circuit_counts(order: Iterable[Pair], servers: int) -> Counts:
    """Return C: how many circuits each pair has, shape (servers, servers)."""
    counts = np.zeros((servers, servers), dtype=np.intp)
    for (i, j), circuits in Counter(order).items():
        counts[i, j] = counts[j, i] = circuits
    return counts


def nic_mapping(
    fabric: Fabric,
    region: Region,
    counts: Counts,
    demand: ArrayLike,
    *,
    last: NicMapping = (),
    failed: AbstractSet[Nic] = frozenset(),
) -> NicMapping:
    """Return on which NICs the circuits of a region are.

    A circuit of the last mapping stays if its pair still has one. Then come the pairs by U, greatest first;
    each further circuit takes, at either end, the lowest free NIC on the NUMA node that has fewest
    circuits of this pair, of these the node with most free NICs, then the lower.

    Parameters
    ----------
    fabric, region
        What is wired.
    counts
        C.
    demand
        D, for the order of the pairs.
    last
        The circuits that are lit.
    failed
        NICs that get no circuit.

    Raises
    ------
    DemandError
        If a server has fewer NICs than circuits.

    Notes
    -----
    The paper asks that circuits of a pair end on different NUMA nodes (section 5.2); the rest is ours.
    """
    places = _Places(fabric, region, failed)
    if (counts.sum(axis=0) > [len(free) for free in places.free]).any():
        raise DemandError(f"circuits {counts.sum(axis=0).tolist()} of servers with fewer NICs")
    left = counts.copy()
    mapping: list[NicCircuit] = []
    for circuit in last:
        i, j = (places.index.get(nic.server, -1) for nic in circuit)
        if min(i, j) >= 0 and left[i, j] and not failed & set(circuit):
            mapping.append(circuit)
            places.take((i, j), circuit)
            left[i, j] = left[j, i] = left[i, j] - 1
    for i, j in _by_demand(left, demand):
        for _ in range(left[i, j]):
            circuit = places.best((i, j))
            mapping.append(circuit)
            places.take((i, j), circuit)
    return tuple(mapping)


def circuits_of(fabric: Fabric, region: Region, mapping: NicMapping) -> Circuits:
    """Return a region's circuits as those of its OCS, both directions of each."""
    ends = [
        (fabric.peer(fabric.nic_port(a)).number, fabric.peer(fabric.nic_port(b)).number) for a, b in mapping
    ]
    ports = fabric.switches[fabric.switch_index[region.ocs]].ports
    return Circuits(ports, duplex(ends))


def transfer_s(demand: ArrayLike, counts: Counts, eps_nics: int, nic_bps: float) -> float:
    """Return t_x, what the slowest lane takes: pairs with circuits over these, others over packet NICs.

    Parameters
    ----------
    demand
        D [bytes].
    counts
        C.
    eps_nics
        n_e.
    nic_bps
        Rate of a NIC [bit/s].

    References
    ----------
    mFabric, section 5.3.
    """
    matrix = checked_matrix(demand)
    np.fill_diagonal(matrix, 0.0)
    lit = counts > 0
    over_circuits = (matrix[lit] / counts[lit]).max(initial=0.0)
    packets = np.where(lit, 0.0, matrix)
    busiest = max(packets.sum(axis=0).max(), packets.sum(axis=1).max())
    over_packets = busiest / eps_nics if eps_nics else np.inf if busiest else 0.0
    return float(8 * max(over_circuits, over_packets) / nic_bps)


def transfer_bound_s(demand: ArrayLike, nics: int, nic_bps: float) -> float:
    """Return what the busiest server takes at least, over all its NICs, whatever the circuits [s]."""
    matrix = checked_matrix(demand)
    np.fill_diagonal(matrix, 0.0)
    return float(8 * max(matrix.sum(axis=0).max(), matrix.sum(axis=1).max()) / (nics * nic_bps))


def _times_without_circuit(owed: Matrix, eps_nics: int, variant: Variant) -> Matrix:
    """Return T of all pairs at the start; minus infinity for those that need no circuit."""
    if variant.rule == "artifact":
        start = owed.copy()
    elif variant.first == "eps" and eps_nics:
        start = owed / eps_nics
    else:
        start = np.full(len(owed), np.inf)
    return np.where(owed > 0, start, -np.inf)


def _first_of_equals(
    ends: tuple[Counts, Counts], owed: Matrix, free: Counts, dark: NDArray[np.bool_], variant: Variant
) -> int:
    """Return which of the pairs of equal T, in the order of their servers, gets a circuit first."""
    if variant.ties == "demand":
        return int(np.argmax(owed))
    near, far = (free[servers] for servers in ends)
    lit = ~np.logical_or(*(dark[servers] for servers in ends))
    # The last key of a lexical sort is the first that counts.
    return int(np.lexsort((-np.maximum(near, far), -owed, -np.minimum(near, far), lit))[0])


def _with_circuit(time: Matrix, owed: Matrix, circuits: int, variant: Variant) -> Matrix:
    """Return T of pairs that have got their circuit of a number, from what it was before."""
    return time / (100 * circuits) if variant.rule == "artifact" else owed / circuits


def _by_demand(counts: Counts, demand: ArrayLike) -> list[Pair]:
    """Return the pairs that have circuits, those of greatest U first, equal ones by their servers."""
    matrix = np.asarray(demand, dtype=float)
    rows, columns = np.nonzero(np.triu(counts))
    order = np.lexsort((columns, rows, -(matrix + matrix.T)[rows, columns]))
    return list(zip(rows[order].tolist(), columns[order].tolist(), strict=True))


class _Places:
    """The free NICs of a region's servers, and on which NUMA nodes circuits of each pair are."""

    def __init__(self, fabric: Fabric, region: Region, failed: AbstractSet[Nic]) -> None:
        self.index = {server: place for place, server in enumerate(region.servers)}
        self.free = [set(nics) - failed for nics in region.nics]
        self._node = {
            nic: numa_node(fabric.servers[nic.server], nic.nic) for nics in region.nics for nic in nics
        }
        self._used = Counter[tuple[Pair, int, int]]()

    def take(self, pair: Pair, circuit: NicCircuit) -> None:
        """Put a circuit of a pair on its NICs."""
        for place, nic in zip(pair, circuit, strict=True):
            self.free[place].remove(nic)
            self._used[pair, place, self._node[nic]] += 1

    def best(self, pair: Pair) -> NicCircuit:
        """Return where a further circuit of a pair goes."""
        return NicCircuit(self._best_nic(pair, pair[0]), self._best_nic(pair, pair[1]))

    def _best_nic(self, pair: Pair, place: int) -> Nic:
        room = Counter(self._node[nic] for nic in self.free[place])
        node = min(room, key=lambda node: (self._used[pair, place, node], -room[node], node))
        return min(nic for nic in self.free[place] if self._node[nic] == node)
