"""What scenarios over parallel OCSes share: from demands and schedulers to results that can be quoted.

Each number of OCSes is booted once, in a sandbox; on it every schedule is executed and judged, and
then one packet switch with as many NICs carries the same demands.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import cast, get_args

import numpy as np
from numpy.typing import NDArray

from controller.circuits.devices import ReconfigurationDelay
from controller.schedulers.bounds import makespan_lower_bound
from controller.schedulers.registry import scheduler_named
from testbed.machine.datapath import Datapath
from testbed.report.claims_circuits import circuit_claims
from testbed.report.means import BIG_SWITCH
from testbed.run.calibrate import Calibration, rate_factor
from testbed.run.dark_excess import DarkExcess
from testbed.run.dilation import Dilation
from testbed.run.experiment import Experiment
from testbed.run.ocs_plan import Scheduled, dilation_for, off_diagonal, over_ocses, plan_of
from testbed.run.similitude import REAL_LINK_DELAY_S
from testbed.study.carry_out import carry_out
from testbed.study.devices import check_delay
from testbed.study.glances import Failures
from testbed.study.machine import machine_for
from testbed.study.options import check_volume
from testbed.study.output import say
from testbed.study.study import Options, Study
from topologies.big_switch import big_switch_fabric
from topologies.errors import ScenarioError
from topologies.fabric import DEFAULT_BUFFER_BYTES, Fabric
from topologies.parallel_ocs import parallel_ocs_fabric
from traffic.demand import Demand
from traffic.packets import DEFAULT_MTU, check_mtu
from traffic.scheme_setup import WhileLitSetup
from traffic.spraying.registry import policy_named
from traffic.transports.circuit_engine import Meeting
from traffic.transports.host_settings import TransportSetup

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
    delay: ReconfigurationDelay
    """The OCSes' reconfiguration delay."""
    slot_s: float | None
    """How long Spectra's shortest slot is to be lit at emulated scale [s]; None for what this machine's
    OCSes need."""
    emulated_rate_bps: float | None = None
    """What a NIC is shaped to [bit/s]; None for what this machine carries, `FASTEST_BPS` at most."""
    datapath: Datapath = "netdev"
    """Which of Open vSwitch's forwards."""
    partial: bool = False
    """Whether circuits that two slots share stay lit between them."""
    rest: str = ""
    """The spraying scheme that sends what schedules leave over, on one more NIC, over a packet switch."""
    mtu: int = DEFAULT_MTU
    """Of the emulation's links [bytes]."""
    buffer_bytes: int = DEFAULT_BUFFER_BYTES
    """What a switch port holds in the emulation [bytes]."""
    volume: float | None = None
    """Emulated over real bytes; None for what ``slot_s`` makes of it."""
    failures: Failures | None = None
    """What fails: every schedule runs without and with it."""

    def __post_init__(self) -> None:
        """Refuse what makes no sense before anything is booted."""
        check_mtu(self.mtu)
        check_volume(self.volume)
        for name in self.schedulers:
            scheduler_named(name)
        if self.rest:
            policy_named(self.rest)
        for name in self.meetings:
            _meeting(name)
        for ocses in self.ocses:
            self.fabric(ocses)
        if self.slot_s is not None and not 0 < self.slot_s < float("inf"):
            raise ScenarioError(f"a slot of {self.slot_s * 1e3:g} ms", "give a number above 0")
        self._check_delay()

    def fabric(self, ocses: int) -> Fabric:
        """Return the servers on some OCSes."""
        servers = self.demands[0].gpus
        fabric = parallel_ocs_fabric(servers, ocses, packet_switch=bool(self.rest), rate_bps=self.rate_bps)
        return fabric.with_buffer(self.buffer_bytes)

    def rate(self, machine: Calibration) -> float:
        """Return emulated over real rate: what was asked for, or what this machine carries safely."""
        fabric = self.fabric(max(self.ocses))
        load_bps = len(fabric.nics) * self.rate_bps
        factor = rate_factor(fabric, load_bps, machine, self.emulated_rate_bps, self.mtu)
        return factor if self.emulated_rate_bps else min(factor, FASTEST_BPS / self.rate_bps)

    def experiments(self, ocses: int, rate: float, excess: DarkExcess) -> list[Experiment]:
        """Return all that is executed on some OCSes, seed by seed.

        Parameters
        ----------
        ocses
            How many.
        rate
            Emulated over real rate.
        excess
            How much longer than their devices this machine's OCSes are dark.
        """
        fabric, margins = self.fabric(ocses), excess.margins(ocses)
        return [
            Experiment(
                fabric,
                over_ocses(demand, ocses),
                WhileLitSetup(_meeting(meeting), margins, self.rest),
                dilation,
                seed,
                circuits=Scheduled(name, self.delay, self.partial),
                mtu=self.mtu,
            )
            for seed, demand in enumerate(self.demands)
            for dilation in [self._dilation(demand, ocses, rate, excess)]
            for name in self.schedulers
            for meeting in self.meetings
        ]

    def _dilation(self, demand: Demand, ocses: int, rate: float, excess: DarkExcess) -> Dilation:
        if self.volume is not None:
            return Dilation(rate, self.volume)
        return dilation_for(
            self._line_s(demand),
            ocses,
            self.delay.mean_s,
            rate=rate,
            slot_s=excess.least_slot_s(ocses) if self.slot_s is None else self.slot_s,
            least_delay_s=excess.least_delay_s(ocses),
        )

    def _line_s(self, demand: Demand) -> NDArray[np.float64]:
        """Return a demand in seconds at a NIC's rate."""
        line_s: NDArray[np.float64] = off_diagonal(demand.matrix) * 8 / self.rate_bps
        return line_s

    def _check_delay(self) -> None:
        """Refuse a delay that is too short beside the demand that takes longest."""
        lines = [(self._line_s(demand), ocses) for demand in self.demands for ocses in self.ocses]
        bound_s, busiest_s = max(
            (
                makespan_lower_bound(line_s, ocses, self.delay.mean_s),
                float(max(line_s.sum(axis=0).max(), line_s.sum(axis=1).max())),
            )
            for line_s, ocses in lines
        )
        check_delay(self.delay, bound_s, busiest_s)


def compare(
    comparison: Comparison,
    out: Path | None,
    transports: Sequence[TransportSetup],
    *,
    dry_run: bool = False,
    calibrate: bool = False,
    real_link_delay_s: float = REAL_LINK_DELAY_S,
) -> None:
    """Carry a comparison out in a sandbox, print what came of it, and leave its results behind."""
    options = Options(
        datapath=comparison.datapath,
        out=out,
        dry_run=dry_run,
        calibrate=calibrate,
        real_link_delay_s=real_link_delay_s,
    )
    machine = machine_for(options, relights=True)
    assert machine.excess is not None
    rate = comparison.rate(machine.calibration)
    experiments: list[Experiment] = []
    for ocses in comparison.ocses:
        executed = comparison.experiments(ocses, rate, machine.excess)
        experiments += [*executed, *_big_switch(executed)]
    say(machine.excess.sentence(datetime.now(UTC)))
    claims = partial(circuit_claims, spectras=not comparison.rest)
    scenario = Study(
        comparison.name, comparison.title, experiments, claims, "circuits", failures=comparison.failures
    )
    carry_out(scenario.under(transports), replace(options, calibrate=False))


def _big_switch(executed: Sequence[Experiment]) -> list[Experiment]:
    """Return the same demands over one packet switch in the place of the OCSes, where all is sent at once."""
    plan = plan_of(executed[0].rule)
    fabric = big_switch_fabric(
        len(plan.fabric.servers), nics=plan.fabric.servers[0].nics, gpus=1, rate_bps=plan.rate_bps
    )
    first = {experiment.seed: experiment for experiment in executed}
    fabric = fabric.with_buffer(plan.fabric.buffer_bytes)
    return [
        replace(each, fabric=fabric, scheme="rails", circuits=None, label=BIG_SWITCH)
        for each in first.values()
    ]


def _meeting(name: str) -> Meeting:
    if name not in get_args(Meeting):
        raise ScenarioError(
            f"senders cannot {name!r} before a reconfiguration", f"take {', '.join(get_args(Meeting))}"
        )
    return cast(Meeting, name)
