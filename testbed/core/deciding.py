"""Deciding: a rule hears what happens to a job, and what it orders is carried out."""

from collections.abc import Callable
from functools import partial

from controller.circuits.rule import Decides
from testbed.core.carriers import Carriers
from testbed.core.light import Light
from testbed.core.placing import Placing
from topologies.errors import ScenarioError, StuckError
from topologies.events import Event, Flip, Hold, Order, Provision, SendRest, SetTimer, Show, TimerFired, View
from traffic.clock import ps

MOST_IN_VAIN = 10_000
"""So many decisions in a row may change nothing in what the job has yet to do."""


class Deciding:
    """The rule of one run, and its state.

    Parameters
    ----------
    decides
        The rule; None decides nothing.
    light, carriers, placing
        What its orders are of.
    view
        Returns what it decides from.
    after
        Does something some time from now [ps].
    begins
        Returns the collective that begins now; empty if none does.
    progress
        Returns what has become of the job, which differs once something of it is done; None while something
        else than the rule may still bring it on.
    """

    def __init__(
        self,
        decides: Decides | None,
        light: Light,
        carriers: Carriers,
        placing: Placing,
        *,
        view: Callable[[], View],
        after: Callable[[int, Callable[[], None]], None],
        begins: Callable[[], str],
        progress: Callable[[], object],
    ) -> None:
        self._decides, self._light, self._carriers, self._placing = decides, light, carriers, placing
        self._view, self._after, self._begins = view, after, begins
        self._progress = progress
        self._state: object = None
        self._decisions = 0
        self._before: object = None
        """What had become of the job when `MOST_IN_VAIN` decisions were looked at last."""

    def tell(self, event: Event) -> None:
        """Have it decided after an event, and carry out what is ordered."""
        if self._decides is None:
            return
        if not (isinstance(event, TimerFired) and self._light.is_moving):  # a slow device may be waited for
            self._check_progress()
        self._state, orders = self._decides.decide(self._state, self._view(), event)
        for order in orders:
            self._carry_out(order)

    def _check_progress(self) -> None:
        """Raise StuckError if a rule goes on deciding, and nothing comes of it."""
        self._decisions += 1
        if self._decisions % MOST_IN_VAIN:
            return
        before, self._before = self._before, self._progress()
        if before is not None and before == self._before:
            raise StuckError(
                f"the rule for circuits decided {MOST_IN_VAIN:,} times in a row, by timers or by what it "
                "ordered, and the job did not go on",
                "light circuits for what is owed (view.owed()), and set timers that are longer",
            )

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
        self._placing.place(self._carriers.recall(self._carriers.taking_light))
