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
    """The same where switches mark [bytes]."""
    marked_bytes: int = 0
    """From which queue on switches mark all [bytes]."""

    @property
    def text(self) -> str:
        """The rule in words.

        Examples
        --------
        >>> MarkingRule("engine", 0.2, 0.8).text
        'by the engine, from 0.2 BDP on, all from 0.8 BDP on'
        >>> MarkingRule("engine", 0.2, 0.2, unmarked_packets=4).text
        'by the engine, from 0.2 BDP on, none under 4 packets'
        >>> MarkingRule("switches", unmarked_bytes=32_000, marked_bytes=128_000).text
        'by switches, from 32 kB on, all from 128 kB on'
        """
        if self.by == "nobody":
            return "by nobody"
        if self.by == "switches":
            least, most = f"{self.unmarked_bytes / 1000:g} kB", f"{self.marked_bytes / 1000:g} kB"
        elif not self.marked_bdp:
            least = most = f"{self.unmarked_packets:g} packets"
        else:
            least, most = f"{self.unmarked_bdp:g} BDP", f"{self.marked_bdp:g} BDP"
        every = "" if least == most else f", all from {most} on"
        few = self.marked_bdp and self.unmarked_packets
        every += f", none under {self.unmarked_packets:g} packets" if few else ""
        return f"by {'the engine' if self.by == 'engine' else 'switches'}, from {least} on{every}"


def marking_rule(experiment: Experiment) -> MarkingRule:
    """Return by what rule packets over packet switches are marked in an experiment's emulation."""
    mark_bytes = experiment.host.mark_bytes
    if mark_bytes:
        most_bytes = mark_bytes + experiment.host.mark_rise_bytes
        return MarkingRule("switches", unmarked_bytes=mark_bytes, marked_bytes=most_bytes)
    if not experiment.transport.sprays or experiment.transport_name == DATAGRAMS:
        return MarkingRule("nobody")
    red = algorithm_named(experiment.transport.name).marks or USUAL
    return MarkingRule("engine", red.least, red.most, red.least_packets)
