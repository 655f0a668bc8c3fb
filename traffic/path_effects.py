"""What the links of a path do to what crosses it: delivery is later by their delay, and a part is lost."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from topologies.fabric import Fabric, Path


@dataclass(frozen=True, eq=False)
class PathEffects:
    """The delay and the loss of some paths."""

    delay_s: NDArray[np.float64]
    """How long a byte is on its way, one way, shape (paths,) [s]."""
    delivered: NDArray[np.float64]
    """Probability that a packet gets through, shape (paths,); what does not is sent again."""


def path_effects(paths: Sequence[Path], fabric: Fabric) -> PathEffects:
    """Return what the links of each path do.

    Examples
    --------
    >>> from topologies.rail import rail_fabric
    >>> fabric = rail_fabric(2, 1).with_links(delay_s=1e-6, loss=0.1)
    >>> path = (fabric.nic_port(fabric.nics[0]), fabric.peer(fabric.nic_port(fabric.nics[1])))
    >>> effects = path_effects([path], fabric)
    >>> effects.delay_s.tolist(), effects.delivered.round(6).tolist()
    ([2e-06], [0.81])
    """
    links = [[fabric.link_at[port] for port in path] for path in paths]
    return PathEffects(
        np.array([sum(link.delay_s for link in path) for path in links], dtype=float),
        np.array([np.prod([1.0 - link.loss for link in path]) for path in links], dtype=float),
    )
