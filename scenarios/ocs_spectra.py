"""Spectra's schedules on parallel optical circuit switches (Spectra, section V), planned and executed."""

import _checkout  # first: runs this file under the checkout's Python

import os
from pathlib import Path
from typing import Annotated

import typer

from controller.circuits.devices import ReconfigurationDelay, device_named, real_delay
from controller.schedulers.registry import SCHEDULERS
from scenarios._spectra.ocs_sweep import sweep
from scenarios._spectra.sweep_results import SweepResults
from testbed.report.table import claims_table
from testbed.run.similitude import REAL_LINK_DELAY_S
from testbed.study.command import main
from testbed.study.comparison import Comparison, compare
from testbed.study.devices import NAMES, check_ports
from testbed.study.directories import new_run
from testbed.study.glances import Failures
from testbed.study.options import (
    Buffer,
    Calibrate,
    DatapathOption,
    Debug,
    DelayMs,
    DetectAfter,
    DryRun,
    EmulatedRate,
    Entropies,
    Fail,
    InitialWindow,
    LeastTimeout,
    Mtu,
    Out,
    RealLinkDelay,
    Transports,
    Volume,
    buffer_bytes,
    emulated_bps,
    faults,
    known_after_s,
    listed,
    real_link_delay_s,
    seed_range,
    transports,
    whole_numbers,
)
from testbed.study.output import print_results
from topologies.addresses import ENTROPIES
from topologies.errors import ScenarioError
from topologies.fabric import DEFAULT_BUFFER_BYTES
from traffic.demand import Demand
from traffic.fault_text import DETECT_S
from traffic.packets import DEFAULT_MTU
from traffic.transports.host_settings import CREDIT
from traffic.workloads.ocs_workloads import SCALED, demand_of_file, ocs_demand

RATE_BPS = 100e9
PAPER_SEEDS = 50
"""Of the paper's figures."""
LONGEST_LINE_MS = 1e6
"""Beyond any collective, and far from where a demand in bytes leaves 64 bits."""
WITH_PLAN_ONLY = {"plan_only", "seeds", "out", "debug"}
"""The options that figures 6 to 10 leave open; the paper fixes the others."""


Workload = Annotated[str, typer.Option(help="benchmark, gpt, moe, or a matrix file of a known format.")]
Servers = Annotated[int, typer.Option(help="Servers, each with a NIC on every OCS; a file says it itself.")]
Ocses = Annotated[str, typer.Option(help="How many OCSes, comma-separated.")]
Schedulers = Annotated[
    str,
    typer.Option(
        help=f"Schedulers, comma-separated: {', '.join(SCHEDULERS)},"
        " or your own as module:function (docs/own_scheduler.md)."
    ),
]
Meetings = Annotated[
    str,
    typer.Option(
        help="What senders do before a reconfiguration, comma-separated: drain (stop in time), pause (stop)"
        " or cut (go on)."
    ),
]
Line = Annotated[
    float, typer.Option(help="How long the busiest NIC would send alone [ms]; a file says it itself.")
]
Device = Annotated[
    str | None, typer.Option(help=f"What the OCSes stand for, with its delay instead of --delay-ms: {NAMES}.")
]
Varying = Annotated[
    bool, typer.Option("--varying", help="Draw the device's delays as they were measured, log-normal.")
]
Partial = Annotated[
    bool,
    typer.Option(
        "--partial", help="Keep circuits lit that two slots share; in the paper's model all go dark."
    ),
]
Rest = Annotated[
    str,
    typer.Option(
        help="Give each server one more NIC, on a packet switch, and send over it by this spraying scheme"
        " what a schedule leaves over; a scheduler of your own may then serve a part of the demand."
    ),
]
ShortestSlot = Annotated[
    float | None,
    typer.Option(
        help="Spectra's shortest slot in the emulation [ms]; by default what this machine needs."
        " Longer where delays would be less than ten times what it adds to them."
    ),
]
Seeds = Annotated[
    int | None, typer.Option(help="Random demands; by default 1, and 50 with --plan-only as in the paper.")
]
PlanOnly = Annotated[
    bool,
    typer.Option(
        "--plan-only", help="Figures 6 to 10 at the paper's scale; sends nothing, takes --seeds and --out."
    ),
]


def ocs_spectra(
    context: typer.Context,
    workload: Workload = "benchmark",
    servers: Servers = 8,
    ocses: Ocses = "2,4",
    schedulers: Schedulers = "spectra,spectra_plus,less,eclipse,bvn,rotor",
    meetings: Meetings = "drain",
    line_ms: Line = 100.0,
    delay_ms: DelayMs = 1.0,
    device: Device = None,
    varying: Varying = False,
    partial: Partial = False,
    rest: Rest = "",
    transport: Transports = CREDIT.name,
    entropies: Entropies = ENTROPIES,
    initial_window: InitialWindow = None,
    least_rto_ms: LeastTimeout = None,
    real_link_delay_us: RealLinkDelay = REAL_LINK_DELAY_S * 1e6,
    slot_ms: ShortestSlot = None,
    mtu: Mtu = DEFAULT_MTU,
    buffer: Buffer = None,
    emulated_rate: EmulatedRate = None,
    volume: Volume = None,
    fail: Fail = None,
    detect_us: DetectAfter = DETECT_S * 1e6,
    calibrate: Calibrate = False,
    dry_run: DryRun = False,
    seeds: Seeds = None,
    plan_only: PlanOnly = False,
    datapath: DatapathOption = "netdev",
    out: Out = None,
    debug: Debug = False,
) -> None:
    """Parallel OCSes: how far Spectra's schedules beat others, on paper and on emulated circuits.

    A demand between servers, the field's benchmark made small (a large flow, 70 % of the line, and
    three small ones each), a GPT's or a MoE's, or one from a file, is scheduled over the OCSes.
    Every scheduler's permutations run in real time: the controller steps all OCSes, senders send
    while a circuit points at the destination. Expect Spectra within a few percent of the lower bound,
    LESS and the rotor well above it, and what is measured within 15 % of what was planned.
    Schedulers with slots of a few milliseconds (Eclipse, BvN) lose more: each costs a guard time.
    Where a delay is as long as a slot, as with a Polatis, Spectra too is 10 to 20 % above the bound.

    As in the paper's model every reconfiguration darkens all circuits of its OCS. With --partial those
    that two slots share carry on, so the CCT, and its prediction, may be below the planned makespan.

    With --varying every reconfiguration takes its own time, and plans take the mean. No light is
    shortened: all that an OCS has yet to show comes later or earlier. So the CCT is around the planned
    makespan, a little above it on average, as the OCS that was dark longest decides; the prediction
    counts the delays that were drawn.
    """
    if plan_only:
        _plan(context, seed_range(PAPER_SEEDS if seeds is None else seeds), out)
        return
    delay = _delay(context, device, varying, delay_ms)
    demands = _demands(workload, servers, seed_range(1 if seeds is None else seeds), line_ms / 1e3)
    if device is not None:
        check_ports(device_named(device), demands[0].gpus)
    comparison = Comparison(
        name="ocs_spectra",
        title="Spectra's schedules on parallel OCSes",
        demands=demands,
        ocses=whole_numbers(ocses, "--ocses"),
        schedulers=listed(schedulers),
        meetings=listed(meetings),
        rate_bps=RATE_BPS,
        delay=delay,
        slot_s=None if slot_ms is None else slot_ms / 1e3,
        emulated_rate_bps=None if emulated_rate is None else emulated_bps(emulated_rate),
        datapath=datapath,
        partial=partial,
        rest=rest,
        mtu=mtu,
        buffer_bytes=DEFAULT_BUFFER_BYTES if buffer is None else buffer_bytes(buffer, mtu),
        volume=volume,
        failures=None if fail is None else Failures(tuple(faults(fail)), known_after_s(detect_us)),
    )
    setups = transports(transport or CREDIT.name, initial_window, least_rto_ms, entropies)
    compare(
        comparison,
        out,
        setups,
        dry_run=dry_run,
        calibrate=calibrate,
        real_link_delay_s=real_link_delay_s(real_link_delay_us),
    )


def _demands(workload: str, servers: int, seeds: range, line_s: float) -> list[Demand]:
    """Return a demand per seed; one from a file is the same for all, and decides the number of servers."""
    if not workload:
        raise ScenarioError("the name of the workload is empty", f"take {', '.join(SCALED)} or a file")
    # Not Path.exists: it raises where a name is longer than a file's may be.
    if workload in SCALED or not os.path.exists(workload):
        if not 0 < line_s * 1e3 <= LONGEST_LINE_MS:
            raise ScenarioError(
                f"a line of {line_s * 1e3:g} ms", f"give --line-ms above 0, and at most {LONGEST_LINE_MS:.0f}"
            )
        return [ocs_demand(workload, seed, servers, line_s * RATE_BPS / 8) for seed in seeds]
    demand = demand_of_file(Path(workload), servers)
    if demand.gpus != servers:
        typer.echo(f"{demand.name} is between {demand.gpus} servers, so there are {demand.gpus}", err=True)
    return [demand for _ in seeds]


def _delay(
    context: typer.Context, device: str | None, varying: bool, delay_ms: float
) -> ReconfigurationDelay:
    """Return the reconfiguration delay: a device's, or so many milliseconds."""
    if device is not None:
        if _given(context, "delay_ms"):
            raise ScenarioError(
                "--device and --delay-ms both give the reconfiguration delay",
                "leave out the one or the other",
            )
        return real_delay(device_named(device), varying=varying)
    if varying:
        raise ScenarioError("how a --delay-ms varies was never measured", "name a --device for --varying")
    if not 0 < delay_ms < float("inf"):
        raise ScenarioError(f"a delay of {delay_ms:g} ms", "give a number above 0")
    return ReconfigurationDelay("delay", delay_ms / 1e3)


def _check_plan_only(context: typer.Context) -> None:
    """Refuse options that the paper's figures would ignore."""
    given = {name for name in context.params if _given(context, name)} - WITH_PLAN_ONLY
    if given:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in context.params if name in given)
        raise ScenarioError(
            f"--plan-only plans the paper's figures, which leave no room for {options}",
            "leave out the one or the other",
        )


def _given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _plan(context: typer.Context, seeds: range, out: Path | None) -> None:
    _check_plan_only(context)
    run = new_run("ocs_spectra", "Spectra's schedules, as planned", report="circuits")
    with SweepResults(run, out=out) as results:
        results.add(sweep(len(seeds)))
    print_results([claims_table(results.page().claims)], results.path)


if __name__ == "__main__":
    main(ocs_spectra)
