"""Circuits: which output port each input port of an optical circuit switch (OCS) lights.

An OCS is a light path, not a switch: light goes to exactly one port or nowhere. So a circuit is one
rule, *in_port=a, output b* (`controller.circuits.bundles`); no address is looked at, nothing is flooded or
learned. A dark port has no rule of its own: its packets fall to the table-miss rule, which drops and
counts them.
"""

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from topologies.errors import DemandError
from topologies.fabric import Switch
from topologies.strict_json import shown

IDLE = -1
"""Stands in a permutation for an input port without a circuit."""

Pair = tuple[int, int]
"""A circuit: the input port and the output port it lights."""


@dataclass(frozen=True)
class Circuits:
    """A partial matching of an OCS' input ports to its output ports; equal matchings are equal values.

    Raises
    ------
    DemandError
        If a port does not exist, is lit twice, or lights itself.

    Examples
    --------
    >>> str(Circuits(4, ((3, 0), (0, 3))))
    '0>3 3>0'
    """

    ports: int
    """How many ports the OCS has."""
    pairs: tuple[Pair, ...] = ()
    """The circuits, kept in the order of their input ports."""

    def __post_init__(self) -> None:
        """Refuse what no OCS can light, before any circuit is taken away."""
        object.__setattr__(self, "pairs", tuple(sorted((int(a), int(b)) for a, b in self.pairs)))
        _check(self)

    def __str__(self) -> str:
        return " ".join(f"{a}>{b}" for a, b in self.pairs) or "-"

    @classmethod
    def of_permutation(cls, permutation: ArrayLike) -> "Circuits":
        """Return the circuits of a permutation; a port that would light itself stays dark.

        Parameters
        ----------
        permutation
            Output port of each input port, or `IDLE`.
        """
        outputs = np.asarray(permutation, dtype=np.intp)
        lit = [(a, b) for a, b in enumerate(outputs.tolist()) if b not in (IDLE, a)]
        return cls(len(outputs), tuple(lit))


def check_permitted(switch: Switch, circuits: Circuits) -> None:
    """Raise DemandError if none of the permutations that an OCS permits has all of these circuits."""
    if not switch.permits(circuits.pairs):
        raise DemandError(
            f"OCS {switch.name} cannot show {circuits}",
            f"take circuits of one of the {len(switch.permitted)} permutations that it permits",
        )


def circuits_from_text(text: str, ports: int) -> Circuits:
    """Return the circuits that a person typed: ``0>3 3>0`` or ``0>3,3>0``; ``-`` is all dark.

    Raises
    ------
    DemandError
        If a word is not a valid circuit, or the OCS cannot light them all.
    """
    words = re.split(r"[\s,]+", text.strip())
    if words in (["-"], [""]):
        return Circuits(ports)
    return Circuits(ports, tuple(map(_pair, words)))


def _pair(word: str) -> Pair:
    found = re.fullmatch(r"([0-9]{1,9})>([0-9]{1,9})", word)
    if not found:
        raise DemandError(f"{shown(word)} is not a valid circuit", "write it as INPUT>OUTPUT, as in 0>3")
    return int(found[1]), int(found[2])


def _check(circuits: Circuits) -> None:
    outside = [port for pair in circuits.pairs for port in pair if not 0 <= port < circuits.ports]
    if outside:
        raise DemandError(f"port {outside[0]} of an OCS whose ports are 0 to {circuits.ports - 1}")
    for name, side in (("input", 0), ("output", 1)):
        lit = Counter(pair[side] for pair in circuits.pairs)
        if twice := [port for port, count in lit.items() if count > 1]:
            raise DemandError(
                f"{name} port {twice[0]} is lit twice", "a port's light goes to one port or nowhere"
            )
    for a, b in circuits.pairs:
        if a == b:
            raise DemandError(f"port {a} lights itself", "leave that circuit out")
