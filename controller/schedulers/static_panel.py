"""TopoOpt's stand-in: circuits of a flat patch panel that stay for the whole training.

    n            servers on the panel
    D            demand, n x n: mean bytes from server to server of the all-to-alls of some iterations
    links        pairs of servers that a data-parallel ring or a pipeline joins

There are no packet switches, so circuits come in two parts. Each link gets one, which makes a ring for data
parallelism and a hop for each boundary of stages. What is left of the servers' NICs Algorithm 1 gives to the
all-to-alls (`controller.schedulers.mfabric`): a link inside a region counts there as its pair's first
circuit. Regions need no mention, as D is 0 between them. A pair without a circuit is served by servers
that forward, so all servers must be connected.

In training a server is on the ring of dense weights (2 NICs) and on that of its experts (1 with dp 2, 2 with
more, none with dp 1), and joined to the stages beside its own (1 or 2): of 8 NICs all-to-alls are left 2 to
5, and the ring of dense weights, most of whose links are inside a region. Algorithm 1 gives circuits to the
pairs that send most, and ends when no two servers with demand have a free NIC each; a server may be left with
several. On mFabric it then has its packet NICs, here others forward all that it sends.

References
----------
mFabric, section 7.1, for TopoOpt as a baseline; TopoOpt, section 4.2, divides a server's NICs between
AllReduce and model parallelism. That Algorithm 1 chooses, and what a link takes, is ours.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike, NDArray

from controller.circuits.circuits import Circuits
from controller.schedulers.demand import checked_matrix
from controller.schedulers.mfabric import (
    Counts,
    Pair,
    circuit_counts,
    circuit_order,
    circuits_of,
    nic_mapping,
)
from topologies.errors import DemandError, ScenarioError
from topologies.fabric import Fabric
from topologies.mfabric import Region, regions


@dataclass(frozen=True, eq=False)
class StaticPanel:
    """The circuits of a patch panel."""

    ocs: str
    """The panel."""
    circuits: Circuits
    """Both directions of each."""
    linked: Counts
    """Circuits of links, shape (servers, servers)."""
    demanded: Counts
    """Those of Algorithm 1."""
    left: NDArray[np.intp]
    """NICs of each server that could have a circuit and have none."""

    @property
    def linked_nics(self) -> NDArray[np.intp]:
        """How many NICs of each server are on links."""
        return np.asarray(self.linked.sum(axis=0))

    @property
    def demanded_nics(self) -> NDArray[np.intp]:
        """How many NICs of each server Algorithm 1 uses."""
        return np.asarray(self.demanded.sum(axis=0))

    def __str__(self) -> str:
        """Say on what NICs are spent.

        Examples
        --------
        >>> once = np.array([[0, 1], [1, 0]])
        >>> str(StaticPanel("panel0", Circuits(6, ()), once, 2 * once, np.zeros(2, dtype=int)))
        'NICs of a server: 1 on rings and pipelines, 2 by Algorithm 1, 0 dark'
        """
        linked, demanded, left = map(_span, (self.linked_nics, self.demanded_nics, self.left))
        return f"NICs of a server: {linked} on rings and pipelines, {demanded} by Algorithm 1, {left} dark"


def static_panel(
    fabric: Fabric, demand: ArrayLike, links: Iterable[Pair], *, kept_back: int = 0
) -> StaticPanel:
    """Return the circuits of a patch panel.

    Parameters
    ----------
    fabric
        Its servers have NICs on one panel, and no others.
    demand
        D, between all servers.
    links
        Pairs of servers that are joined whatever the demand; one that is there twice counts once.
    kept_back
        NICs of each server that get no circuit, for what is not in the demand: where a part of a training
        is studied, those of other stages and replicas.

    Raises
    ------
    DemandError
        If the demand makes no sense, or links need more NICs than servers have.
    ScenarioError
        If the fabric is no patch panel, or its servers are not connected.
    """
    panel = _panel_of(fabric)
    matrix = checked_matrix(demand)
    np.fill_diagonal(matrix, 0.0)
    if len(matrix) != len(fabric.servers):
        raise DemandError(f"a demand between {len(matrix)} servers on a panel of {len(fabric.servers)}")
    linked = circuit_counts({(min(pair), max(pair)) for pair in links if pair[0] != pair[1]}, len(matrix))
    left = np.array([server.nics for server in fabric.servers]) - kept_back - linked.sum(axis=0)
    if left.min() < 0:
        server = int(left.argmin())
        raise DemandError(
            f"rings and pipelines join server {server} to {linked[server].sum()} others, and {kept_back} of "
            f"its {fabric.servers[server].nics} NICs are kept back",
            "take fewer stages or replicas, or servers of more NICs",
        )
    demanded = circuit_counts(circuit_order(matrix, left.tolist(), there=linked), len(matrix))
    _check_connected(linked + demanded)
    circuits = circuits_of(fabric, panel, nic_mapping(fabric, panel, linked + demanded, matrix))
    return StaticPanel(panel.ocs, circuits, linked, demanded, left - demanded.sum(axis=0))


def _panel_of(fabric: Fabric) -> Region:
    found = regions(fabric)
    if len(found) != 1 or len(fabric.switches) != 1 or not fabric.servers_forward:
        raise ScenarioError(
            f"{fabric.name!r} is not a patch panel, to which all NICs of servers that forward are wired",
            "take topologies.patch_panel",
        )
    return found[0]


def _check_connected(counts: Counts) -> None:
    """Raise ScenarioError unless every server has a route to every other."""
    parts = list(nx.connected_components(nx.from_numpy_array(counts > 0)))
    if len(parts) > 1:
        raise ScenarioError(
            f"circuits leave servers in {len(parts)} parts: none joins {min(parts[0])} to {min(parts[1])}",
            "give links that do, such as a ring over all",
        )


def _span(numbers: NDArray[np.intp]) -> str:
    least, most = int(numbers.min()), int(numbers.max())
    return f"{least}" if least == most else f"{least} to {most}"
