"""Routing: by which NIC servers that forward send on what is for others, and by which port switches do."""

from collections.abc import Collection, Mapping
from typing import Protocol

from topologies.fabric import Fabric, Nic, Port
from topologies.light import Configuration

Flow = tuple[Nic, Nic]
"""What queue pairs send from one NIC to another; acknowledgements are of the flow back."""
Table = Mapping[tuple[int | str, Nic | Flow], Nic | Port]
"""By what a server, or a packet switch of a name, sends on what is for a NIC, or what is of a flow, which
counts first: a NIC of the server, a port of the switch."""


class Routing(Protocol):
    """Finds the next hops; pure, so that emulation and prediction have the same."""

    def table(self, *, fabric: Fabric, lit: Configuration, failed: Collection[Port]) -> Table:
        """Return the next hops.

        Parameters
        ----------
        fabric
            Whose servers forward, or whose switches.
        lit
            The circuits of each OCS that carry; none where switches are asked for.
        failed
            The ports that are known to have failed.
        """
        ...
