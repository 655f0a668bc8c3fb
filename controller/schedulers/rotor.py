"""The rotor: every switch turns through its share of the cyclic shifts, whatever the demand."""

import numpy as np
from numpy.typing import ArrayLike

from controller.schedulers.demand import checked_demand
from controller.schedulers.schedule import Schedule, Slot, frozen_schedule


def rotor(demand: ArrayLike, switches: int, delay: float) -> Schedule:
    """Return the round-robin schedule: each cyclic shift once, all equally long.

    Parameters
    ----------
    demand, switches, delay
        As of `spectra`.

    Notes
    -----
    Shift r lights i -> i + r modulo n; shift r is shown by switch r mod s; shift 0 only where a port
    owes itself something. A slot lasts as long as the largest entry needs: this one number is all that
    the rotor knows of the demand. Shorter slots in several turns only add delays. Traffic goes
    straight, not through a third port as RotorNet's load balancing may send it.

    References
    ----------
    W. Mellette et al., "RotorNet: A Scalable, Low-complexity, Optical Datacenter Network", SIGCOMM 2017.
    """
    matrix = checked_demand(demand, switches, delay)
    ports = np.arange(len(matrix))
    longest = float(matrix.max())
    shifts = [shift for shift in ports if shift or matrix.diagonal().any()]
    slots = [Slot((ports + shift) % len(matrix), longest) for shift in shifts]
    return frozen_schedule([slots[switch::switches] for switch in range(switches)], delay)
