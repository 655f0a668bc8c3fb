"""Faulting: which faults stand and which are known, and what is left of links, GPUs and daemons.

Whenever a fault comes or is over, the states are folded anew from the effects of all that stand, in the order
in which they began, so that overlapping ones compose; the backend gets the differences. What the job knows is
folded alike from the faults that are known. What becomes of operations then is `Revising`'s.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain

from testbed.core.ledger import Ledger
from testbed.core.movers import Backend, Expect, KnowRates, SetDaemon, SetLink
from topologies.fabric import Fabric, Link, Nic, Port
from traffic.clock import ps
from traffic.effects import Daemon, DaemonState, Effect, LinkState, daemon_states, gpu_states, link_states
from traffic.faults import Fault

HEALTHY = LinkState()


class Faulting:
    """Has faults come, be known and be over.

    Parameters
    ----------
    fabric, faults
        What fails, and where.
    backend, ledger
        What carries it out, and what it is written down in.
    leaves
        Returns whether the job goes on as it was after a fault.
    at
        Does something at a time [ps].
    controlled
        Told whether OCSes have a controller from now on.
    detected, over
        What follows once a fault is known, and once it is known to be over; with whether traffic is to be led
        anew.
    """

    def __init__(
        self,
        fabric: Fabric,
        faults: Sequence[Fault],
        backend: Backend,
        ledger: Ledger,
        *,
        leaves: Callable[[Fault], bool],
        at: Callable[[int, Callable[[], None]], None],
        controlled: Callable[[bool], None],
        detected: Callable[[Fault, bool], None],
        over: Callable[[Fault, bool], None],
    ) -> None:
        self._fabric, self._faults, self._backend, self._ledger = fabric, faults, backend, ledger
        self._leaves, self._at, self._controlled = leaves, at, controlled
        self._detected, self._over = detected, over
        self._begun: list[Fault] = []
        """The faults that came, in that order."""
        self.standing: list[Fault] = []
        """Those of them that are not over."""
        self.known: list[Fault] = []
        """Those that are known, and not known to be over."""
        self.failed: frozenset[Port] = frozenset()
        """The ports that are known to have failed, at both ends of links."""
        self.stopped: set[int] = set()
        """The GPUs that are gone, known or not."""
        self._links: dict[Link, LinkState] = {}
        """What the backend has of each link that changed."""
        self._daemons: dict[Daemon, DaemonState] = {}
        """The same of daemons."""
        self.rates: dict[Nic, float] = {}
        """The shares of their rate that NICs are known to have, where that is not all."""
        self._expects_back = False

    def stands(self, fault: Fault) -> bool:
        """Return whether a fault is there from the start, and leaves the job as it is."""
        return fault.is_standing and self._leaves(fault)

    @property
    def expected(self) -> bool:
        """Whether there are any faults, now or later."""
        return bool(self._faults)

    @property
    def come_later(self) -> bool:
        """Whether some fault comes while the job runs, or revises it."""
        return not all(map(self.stands, self._faults))

    def begin(self) -> None:
        """Have the faults come that stand from the start."""
        for fault in filter(self.stands, self._faults):
            self._fail(fault)

    def node_began(self, node: str) -> None:
        """Have the faults come in time that count from the start of a node, or of the job."""
        for fault in self._faults:
            if fault.when.node == node and not self.stands(fault):
                self._at(self._backend.now_ps + ps(fault.when.after_s), partial(self._fail, fault))

    def _fail(self, fault: Fault) -> None:
        self._begun.append(fault)
        self.standing.append(fault)
        self.stopped.update(gpu for gpu, state in gpu_states(_effects(self.standing)).items() if not state.up)
        self._expect()
        self._set_links(fault)
        now_ps = self._backend.now_ps  # an emulation's links carry something until all of them are down
        self._ledger.fault(now_ps, "failed", fault.name)
        self._note_links(fault, now_ps)
        self._set_daemon(fault)
        if fault.when.lasts_s is None or fault.detect_s < fault.when.lasts_s:
            self._at(now_ps + ps(fault.detect_s), partial(self._is_known, fault))
        if fault.when.lasts_s is not None:
            self._at(now_ps + ps(fault.when.lasts_s), partial(self._is_back, fault))

    def _is_back(self, fault: Fault) -> None:
        now_ps = self._backend.now_ps
        self._ledger.fault(now_ps, "back", fault.name)
        self.standing.remove(fault)
        self._expect()
        self._set_links(fault)
        self._note_links(fault, now_ps)
        self._set_daemon(fault)
        if fault in self.known or fault.daemon == "switches":
            self._at(now_ps + ps(fault.detect_s), partial(self._is_over, fault))

    def _is_known(self, fault: Fault) -> None:
        now_ps = self._backend.now_ps
        self._ledger.fault(now_ps, "detected", fault.name)
        leads = self._learn(fault, [*self.known, fault])
        self._note_links(fault, now_ps)
        self._detected(fault, leads)

    def _is_over(self, fault: Fault) -> None:
        leads = self._learn(fault, [each for each in self.known if each != fault])
        self._note_links(fault, self._backend.now_ps)
        self._over(fault, leads)

    def _learn(self, fault: Fault, known: Sequence[Fault]) -> bool:
        """Know some faults from now on; return whether traffic is to be led anew by one of them."""
        self.known = [each for each in self._begun if each in known]
        before, states = self.failed, self._states(self.known)
        self.failed = self._fabric.both_ends(link.a for link, state in states.items() if not state.up)
        rates = {
            self._fabric.nic_at(end): state.rate
            for link, state in states.items()
            for end in (link.a, link.b)
            if end.node in self._fabric.server_index and state.up and state.rate < 1
        }
        if rates != self.rates:
            self.rates = rates
            self._backend.carry_out(KnowRates(rates))
        return not fault.only_impairs or self.failed != before

    def _states(self, faults: Iterable[Fault]) -> dict[Link, LinkState]:
        """Return what some faults leave of the links that they change."""
        return states_of_links(self._fabric, faults)

    def _set_links(self, fault: Fault) -> None:
        """Have the backend follow what has become of the links of a fault."""
        states = self._states(self.standing)
        for link in self._states([fault]):
            state = states.get(link, HEALTHY)
            if state != self._links.get(link, HEALTHY):
                self._links[link] = state
                self._backend.carry_out(SetLink(link.a, state))

    def _set_daemon(self, fault: Fault) -> None:
        """Have the backend follow what has become of a fault's daemon."""
        states = daemon_states(_effects(self.standing))
        for daemon in daemon_states(fault.effects):
            state = states.get(daemon, DaemonState())
            if state != self._daemons.get(daemon, DaemonState()):
                self._daemons[daemon] = state
                self._backend.carry_out(SetDaemon(daemon, state))
                if daemon == "controller":
                    self._controlled(state.up)

    def _expect(self) -> None:
        """Say whether something that bytes wait for will be back: switches forward without the controller."""
        stays = [fault for fault in self.standing if fault.when.lasts_s is None]
        for_good, now = self._down(stays), self._down(self.standing)
        if (expects := not now <= for_good) != self._expects_back:
            self._expects_back = expects
            self._backend.carry_out(Expect(expects))

    def _down(self, faults: Sequence[Fault]) -> set[Link | Daemon]:
        """Return the links that some faults take down, and the switches' daemon if they kill it."""
        switches = daemon_states(_effects(faults)).get("switches", DaemonState())
        down: set[Link | Daemon] = {link for link, state in self._states(faults).items() if not state.up}
        return down if switches.up else {*down, "switches"}

    def _note_links(self, fault: Fault, now_ps: int) -> None:
        """Write down what has become of the links of a fault, and whether it is known."""
        known = self._states(self.known)
        for link in self._states([fault]):
            state = self._links.get(link, HEALTHY)
            is_known = state == known.get(link, HEALTHY)
            self._ledger.link(link, now_ps, rate_bps=link.rate_bps * state.rate, up=state.up, known=is_known)


def states_of_links(fabric: Fabric, faults: Iterable[Fault]) -> dict[Link, LinkState]:
    """Return what faults, in the order in which they began, leave of the links that they change."""
    return link_states(_effects(faults), fabric.link_at.__getitem__)


def _effects(faults: Iterable[Fault]) -> Iterable[Effect]:
    return chain.from_iterable(fault.effects for fault in faults)
