"""Entropies of connections, kept for a run: one between two NICs is hashed once, not per collective."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from topologies.errors import ScenarioError
from topologies.fabric import Nic
from traffic.spraying.policy import ENTROPIES

Ends = tuple[Nic, Nic]
"""The source and the destination NIC of a connection."""


class KeptEntropies:
    """Of a policy, which is of one communicator and made for one run.

    Examples
    --------
    >>> kept, rng, ends = KeptEntropies(), np.random.default_rng(0), (Nic(0, 0), Nic(1, 0))
    >>> first, again = kept.one_each([ends], rng), kept.one_each([ends, ends], rng)
    >>> first[0] == again[0] != again[1]
    True
    """

    def __init__(self) -> None:
        self._of: dict[Ends, list[int]] = {}

    def one_each(self, ends: Sequence[Ends], rng: np.random.Generator) -> list[int]:
        """Return an entropy for each of some queue pairs, no two alike between the same NICs.

        The first of them between two NICs gets what the first between them got before, and so on; only those
        that were never there are drawn.

        Raises
        ------
        ScenarioError
            If there are more between two NICs than entropies.
        """
        turns, places = Counter[Ends](), list[int]()
        for end in ends:
            places.append(turns[end])
            turns[end] += 1
        kept = {end: self._of.setdefault(end, []) for end in turns}
        new = [end for end, place in zip(ends, places, strict=True) if place >= len(kept[end])]
        if new:
            number = {end: index for index, end in enumerate(dict.fromkeys(new))}
            group = np.array([number[end] for end in new], dtype=np.int64)
            taken = [ENTROPIES * index + value for end, index in number.items() for value in kept[end]]
            drawn = distinct_entropies(group, rng, np.array(taken, dtype=np.int64))
            for end, value in zip(new, drawn.tolist(), strict=True):
                kept[end].append(value)
        return [kept[end][place] for end, place in zip(ends, places, strict=True)]


def distinct_entropies(
    group: NDArray[np.int64], rng: np.random.Generator, taken: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Return a random entropy per member, no two alike in one group.

    Parameters
    ----------
    group
        The group of each member: queue pairs between the same two NICs, say; shape (members,).
    rng
        Where the entropies are drawn from, each of ``0 .. ENTROPIES - 1`` alike.
    taken
        What groups have already, each as the group's number times `ENTROPIES` plus the entropy.

    Raises
    ------
    ScenarioError
        If a group has more members than there are entropies.
    """
    taken = np.zeros(0, dtype=np.int64) if taken is None else taken
    largest = int(np.bincount(np.append(group, taken // ENTROPIES)).max(initial=0))
    if largest > ENTROPIES:
        raise ScenarioError(
            f"{largest} queue pairs join the same two NICs, and there are {ENTROPIES} entropies",
            "use fewer GPUs per NIC, or fewer queue pairs per connection",
        )
    entropy = rng.integers(ENTROPIES, size=len(group))
    while len(again := _repeated(np.append(taken, group * ENTROPIES + entropy)) - len(taken)):
        entropy[again] = rng.integers(ENTROPIES, size=len(again))
    return entropy


def _repeated(key: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return where a key stands that has stood before."""
    _, first = np.unique(key, return_index=True)
    return np.setdiff1d(np.arange(len(key)), first)
