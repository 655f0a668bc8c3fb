"""MinRTT: the next chunk takes the queue pair of smallest round-trip time that has room.

That is the *default* scheduler of multipath-tcp.org's kernel (v0.9x), with queue pairs for subflows. Today's
Linux has another *default*: the subflow that would soonest have sent what it holds (queued bytes over its
mean pacing rate, as BLEST reckons), whatever its round trip, for a burst of up to 64 KiB.

What TCP queue pairs change. A subflow's congestion window is the kernel's own business, so "has window" is
the engine's *room*, a limit on what is posted and not yet counted. Nothing that waits on a slow subflow is
sent again on another one while that one's window is halved (opportunistic retransmission, penalization).
Messages from one server to one NIC share their subflows, where MPTCP would open a set for each.
"""

from collections.abc import Sequence

import numpy as np

from topologies.fabric import Fabric
from traffic.spraying.policy import Lanes, LaneState, Message
from traffic.spraying.subflows import Subflows


class MinRtt:
    """Lowest smoothed RTT first, over one queue pair from each NIC of the source server.

    References
    ----------
    C. Raiciu et al., "How hard can it be? Designing and implementing a deployable multipath TCP",
    NSDI 2012, section 4; github.com/multipath-tcp/mptcp, net/mptcp/mptcp_sched.c: the least ``srtt_us`` among
    available subflows. Today's Linux: net/mptcp/protocol.c, ``mptcp_subflow_get_send``. RailS, section VI-A.
    """

    name = "minrtt"
    steady = True

    def open(self, *, fabric: Fabric, rng: np.random.Generator) -> None:
        """Begin without a subflow."""
        self._subflows = Subflows(fabric, rng)

    def admit(self, *, message: Message) -> Lanes:
        """Return a lane from every NIC of the source server to the NIC beside the destination."""
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
