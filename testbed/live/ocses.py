"""The OCSes of a booted network: what its controller is ordered, and what it says of them."""

import math
import select
import time
from collections.abc import Iterable
from pathlib import Path

from controller.app.client import Request
from controller.circuits.circuits import Circuits
from controller.circuits.programs import Day, Program
from controller.circuits.status import OcsStatus
from testbed.core.backend import SetCircuits
from testbed.live.news import TURN_S, News, NowShown
from testbed.network.network import Network
from topologies.errors import StuckError
from topologies.events import Provision
from topologies.light import Circuit, Configuration
from traffic.transports.loop import Loop

LIGHT_S, MOST_DELAYS = 20.0, 20
"""An OCS lights what is ordered within so long [s] and so many times its delay, which may vary."""
LIT_FOR_S = 1e6
"""How long a program's day lasts: until the next is ordered."""


class LiveLight:
    """Orders circuits that stay; all times are those of `time.monotonic`.

    The controller takes 5 to 20 ms to answer an order, and NICs over other circuits send meanwhile: the loop
    that serves them hears the answer when it comes. An OCS gets no order before its last is answered.

    Parameters
    ----------
    network
        Whose OCSes.
    loop
        Of the engine.
    """

    def __init__(self, network: Network, loop: Loop) -> None:
        self._network, self._fabric, self._loop = network, network.fabric, loop
        self._unanswered: dict[Request[None] | Request[OcsStatus], frozenset[str]] = {}
        """Requests without an answer yet, and of which OCSes each is."""
        self.ordered: dict[str, tuple[float, tuple[Circuit, ...]]] = {}
        """What each OCS is to light and has not yet, and when it is due."""
        self.setting: dict[str, tuple[float, tuple[Circuit, ...]]] = {}
        """When each OCS will have provisioned what it was to, and that."""
        self._lit: dict[str, tuple[Circuit, ...]] = {}
        """The circuits that each OCS has lit."""
        self._beside: dict[str, tuple[Circuit, ...]] = {}
        """The circuits that each OCS was to provision, or showed before it flipped to those."""
        self._is_away = False
        """Whether the switches' daemon is killed; orders wait until it is back."""
        self._lights_s: dict[str, float] = {}
        """How long each may take to light what is ordered."""

    def carry_out(self, order: SetCircuits | Provision, news: Path) -> None:
        """Do what is ordered of OCSes, which say what they light to a socket."""
        if isinstance(order, Provision):
            self._provision(order.ocs, order.circuits)
            return
        self.settle(order.circuits)
        self._order(order.circuits)
        if order.flips:
            self._beside |= {ocs: self._lit.get(ocs, ()) for ocs in order.circuits}
        if self._is_away:
            return
        if order.flips:
            self._await(self._network.northbound.flip_all(tuple(order.circuits), news), order.circuits)
        else:
            self._show(order.circuits, news)

    def _show(self, configuration: Configuration, news: Path) -> None:
        programs = {ocs: self._lasting(ocs, pairs) for ocs, pairs in configuration.items()}
        self._await(self._network.northbound.show_all(programs, news), configuration)

    def _provision(self, ocs: str, circuits: tuple[Circuit, ...]) -> None:
        self.settle([ocs])
        self._beside[ocs], self.setting[ocs] = circuits, (math.inf, circuits)
        if not self._is_away:
            self._await(self._network.northbound.provision(ocs, circuits), [ocs])

    def _await(self, request: Request[None] | Request[OcsStatus], ocses: Iterable[str]) -> None:
        """Have the loop hear the answer to a request about OCSes, of which none waits for another."""
        self._unanswered[request] = frozenset(ocses)
        self._loop.watch(request.fileno(), lambda _event: self._hear(request))

    def _hear(self, request: Request[None] | Request[OcsStatus]) -> None:
        self._loop.forget(request.fileno())
        del self._unanswered[request]
        if status := request.answer():  # of an OCS that was to provision something
            _, circuits = self.setting[status.name]
            self.setting[status.name] = status.shadow_ready_s or time.monotonic(), circuits

    def settle(self, ocses: Iterable[str] | None = None) -> None:
        """Wait until the controller has answered all that concerns some OCSes; by default any."""
        for request, about in list(self._unanswered.items()):
            if ocses is None or not about.isdisjoint(ocses):
                self._hear(request)

    def close(self) -> None:
        """Wait for no answers."""
        for request in self._unanswered:
            request.close()

    def lose_switches(self) -> None:
        """Have orders wait: the switches' daemon is killed, and with it all circuits."""
        self._is_away = True

    def leave(self, ocses: Iterable[str]) -> None:
        """Leave OCSes to programs."""
        self.settle()
        for ocs in ocses:
            self._lit.pop(ocs, None)

    def light_again(self, news: News) -> dict[str, tuple[Circuit, ...]]:
        """Have OCSes show what they showed or were to, on both sides, and wait for it.

        Returned is what those of them lit that had been ordered something else than they showed.
        """
        self._is_away = False
        self.settle()
        late = {ocs: circuits for ocs, (_, circuits) in self.ordered.items()}
        wanted = self._lit | late
        self._order(wanted)
        self._show(wanted, news.path)
        setting = set(self.setting)
        for ocs, circuits in self._beside.items():
            self._provision(ocs, circuits)
        self.settle()
        ready_s = max((at for at, _ in self.setting.values()), default=0.0)
        while self.ordered or time.monotonic() < ready_s:
            select.select([news], [], [], TURN_S)
            for notice in news.read():
                self.heard(notice)
            self.check_due()
        self.setting = {ocs: at for ocs, at in self.setting.items() if ocs in setting}
        return late

    def _lasting(self, ocs: str, circuits: tuple[Circuit, ...]) -> Program:
        """Return the program of an OCS that lights circuits until the next order."""
        ports = self._fabric.switches[self._fabric.switch_index[ocs]].ports
        return Program((Day(Circuits(ports, circuits), LIT_FOR_S),))

    def heard(self, notice: NowShown) -> tuple[Circuit, ...] | None:
        """Return what an OCS has lit by a notice, as it was ordered; None if it lit something else."""
        _, ordered = self.ordered.get(notice.ocs, (0.0, None))
        if ordered is None or notice.until_s is None or notice.circuits != tuple(sorted(ordered)):
            return None
        del self.ordered[notice.ocs]
        self._lit[notice.ocs] = ordered
        return ordered

    def provisioned(self) -> list[tuple[str, tuple[Circuit, ...]]]:
        """Return the OCSes that have provisioned what was ordered by now, each once, and their circuits."""
        now = time.monotonic()
        found = [(ocs, circuits) for ocs, (at, circuits) in self.setting.items() if at <= now]
        for ocs, _ in found:
            del self.setting[ocs]
        return found

    def check_due(self) -> None:
        """Raise StuckError if an OCS has not lit what was ordered when it was due."""
        now = time.monotonic()
        for ocs, (due, _) in self.ordered.items():
            if now > due:
                raise StuckError(
                    f"OCS {ocs} did not light what was ordered within {self._lights_s[ocs]:g} s",
                    "repeat the run",
                )

    def _order(self, circuits: Configuration) -> None:
        for ocs, pairs in circuits.items():
            self.ordered[ocs] = self._due(ocs), tuple(pairs)

    def _due(self, ocs: str) -> float:
        """Return when an OCS is to have lit what is ordered now."""
        if self._is_away:
            return math.inf
        if ocs not in self._lights_s:
            delay_s = self._network.northbound.ocs(ocs).delay_s
            self._lights_s[ocs] = LIGHT_S + MOST_DELAYS * delay_s
        return time.monotonic() + self._lights_s[ocs]
