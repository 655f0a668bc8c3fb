"""The OCSes of the fluid backend: each is dark for its device's delay, on the model's clock."""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from testbed.core.backend import Happening, LightChanged, NowProvisioned, SetCircuits
from topologies.events import Provision, Show, TimedCircuits
from topologies.light import Circuit
from traffic.clock import NEVER, ps


class FluidLight:
    """What OCSes carry, and when that changes.

    Parameters
    ----------
    delay_s, drawn_s, flip_s
        As of `testbed.model.backend.FluidBackend`.
    now_ps
        Returns the time.
    at
        Has something happen at a time [ps].
    shown
        Called when all OCSes have shown their programs.
    """

    def __init__(
        self,
        delay_s: Mapping[str, float],
        drawn_s: Mapping[str, Sequence[float]],
        flip_s: Mapping[str, float],
        *,
        now_ps: Callable[[], int],
        at: Callable[[int, Callable[[], Happening]], None],
        shown: Callable[[], None],
    ) -> None:
        self._delay_s, self._flip_s = delay_s, flip_s
        self._drawn_s = {ocs: deque(times_s) for ocs, times_s in drawn_s.items()}
        self._now_ps, self._at, self._shown = now_ps, at, shown
        self._lit: dict[str, tuple[Circuit, ...]] = dict.fromkeys(delay_s, ())
        self._showing = 0
        """How many OCSes show programs."""

    def carry_out(self, order: SetCircuits | Provision | Show) -> None:
        """Do what is ordered of OCSes; what is lit first is lit at once."""
        if isinstance(order, SetCircuits) and order.first:
            self._lit |= order.circuits
        elif isinstance(order, SetCircuits):
            for ocs, pairs in order.circuits.items():
                kept = self._kept(ocs, pairs)
                dark_s = self._flip_s.get(ocs, 0.0) if order.flips else self._dark_s(ocs, kept, pairs)
                self._switch_to(ocs, pairs, dark_s)
        elif isinstance(order, Provision):
            at_ps = self._now_ps() + ps(self._delay_s[order.ocs])
            self._at(at_ps, partial(NowProvisioned, order.ocs, order.circuits, at_ps))
        else:
            self._showing += len(order.programs)
            for ocs, slots in order.programs:
                self._at(self._now_ps(), partial(self._next_slot, ocs, deque(slots), order.partial))

    def _switch_to(self, ocs: str, circuits: tuple[Circuit, ...], dark_s: float) -> None:
        at_ps = self._now_ps() + ps(dark_s)

        def done() -> Happening:
            self._lit[ocs] = circuits
            return LightChanged(ocs, circuits, at_ps)

        self._at(at_ps, done)

    def _next_slot(self, ocs: str, slots: deque[TimedCircuits], keeps: bool) -> Happening:
        """Darken what the next slot does not keep; it is lit when the device is done."""
        if not slots:
            self._lit[ocs] = ()
            self._showing -= 1
            if not self._showing:
                self._shown()
            return LightChanged(ocs, (), self._now_ps())
        kept = self._kept(ocs, slots[0].circuits) if keeps else ()
        self._lit[ocs] = kept
        at_ps = self._now_ps() + ps(self._dark_s(ocs, kept, slots[0].circuits))
        self._at(at_ps, partial(self._show_slot, ocs, slots, keeps))
        return LightChanged(ocs, kept, self._now_ps(), None)

    def _show_slot(self, ocs: str, slots: deque[TimedCircuits], keeps: bool) -> Happening:
        slot, now_ps = slots.popleft(), self._now_ps()
        self._lit[ocs] = slot.circuits
        until_ps = now_ps + ps(slot.lit_s)
        self._at(until_ps, partial(self._next_slot, ocs, slots, keeps))
        return LightChanged(ocs, slot.circuits, now_ps, min(until_ps, NEVER - 1))

    def _kept(self, ocs: str, circuits: Collection[Circuit]) -> tuple[Circuit, ...]:
        return tuple(sorted(set(self._lit[ocs]).intersection(circuits)))

    def _dark_s(self, ocs: str, kept: Collection[Circuit], circuits: Collection[Circuit]) -> float:
        """Return how long what is new of an OCS' circuits is dark: no time if all are kept, or none are left.

        What was drawn is of orders that have circuits (`testbed.live.light_log.drawn_s`).
        """
        drawn_s = self._drawn_s.get(ocs)
        delay_s = drawn_s.popleft() if circuits and drawn_s else self._delay_s[ocs]
        return delay_s if len(kept) < len(circuits) else 0.0
