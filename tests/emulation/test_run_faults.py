"""Faults in runs on the wire: what survives arrives, about as is predicted, or a sentence says why not."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from testbed.core.run import Run
from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.model.predict import predict
from testbed.network.network import Network
from testbed.trust.outcome import Outcome, bound_s
from testbed.trust.trial import tried
from tests.emulation.box import Box
from tests.emulation.machine import Machine
from tests.testbed.ocs_cases import experiment_of
from topologies.errors import NetworkError, StuckError
from topologies.rail import rail_fabric
from traffic.effects import Killed
from traffic.fault_text import WrittenFault
from traffic.faults import Fault, When
from traffic.steps import single
from traffic.transports.host_settings import TransportSetup
from traffic.workloads.synthetic import uniform

pytestmark = [pytest.mark.emulation, pytest.mark.real_cpus, pytest.mark.early]

FABRIC = rail_fabric(4, 4)
RATE = 2e-4
"""100 Gbit/s is 20 Mbit/s here."""
EMULATED_S = 2.0
SENTENCE_S = 10.0
"""Within so long a run that cannot end says so [s]."""


def asked(scheme: str) -> Experiment:
    """Return a uniform all-to-all that takes `EMULATED_S` at best."""
    real = Experiment(
        FABRIC, single(uniform(FABRIC.gpus)), scheme, Dilation(1.0, 1.0), transport=TransportSetup("credit")
    )
    return replace(real, dilation=Dilation(RATE, EMULATED_S * RATE / bound_s(real)))


def failing(healthy: Experiment, *texts: str) -> Experiment:
    """Return an experiment with faults that are known after 2 % of its prediction."""
    took_s = predict(healthy).iteration_s
    return replace(
        healthy,
        faults=tuple(WrittenFault(text).over(healthy.fabric, took_s, 0.02 * took_s) for text in texts),
    )


@contextmanager
def booted(experiment: Experiment) -> Iterator[Network]:
    """Boot an experiment's network."""
    with Network(experiment.fabric, experiment.dilation.rate, host=experiment.host) as network:
        yield network


def emulated(outcome: Outcome) -> Run:
    """Return the emulated run of an outcome."""
    assert outcome.emulated is not None
    return outcome.emulated


def stages(run: Run, fault: str) -> list[str]:
    """Return what happened by a fault, in order."""
    return run.events.loc[run.events["which"] == fault, "what"].tolist()


def survives(outcome: Outcome) -> bool:
    """Return whether all messages arrived but those of GPUs that are gone, which did not all arrive."""
    messages, gone = emulated(outcome).messages, outcome.experiment.gone
    touched = messages["source"].isin(gone) | messages["destination"].isin(gone)
    arrived = messages["end_s"].notna()
    return bool(arrived[~touched].all()) and (not gone or not arrived[touched].all())


@pytest.mark.parametrize(
    ("scheme", "faults"),
    [
        ("rails", ["nic:3:1@20%-60%,nic:2:2@21%-50%", "server:1@40%", "controller@20%-60%"]),
        ("ecmp", ["link:leaf0-spine1@40%"]),
        ("reps", ["nic:3:1@40%", "switches@40%-50%"]),
        ("plb", ["link:leaf0-spine1@10%-40%"]),
    ],
)
def test_what_survives_arrives(sandbox: Box | None, scheme: str, faults: list[str]) -> None:
    healthy = asked(scheme)
    with booted(healthy) as network:
        for text in faults:
            outcome = tried(failing(healthy, *text.split(",")), network)
            assert survives(outcome), text
            for fault in outcome.experiment.faults:
                over = ["back", "in use again"] if fault.when.lasts_s else []
                expected = ["failed", "detected", "gone around", *over]
                assert stages(emulated(outcome), fault.name) == expected
            assert outcome.over_predicted > 0.7, (text, outcome.verdict)
        network.northbound.wait_ready(SENTENCE_S)  # all is mended


@pytest.mark.parametrize(
    ("scheme", "text"),
    [
        ("rails", "link:leaf1:3@40%-70%=0.5"),
        ("ecmp", "link:leaf1:3@40%-70%=0.5"),
        ("rails", "nic:3:1@20%-50%=0.1"),  # what waits there has to fit the bucket of the whole rate
        ("rails", "nic:3:1@0%=0.5"),  # before any queue pair is known
    ],
)
def test_a_link_that_is_slow_for_a_while_takes_the_time_that_is_predicted(
    sandbox: Box | None, machine: Machine, scheme: str, text: str
) -> None:
    with booted(asked(scheme)) as network:
        outcome = tried(failing(asked(scheme), text), network)
    assert survives(outcome)
    assert stages(emulated(outcome), text)[:2] == ["failed", "detected"]
    assert outcome.is_sound, outcome.verdict
    assert machine.busy or 0.9 < outcome.over_predicted < 1.1, outcome.over_predicted


def test_switches_that_are_gone_are_said_in_time(sandbox: Box | None) -> None:
    experiment = failing(asked("rails"), "switches@40%")
    with booted(experiment) as network:
        began_at = time.monotonic()
        with pytest.raises(NetworkError, match="ovs-vswitchd ended during the run"):
            tried(experiment, network)
        assert time.monotonic() - began_at < EMULATED_S + SENTENCE_S


def test_an_ocs_port_that_is_lost_leaves_its_bytes_to_other_ocses(sandbox: Box | None) -> None:
    experiment = failing(experiment_of("spectra", "benchmark"), "port:ocs0:3@40%")
    with booted(experiment) as network:
        outcome = tried(experiment, network)
    assert survives(outcome)
    assert stages(emulated(outcome), "port:ocs0:3@40%") == ["failed", "detected", "gone around"]
    assert outcome.light is not None
    assert outcome.light.undelivered_bytes[0] > 0  # the schedule left them over, a clean-up round sent them


def test_a_controller_that_steps_ocses_is_missed_at_once(sandbox: Box | None) -> None:
    healthy = experiment_of("spectra")
    fault = Fault("controller", (Killed("controller"),), When(after_s=0.4 * predict(healthy).iteration_s))
    with booted(healthy) as network, pytest.raises(StuckError, match="the controller was killed"):
        tried(replace(healthy, faults=(fault,)), network)
