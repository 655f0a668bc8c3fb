"""Faults by hand, on a network that a person looks at.

Where circuits alone carry a job, they are the experiment's faults (`FaultsByHand`). Elsewhere they are what
``--fail`` takes and links that Mininet's ``link`` took down (`StandingFaults`): without a time they come at
once and stand until all is mended, and a replay has them from its start; with a time they come in replays.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain

from testbed.experiment.experiment import Experiment
from testbed.live.link_states import set_links
from testbed.model.predict import predict
from testbed.network.network import Network
from topologies.errors import LightrailError, ScenarioError
from topologies.events import FaultDetected, Reconfigure, View
from topologies.fabric import Port
from traffic.fault_text import WrittenFault, at_once
from traffic.faults import Fault, cut

WAIT_S = 30.0


class FaultsByHand:
    """What has failed so far, and what is lit for it.

    Parameters
    ----------
    network, experiment
        The network is booted for the experiment.

    Raises
    ------
    ScenarioError
        If no rule lights its circuits, or packets carry some of it.
    """

    def __init__(self, network: Network, experiment: Experiment) -> None:
        if experiment.rule is None or not experiment.is_once_lit:
            raise ScenarioError(f"the circuits of {experiment.name} are not lit by a rule alone")
        self._network, self._experiment, self._rule = network, experiment, experiment.rule
        self._faults = {fault.name: fault for fault in experiment.faults}
        self._state: object = None
        self.failed: list[str] = []
        """What has failed, in order."""

    @property
    def names(self) -> list[str]:
        """What can fail."""
        return list(self._faults)

    def begin(self) -> None:
        """Mend what has failed, and light what is lit from the start."""
        self._state = None
        self._set_links(())
        self.failed.clear()
        for ocs, delay in self._experiment.ocs_delays.items():
            emulated = delay.scaled(self._experiment.dilation.time)
            self._network.northbound.set_delay(ocs, emulated, self._experiment.seed)
        self._light([Reconfigure(self._rule.first)])

    def fail(self, name: str) -> list[str]:
        """Cut the links of a fault, and light what the rule has for it; return the OCSes that changed.

        Raises
        ------
        ScenarioError
            If there is no such fault, it has failed already, or no circuits are foreseen for it beside those
            that have; then nothing is changed.
        NetworkError
            If an OCS does not light the circuits that were ordered.
        """
        if name not in self._faults:
            raise ScenarioError(f"there is no fault {name!r}", f"take {', '.join(self._faults)}")
        if name in self.failed:
            raise ScenarioError(f"{name} has failed already", "type mend to have all work again")
        view = View(0.0, self._experiment.fabric, {}, frozenset())
        self._state, orders = self._rule.decides.decide(self._state, view, FaultDetected(name))
        self._set_links((*self.failed, name))
        self.failed.append(name)
        return self._light(order for order in orders if isinstance(order, Reconfigure))

    def is_cut(self, node: str) -> bool:
        """Return whether all links of a node are down."""
        fabric = self._experiment.fabric
        down = fabric.both_ends(port for name in self.failed for port in self._faults[name].ports)
        return down.issuperset(fabric.used_ports(node))

    def _set_links(self, failed: Iterable[str]) -> None:
        before, now = ([self._faults[name] for name in names] for names in (self.failed, failed))
        set_links(self._network, before, now)

    def _light(self, orders: Iterable[Reconfigure]) -> list[str]:
        """Have OCSes light circuits, all at once, and wait until they do."""
        ocses = []
        for ocs, circuits in chain.from_iterable(order.circuits.items() for order in orders):
            # A replay leaves programs behind that never end.
            self._network.northbound.light(ocs, circuits, busy="replace")
            ocses.append(ocs)
        for ocs in ocses:
            self._network.northbound.wait_idle(ocs, WAIT_S)
        return ocses


class StandingFaults:
    """What has failed on a network, and what is to fail in replays.

    Parameters
    ----------
    network
        It is booted, and has links that work.
    """

    def __init__(self, network: Network) -> None:
        self._network = network
        self._named: dict[str, Fault] = {}
        self._in_replays: dict[str, WrittenFault] = {}

    @property
    def standing(self) -> tuple[Fault, ...]:
        """What has failed; links that are down and of no fault are faults of their own."""
        fabric = self._network.fabric
        known = {fabric.link_at[port] for fault in self._named.values() for port in fault.ports}
        down = defaultdict[str, list[Port]](list)
        for link in self._network.links_down():
            if link not in known:
                down[f"link:{link.a.node}-{link.b.node}"].append(link.a)
        return (*self._named.values(), *(cut(name, ports) for name, ports in down.items()))

    @property
    def names(self) -> list[str]:
        """What has failed, and what is to fail in replays."""
        return [*(fault.name for fault in self.standing), *self._in_replays]

    def fail(self, text: str) -> None:
        """Have something fail: at once, or if a time is with it in the replays to come.

        Raises
        ------
        ScenarioError
            If the fabric has no such part, it has failed already, or no replay could go on after it.
        """
        if text in self.names:
            raise ScenarioError(f"{text} has failed already", "type mend to have all work again")
        written = WrittenFault(text if "@" in text else at_once(text))
        fault = written.over(self._network.fabric, 1.0, 0.0)
        if "@" not in text:
            fault = replace(fault, name=text)
            self._break((fault,), tuple(self._named.values()))
            self._named[text] = fault
        elif fault.daemon == "switches" and fault.when.lasts_s is None:
            raise ScenarioError(
                f"after {text} nothing is forwarded any more", "say when it is back, as in @40%-70%"
            )
        else:
            self._in_replays[text] = written

    def mend(self) -> None:
        """Have all work again, and nothing fail in replays."""
        self._restore(self.standing)
        self._named.clear()
        self._in_replays.clear()

    @contextmanager
    def lifted(self, experiment: Experiment) -> Iterator[Experiment]:
        """Have all work inside the block, and return the experiment with the same faults, for its run.

        Raises
        ------
        ScenarioError
            If nothing is forwarded; for an error inside the block too, with what had failed.
        """
        standing = self.standing
        if any(fault.daemon == "switches" for fault in standing):
            raise ScenarioError("nothing is forwarded: switches failed by hand", "type mend first")
        failing = self._failing(experiment, standing)
        if not standing:
            yield failing
            return
        self._restore(standing)
        try:
            yield failing
        except LightrailError as error:
            failed = ", ".join(fault.name for fault in standing)
            raise ScenarioError(f"{failed} failed, and {error.sentence}", error.hint) from error
        finally:
            self._break(standing)

    def _failing(self, experiment: Experiment, standing: Sequence[Fault]) -> Experiment:
        """Return an experiment with what has failed, and with what is to fail at shares of its time then."""
        if standing:
            experiment = replace(experiment, faults=(*experiment.faults, *standing))
        if not self._in_replays:
            return experiment
        lasts_s = predict(experiment).iteration_s
        timed = [written.over(experiment.fabric, lasts_s) for written in self._in_replays.values()]
        return replace(experiment, faults=(*experiment.faults, *timed))

    def _break(self, faults: tuple[Fault, ...], before: tuple[Fault, ...] = ()) -> None:
        """Have faults come beside those that came before."""
        set_links(self._network, before, before + faults)
        self._network.go_around()
        for fault in faults:
            if fault.daemon:
                self._network.kill(fault.daemon, for_good=False)

    def _restore(self, faults: Sequence[Fault]) -> None:
        """Have links work and daemons alive, and wait until switches have the rules that they began with."""
        set_links(self._network, faults, ())
        self._network.mend()
