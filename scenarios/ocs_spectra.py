"""Spectra's schedules on parallel optical circuit switches (Spectra, section V), planned and executed."""

import _checkout  # first: runs this file under the checkout's Python

import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, get_args

import typer

from controller.circuits.devices import DEVICES, ReconfigurationDelay, device_named, real_delay
from controller.schedulers.registry import SCHEDULERS
from testbed.experiment.experiment import Experiment
from testbed.experiment.ocs_plan import Scheduled, over_ocses
from testbed.report.claims_circuits import circuit_claims
from testbed.report.means import BIG_SWITCH
from testbed.study.command import run
from testbed.study.options import (
    check_effect,
    check_ports,
    chosen,
    listed,
    seed_range,
    whole_numbers,
    with_default,
)
from testbed.study.output import say
from testbed.study.study import Study
from topologies.big_switch import big_switch_fabric
from topologies.errors import ScenarioError
from topologies.parallel_ocs import parallel_ocs_fabric
from traffic.demand import Demand
from traffic.readers.detect import TOKEN_BYTES
from traffic.readers.htsim import StartUnit
from traffic.scheme_setup import WhileLitSetup
from traffic.transports.host_settings import CREDIT
from traffic.transports.slots import Meeting
from traffic.workloads.ocs_workloads import SCALED, demand_of_file, ocs_demand

RATE_BPS = 100e9
DELAY_MS, LINE_MS = 1.0, 100.0
LONGEST_LINE_MS = 1e6
"""Beyond any collective, and far from where a demand in bytes leaves 64 bits."""

Workload = Annotated[str, typer.Option(help="benchmark, gpt, moe, or a matrix file of a known format.")]
Servers = Annotated[int, typer.Option(help="Servers, each with a NIC on every OCS; a file says it itself.")]
Experts = Annotated[
    int | None, typer.Option(help="Routed experts of the model, where the file is a routing trace.")
]
TokenBytes = Annotated[
    int | None,
    typer.Option(
        help=with_default("Size of a token, where the file counts tokens [bytes].", f"{TOKEN_BYTES}")
    ),
]
TokensPerGpu = Annotated[
    int | None,
    typer.Option(
        help="Tokens of each server in an all-to-all, where the file is a routing trace without ranks;"
        " by default all of the file, spread evenly."
    ),
]
Start = Annotated[
    StartUnit | None,
    typer.Option(
        "--start-unit",
        help="Unit of the starts of htsim's connections, where the file is a matrix of them that start at"
        " different times: us or ps.",
    ),
]
Ocses = Annotated[str, typer.Option(help="How many OCSes, comma-separated.")]
Schedulers = Annotated[
    str,
    typer.Option(
        help=f"Schedulers, comma-separated: {', '.join(SCHEDULERS)},"
        " or your own as module:function (docs/howto/own_scheduler.md)."
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
    float | None,
    typer.Option(
        help=with_default(
            "How long the busiest NIC would send alone [ms]; a file says it itself.", f"{LINE_MS:g}"
        )
    ),
]
DelayMs = Annotated[
    float | None,
    typer.Option("--delay-ms", help=f"Reconfiguration delay of the OCSes [ms]; by default {DELAY_MS:g}."),
]
Device = Annotated[
    str | None,
    typer.Option(
        help=f"What the OCSes stand for, with its delay instead of --delay-ms: {', '.join(DEVICES)}."
    ),
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
Seeds = Annotated[int, typer.Option(help="Random demands.")]
PlanOnly = Annotated[bool, typer.Option("--plan-only", hidden=True)]


def ocs_spectra(
    workload: Workload = "benchmark",
    servers: Servers = 8,
    ocses: Ocses = "2,4",
    schedulers: Schedulers = "spectra,spectra_plus,less,eclipse,bvn,rotor",
    meetings: Meetings = "drain",
    line_ms: Line = None,
    delay_ms: DelayMs = None,
    device: Device = None,
    varying: Varying = False,
    partial: Partial = False,
    rest: Rest = "",
    slot_ms: ShortestSlot = None,
    seeds: Seeds = 1,
    experts: Experts = None,
    token_bytes: TokenBytes = None,
    tokens_per_gpu: TokensPerGpu = None,
    start_unit: Start = None,
    plan_only: PlanOnly = False,
) -> Study:
    """Parallel OCSes: how far Spectra's schedules beat others, on paper and on emulated circuits.

    A demand between servers, the field's benchmark made small (a large flow, 70 % of the line, and
    three small ones each), a GPT's or a MoE's, or one from a file, is scheduled over the OCSes.
    Every scheduler's permutations run in real time: the controller steps all OCSes, senders send
    while a circuit points at the destination. Expect Spectra within a few percent of the lower bound,
    LESS and the rotor well above it, and what is measured within 15 % of what was planned.
    Schedulers with slots of a few milliseconds (Eclipse, BvN) lose more: each costs a guard time.
    Where a delay is as long as a slot, as with a Polatis, Spectra too is 10 to 20 % above the bound.
    The paper's figures, at its scale and on paper alone, are ocs_figures.py's.

    As in the paper's model every reconfiguration darkens all circuits of its OCS. With --partial those
    that two slots share carry on, so the CCT, and its prediction, may be below the planned makespan.

    With --varying every reconfiguration takes its own time, and plans take the mean. No light is
    shortened: all that an OCS has yet to show comes later or earlier. So the CCT is around the planned
    makespan, a little above it on average, as the OCS that was dark longest decides; the prediction
    of what was emulated counts the delays that were drawn; with --model-only nothing is drawn.
    """
    if plan_only:
        raise ScenarioError("the paper's figures have a command of their own", "run ocs_figures.py")
    if slot_ms is not None and not 0 < slot_ms < float("inf"):
        raise ScenarioError(f"a slot of {slot_ms:g} ms", "give a number above 0")
    routing = {"--experts": experts, "--token-bytes": token_bytes, "--tokens-per-gpu": tokens_per_gpu}
    demands = _demands(workload, servers, seed_range(seeds), line_ms, routing, start_unit)
    delay = _delay(device, delay_ms, demands[0].gpus, varying=varying)
    circuits = [Scheduled(name, delay, partial) for name in listed(schedulers)]
    schemes = [WhileLitSetup(each, rest=rest) for each in chosen(meetings, get_args(Meeting), "--meetings")]
    counts = whole_numbers(ocses, "--ocses")
    return Study(
        "ocs_spectra",
        "Spectra's schedules on parallel OCSes",
        [point for count in counts for point in _points(demands, count, circuits, schemes)],
        functools.partial(circuit_claims, spectras=not rest),
        "circuits",
        baseline=BIG_SWITCH,
        slot_s=None if slot_ms is None else slot_ms / 1e3,
        transports=CREDIT.name,
    )


def _points(
    demands: Sequence[Demand], ocses: int, circuits: Sequence[Scheduled], schemes: Sequence[WhileLitSetup]
) -> list[Experiment]:
    """Return demands over some OCSes, seed by seed, and then over one packet switch in their place."""
    servers, jobs = demands[0].gpus, [over_ocses(demand, ocses) for demand in demands]
    has_rest = bool(schemes[0].rest)
    fabric = parallel_ocs_fabric(servers, ocses, packet_switch=has_rest, rate_bps=RATE_BPS)
    switch = big_switch_fabric(servers, nics=fabric.servers[0].nics, gpus=1, rate_bps=RATE_BPS)
    scheduled = [
        Experiment(fabric, job, scheme, seed=seed, circuits=each)
        for seed, job in enumerate(jobs)
        for each in circuits
        for scheme in schemes
    ]
    switched = [
        Experiment(switch, job, "rails", seed=seed, label=BIG_SWITCH) for seed, job in enumerate(jobs)
    ]
    return [*scheduled, *switched]


def _demands(
    workload: str,
    servers: int,
    seeds: range,
    line_ms: float | None,
    routing: Mapping[str, int | None],
    start_unit: StartUnit | None,
) -> list[Demand]:
    """Return a demand per seed; one from a file is the same for all, and decides the number of servers."""
    if not workload:
        raise ScenarioError("the name of the workload is empty", f"take {', '.join(SCALED)} or a file")
    # Not Path.exists: it raises where a name is longer than a file's may be.
    if workload in SCALED or not os.path.exists(workload):
        if workload in SCALED:
            check_effect(f"the workload {workload} is no routing trace", routing)
            check_effect(f"the workload {workload} is no matrix of htsim's", {"--start-unit": start_unit})
        line_ms = LINE_MS if line_ms is None else line_ms
        if not 0 < line_ms <= LONGEST_LINE_MS:
            raise ScenarioError(
                f"a line of {line_ms:g} ms", f"give --line-ms above 0, and at most {LONGEST_LINE_MS:.0f}"
            )
        return [ocs_demand(workload, seed, servers, line_ms / 1e3 * RATE_BPS / 8) for seed in seeds]
    check_effect("the workload is a file, which says its bytes", {"--line-ms": line_ms})
    demand = demand_of_file(
        Path(workload),
        servers,
        experts=routing["--experts"],
        bytes_per_token=routing["--token-bytes"],
        tokens_per_gpu=routing["--tokens-per-gpu"],
        start_unit=start_unit,
    )
    if demand.gpus != servers:
        say(f"{demand.name} is between {demand.gpus} servers, so there are {demand.gpus}")
    return [demand for _ in seeds]


def _delay(
    device: str | None, delay_ms: float | None, servers: int, *, varying: bool
) -> ReconfigurationDelay:
    """Return the reconfiguration delay: a device's that has the ports, or so many milliseconds."""
    if device is not None:
        if delay_ms is not None:
            raise ScenarioError(
                "--device and --delay-ms both give the reconfiguration delay",
                "leave out the one or the other",
            )
        check_ports(device_named(device), servers)
        return real_delay(device_named(device), varying=varying)
    if varying:
        raise ScenarioError("how a --delay-ms varies was never measured", "name a --device for --varying")
    delay_ms = DELAY_MS if delay_ms is None else delay_ms
    if not 0 < delay_ms < float("inf"):
        raise ScenarioError(f"a delay of {delay_ms:g} ms", "give a number above 0")
    return ReconfigurationDelay("delay", delay_ms / 1e3)


if __name__ == "__main__":
    run(ocs_spectra)
