"""Circuits as a schedule plans them: shown from a job's start; and where what is left over goes.

It goes over packets if that is asked for and packet switches join all pairs of servers that lack bytes, else
into clean-up rounds.
"""

from collections.abc import Callable, Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from controller.circuits.circuits import Circuits
from controller.schedulers.schedule import Schedule, Slot
from topologies.errors import StuckError
from topologies.events import (
    Event,
    FaultDetected,
    NodeStarted,
    Order,
    ProgramsEnded,
    SendRest,
    Show,
    TimedCircuits,
    View,
)
from topologies.fabric import Port
from topologies.packet_part import packets_join

CLEANUP_ROUNDS = 5


class Planned:
    """Shows a schedule when the first node starts; pure, its state counts the rounds that were begun.

    Parameters
    ----------
    ocses
        The names of the OCSes, in the schedule's order; port i of each has server i.
    schedule
        What they show [s].
    cleanup
        Returns a schedule over so many OCSes for what is missing between servers, shape (servers, servers)
        [bytes].
    partial
        Whether circuits that two slots share stay lit between them.
    rest
        Whether what the schedule leaves over goes over packets; the scheme says how.
    """

    def __init__(
        self,
        ocses: Sequence[str],
        schedule: Schedule,
        cleanup: Callable[[NDArray[np.int64], int], Schedule],
        *,
        partial: bool = False,
        rest: bool = False,
    ) -> None:
        self._ocses, self._schedule = tuple(ocses), schedule
        self._cleanup, self._partial, self._rest = cleanup, partial, rest

    def decide(self, state: object, view: View, event: Event) -> tuple[object, Sequence[Order]]:
        """Return the orders of an event.

        Raises
        ------
        StuckError
            If bytes are missing after several clean-up rounds, or between servers that no OCS joins any more.
        """
        rounds = state if isinstance(state, int) else 0
        if isinstance(event, NodeStarted) and not rounds:
            return 1, [self._shown(self._ocses, self._schedule, exact=self._rest)]
        if isinstance(event, FaultDetected):
            return min(rounds, 1), []  # rounds from before it was known could not do better
        if not isinstance(event, ProgramsEnded):
            return rounds, []
        servers = view.fabric.gpu_servers
        left = [(servers[source], servers[destination], size) for source, destination, size in event.left]
        if self._rest and all(packets_join(view.fabric, near, far) for near, far, _ in left):
            return rounds, [SendRest()]
        if not left:
            return rounds, []
        if rounds > CLEANUP_ROUNDS:
            missing = sum(size for _, _, size in left)
            raise StuckError(
                f"{missing:,} bytes are missing after {CLEANUP_ROUNDS} clean-up rounds",
                "lower the rate (the machine may be too slow), or use drain",
            )
        owed = np.zeros((len(view.fabric.servers),) * 2, dtype=np.int64)
        for near, far, size in left:
            owed[near, far] += size
        return rounds + 1, [self._round(owed, view.failed)]

    def _round(self, owed: NDArray[np.int64], failed: Collection[Port]) -> Show:
        """Return a clean-up round over the OCSes that work; if none does, over what works of each."""
        broken = [{port.number for port in failed if port.node == ocs} for ocs in self._ocses]
        whole = [ocs for ocs, ports in zip(self._ocses, broken, strict=True) if not ports]
        if whole:
            return self._shown(whole, self._cleanup(owed, len(whole)))
        left, switches = owed.copy(), list[tuple[Slot, ...]]()
        for ports in broken:
            part = left.copy()
            part[list(ports)] = part[:, list(ports)] = 0
            left -= part
            switches += self._cleanup(part, 1).switches if part.any() else [()]
        if left.any():
            near, far = np.argwhere(left)[0]
            raise StuckError(
                f"no OCS joins servers {near} and {far} any more, which lack {left.sum():,} bytes or more",
                "take more OCSes, or a rest over packets (--rest)",
            )
        return self._shown(self._ocses, Schedule(tuple(switches), self._schedule.delay))

    def _shown(self, ocses: Sequence[str], schedule: Schedule, *, exact: bool = False) -> Show:
        programs = tuple(
            (
                ocs,
                tuple(
                    TimedCircuits(Circuits.of_permutation(slot.permutation).pairs, slot.weight)
                    for slot in slots
                ),
            )
            for ocs, slots in zip(ocses, schedule.switches, strict=True)
        )
        return Show(programs, self._partial, exact)
