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
from traffic.messages import Messages
from traffic.spraying.policy import Permitted, QpState
from traffic.spraying.subflows import Between, subflows


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

    def __init__(self) -> None:
        self._drawn: Between = {}
        self._of_message: tuple[tuple[int, ...], ...] = ()

    def permit(self, *, fabric: Fabric, messages: Messages, rng: np.random.Generator) -> Permitted:
        """Return a queue pair from every NIC of the source server to the NIC beside the destination."""
        permitted = subflows(fabric, messages, rng, drawn=self._drawn)
        self._of_message = permitted.of_message
        return permitted

    def choose(self, *, message: int, states: Sequence[QpState], now: float) -> int | None:
        """Return the queue pair of least RTT that has room; one never measured is tried first.

        Among equals the one of least backlog is taken, then the first.
        """
        best, least = None, (float("inf"), 0)
        for qp in self._of_message[message]:
            state = states[qp]
            if state.room and (state.rtt_s, state.backlog_bytes) < least:
                best, least = qp, (state.rtt_s, state.backlog_bytes)
        return best

    def acknowledged(self, *, message: int, qp: int, rtt_s: float, marked: bool, now: float) -> None:
        """Learn nothing: the RTT is in the states."""
