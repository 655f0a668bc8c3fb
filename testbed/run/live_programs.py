"""A schedule's slots as the controller's program: at emulated scale, and a little longer than planned."""

from collections.abc import Sequence

from controller.circuits.circuits import Circuits
from controller.circuits.programs import Day, Program
from testbed.run.dilation import Dilation
from topologies.events import TimedCircuits
from traffic.transports.circuit_engine import GUARD_S, Meeting
from traffic.transports.datagrams import header_share

START_S = 0.004
"""What a slot loses besides guard times: the news, a round of the engine, a datagram that no longer fits."""
LAST_SHARE, LAST_S = 0.1, 0.05
"""How much longer an OCS' last slot may be lit, so that what is late needs no slot of its own: as a share of
the slot, and on top [s]. It ends with the last byte."""


def emulated_program(
    slots: Sequence[TimedCircuits],
    ports: int,
    dilation: Dilation,
    rate_bps: float,
    *,
    meeting: Meeting = "drain",
    partial: bool = False,
) -> Program:
    """Return what an OCS shows for slots.

    Parameters
    ----------
    slots
        At real scale.
    ports
        Of the OCS.
    dilation
        The emulation's scale.
    rate_bps
        The rate of a NIC there [bit/s].
    meeting
        How senders meet the dark.
    partial
        Whether circuits that two slots share stay lit between them.
    """

    def lit_s(slot: TimedCircuits) -> float:
        carries_s = dilation.emulated_s(slot.lit_s) * header_share(rate_bps)
        more_s = carries_s * LAST_SHARE + LAST_S if slot is slots[-1] else 0.0
        return carries_s + (GUARD_S if meeting == "drain" else 0.0) + START_S + more_s

    return Program(tuple(Day(Circuits(ports, slot.circuits), lit_s(slot)) for slot in slots), partial)
