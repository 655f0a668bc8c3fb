"""The points of one booted network, each judged by the known-answer controls before and after it."""

from functools import partial

from testbed.network.network import Network
from testbed.report.results import ResultsDirectory
from testbed.run.calibrate import Calibration, ContradictedError, forget
from testbed.run.control import Control, Controls
from testbed.run.experiment import Experiment
from testbed.run.fidelity import with_control
from testbed.run.light_control import light_control
from testbed.run.outcome import Outcome
from testbed.run.predict import predict
from testbed.run.scale import load_bps


class ControlledPoints:
    """Adds outcomes to results between controls, and judges them again when the next control is there.

    So a run that is interrupted keeps every point, judged by what was known. A schedule's control is one over
    its OCSes (`testbed.run.light_control`); the circuits of a rule have none.

    Parameters
    ----------
    network
        The network.
    results
        What the outcomes are added to.
    where
        What the network's settings are listed under there.
    doubtful
        The calibration by which the points are scaled, if a control may contradict it.
    """

    def __init__(
        self, network: Network, results: ResultsDirectory, where: str, doubtful: Calibration | None = None
    ) -> None:
        self._network, self._results, self._where = network, results, where
        self._controls = Controls(network)
        self._doubtful = doubtful
        self._known: set[tuple[str, str]] = set()
        self._since = len(results.outcomes)

    def before(self, experiment: Experiment) -> None:
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
            self._judge(self._controls.by(partial(light_control, self._network, experiment)))
            return
        load = load_bps(experiment, predict(experiment)) * experiment.dilation.rate
        control = self._controls.cover(load) if load else None
        self._judge(control)
        if control and self._doubtful and (said := self._doubtful.contradiction(control, experiment.mtu)):
            forget(self._doubtful)
            if not self._results.outcomes:
                raise ContradictedError(said)

    def add(self, outcome: Outcome) -> None:
        """Add an outcome, judged by the last control so far."""
        done = self._controls.done
        self._results.add(with_control(outcome, done[-1] if done else None))

    def end(self) -> None:
        """Carry out the last control, if there was a first."""
        if self._controls.done:
            self._judge(self._controls.repeat())

    def _judge(self, control: Control | None) -> None:
        """Judge all outcomes since the last control by this one too."""
        if control is None:
            return
        results = self._results
        results.judge_again(self._since, lambda outcome: with_control(outcome, control))
        self._since = len(results.outcomes)
        about = results.run.settings.get(self._where, {})
        assert isinstance(about, dict)
        settings = {**about, "controls": self._controls.settings}
        results.describe(settings={**results.run.settings, self._where: settings})
