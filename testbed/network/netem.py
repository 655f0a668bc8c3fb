"""Delay and loss of links: a netem (tc-netem(8)) at each end, in front of the shaper's queue.

Datagrams need none for their delay: their engine has it (`traffic.transports.propagation`). Not every kernel
has netem. Where links are to lose packets, or to delay those of TCP, and there is none, nothing is booted.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from testbed.machine.netlink import TICK_NS, kernel_has_netem, netem_request
from topologies.errors import MachineError, ScenarioError
from topologies.fabric import Fabric, Port

LIMIT_PACKETS = 1 << 20
"""What may wait in a netem: never reached, so that a link drops by its loss and its shaper's queue only."""
ORPHAN_DELAY_S = TICK_NS * 1e-9
"""The least delay that the kernel keeps [s]; it takes packets out of their sender's account, and no more."""
LEAST_DELAY_S, MOST_DELAY_S = 50e-6, 0.5
"""Range of a link's delays that a netem honours, at emulated scale [s]: timers are late by up to 50 us, and
queue pairs that make no progress for 15 s are given up, where receivers grant after three ways over up to six
links. The engine of datagrams has no least: it reckons with the time at which a packet was due, however late
it looks."""


@dataclass(frozen=True, slots=True)
class Netem:
    """What befalls packets at one end of a link before they queue, at emulated scale."""

    delay_s: float = 0.0
    """How long each waits [s]."""
    loss: float = 0.0
    """The probability that one is dropped."""

    def request(self, *, change: bool = False, replace: bool = False) -> bytes:
        """Return the request to the kernel: for a new one, to change it, or for one in another's place."""
        return netem_request(self.delay_s, self.loss, LIMIT_PACKETS, change=change, replace=replace)

    def losing(self, loss: float) -> "Netem":
        """Return it with a loss on top of its own."""
        return Netem(self.delay_s, 1 - (1 - self.loss) * (1 - loss))


def link_netems(
    fabric: Fabric,
    time_factor: float | None,
    *,
    loss: bool = True,
    delays: bool = True,
    orphan: bool = False,
) -> dict[Port, Netem]:
    """Return the netem of each port that has one.

    Parameters
    ----------
    fabric
        Its links have delay and loss.
    time_factor
        Emulated time over real time, which delays are multiplied by; None while links have neither.
        A loss is per packet and remains as it is.
    loss
        Whether packets are lost.
    delays
        Whether packets are delayed.
    orphan
        Whether packets are to leave their sender's account at packet switches, by a delay that is nothing.
    """
    packet_switches = {switch.name for switch in fabric.switches if switch.kind == "packet"}
    netems = {}
    for port, link in fabric.link_at.items():
        orphans = orphan and port.node in packet_switches
        delayed_s = link.delay_s if delays else 0.0
        if not (orphans or delayed_s or link.loss):
            continue
        delay_s = delayed_s * (time_factor or 0.0)
        lost = link.loss if loss and time_factor is not None else 0.0
        netems[port] = Netem(max(delay_s, ORPHAN_DELAY_S if orphans else 0.0), lost)
    return netems


def check_netem(netems: Mapping[Port, Netem]) -> None:
    """Raise MachineError if a netem is needed and the kernel has none."""
    if netems and not kernel_has_netem():
        raise MachineError(
            "this machine's kernel has no netem, which delay and loss of links need",
            "leave out --link-delay-us and --loss, or take a transport of datagrams for a delay alone "
            "(--transport credit), or load or install its module sch_netem",
        )


def check_delays(fabric: Fabric, time_factor: float, *, by_links: bool) -> None:
    """Raise ScenarioError if a link's delay is too short or too long to be emulated.

    Parameters
    ----------
    time_factor
        Emulated time over real time.
    by_links
        Whether links delay packets (`HostSettings.delays`), and not the engine of datagrams.
    """
    by, least_s = ("netem", LEAST_DELAY_S) if by_links else ("the engine of datagrams", 0.0)
    for delay_s in sorted({link.delay_s for link in fabric.links if link.delay_s}):
        emulated_s = delay_s * time_factor
        if least_s <= emulated_s <= MOST_DELAY_S:
            continue
        least_us, most_us = (limit_s / time_factor * 1e6 for limit_s in (least_s, MOST_DELAY_S))
        raise ScenarioError(
            f"a link's delay of {delay_s * 1e6:g} us would be {emulated_s:.2g} s in the emulation, "
            f"where {by} honours {least_s:g} to {MOST_DELAY_S:g} s",
            f"give a --link-delay-us of {least_us:.2g} to {most_us:.2g}, or leave it out",
        )
