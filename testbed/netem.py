"""Delay and loss of links: a netem (tc-netem(8)) at each end, in front of the shaper's queue.

Not every kernel has netem. Where a fabric asks for delay or loss and there is none, nothing is booted.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from testbed.kernel import inside_namespace, new_network_namespace
from testbed.netlink import TICK_NS, Batch, netem_request
from topologies.errors import MachineError, NetworkError
from topologies.fabric import Fabric, Port

LIMIT_PACKETS = 1 << 20
"""What may wait in a netem: never reached, so that a link drops by its loss and its shaper's queue only."""
ORPHAN_DELAY_S = TICK_NS * 1e-9
"""The least delay that the kernel keeps: for packets that only shall leave their sender's account [s]."""
LOOPBACK = 1


@dataclass(frozen=True, slots=True)
class Netem:
    """What befalls packets at one end of a link before they queue, at emulated scale."""

    delay_s: float = 0.0
    """How long each waits [s]."""
    loss: float = 0.0
    """The probability that one is dropped."""

    def request(self, *, change: bool = False) -> bytes:
        """Return the request to the kernel."""
        return netem_request(self.delay_s, self.loss, LIMIT_PACKETS, change=change)


def link_netems(fabric: Fabric, time_factor: float | None, *, orphan: bool = False) -> dict[Port, Netem]:
    """Return the netem of each port that has one.

    Parameters
    ----------
    fabric
        Its links have delay and loss.
    time_factor
        Emulated time over real time, which delays are multiplied by; None while links have neither.
        A loss is per packet and remains as it is.
    orphan
        Whether packets are to leave their sender's account at packet switches, by a delay that is nothing.
    """
    packet_switches = {switch.name for switch in fabric.switches if switch.kind == "packet"}
    netems = {}
    for port, link in fabric.link_at.items():
        orphans = orphan and port.node in packet_switches
        if not (orphans or link.delay_s or link.loss):
            continue
        delay_s, loss = (0.0, 0.0) if time_factor is None else (link.delay_s * time_factor, link.loss)
        netems[port] = Netem(max(delay_s, ORPHAN_DELAY_S if orphans else 0.0), loss)
    return netems


def check_netem(netems: Mapping[Port, Netem]) -> None:
    """Raise MachineError if a netem is needed and the kernel has none."""
    if netems and not kernel_has_netem():
        raise MachineError(
            "this machine's kernel has no netem, which delay and loss of links need",
            "leave out --link-delay-us and --loss, or load or install its module sch_netem",
        )


@cache
def kernel_has_netem() -> bool:
    """Return whether netem can be put on an interface; the kernel loads its module for that if it has one."""
    namespace, batch = new_network_namespace(), Batch()
    batch.add_qdisc("try netem", Netem().request(), LOOPBACK)
    try:
        with inside_namespace(namespace):
            batch.commit()
    except NetworkError:
        return False
    finally:
        os.close(namespace)
    return True
