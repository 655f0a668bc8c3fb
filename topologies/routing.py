"""Routing: by which NIC each server sends on what is for others, where servers forward between circuits."""

from collections.abc import Collection, Mapping
from typing import Protocol

from topologies.fabric import Fabric, Nic, Port
from topologies.light import Circuit

Flow = tuple[Nic, Nic]
"""What queue pairs send from one NIC to another; acknowledgements are of the flow back."""
Table = Mapping[tuple[int, Nic | Flow], Nic]
"""The NIC by which a server sends on what is for a NIC, or what is of a flow, which counts first."""


class Routing(Protocol):
    """Finds the next hops; pure, so that emulation and prediction have the same."""

    def table(
        self, *, fabric: Fabric, lit: Mapping[str, tuple[Circuit, ...]], failed: Collection[Port]
    ) -> Table:
        """Return the next hops.

        Parameters
        ----------
        fabric
            Whose servers forward.
        lit
            The circuits of each OCS that carry.
        failed
            The ports that are known to have failed.
        """
        ...
