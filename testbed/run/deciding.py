"""Deciding: a rule hears what happens to a job, and what it orders is carried out."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from testbed.run.carriers import Carriers
from testbed.run.light import Light
from testbed.run.placing import Placing
from topologies.errors import ScenarioError
from topologies.events import Event, Flip, Hold, Order, Provision, SendRest, SetTimer, Show, TimerFired, View
from traffic.clock import ps


class Circuits(Protocol):
    """Decides which circuits are lit; pure, so that both backends get the same decisions."""

    def decide(self, state: object, view: View, event: Event) -> tuple[object, Sequence[Order]]:
        """Return the state after an event, and what is to be done; the first state is None."""
        ...


class Deciding:
    """The rule of one run, and its state.

    Parameters
    ----------
    circuits
        The rule; None decides nothing.
    light, carriers, placing
        What its orders are of.
    view
        Returns what it decides from.
    after
        Does something some time from now [ps].
    begins
        Returns the collective that begins now; empty if none does.
    """

    def __init__(
        self,
        circuits: Circuits | None,
        light: Light,
        carriers: Carriers,
        placing: Placing,
        *,
        view: Callable[[], View],
        after: Callable[[int, Callable[[], None]], None],
        begins: Callable[[], str],
    ) -> None:
        self._circuits, self._light, self._carriers, self._placing = circuits, light, carriers, placing
        self._view, self._after, self._begins = view, after, begins
        self._state: object = None

    def tell(self, event: Event) -> None:
        """Have it decided after an event, and carry out what is ordered."""
        if self._circuits is None:
            return
        self._state, orders = self._circuits.decide(self._state, self._view(), event)
        for order in orders:
            self._carry_out(order)

    def _carry_out(self, order: Order) -> None:
        if isinstance(order, SetTimer):
            self._after(ps(order.after_s), partial(self.tell, TimerFired(order.name)))
        elif isinstance(order, SendRest):
            self._send_rest()
        elif isinstance(order, Hold):
            self._hold(order)
        elif isinstance(order, Show):
            self._placing.light_is_over = False
            self._light.show(order)
        elif isinstance(order, Provision):
            self._light.provision(order)
        elif isinstance(order, Flip):
            self._light.flip(order)
        else:
            self._light.reconfigure(order)

    def _hold(self, order: Hold) -> None:
        """Have a collective that begins now wait for OCSes, if these have been ordered anything."""
        if order.node != self._begins():
            raise ScenarioError(
                f"{order.node!r} was to be held, and is not a collective that begins now",
                "order it when the collective starts (NodeStarted)",
            )
        self._light.hold(order.node, order.ocses, order.deadline_s)

    def _send_rest(self) -> None:
        """Place anew what operations over circuits lack."""
        if self._light.is_showing or (self._carriers.taking_light and not self._placing.has_rest):
            why = "while OCSes show programs" if self._light.is_showing else "under a scheme without a rest"
            raise ScenarioError(
                f"what circuits leave over was ordered over packets {why}",
                "order it when programs have ended, and take OverCircuits with a rest",
            )
        self._placing.light_is_over = True
        self._placing.again(self._carriers.recall(self._carriers.taking_light))
