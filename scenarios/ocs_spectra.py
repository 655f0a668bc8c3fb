"""Spectra's schedules on parallel optical circuit switches (Spectra, section V), planned and executed."""

import _checkout  # first: runs this file under the checkout's Python

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, cast, get_args

import numpy as np
import pandas as pd
import typer
from rich.console import Console

from scenarios._harness import main
from scenarios._options import Debug, Out, listed, seed_range
from testbed.claims_spectra import spectra_claims
from testbed.dilation import Dilation
from testbed.emulate import emulate
from testbed.experiment import Experiment
from testbed.network import Network
from testbed.ocs_executor import Execution, execute
from testbed.ocs_plan import SCHEDULERS, CircuitExperiment, dilation_for
from testbed.ocs_plots import plan_against_measurement, sweep_figures, timelines
from testbed.ocs_results import COLUMNS, execution_row, executions_table, new_directory, write_results
from testbed.ocs_sweep import sweep
from testbed.outcome import bound_s, communication_s
from testbed.sandbox import inside_sandbox, run_in_sandbox, settle
from testbed.table import claims_table
from topologies.big_switch import big_switch_fabric
from topologies.parallel_ocs import parallel_ocs_fabric
from traffic.circuit_engine import Meeting
from traffic.collective import single
from traffic.demand import Demand
from traffic.ocs_workloads import benchmark

RATE_BPS = 100e9
BIG_SWITCH = "big switch"


def ocs_spectra(
    servers: Annotated[int, typer.Option(help="Servers, each with a NIC on every OCS.")] = 8,
    ocses: Annotated[str, typer.Option(help="How many OCSes, by commas.")] = "2,4",
    schedulers: Annotated[
        str, typer.Option(help="Schedulers, by commas.")
    ] = "spectra,spectra_plus,less,eclipse,bvn,rotor",
    meetings: Annotated[
        str, typer.Option(help="How senders meet the dark: drain, pause or cut; by commas.")
    ] = "drain",
    line_ms: Annotated[float, typer.Option(help="How long the busiest NIC would send alone [ms].")] = 100.0,
    delay_ms: Annotated[float, typer.Option(help="Reconfiguration delay of the OCSes [ms].")] = 1.0,
    slot_ms: Annotated[float, typer.Option(help="Spectra's shortest slot in the emulation [ms].")] = 100.0,
    mbps: Annotated[float, typer.Option(help="What a NIC of 100 Gbit/s is shaped to here [Mbit/s].")] = 25.0,
    seeds: Annotated[int, typer.Option(help="Random demands; 50 in the paper's figures.")] = 1,
    plan_only: Annotated[
        bool,
        typer.Option("--plan-only", help="Figures 6 to 10 at the paper's scale, 50 seeds; sends nothing."),
    ] = False,
    out: Out = None,
    debug: Debug = False,
) -> None:
    """Parallel OCSes: how far Spectra's schedules beat others, on paper and on emulated circuits.

    Each server owes a large flow (70 % of its line) and three small ones, the field's benchmark made
    small. Every scheduler's permutations run in real time: the controller steps all OCSes, senders send
    while a circuit points at the destination. Expect Spectra within a few percent of the lower bound,
    LESS and the rotor well above it, and what is measured within 15 % of what was planned.
    Schedulers with slots of a few milliseconds (Eclipse, BvN) lose more: each costs a guard time.
    """
    if plan_only:
        _plan(50 if seeds == 1 else seeds, out)
        return
    if not inside_sandbox():
        sys.exit(run_in_sandbox([sys.executable, *sys.argv]))
    settle()
    choice = _Choice(listed(schedulers), [_meeting(name) for name in listed(meetings)], delay_ms / 1e3)
    rows: list[tuple[object, ...]] = []
    shown: dict[int, list[Execution]] = {}
    for count in map(int, listed(ocses)):
        for seed in seed_range(seeds):
            demand = _demand(servers, seed, line_ms / 1e3)
            dilation = _dilation(demand, count, delay_ms / 1e3, mbps, slot_ms / 1e3)
            executions = _executions(choice, demand, count, dilation)
            shown.setdefault(count, executions)
            rows += [execution_row(execution, seed) for execution in executions]
            rows.append(_big_switch(demand, count, dilation, seed))
    _report(pd.DataFrame(rows, columns=COLUMNS), shown, out)


@dataclass(frozen=True)
class _Choice:
    """What is compared."""

    schedulers: list[str]
    meetings: list[Meeting]
    delay_s: float


def _executions(choice: _Choice, demand: Demand, ocses: int, dilation: Dilation) -> list[Execution]:
    """Boot a fabric and execute all schedules on it."""
    fabric = parallel_ocs_fabric(demand.gpus, ocses, rate_bps=RATE_BPS)
    with Network(fabric, dilation.rate) as network:
        return [
            execute(CircuitExperiment(fabric, demand, name, choice.delay_s, dilation, meeting), network)
            for name in choice.schedulers
            for meeting in choice.meetings
        ]


def _report(table: pd.DataFrame, shown: dict[int, list[Execution]], out: Path | None) -> None:
    path = new_directory("ocs_spectra", out)
    plots = {f"timeline_{count}": timelines(executions) for count, executions in shown.items()}
    plots["plan_against_measurement"] = plan_against_measurement(table)
    records = pd.concat(
        e.records.assign(ocses=count, scheduler=e.experiment.scheduler, meeting=e.experiment.meeting)
        for count, executions in shown.items()
        for e in executions
    )
    write_results(path, {"summary": table, "records": records}, plots, _settings(shown))
    console = Console()
    console.print(executions_table(table))
    console.print(f"results: {path}", highlight=False, soft_wrap=True)


def _plan(seeds: int, out: Path | None) -> None:
    table = sweep(seeds)
    claims = spectra_claims(table)
    path = new_directory("ocs_spectra", out)
    rulings = pd.DataFrame([vars(claim) for claim in claims])
    write_results(path, {"sweep": table, "claims": rulings}, sweep_figures(table), {"seeds": seeds})
    console = Console()
    console.print(claims_table(claims))
    console.print(f"results: {path}", highlight=False, soft_wrap=True)


def _demand(servers: int, seed: int, line_s: float) -> Demand:
    matrix = benchmark(seed, ports=servers, large_flows=1, small_flows=3)
    owed = np.where(np.eye(servers, dtype=bool), 0, matrix) * line_s * RATE_BPS / 8
    return Demand("benchmark", np.rint(owed).astype(np.int64))


def _dilation(demand: Demand, ocses: int, delay_s: float, mbps: float, slot_s: float) -> Dilation:
    line_s = demand.matrix * 8 / RATE_BPS
    return dilation_for(
        line_s, [SCHEDULERS["spectra"](line_s, ocses, delay_s)], mbps * 1e6 / RATE_BPS, slot_s
    )


def _big_switch(demand: Demand, nics: int, dilation: Dilation, seed: int) -> tuple[object, ...]:
    """Return the row of one packet switch with as many NICs, where RailS' spraying sends it all at once."""
    fabric = big_switch_fabric(demand.gpus, nics=nics, gpus=1, rate_bps=RATE_BPS)
    experiment = Experiment(fabric, single(demand), "rails", dilation, seed)
    with Network(fabric, dilation.rate) as network:
        records = emulate(experiment, network).records
    bound = bound_s(experiment) * dilation.time
    cct_s = communication_s(records) * dilation.time
    return (nics, BIG_SWITCH, "-", seed, bound, cct_s, bound, 0, 0.0, 0, 0, 0, float("nan"), 0.0)


def _meeting(name: str) -> Meeting:
    for meeting in get_args(Meeting):
        if name == meeting:
            return cast(Meeting, meeting)
    raise typer.BadParameter(f"{name!r} is neither drain, pause nor cut")


def _settings(shown: dict[int, list[Execution]]) -> dict[str, object]:
    return {
        f"{count} OCSes": {
            "dilation": asdict(executions[0].experiment.dilation),
            "delay_s": executions[0].experiment.delay_s,
            "emulated_delay_s": executions[0].experiment.darkness.delay_s,
        }
        for count, executions in shown.items()
        if executions
    }


if __name__ == "__main__":
    main(ocs_spectra)
