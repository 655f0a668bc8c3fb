"""A user's own rule over a booted network: it lights what is owed, and takes the time predicted."""

import re
from pathlib import Path

import numpy as np
import pytest

from testbed.experiment.circuits_registry import CIRCUITS
from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.network.network import Network
from testbed.trust.trial import tried
from tests.emulation.box import Box
from tests.emulation.machine import Machine
from tests.test_own_circuits import RULE, SCRIPT
from topologies.parallel_ocs import parallel_ocs_fabric
from traffic.demand import Demand
from traffic.metrics import communication_s
from traffic.scheme_setup import ONCE_LIT
from traffic.steps import single

pytestmark = [pytest.mark.emulation, pytest.mark.real_cpus]

FABRIC = parallel_ocs_fabric(4, 4)
DILATION = Dilation(2e-4, 0.8)
"""NICs have 20 Mbit/s. An OCS that is dark for 25 us is so for 100 ms."""
HOLD_S = 3.2e-4
"""1.28 s here. A message that has not arrived when a hold ends waits for another: none does within the last
0.29 s of one, nor within 0.16 s if all light is 100 ms late. With 0.8 s it was 0.06 s, and some waited."""


def test_it_lights_what_is_owed(
    sandbox: Box | None, machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_circuits.py").write_text(RULE)
    monkeypatch.syspath_prepend(tmp_path)
    (found,) = re.findall(r"owed = (\[\[.*\]\])", SCRIPT)
    owed = 10**5 * np.array([[int(size) for size in re.findall(r"\d+", row)] for row in found.split("],")])
    rule = CIRCUITS.named("own_circuits:ByBytesOwed", {"hold_s": HOLD_S})
    job = single(Demand("skewed", owed))
    experiment = Experiment(FABRIC, job, ONCE_LIT, DILATION, circuits=rule)
    with Network(FABRIC, DILATION.rate, host=experiment.host) as network:
        outcome = tried(experiment, network)
    assert outcome.verdict.word != "unsound", outcome.verdict.reasons
    run, predicted = outcome.run, outcome.predicted
    assert run.messages["end_s"].notna().all()
    assert (run.events["what"] == "lit").sum() >= 12, "circuits were changed at least twice"
    ratio = communication_s(run.tables) / communication_s(predicted.tables)
    assert machine.busy or 0.9 < ratio < 1.15
