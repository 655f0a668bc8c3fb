"""Shards over a booted network: a job waits for the flip only, and the other shard for nothing."""

import numpy as np
import pytest

from controller.circuits.shards import Shards
from testbed.core.backend import Backend
from testbed.core.run import Run
from testbed.core.simulation import Simulation
from testbed.experiment.dilation import Dilation
from testbed.live.backend import LiveBackend
from testbed.model.backend import FluidBackend
from testbed.network.network import Network
from tests.emulation.box import Box
from tests.emulation.machine import Machine
from tests.testbed.shard_cases import RATE_BPS, ring, shard
from topologies.patch_panel import PANELS, flip_name, sharded_panel_fabric
from traffic.job import Job
from traffic.records import path_of
from traffic.scheme import Routed

pytestmark = [pytest.mark.emulation, pytest.mark.real_cpus]

DILATION = Dilation(2e-3, 2e-3)
"""NICs have 20 Mbit/s, and time is real."""
PANEL_S, FLIP_S = 0.4, 0.05
ANSWER_S = 0.005
"""How long the controller may take to answer: the panel flips meanwhile, and a job is held from then on."""
NODES = (
    ring("first", (0, 1), 0.6),
    ring("other", (2, 3), 1.1),
    ring("third", (0, 1), 0.4, ("first",)),
)


def panels_crossed(run: Run, node: str) -> set[str]:
    """Return the panels that a collective's messages crossed."""
    paths = run.messages.loc[run.messages["node"] == node, "path"]
    legs = [leg.split("@")[-1] for path in paths for leg in path.split()]
    return {port.node for leg in legs for port in path_of(leg)}.intersection(PANELS)


def test_a_job_waits_for_the_flip_only(sandbox: Box | None, machine: Machine) -> None:
    fabric, job = sharded_panel_fabric(4, nics=2, gpus=1, rate_bps=RATE_BPS), Job("shards", 4, NODES)
    rule = Shards(tuple(map(shard, NODES)), PANEL_S, FLIP_S).bind(fabric, job, DILATION, 0)

    def run(backend: Backend) -> Run:
        return Simulation(fabric, job, backend, Routed(), circuits=rule.decides, lit=rule.first).run()

    predicted = run(FluidBackend(fabric, {ocs: delay.mean_s for ocs, delay in rule.delays.items()}))
    with Network(fabric, DILATION.rate) as network:
        for ocs, delay in rule.delays.items():
            network.northbound.set_delay(ocs, delay.scaled(DILATION.time))
        with LiveBackend(network, DILATION) as backend:
            emulated = run(backend)
    assert emulated.messages["end_s"].notna().all()
    lit = emulated.events[(emulated.events["what"] == "lit") & emulated.events["which"].str.contains(">")]
    changed = lit["which"].str.split().str[0].value_counts()
    assert changed[changed.index != "panel0"].to_dict() == (
        {flip_name(server): 1 + (server < 2) for server in range(4)} | {"panel1": 1}
    )
    assert [panels_crossed(emulated, node.name) for node in NODES] == [{"panel0"}, {"panel0"}, {"panel1"}]
    held = emulated.events.set_index("what")["at_s"]
    waited_s = held["released"] - held["held"]
    assert machine.busy or FLIP_S - ANSWER_S < waited_s < FLIP_S + 0.1, "and not for the panel"
    ends = [each.tasks.set_index("node")["end_s"] for each in (emulated, predicted)]
    assert machine.busy or (np.abs(ends[0] / ends[1] - 1) < 0.15).all(), ends
