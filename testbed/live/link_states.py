"""The links of a network put into the states that faults leave them in."""

from collections.abc import Iterable

from testbed.core.failures import HEALTHY, states_of_links
from testbed.network.network import Network
from traffic.faults import Fault


def set_links(network: Network, before: Iterable[Fault], now: Iterable[Fault]) -> None:
    """Have the links of a network do what faults leave of them, where that is not what those before left."""
    fabric = network.fabric
    were, are = (states_of_links(fabric, faults) for faults in (before, now))
    for link in {**were, **are}:
        was, state = were.get(link, HEALTHY), are.get(link, HEALTHY)
        if state.up != was.up:
            network.turn_links([link], works=state.up)
        if (state.rate, state.loss) != (was.rate, was.loss):
            network.shape_link(link.a, state.rate, state.loss)
