"""The OCSes of a booted network: what its controller is ordered, and what it says of them."""

import time
from collections.abc import Mapping
from pathlib import Path

from controller.circuits.circuits import Circuits
from controller.circuits.programs import Day, Program
from testbed.network.network import Network
from testbed.run.light_news import Notice
from testbed.run.movers import NOT_CONTROLLED, FlipTo, Light
from topologies.errors import StuckError
from topologies.events import Provision
from topologies.light import Circuit

LIGHT_S, MOST_DELAYS = 20.0, 20
"""An OCS lights what is ordered within so long [s] and so many times its delay, which may vary."""
LIT_FOR_S = 1e6
"""How long a program's day lasts: until the next is ordered."""


class LiveLight:
    """Orders circuits that stay; all times are those of `time.monotonic`.

    Parameters
    ----------
    network
        Whose OCSes.
    """

    def __init__(self, network: Network) -> None:
        self._network, self._fabric = network, network.fabric
        self._ordered: dict[str, tuple[Circuit, ...]] = {}
        """What each OCS is to light and has not yet."""
        self._setting: dict[str, tuple[float, tuple[Circuit, ...]]] = {}
        """When each OCS will have provisioned what it was to, and that."""
        self._due: dict[str, float] = {}
        """When each has lit what is ordered at the latest."""
        self._lights_s: dict[str, float] = {}
        """How long each may take for that."""
        self._controlled = True

    @property
    def moves(self) -> bool:
        """Whether OCSes do not yet show what was ordered."""
        return bool(self._ordered)

    @property
    def sets(self) -> bool:
        """Whether OCSes have not yet provisioned what was ordered."""
        return bool(self._setting)

    def control(self, *, works: bool, needed: bool) -> None:
        """Have a controller, or none; StuckError if there is none where OCSes wait for it."""
        self._controlled = works
        if needed or self._ordered or self._setting:
            self.check_controlled()

    def check_controlled(self) -> None:
        """Raise StuckError if there is no controller."""
        if not self._controlled:
            raise StuckError(*NOT_CONTROLLED)

    def carry_out(self, order: Light | FlipTo | Provision, news: Path) -> None:
        """Do what is ordered of OCSes, which say what they light to a socket."""
        if isinstance(order, Provision):
            self._provision(order.ocs, order.circuits)
        elif isinstance(order, FlipTo):
            self._flip(order.circuits, news)
        else:
            self.light(order.circuits, news)

    def light(self, circuits: Mapping[str, tuple[Circuit, ...]], news: Path) -> None:
        """Have OCSes light circuits until the next order, and say so to a socket."""
        self.check_controlled()
        ports = {ocs: self._fabric.switches[self._fabric.switch_index[ocs]].ports for ocs in circuits}
        self._order(circuits)
        programs = {
            ocs: Program((Day(Circuits(ports[ocs], pairs), LIT_FOR_S),)) for ocs, pairs in circuits.items()
        }
        self._network.northbound.show_all(programs, news)

    def _provision(self, ocs: str, circuits: tuple[Circuit, ...]) -> None:
        """Have an OCS set circuits beside those that it shows."""
        self.check_controlled()
        status = self._network.northbound.provision(ocs, circuits)
        self._setting[ocs] = status.shadow_ready_s or time.monotonic(), circuits

    def _flip(self, circuits: Mapping[str, tuple[Circuit, ...]], news: Path) -> None:
        """Have OCSes light what they provisioned, and say so to a socket."""
        self.check_controlled()
        self._order(circuits)
        self._network.northbound.flip_all(tuple(circuits), news)

    def heard(self, notice: Notice) -> tuple[Circuit, ...] | None:
        """Return what an OCS has lit by a notice, as it was ordered; None if it lit something else."""
        ordered = self._ordered.get(notice.ocs)
        if ordered is None or notice.until_s is None or notice.circuits != tuple(sorted(ordered)):
            return None
        return self._ordered.pop(notice.ocs)

    def provisioned(self) -> list[tuple[str, tuple[Circuit, ...]]]:
        """Return the OCSes that have provisioned what was ordered by now, each once, and their circuits."""
        now = time.monotonic()
        found = [(ocs, circuits) for ocs, (at, circuits) in self._setting.items() if at <= now]
        for ocs, _ in found:
            del self._setting[ocs]
        return found

    def check_due(self) -> None:
        """Raise StuckError if an OCS has not lit what was ordered when it was due."""
        now = time.monotonic()
        for ocs in self._ordered:
            if now > self._due[ocs]:
                raise StuckError(
                    f"OCS {ocs} did not light what was ordered within {self._lights_s[ocs]:g} s",
                    "repeat the run",
                )

    def _order(self, circuits: Mapping[str, tuple[Circuit, ...]]) -> None:
        now = time.monotonic()
        for ocs, pairs in circuits.items():
            if ocs not in self._lights_s:
                delay_s = self._network.northbound.ocs(ocs).delay_s
                self._lights_s[ocs] = LIGHT_S + MOST_DELAYS * delay_s
            self._ordered[ocs] = tuple(pairs)
            self._due[ocs] = now + self._lights_s[ocs]
