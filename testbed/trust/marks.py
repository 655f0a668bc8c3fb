"""Marks: from which queue on packets are marked under a transport, and by whom."""

from dataclasses import dataclass
from typing import Literal

from testbed.experiment.experiment import Experiment
from traffic.transports.marking import USUAL
from traffic.transports.registry import DATAGRAMS, algorithm_named


@dataclass(frozen=True)
class MarkingRule:
    """From which queue on packets are marked, and by whom; 0 where a length is not used."""

    by: Literal["engine", "switches", "nobody"]
    """``engine``: of datagrams, by the queue delay of each packet (`traffic.transports.marking`)."""
    unmarked_bdp: float = 0.0
    """Up to which queue no packet is marked [bandwidth-delay products]."""
    marked_bdp: float = 0.0
    """From which queue on all are [bandwidth-delay products]; between them a share that rises linearly."""
    unmarked_packets: float = 0.0
    """The least queue at which a packet is marked [packets]."""
    unmarked_bytes: int = 0
    """The same as switches have it [bytes]."""

    @property
    def text(self) -> str:
        """The rule in words.

        Examples
        --------
        >>> MarkingRule("engine", 0.2, 0.8).text
        'by the engine, from 0.2 BDP on, all from 0.8 BDP on'
        """
        if self.by == "nobody":
            return "by nobody"
        least = [f"{self.unmarked_bdp:g} BDP"] * (self.unmarked_bdp > 0)
        least += [f"{self.unmarked_packets:g} packets"] * (self.unmarked_packets > 0)
        least += [f"{self.unmarked_bytes / 1000:g} kB"] * (self.unmarked_bytes > 0)
        every = f", all from {self.marked_bdp:g} BDP on" * (self.marked_bdp > self.unmarked_bdp)
        by = "the engine" if self.by == "engine" else "switches"
        return f"by {by}, from {' and '.join(least)} on{every}"


def marking_rule(experiment: Experiment) -> MarkingRule:
    """Return by what rule packets over packet switches are marked in an experiment's emulation."""
    mark_bytes = experiment.host.mark_bytes
    if mark_bytes:
        return MarkingRule("switches", unmarked_bytes=mark_bytes)
    if not experiment.transport.sprays or experiment.transport_name == DATAGRAMS:
        return MarkingRule("nobody")
    red = algorithm_named(experiment.transport.name).marks or USUAL
    return MarkingRule("engine", red.least, red.most, red.least_packets)
