"""The fluid limit of schemes that choose as they go: what they settle at if chunks and delays are tiny.

*Spraying* (REPS, MinRTT): a chunk is waiting whenever one of its lanes has room, so every lane
is always busy. Messages that may use the same lanes drain one pool through all of them, at max-min fair
rates. A lane that several pools may use, each with others besides, counts as one where it shares a link, and
serves those not yet empty evenly.

*In shares* (oblivious spraying; a policy whose attribute ``oblivious`` is true): each path is sent what
entropies take it, whatever becomes of the packets there (`testbed.model.choices`).

*One at a time* (PLB; a policy whose attribute ``settles`` is true): a message moves while it is congested
and another of its paths is better, and stays when none is. That is a state in which no message gains by
moving alone. It is found by moving them one after the other: a move raises the mover's share and slows
others at most to that, so the sorted shares rise with each move, and it ends. No message moves again
later, although PLB would as messages end.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from topologies.fabric import Path, Port

SWEEPS = 50
"""How often each message may move before it is left where it is."""


def settled(
    lanes: Sequence[Sequence[int]], paths: Mapping[int, Path], rate_bps: Mapping[Port, float]
) -> list[int]:
    """Return a lane for each message such that none gets a larger share by moving alone.

    A message's share is the least, over the ports of its path, of the port's rate divided by how many
    messages cross it. All start on their first lane and move in turn, at most `SWEEPS` times.

    Parameters
    ----------
    lanes
        The numbers of the lanes that each message may use.
    paths
        That of each lane.
    rate_bps
        Of each port.
    """
    number = {port: index for index, port in enumerate(rate_bps)}
    links = {lane: [number[port] for port in path] for lane, path in paths.items()}
    rates, crossing = list(rate_bps.values()), [0] * len(rate_bps)
    chosen = [among[0] for among in lanes]
    for lane in chosen:
        for port in links[lane]:
            crossing[port] += 1

    def share(lane: int) -> float:
        return min([rates[port] / (crossing[port] + 1) for port in links[lane]])

    for _ in range(SWEEPS):
        moved = False
        for message, among in enumerate(lanes):
            for port in links[chosen[message]]:
                crossing[port] -= 1
            best = max(among, key=share)
            if share(best) > share(chosen[message]) * (1 + 1e-9):
                chosen[message], moved = best, True
            for port in links[chosen[message]]:
                crossing[port] += 1
        if not moved:
            break
    return chosen


def parcels_in_turns(
    pool: NDArray[np.int64], size: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return messages in the order in which they end if those of a pool take turns, byte by byte.

    Parameters
    ----------
    pool, size
        Of each message, shape (messages,) [bytes].

    Returns
    -------
    message, parcel
        The messages, and how many bytes leave their pool from the end of the one before to their own.

    Examples
    --------
    >>> message, parcel = parcels_in_turns(np.array([0, 0]), np.array([5.0, 2.0]))
    >>> message.tolist(), parcel.tolist()
    ([1, 0], [4.0, 3.0])
    """
    order = np.lexsort((size, pool))
    pools, sizes = pool[order], size[order]
    first = np.flatnonzero(np.diff(pools, prepend=-1))
    counts = np.diff(np.append(first, len(pools)))
    more = np.diff(sizes, prepend=0.0)
    more[first] = sizes[first]
    sharing = np.repeat(first + counts, counts) - np.arange(len(pools))
    return order, more * sharing
