"""How fast a collective can be at best: the bound that every result is held against."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy  # loads its parts when they are used
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, hstack

from topologies.errors import DemandError
from topologies.fabric import Fabric, Port
from traffic.collectives.ring import Ring
from traffic.messages import Messages

Nodes = Sequence[Sequence[int]]
"""GPUs that stand for each other, where they are in several servers (`collectives.pattern.EndToEnd`)."""


def server_matrix(messages: Messages, fabric: Fabric, nodes: Nodes = ()) -> NDArray[np.int64]:
    """Return the bytes from each server to each other, D(2) of RailS (eq. 1); its diagonal is 0.

    The servers of a node count as the first of them.
    """
    source, destination, size = _crossing(messages, fabric, _first_servers(fabric, nodes))
    matrix = np.zeros((len(fabric.servers), len(fabric.servers)), dtype=np.int64)
    np.add.at(matrix, (source, destination), size)
    return matrix


def _leaving_bps(fabric: Fabric, first: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the rates of each server's NICs together, without those whose OCS never leads out of a node."""
    rates = nic_rates(fabric)
    ocses = {switch.name: switch for switch in fabric.switches if switch.permitted}
    if not ocses:
        return np.asarray(rates.sum(axis=1))
    node = {server.name: first[number] for number, server in enumerate(fabric.servers)}
    for nic in fabric.nics:
        near = fabric.peer(fabric.nic_port(nic))
        if near.node in ocses:
            ways = {Port(near.node, way[near.number]) for way in ocses[near.node].permitted}
            ends = {fabric.peer(way).node for way in ways if way in fabric.link_at}
            if {node.get(end, -1) for end in ends} == {first[nic.server]}:
                rates[nic] = 0.0
    return np.asarray(rates.sum(axis=1))


def _first_servers(fabric: Fabric, nodes: Nodes) -> NDArray[np.int64]:
    """Return the server that each server counts as: the first of those that nodes join, itself among them."""
    count = len(fabric.servers)
    if not nodes:
        return np.arange(count)
    joined = [(fabric.gpu_servers[gpus[0]], fabric.gpu_servers[gpu]) for gpus in nodes for gpu in gpus]
    near, far = np.array(joined, dtype=np.int64).reshape(-1, 2).T
    graph = coo_array((np.ones(len(joined)), (near, far)), (count, count))
    _, group = scipy.sparse.csgraph.connected_components(graph, directed=False)
    _, first = np.unique(group, return_index=True)
    return np.asarray(first[group])


def nic_rates(fabric: Fabric) -> NDArray[np.float64]:
    """Return the rate of each NIC [bit/s], shape (servers, most NICs), 0 where a server has fewer."""
    return _nic_rates(fabric).copy()


@lru_cache(maxsize=8)
def _nic_rates(fabric: Fabric) -> NDArray[np.float64]:
    rates = np.zeros((len(fabric.servers), max(server.nics for server in fabric.servers)))
    for nic in fabric.nics:
        rates[nic] = fabric.nic_rate_bps(nic)
    return rates


NOTHING_LENT: Mapping[Port, float] = {}
"""What token buckets lend where there are none."""


def lower_bound_s(
    messages: Messages,
    fabric: Fabric,
    lent_bytes: Mapping[Port, float] = NOTHING_LENT,
    nodes: Nodes = (),
) -> float:
    """Return how long the messages take over the fabric at least, with the links' delays [s].

    It is `busiest_server_s`, and the least delay of two links on top: a first byte that arrives has
    crossed those of two NICs, and so has a last byte that is sent. That links lose packets can only
    make it longer.

    Parameters
    ----------
    messages, fabric, lent_bytes, nodes
        As of `busiest_server_s`.
    """
    first = _first_servers(fabric, nodes)
    source, destination, _ = crossing = _crossing(messages, fabric, first)
    if not len(source):
        return 0.0
    delay_s = _delays_s(fabric, first)
    return _crossing_bound_s(crossing, fabric, lent_bytes, first) + float(
        (delay_s[source] + delay_s[destination]).min()
    )


def sum_bound_s(
    ring: Ring,
    fabric: Fabric,
    lent_bytes: Mapping[Port, float] = NOTHING_LENT,
    gone: Collection[int] = (),
) -> float:
    """Return how long a sum between the members of a ring takes at least, in whatever order or tree [s].

    Servers may sum and spread inside, over NVLink. Then of ReduceScatter a server sends what is for GPUs
    elsewhere, and of AllGather it receives what is theirs. Of AllReduce S leaves and enters each server, and
    between s of them it crosses 2 (s - 1) times in all: each but one gives its part, and is given the sum.

    Parameters
    ----------
    ring, fabric, lent_bytes
        As of `lower_bound_s`.
    gone
        GPUs from and to which nothing counts.

    References
    ----------
    P. Patarasuk and X. Yuan, JPDC 69(2), 2009, section 3.
    """
    loads = sum_loads(ring, fabric, gone)
    there = loads.out > 0
    if not there.any():
        return 0.0
    delays_s = np.sort(_delays_s(fabric, np.arange(len(fabric.servers)))[there])[:2]
    return loads.bound_s(fabric, lent_bytes) + float(delays_s.sum())


@dataclass(frozen=True, eq=False)
class ServerLoads:
    """The bytes that servers send and receive at least, whatever carries them."""

    out: NDArray[np.int64]
    """Bytes that leave each server, shape (servers,)."""
    into: NDArray[np.int64]
    """Bytes that enter each server, shape (servers,)."""
    crossing: int
    """Bytes that leave all of them together."""

    def __add__(self, other: "ServerLoads") -> "ServerLoads":
        """Return both loads together."""
        return ServerLoads(self.out + other.out, self.into + other.into, self.crossing + other.crossing)

    def bound_s(
        self, fabric: Fabric, lent_bytes: Mapping[Port, float] = NOTHING_LENT, times: int = 1
    ) -> float:
        """Return how long it takes at least: by the slowest server, or by all together [s].

        Parameters
        ----------
        fabric, lent_bytes
            As of `lower_bound_s`.
        times
            How many times ports may have lent that.
        """
        alone, there = np.arange(len(fabric.servers)), self.out > 0
        lent = times * _lent(fabric, lent_bytes, alone)
        busiest_s = _busiest_s(np.maximum(self.out - lent[0], self.into - lent[1]), fabric, alone)
        together = max(self.crossing - float(lent[0][there].sum()), 0.0)
        return max(busiest_s, 8.0 * together / nic_rates(fabric)[there].sum() if together else 0.0)


def message_loads(messages: Messages, fabric: Fabric) -> ServerLoads:
    """Return the loads of messages between servers."""
    crossing = _crossing(messages, fabric, _first_servers(fabric, ()))
    out, into = _loads(crossing, len(fabric.servers))
    return ServerLoads(out, into, int(out.sum()))


def sum_loads(ring: Ring, fabric: Fabric, gone: Collection[int] = ()) -> ServerLoads:
    """Return the least loads of a sum between members of a ring; parameters are those of `sum_bound_s`."""
    members = np.array(sorted(ring.gpus - {*gone}), dtype=np.int64)
    own = np.bincount(fabric.server_of_gpu[members], minlength=len(fabric.servers))
    there = own > 0
    if there.sum() < 2:
        return ServerLoads(0 * own, 0 * own, 0)
    part = ring.bytes // (len(ring.rings) * len(ring.gpus)) * len(ring.rings)
    elsewhere = np.where(there, len(members) - own, 0)
    out, into = {
        "all-reduce": (there * ring.bytes, there * ring.bytes),
        "reduce-scatter": (elsewhere * part, own * part),
        "all-gather": (own * part, elsewhere * part),
    }[ring.operation]
    is_whole = ring.operation == "all-reduce" and not gone
    return ServerLoads(out, into, 2 * (int(there.sum()) - 1) * ring.bytes if is_whole else int(out.sum()))


def _delays_s(fabric: Fabric, first: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the least delay of a server's links, those of a node at its first server [s]."""
    delay_s = np.full(len(fabric.servers), np.inf)
    np.minimum.at(delay_s, first, _own_delays_s(fabric))
    return delay_s


@lru_cache(maxsize=8)
def _own_delays_s(fabric: Fabric) -> NDArray[np.float64]:
    """Return the least delay of each server's links [s]."""
    delay_s = np.full(len(fabric.servers), np.inf)
    for nic in fabric.nics:
        delay_s[nic.server] = min(delay_s[nic.server], fabric.link_at[fabric.nic_port(nic)].delay_s)
    return delay_s


def busiest_server_s(
    messages: Messages,
    fabric: Fabric,
    lent_bytes: Mapping[Port, float] = NOTHING_LENT,
    nodes: Nodes = (),
) -> float:
    """Return T*: no way of sending the messages over the fabric takes less time [s].

    All that a server sends to others, and all that it receives, passes its NICs; the slowest
    server at the sum of their rates sets the time. No policy and no fabric can beat that.

    On a rail fabric whose servers are alike it is reached, by splitting every pair of servers
    evenly over the rails: the closed form of Theorem 3, equal to the LP of Theorem 2 (`optimal_split`).
    Elsewhere it remains a bound and may be out of reach: for a scheme that keeps to its GPUs' NICs,
    over oversubscribed uplinks, or where one rail is slower at one server than at another.

    Parameters
    ----------
    messages
        All of them; those inside a server do not count.
    fabric
        What they are sent over.
    lent_bytes
        What each port may send at once beyond its rate: the token bucket of an emulation's shaper. To a NIC
        that is not on a packet switch light brings what another's bucket lent: as much as its own.
    nodes
        GPUs whose servers send and receive for each other, as one server with the NICs of all.

    References
    ----------
    RailS, Theorems 2 and 3 (eq. 20, 25, 26).
    """
    first = _first_servers(fabric, nodes)
    return _crossing_bound_s(_crossing(messages, fabric, first), fabric, lent_bytes, first)


_Crossing = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
"""Source server, destination server and size [bytes] of messages from one to another."""


def _crossing(messages: Messages, fabric: Fabric, first: NDArray[np.int64]) -> _Crossing:
    """Return the messages that leave their server, servers that count as one by the first of them."""
    servers = first[fabric.server_of_gpu]
    source, destination = servers[messages.source], servers[messages.destination]
    crosses = (source != destination) & (messages.bytes > 0)
    return source[crosses], destination[crosses], messages.bytes[crosses]


def _crossing_bound_s(
    crossing: _Crossing, fabric: Fabric, lent_bytes: Mapping[Port, float], first: NDArray[np.int64]
) -> float:
    out, into = _loads(crossing, len(fabric.servers))
    lent = _lent(fabric, lent_bytes, first)
    return _busiest_s(np.maximum(out - lent[0], into - lent[1]), fabric, first)


def _loads(crossing: _Crossing, servers: int) -> NDArray[np.int64]:
    """Return the bytes that leave and that enter each server, shape (2, servers)."""
    source, destination, size = crossing
    loads = np.zeros((2, servers), dtype=np.int64)
    np.add.at(loads[0], source, size)
    np.add.at(loads[1], destination, size)
    return loads


def _lent(fabric: Fabric, lent_bytes: Mapping[Port, float], first: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the bytes that the ports of each server's NICs lent, out and into it, shape (2, servers)."""
    lent = np.zeros((2, len(fabric.servers)))
    for nic in fabric.nics if lent_bytes else ():
        port = fabric.nic_port(nic)
        out = lent_bytes.get(port, 0.0)
        lent[:, first[nic.server]] += out, lent_bytes.get(fabric.peer(port), out)
    return lent


def _busiest_s(load: NDArray[np.float64], fabric: Fabric, first: NDArray[np.int64]) -> float:
    """Return how long the slowest server takes for its load [bytes]."""
    rates = np.bincount(first, _leaving_bps(fabric, first), len(first))
    loaded = load > 0
    return float((8.0 * load[loaded] / rates[loaded]).max(initial=0.0))


@dataclass(frozen=True, eq=False)
class Split:
    """How much of what each server owes each other goes over each rail, and how long that takes."""

    share: NDArray[np.float64]
    """P of RailS: the part on each rail, shape (servers, servers, rails), each pair's sum 1."""
    time_s: float
    """When the busiest NIC is done [s]."""


def optimal_split(matrix: NDArray[np.int64], rate_bps: NDArray[np.float64]) -> Split:
    """Return the split over the rails under which the busiest NIC is done first: an LP, solved exactly.

    Among the many optima an LP solver returns a corner, which splits few pairs; pairs that owe
    nothing are split evenly.

    Parameters
    ----------
    matrix
        D, bytes from server k to server f, shape (servers, servers); the diagonal is not sent.
    rate_bps
        Rate of NIC n of server k [bit/s], shape (servers, rails); 0 where it has none.

    Raises
    ------
    DemandError
        If the shapes do not fit each other, or servers that owe each other bytes have no rail in common.

    References
    ----------
    RailS, section IV-D, eq. 24, with t as a time so that rates may differ. Solved by HiGHS:
    Q. Huangfu and J. Hall, Math. Prog. Comp. 10 (2018).
    """
    servers, rails = rate_bps.shape
    if matrix.shape != (servers, servers):
        raise DemandError(
            f"a matrix of shape {matrix.shape}, and rates of shape {rate_bps.shape}",
            "give a square matrix and a row of rates per server",
        )
    share = np.full((servers, servers, rails), 1.0 / rails)
    source, destination = np.nonzero(matrix * ~np.eye(servers, dtype=bool))
    if not len(source):
        return Split(share, 0.0)
    usable = (np.minimum(rate_bps[source], rate_bps[destination]) > 0).ravel()
    if not usable.reshape(-1, rails).any(axis=1).all():
        raise DemandError("two servers have no rail in common that works", "take a scheme that uses spines")
    seconds = _seconds(source, destination, (8.0 * matrix[source, destination]).astype(float), rate_bps)
    scale = float(seconds.sum(axis=1).max())  # HiGHS' tolerances are absolute; bring t near 1
    busy = hstack([seconds / scale, csr_array(-np.ones((seconds.shape[0], 1)))], format="csr")
    variables = len(source) * rails
    pair = np.repeat(np.arange(len(source)), rails)
    whole = coo_array((np.ones(variables), (pair, np.arange(variables))), (len(source), variables + 1))
    solution = scipy.optimize.linprog(  # type: ignore[call-overload]  # takes sparse matrices, its stubs do not know
        np.append(np.zeros(variables), 1.0),
        A_ub=busy,
        b_ub=np.zeros(busy.shape[0]),
        A_eq=whole.tocsr(),
        b_eq=np.ones(len(source)),
        bounds=np.stack([np.zeros(variables + 1), np.append(np.where(usable, np.inf, 0.0), np.inf)], axis=1),
        method="highs",
    )
    share[source, destination] = solution.x[:-1].reshape(-1, rails)
    return Split(share, float(solution.x[-1]) * scale)


def _seconds(
    source: NDArray[np.int64],
    destination: NDArray[np.int64],
    bits: NDArray[np.float64],
    rate_bps: NDArray[np.float64],
) -> csr_array:
    """Return how long each NIC would send (first rows) and receive, each pair (column) on each rail.

    On rails that one of a pair does not have that is 0.
    """
    servers, rails = rate_bps.shape
    pair, rail = (index.ravel() for index in np.indices((len(source), rails)))
    rows = [end[pair] * rails + rail for end in (source, destination + servers)]
    usable = np.minimum(rate_bps[source[pair], rail], rate_bps[destination[pair], rail]) > 0
    rates = [np.where(usable, rate_bps[end[pair], rail], np.inf) for end in (source, destination)]
    values = [bits[pair] / rate for rate in rates]
    columns = np.tile(np.arange(len(pair)), 2)
    shape = 2 * servers * rails, len(pair)
    return coo_array((np.concatenate(values), (np.concatenate(rows), columns)), shape).tocsr()
