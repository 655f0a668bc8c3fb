"""MinRTT: the next chunk takes the queue pair of smallest round-trip time that has room.

That is the *default* scheduler of multipath-tcp.org's kernel (v0.9x), with queue pairs for subflows. Today's
Linux has another *default*: the subflow that would soonest have sent what it holds (queued bytes over its
mean pacing rate, as BLEST reckons), whatever its round trip, for a burst of up to 64 KiB.

What TCP queue pairs change. A subflow's congestion window is the kernel's own business, so "has window" is
the engine's *room*, a limit on what is posted and not yet counted. Nothing that waits on a slow subflow is
sent again on another one while that one's window is halved (opportunistic retransmission, penalization).
Messages from one server to one NIC share their subflows, where MPTCP would open a set for each.

Over datagrams a subflow is an entropy. It has no window: "has window" is room at its NIC within what the
receiver granted. A lost packet is sent again on the subflow that is best then.
"""

from collections.abc import Sequence

import numpy as np

from topologies.fabric import Fabric
from traffic.spraying.policy import ENTROPIES, Lanes, LaneState, Message
from traffic.spraying.subflows import Subflows


class MinRtt:
    """Lowest smoothed RTT first, over subflows from each NIC of the source server.

    Parameters
    ----------
    per_nic
        Subflows from each NIC of the source server to each destination NIC.
    entropies
        How many entropies a NIC has if lanes are of datagrams; None if each is a TCP connection.

    References
    ----------
    C. Raiciu et al., "How hard can it be? Designing and implementing a deployable multipath TCP",
    NSDI 2012, section 4; github.com/multipath-tcp/mptcp, net/mptcp/mptcp_sched.c: the least ``srtt_us`` among
    available subflows. Today's Linux: net/mptcp/protocol.c, ``mptcp_subflow_get_send``. RailS, section VI-A.
    """

    name = "minrtt"
    steady = True
    per_packet = True
    per_nic = 1  # these two also of a user's class that is derived from this one and has its own __init__
    entropies: int | None = None

    def __init__(self, per_nic: int = 1, *, entropies: int | None = None) -> None:
        self.per_nic, self.entropies = per_nic, entropies

    def open(self, *, fabric: Fabric, rng: np.random.Generator) -> None:
        """Begin without a subflow."""
        self._subflows = Subflows(fabric, rng, self.per_nic, self.entropies or ENTROPIES)

    def admit(self, *, message: Message) -> Lanes:
        """Return ``per_nic`` lanes from every NIC of the source server to the NIC beside the destination."""
        return self._subflows.from_server(message.source, message.destination)

    def choose(self, *, message: int, states: Sequence[LaneState], now: float) -> int | None:
        """Return the lane of least RTT that has room; one never measured is tried first.

        Among equals the one of least backlog is taken, then the first.
        """
        best, least = None, (float("inf"), 0)
        for lane, state in enumerate(states):
            if state.room and (state.rtt_s, state.backlog_bytes) < least:
                best, least = lane, (state.rtt_s, state.backlog_bytes)
        return best

    def acknowledged(self, *, message: int, lane: int, rtt_s: float, marked: bool, now: float) -> None:
        """Learn nothing: the RTT is in the states."""

    def withdraw(self, *, message: int) -> None:
        """Forget nothing: the subflows are the server's."""
