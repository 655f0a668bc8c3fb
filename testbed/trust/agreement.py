"""Agreement: how far emulated and predicted times are apart, and where the time went.

A healthy machine may contradict the model: that is a finding, and the verdict does not know of it. What it
did is held against the informed prediction, which follows the paths that were taken and the delays that
were drawn: what differs is physics. What it chose is held against the free one (`testbed.model.predict`).
"""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from testbed.experiment.experiment import LIMIT
from topologies.fabric import Fabric, Port

AGREES_FROM, AGREES_TO = 0.90, 1.15
"""Emulated over predicted: on a quiet machine proactive schemes took 0.98 to 1.03, schedules over OCSes 0.98
to 1.16."""
MARK = "!"
MARKED = f"{MARK}: the model disagrees, outside {AGREES_FROM:.2f} .. {AGREES_TO:.2f}."
"""What a caption says of the mark."""


LIMIT_MARK = "~"
_LIMIT = f"{LIMIT}, what the scheme tends to with tiny chunks; it chooses nothing there itself."
LIMITED = f"{LIMIT_MARK}: the prediction is a {_LIMIT}"
"""What a caption says of the mark, which is at schemes that choose as they go (`traffic.fluid.choice`)."""
ALL_LIMITED = f"The prediction is a {_LIMIT}"
"""What a caption says where the numbers have no room for the mark."""


def agrees(over_predicted: float) -> bool:
    """Return whether emulated and predicted agree, or cannot be compared."""
    return math.isnan(over_predicted) or AGREES_FROM <= over_predicted <= AGREES_TO


def agreement_text(over_predicted: float) -> str:
    """Return emulated over predicted with a mark where they disagree, a dash where there is no such number.

    Examples
    --------
    >>> agreement_text(1.04), agreement_text(1.31), agreement_text(math.nan)
    ('1.04', '1.31 !', '-')
    """
    if math.isnan(over_predicted):
        return "-"
    return f"{over_predicted:.2f}" + ("" if agrees(over_predicted) else f" {MARK}")


def findings(
    over_predicted: float,
    *,
    over_free: float = math.nan,
    packets: float,
    retransmits: float,
    queue_drops: float,
    nic_busy: NDArray[np.float64],
) -> tuple[str, ...]:
    """Return where the time went, a sentence each; nothing where emulated and predicted agree.

    Parameters
    ----------
    over_predicted
        Emulated over predicted CCT, where the prediction follows the paths taken and the delays drawn.
    over_free
        The same over what the model's own choices give; NaN if unknown.
    packets, retransmits, queue_drops
        What the NICs sent, what of it was sent again, and what full queues dropped; NaN if unknown.
    nic_busy
        From `nic_busy`.
    """
    decisions = _decisions(over_predicted, over_free)
    if agrees(over_predicted):
        return decisions
    found = [f"it took {over_predicted:.2f} times the prediction", *decisions]
    if queue_drops > 0:
        found.append(f"queues dropped {queue_drops:.0f} packets ({queue_drops / packets:.1%})")
    if retransmits > 0:
        found.append(f"{retransmits / packets:.1%} of the packets were sent again")
    if nic_busy.size:
        idle, idlest = 1 - nic_busy.max(), 1 - nic_busy.mean()
        found.append(f"the busiest NIC was idle {idle:.0%} of the CCT, NICs on average {idlest:.0%}")
    return tuple(found)


def _decisions(over_predicted: float, over_free: float) -> tuple[str, ...]:
    """Return what paths and delays cost or saved, where without them the model would disagree."""
    if agrees(over_free) or over_free == over_predicted:
        return ()
    return (
        f"it took {over_free:.2f} times what the model's own paths and delays give: "
        f"those of the emulation account for {over_free / over_predicted:.2f}",
    )


def nic_busy(sent: Mapping[Port, int], fabric: Fabric, seconds: float) -> NDArray[np.float64]:
    """Return which share of a time each NIC needs for its bytes, in its busier direction, shape (NICs,).

    Parameters
    ----------
    sent
        What each port sent, as from `traffic.metrics.link_bytes` [bytes].
    fabric
        Over which.
    seconds
        The time [real s]; nothing comes of none.
    """
    if not seconds:
        return np.empty(0)
    bytes_s = np.array([fabric.nic_rate_bps(nic) / 8 for nic in fabric.nics])
    ports = [fabric.nic_port(nic) for nic in fabric.nics]
    busiest = np.array([max(sent.get(port, 0), sent.get(fabric.peer(port), 0)) for port in ports])
    return np.asarray(np.minimum(busiest / (bytes_s * seconds), 1.0))
