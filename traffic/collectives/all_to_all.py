"""All-to-all: every GPU sends each other one what it owes it, all at once."""

from dataclasses import dataclass

from traffic.collectives.exchange import Exchange
from traffic.demand import Demand
from traffic.messages import messages_of


@dataclass(frozen=True)
class AllToAll:
    """A demand whose messages all start with the collective."""

    demand: Demand
    name = "all-to-all"

    @property
    def gpus(self) -> frozenset[int]:
        """The GPUs of the demand, idle ones among them."""
        return frozenset(range(self.demand.gpus))

    def exchange(self) -> Exchange:
        """Return one message per pair that owes something."""
        return Exchange(messages_of(self.demand))
