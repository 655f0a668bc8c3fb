"""The queue pairs of schemes that may choose among several: their entropies, and MPTCP's subflows."""

import numpy as np

from topologies.errors import ScenarioError
from topologies.fabric import Fabric, Nic
from traffic.messages import Messages
from traffic.spraying.policy import ENTROPIES, Permitted, QueuePair

Between = dict[tuple[Nic, Nic], list[QueuePair]]
"""The queue pairs between two NICs that a policy has drawn, for the run."""


def subflows(
    fabric: Fabric,
    messages: Messages,
    rng: np.random.Generator,
    per_nic: int = 1,
    drawn: Between | None = None,
) -> Permitted:
    """Return queue pairs from every NIC of the source server to the NIC beside the destination GPU.

    Messages from one server to one NIC share them.

    Parameters
    ----------
    fabric, messages
        As in `ReactivePolicy.permit`.
    rng
        Where the entropies are drawn from.
    per_nic
        How many entropies from each NIC of the source server to each destination NIC.
    drawn
        The queue pairs that there are already, to which new ones are added; by default none.
    """
    shared: dict[tuple[int, Nic], tuple[int, ...]] = {}
    queue_pairs: list[QueuePair] = []
    of_message = []
    for source, destination in zip(messages.source.tolist(), messages.destination.tolist(), strict=True):
        server, nic = fabric.gpu_servers[source], fabric.pinned_nic(destination)
        if (server, nic) not in shared:
            first = len(queue_pairs)
            for index in range(fabric.servers[server].nics):
                queue_pairs += entropies(fabric, Nic(server, index), nic, rng, per_nic, drawn)
            shared[server, nic] = tuple(range(first, len(queue_pairs)))
        of_message.append(shared[server, nic])
    return Permitted(tuple(queue_pairs), tuple(of_message))


def entropies(
    fabric: Fabric,
    source: Nic,
    destination: Nic,
    rng: np.random.Generator,
    count: int,
    drawn: Between | None = None,
) -> list[QueuePair]:
    """Return queue pairs between two NICs, of different random entropies: those drawn before, if any were.

    One is enough where a single switch joins the two NICs: there is one way.

    Raises
    ------
    ScenarioError
        If more are asked for than there are entropies, or none.
    """
    if not 0 < count <= ENTROPIES:
        raise ScenarioError(f"{count} entropies between two NICs", f"ask for 1 to {ENTROPIES}")
    drawn = {} if drawn is None else drawn
    if (ends := (source, destination)) not in drawn:
        here, there = (fabric.peer(fabric.nic_port(nic)).node for nic in ends)
        chosen = rng.choice(ENTROPIES, size=1 if here == there else count, replace=False)
        drawn[ends] = [QueuePair(*ends, entropy) for entropy in chosen.tolist()]
    return drawn[ends]
