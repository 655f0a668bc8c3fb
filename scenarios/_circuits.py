"""What scenarios over parallel OCSes share: from demands and schedulers to results that can be quoted.

Each number of OCSes is booted once, in a sandbox; on it every schedule is executed and judged, and
then one packet switch with as many NICs carries the same demands.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import cast, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rich.console import Console

from controller.circuits.devices import Darkness
from controller.schedulers.bounds import makespan_lower_bound
from controller.schedulers.registry import scheduler_named
from scenarios._devices import check_delay
from scenarios._harness import enter_sandbox
from scenarios._output import print_results
from testbed.machine.datapath import Datapath, check_datapath
from testbed.network.link_sample import worst_link_error
from testbed.network.network import Network
from testbed.network.readback import effective, port_settings, unmet
from testbed.report.claims import Claim
from testbed.report.claims_circuits import circuit_claims
from testbed.report.means import BIG_SWITCH
from testbed.report.ocs_report import executions_table
from testbed.report.results import ResultsDirectory
from testbed.report.run_json import Run
from testbed.report.table import claims_table
from testbed.run.calibrate import calibration, rate_factor
from testbed.run.dilation import Dilation
from testbed.run.experiment import Experiment
from testbed.run.ocs_plan import OcsSetup, dilation_for, off_diagonal, over_ocses
from testbed.run.trial import tried
from topologies.big_switch import big_switch_fabric
from topologies.errors import ScenarioError
from topologies.fabric import Fabric
from topologies.parallel_ocs import parallel_ocs_fabric
from traffic.demand import Demand
from traffic.metrics import communication_s
from traffic.transports.circuit_engine import Meeting

FASTEST_BPS = 25e6
"""What a NIC is shaped to where the machine would carry more: slots are as long as asked anyway."""


@dataclass(frozen=True)
class Comparison:
    """Demands over parallel OCSes under schedulers; times and rates are real.

    Raises
    ------
    ScenarioError, FabricError
        If something of it makes no sense.
    """

    name: str
    """Of its file and its results."""
    title: str
    """What its report is called."""
    demands: Sequence[Demand]
    """By seed, all between the same servers."""
    ocses: Sequence[int]
    """How many, one after the other."""
    schedulers: Sequence[str]
    meetings: Sequence[str]
    """What senders do before a reconfiguration: `Meeting`."""
    rate_bps: float
    """Of a NIC [bit/s]."""
    darkness: Darkness
    """The OCSes' reconfiguration delay."""
    slot_s: float
    """How long Spectra's shortest slot is to be lit at emulated scale [s]."""
    emulated_rate_bps: float | None = None
    """What a NIC is shaped to [bit/s]; None for what this machine carries, `FASTEST_BPS` at most."""
    datapath: Datapath = "netdev"
    """Which of Open vSwitch's forwards."""
    partial: bool = False
    """Whether circuits that two slots share stay lit between them."""

    def __post_init__(self) -> None:
        """Refuse what makes no sense before anything is booted."""
        for name in self.schedulers:
            scheduler_named(name)
        for name in self.meetings:
            _meeting(name)
        for ocses in self.ocses:
            self.fabric(ocses)
        if not 0 < self.slot_s < float("inf"):
            raise ScenarioError(f"a slot of {self.slot_s * 1e3:g} ms", "give a number above 0")
        self._check_delay()

    def fabric(self, ocses: int) -> Fabric:
        """Return the servers on some OCSes."""
        return parallel_ocs_fabric(self.demands[0].gpus, ocses, rate_bps=self.rate_bps)

    def rate(self) -> float:
        """Return emulated over real rate: what was asked for, or what this machine carries safely."""
        fabric = self.fabric(max(self.ocses))
        load_bps = len(fabric.nics) * self.rate_bps
        factor = rate_factor(fabric, load_bps, calibration(self.datapath), self.emulated_rate_bps)
        return factor if self.emulated_rate_bps else min(factor, FASTEST_BPS / self.rate_bps)

    def experiments(self, ocses: int, rate: float) -> list[Experiment]:
        """Return all that is executed on some OCSes, seed by seed."""
        fabric = self.fabric(ocses)
        return [
            Experiment(
                fabric,
                over_ocses(demand, ocses),
                name,
                dilation,
                seed,
                ocs=OcsSetup(self.darkness, _meeting(meeting), self.partial),
            )
            for seed, demand in enumerate(self.demands)
            for dilation in [self._dilation(demand, ocses, rate)]
            for name in self.schedulers
            for meeting in self.meetings
        ]

    def _dilation(self, demand: Demand, ocses: int, rate: float) -> Dilation:
        line_s, delay_s = self._line_s(demand), self.darkness.mean_s
        return dilation_for(line_s, ocses, delay_s, rate=rate, slot_s=self.slot_s)

    def _line_s(self, demand: Demand) -> NDArray[np.float64]:
        """Return a demand in seconds at a NIC's rate."""
        line_s: NDArray[np.float64] = off_diagonal(demand.matrix) * 8 / self.rate_bps
        return line_s

    def _check_delay(self) -> None:
        """Refuse a delay that is too short beside the demand that takes longest."""
        lines = [(self._line_s(demand), ocses) for demand in self.demands for ocses in self.ocses]
        bound_s, busiest_s = max(
            (
                makespan_lower_bound(line_s, ocses, self.darkness.mean_s),
                float(max(line_s.sum(axis=0).max(), line_s.sum(axis=1).max())),
            )
            for line_s, ocses in lines
        )
        check_delay(self.darkness, bound_s, busiest_s)


def carry_out(comparison: Comparison, out: Path | None) -> None:
    """Carry a comparison out in a sandbox, print what came of it, and leave its results behind."""
    enter_sandbox()
    check_datapath(comparison.datapath)
    rate = comparison.rate()
    planned = [comparison.experiments(ocses, rate) for ocses in comparison.ocses]
    execute_all(new_run(comparison.name, comparison.title, comparison.datapath), planned, out)


def execute_all(
    run: Run,
    planned: Sequence[Sequence[Experiment]],
    out: Path | None,
    claims: Callable[[pd.DataFrame], list[Claim]] = circuit_claims,
) -> None:
    """Execute schedules fabric by fabric inside the sandbox, print what came of them, and leave it behind."""
    experiments = [experiment for some in planned for experiment in some]
    for experiment in experiments:
        _ = (
            experiment.plan.schedule
        )  # computed once, here: a user's own scheduler fails before anything boots
    with ResultsDirectory(run, planned=experiments, out=out, claims=claims) as results:
        results.describe(calibration=asdict(calibration(run.datapath)))
        for some in planned:
            _execute(some, results)
            _switch(some, results)
    print_results([executions_table(results.table), claims_table(results.page().claims)], results.path)


def new_run(name: str, title: str, datapath: Datapath = "netdev") -> Run:
    """Return a run that starts now."""
    command = ["python", *sys.argv]
    return Run(
        name, title, command, datetime.now(), baseline=BIG_SWITCH, transport="datagrams", datapath=datapath
    )


def _execute(experiments: Sequence[Experiment], results: ResultsDirectory) -> None:
    """Boot the OCSes of some experiments, and execute one after the other."""
    first = experiments[0]
    network = Network(first.fabric, first.dilation.rate, results.run.datapath)
    with network, Console(stderr=True).status("") as status:
        found = port_settings(network)
        settings = {**_scale(first), **effective(network, found)}
        results.describe(settings={**results.run.settings, first.collective.name: settings})
        broken = unmet(network, found)
        for experiment in experiments:
            name = f"{experiment.collective.name}, seed {experiment.seed}: {experiment.scheme_name}"
            status.update(name)
            results.add(tried(experiment, network, broken=broken))


def _switch(experiments: Sequence[Experiment], results: ResultsDirectory) -> None:
    """Boot one packet switch in the place of the OCSes, where RailS' spraying sends all at once."""
    first = experiments[0]
    plan, ocses = first.plan, len(first.plan.ocses)
    fabric = big_switch_fabric(len(plan.fabric.servers), nics=ocses, gpus=1, rate_bps=plan.rate_bps)
    with Network(fabric, first.dilation.rate, results.run.datapath) as network:
        broken = unmet(network, port_settings(network))
        worst = worst_link_error(network, first.seed)
        for circuits in {experiment.seed: experiment for experiment in experiments}.values():
            experiment = replace(circuits, fabric=fabric, policy="rails", ocs=None)
            outcome = tried(experiment, network, worst, broken)
            over = communication_s(outcome.best) / communication_s(outcome.predicted)
            results.add(outcome, scheme=BIG_SWITCH, ocses=ocses, over_predicted=over)


def _scale(experiment: Experiment) -> dict[str, object]:
    """Return what the OCSes stand for, and at which scale the first seed is emulated."""
    plan, setup = experiment.plan, experiment.plan.setup
    return {
        "device": setup.darkness.device,
        "delay_varies": setup.darkness.varies,
        "partial": setup.partial,
        "delay_s": plan.delay_s,
        "emulated_delay_s": plan.emulated_darkness.mean_s,
        "emulated_rate_bps": plan.emulated_rate_bps,
        "dilation_of_time": experiment.dilation.time,
    }


def _meeting(name: str) -> Meeting:
    if name not in get_args(Meeting):
        raise ScenarioError(
            f"senders cannot {name!r} before a reconfiguration", f"take {', '.join(get_args(Meeting))}"
        )
    return cast(Meeting, name)
