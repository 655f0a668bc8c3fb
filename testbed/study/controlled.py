"""The points of one booted network, each judged by the known-answer controls before and after it."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial

from testbed.network.network import Network
from testbed.run.calibrate import Calibration, ContradictedError, forget
from testbed.run.control import Control, control
from testbed.run.experiment import Experiment
from testbed.run.fidelity import with_control
from testbed.run.light_control import light_control
from testbed.run.outcome import Outcome
from testbed.run.predict import predict
from testbed.run.scale import load_bps

GROWN = 1.5
"""A point that forwards so many times what was controlled needs another control."""


@dataclass(frozen=True)
class Controlled:
    """A control was carried out: all points since the last one are judged by it too."""

    control: Control
    settings: dict[str, object]
    """What run.json keeps of the network's controls."""


class ControlledPoints:
    """Carries controls out between the points of a network.

    A point is judged by the control before it at once, so that a run that is interrupted keeps every point,
    judged by what was known. A schedule's control is one over its OCSes (`testbed.run.light_control`); the
    circuits of a rule have none.

    Parameters
    ----------
    network
        The network.
    doubtful
        The calibration by which the points are scaled, if a control may contradict it.
    begun
        Whether the run has points already.
    """

    def __init__(self, network: Network, doubtful: Calibration | None = None, *, begun: bool = False) -> None:
        self._network, self._doubtful, self._begun = network, doubtful, begun
        self._known: set[tuple[str, str]] = set()
        self._done: list[Control] = []
        self._most_bps = 0.0
        """At what rate the network was controlled."""
        self._again: Callable[[], Control | None] = lambda: None
        """Carries out the last control once more."""

    def before(self, experiment: Experiment) -> Iterator[Controlled]:
        """Carry out a control if an experiment forwards more than was controlled; seeds forward alike.

        Before a schedule one is carried out in any case, once for all seeds.

        A calibration that it contradicts is forgotten: the next run takes it anew.

        Raises
        ------
        ContradictedError
            If it does so before a point is finished, so that nothing is lost by beginning again.
        """
        about = experiment.job.name, experiment.name
        if experiment.is_once_lit or about in self._known:
            return
        self._known.add(about)
        if experiment.has_slots:
            yield from self._by(partial(light_control, self._network, experiment))
            return
        load = load_bps(experiment, predict(experiment)) * experiment.dilation.rate
        if load and not (self._done and load <= GROWN * self._most_bps):
            self._most_bps = max(self._most_bps, load)
            for controlled in self._by(partial(control, self._network, self._most_bps)):
                yield controlled
                self._check(controlled.control, experiment.mtu)

    def judged(self, outcome: Outcome) -> Outcome:
        """Return an outcome, judged by the last control so far."""
        self._begun = True
        return with_control(outcome, self._done[-1] if self._done else None)

    def end(self) -> Iterator[Controlled]:
        """Carry out the last control, if there was a first."""
        if self._done:
            yield from self._by(self._again)

    def _by(self, carry_out: Callable[[], Control | None]) -> Iterator[Controlled]:
        """Carry out a control, which is repeated from then on; none where no two servers have a path."""
        self._again = carry_out
        if found := carry_out():
            self._done.append(found)
            yield Controlled(found, {str(number): asdict(each) for number, each in enumerate(self._done)})

    def _check(self, control: Control, mtu: int) -> None:
        if self._doubtful and (said := self._doubtful.contradiction(control, mtu)):
            forget(self._doubtful)
            if not self._begun:
                raise ContradictedError(said)
