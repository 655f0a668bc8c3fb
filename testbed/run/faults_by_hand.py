"""Faults by hand: those of an experiment whose circuits are foreseen, on a network that a person looks at."""

from collections.abc import Iterable

from testbed.network.network import Network
from testbed.network.wiring import turn_link
from testbed.run.experiment import Experiment
from topologies.errors import ScenarioError
from topologies.events import FaultDetected, Reconfigure, View

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
        If the experiment's circuits are not foreseen.
    """

    def __init__(self, network: Network, experiment: Experiment) -> None:
        if experiment.foreseen is None:
            raise ScenarioError(f"the circuits of {experiment.scheme_name} are not foreseen")
        self._network, self._experiment, self._foreseen = network, experiment, experiment.foreseen
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
        for name in self.failed:
            self._turn(name, works=True)
        self.failed.clear()
        for ocs, delay in self._experiment.ocs_delays.items():
            emulated = delay.scaled(self._experiment.dilation.time)
            self._network.northbound.set_delay(ocs, emulated, self._experiment.seed)
        self._light(Reconfigure(ocs, pairs) for ocs, pairs in self._foreseen.first)

    def fail(self, name: str) -> list[str]:
        """Cut the links of a fault, and light what is foreseen for it; return the OCSes that changed.

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
        self._state, orders = self._foreseen.decide(self._state, view, FaultDetected(name))
        self._turn(name, works=False)
        self.failed.append(name)
        return self._light(order for order in orders if isinstance(order, Reconfigure))

    def is_cut(self, node: str) -> bool:
        """Return whether all links of a node are down."""
        fabric = self._experiment.fabric
        cut = fabric.both_ends(port for name in self.failed for port in self._faults[name].ports)
        return cut.issuperset(fabric.used_ports(node))

    def _turn(self, name: str, *, works: bool) -> None:
        for port in self._faults[name].ports:
            turn_link(self._experiment.fabric, port, works=works)

    def _light(self, orders: Iterable[Reconfigure]) -> list[str]:
        """Have OCSes light circuits, all at once, and wait until they do."""
        ocses = []
        for order in orders:
            # A replay leaves programs behind that never end.
            self._network.northbound.light(order.ocs, order.circuits, busy="replace")
            ocses.append(order.ocs)
        for ocs in ocses:
            self._network.northbound.wait_idle(ocs, WAIT_S)
        return ocses
