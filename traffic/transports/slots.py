"""Slots: the times for which a schedule lights circuits, and how senders use them.

A slot's circuits go one way. Messages cross them as datagrams, each over the lane that is open, and a lane is
open until its circuit goes dark, or shortly before (`traffic.transports.datagram_engine`). Bytes that a slot
did not deliver go in a later one. Senders follow one of three policies before a reconfiguration:

- *drain*: stop a guard time before, so that what is on its way lands. Nothing is lost.
- *pause*: stop when it goes dark. What is on its way is lost.
- *cut*: send on until other circuits are lit. All that was sent while it was dark is lost.

A datagram that a later one of its circuit overtook is lost, and goes again at once. Senders that drain lose
nothing by choice, so a datagram that has not arrived `LANDED_S` after its NIC had sent all is lost too, and
goes where there is light: in what is left of its slot, or over another OCS. Under the other policies it may
have been sent while it was dark, and goes again when other circuits are lit.
"""

from dataclasses import dataclass
from math import inf
from typing import Literal

from traffic.packets import DEFAULT_MTU, ETHERNET_HEADER_BYTES

SLOT_PORT = 4796
"""The port of datagrams over slots: a server receives others at another port."""
Meeting = Literal["drain", "pause", "cut"]
"""The policies of senders before a reconfiguration."""
GUARD_S, START_S = 0.003, 0.004
"""The least of `Margins` [s]."""
LANDED_S = 0.02
"""How long after a NIC has sent its last datagram all have arrived: some turns of a busy switch [s]."""
PACKET_S = 0.002
"""How long a datagram takes at the NIC's rate: short against a slot, long against what it costs to send."""
LEAST_PACKET_BYTES = 256
IP_UDP_BYTES = 28
"""Within the MTU."""
SLOT_HEADER_BYTES = ETHERNET_HEADER_BYTES + IP_UDP_BYTES
"""Headers that the NIC's rate has room for too."""
AHEAD_S = 0.006
"""A NIC takes more while all that it holds leaves within this time [s]: what it holds may be lost."""


@dataclass(frozen=True)
class Margins:
    """What a slot is longer for than its bytes need, at emulated scale; on a slow machine it is more."""

    guard_s: float = GUARD_S
    """How long before a slot ends *drain* stops: a NIC's queue and the switch's work [s]."""
    start_s: float = START_S
    """What a slot loses besides: late news, a round of the engine, a datagram that no longer fits [s]."""

    def slot_s(self, meeting: Meeting) -> float:
        """Return how much longer a slot is lit [s]."""
        return self.start_s + (self.guard_s if meeting == "drain" else 0.0)


LEAST_MARGINS = Margins()
"""Those of a machine that is not slow."""


@dataclass(slots=True)
class SlotRecord:
    """Record of one OCS while it showed one permutation; times are those of `time.monotonic`."""

    ocs: str
    lit_s: float
    until_s: float
    circuits: int
    sent_bytes: int = 0
    delivered_bytes: int = 0
    lost_bytes: int = 0
    """Sent, and not delivered by the time other circuits were lit."""


def patience_s(meeting: Meeting) -> float:
    """Return how long after its NIC has sent all a packet counts as lost, if its light has not turned [s]."""
    return LANDED_S if meeting == "drain" else inf


def slot_packet_bytes(rate_bps: float, mtu: int = DEFAULT_MTU) -> int:
    """Return the payload of a full datagram at a NIC's rate: `PACKET_S` of it, within an MTU."""
    return int(min(mtu - IP_UDP_BYTES, max(rate_bps / 8 * PACKET_S - SLOT_HEADER_BYTES, LEAST_PACKET_BYTES)))


def header_share(rate_bps: float, mtu: int = DEFAULT_MTU) -> float:
    """Return bytes on the wire over bytes of messages at a NIC's rate [bit/s]."""
    return 1 + SLOT_HEADER_BYTES / slot_packet_bytes(rate_bps, mtu)
