"""Schedules over parallel OCSes for the tests of this folder."""

from controller.devices import Darkness
from testbed.ocs_plan import CircuitExperiment, dilation_for
from topologies.parallel_ocs import parallel_ocs_fabric
from traffic.ocs_workloads import ocs_demand

SERVERS, OCSES, DELAY_S, LINE_BYTES = 6, 2, 1e-3, 1e9
DARKNESS = Darkness("delay", DELAY_S)


def experiment_of(
    scheduler: str, workload: str = "moe", seed: int = 0, darkness: Darkness = DARKNESS
) -> CircuitExperiment:
    """Return a schedule for a few servers on 2 OCSes."""
    fabric = parallel_ocs_fabric(SERVERS, OCSES)
    demand = ocs_demand(workload, seed, SERVERS, LINE_BYTES)
    line_s = demand.matrix * 8 / fabric.nic_rate_bps(fabric.nics[0])
    dilation = dilation_for(line_s, OCSES, DELAY_S, rate=2.5e-4, slot_s=0.1)
    return CircuitExperiment(fabric, demand, scheduler, darkness, dilation, seed=seed)
