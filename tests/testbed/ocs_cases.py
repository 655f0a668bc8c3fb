"""Schedules over parallel OCSes for tests."""

from dataclasses import replace

from controller.circuits.devices import ReconfigurationDelay
from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.experiment.ocs_plan import Scheduled, dilation_for, over_ocses, plan_of
from testbed.live.light_log import LightLog
from testbed.trust.outcome import Outcome
from topologies.fabric import Fabric
from topologies.parallel_ocs import parallel_ocs_fabric
from traffic.demand import Demand
from traffic.scheme_setup import WhileLitSetup
from traffic.transports.slots import Meeting
from traffic.workloads.ocs_workloads import ocs_demand

SERVERS, OCSES, DELAY_S, LINE_BYTES = 6, 2, 1e-3, 1e9
DELAY = ReconfigurationDelay("delay", DELAY_S)


def planned(
    fabric: Fabric,
    demand: Demand,
    scheduler: str,
    delay: ReconfigurationDelay,
    dilation: Dilation,
    meeting: Meeting = "drain",
    *,
    seed: int = 0,
    partial: bool = False,
) -> Experiment:
    """Return a demand over all OCSes of a fabric."""
    ocses = sum(switch.kind == "ocs" for switch in fabric.switches)
    circuits = Scheduled(scheduler, delay, partial)
    scheme, job = WhileLitSetup(meeting), over_ocses(demand, ocses)
    return Experiment(fabric, job, scheme, dilation, seed, circuits=circuits)


def experiment_of(
    scheduler: str, workload: str = "moe", seed: int = 0, delay: ReconfigurationDelay = DELAY
) -> Experiment:
    """Return a schedule for a few servers on 2 OCSes."""
    fabric = parallel_ocs_fabric(SERVERS, OCSES)
    demand = ocs_demand(workload, seed, SERVERS, LINE_BYTES)
    line_s = demand.matrix * 8 / fabric.nic_rate_bps(fabric.nics[0])
    dilation = dilation_for(line_s, OCSES, DELAY_S, rate=2.5e-4, slot_s=0.1)
    return planned(fabric, demand, scheduler, delay, dilation, seed=seed)


def partially(experiment: Experiment, partial: bool = True) -> Experiment:
    """Return an experiment whose reconfigurations keep what two slots share, or do not."""
    return replace(experiment, circuits=replace(plan_of(experiment.rule).setup, partial=partial))


def light_of(outcome: Outcome) -> LightLog:
    """Return what circuits did, which carried it."""
    assert outcome.light is not None
    return outcome.light
