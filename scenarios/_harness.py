"""What all scenarios share: from a list of points to results that can be quoted.

A point is a workload under a scheme with a seed. A scenario's file is a function from parameters
to points, and `run` makes a command of it: it predicts all points, finds the scale that this
machine carries, boots the fabric once in a sandbox, emulates point after point, judges each,
prints the tables and leaves a results directory behind.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import update_wrapper
from inspect import Signature, signature
from io import TextIOWrapper
from pathlib import Path
from typing import NoReturn

import pandas as pd
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from scenarios._options import (
    Cli,
    DatapathOption,
    Debug,
    EmulatedRate,
    LinkDelay,
    Loss,
    ModelOnly,
    NoSandbox,
    Out,
)
from scenarios._output import print_results
from scenarios._rails.claims_rails import rails_claims
from testbed.cli import FabricCLI
from testbed.machine.datapath import Datapath, check_datapath
from testbed.machine.processes import in_processes
from testbed.machine.sandbox import inside_sandbox, run_in_sandbox, settle
from testbed.network.link_sample import worst_link_error
from testbed.network.netem import check_delays, check_netem, link_netems
from testbed.network.network import Network
from testbed.network.readback import effective, port_settings, unmet
from testbed.report.claims import Claim
from testbed.report.collective_report import links_text
from testbed.report.results import ResultsDirectory
from testbed.report.run_json import Run
from testbed.report.table import claims_table, summary_table
from testbed.run.calibrate import Calibration, calibration, hop_load_bps, rate_factor, volume_factor
from testbed.run.dilation import Dilation
from testbed.run.experiment import Experiment
from testbed.run.outcome import Outcome, bound_s
from testbed.run.predict import predict
from testbed.run.trial import tried
from topologies.errors import LightrailError
from topologies.fabric import Fabric
from traffic.collective import Collective
from traffic.metrics import communication_s
from traffic.spraying.registry import policy_named

UNSCALED = Dilation(1.0, 1.0)


@dataclass(frozen=True)
class Options:
    """How a scenario is carried out; what it is, its points say."""

    emulated_rate_bps: float | None = None
    """What a NIC is shaped to [bit/s]; None for what this machine carries safely."""
    model_only: bool = False
    """Predict, and emulate nothing."""
    cli: bool = False
    """Open Mininet's CLI on the fabric, and measure nothing."""
    datapath: Datapath = "netdev"
    """Which of Open vSwitch's forwards."""
    sandbox: bool = True
    """Whether to run in a sandbox of its own."""
    out: Path | None = None
    """The results directory; None for one of its own."""


PointOf = tuple[Collective, str, int]
"""A point: collective, scheme and seed."""


@dataclass(frozen=True)
class Scenario:
    """One experiment in many points."""

    name: str
    """Of its file and its results."""
    title: str
    """What its report is called."""
    fabric: Fabric
    experiments: Sequence[Experiment]
    """Its points: at real scale, for this machine to choose one, or all at a scale of their own."""
    claims: Callable[[pd.DataFrame], list[Claim]] = rails_claims
    """What its summary is held against."""

    @classmethod
    def of(cls, name: str, title: str, fabric: Fabric, points: Iterable[PointOf]) -> "Scenario":
        """Return a scenario of points at real scale."""
        experiments = [Experiment(fabric, c, scheme, UNSCALED, seed) for c, scheme, seed in points]
        return cls(name, title, fabric, experiments)

    def over(self, fabric: Fabric) -> "Scenario":
        """Return the same scenario over another fabric of as many GPUs."""
        return replace(self, fabric=fabric, experiments=[replace(e, fabric=fabric) for e in self.experiments])


def run(describe: Callable[..., Scenario]) -> NoReturn:
    """Run a scenario: its parameters are its options, and after them those that say how to carry it out."""

    def command(
        *,
        link_delay_us: LinkDelay = 0.0,
        loss: Loss = 0.0,
        emulated_rate: EmulatedRate = None,
        model_only: ModelOnly = False,
        cli: Cli = False,
        datapath: DatapathOption = "netdev",
        no_sandbox: NoSandbox = False,
        out: Out = None,
        debug: Debug = False,
        **parameters: object,
    ) -> None:
        rate_bps = emulated_rate * 1e6 if emulated_rate is not None else None
        options = Options(rate_bps, model_only, cli, datapath, not no_sandbox, out)
        scenario = describe(**parameters)
        if link_delay_us or loss:
            scenario = scenario.over(scenario.fabric.with_links(delay_s=link_delay_us / 1e6, loss=loss))
        carry_out(scenario, options)

    *shared, _ = signature(command).parameters.values()
    own = signature(describe).parameters.values()
    # What typer reads, instead of the lists of options in every scenario.
    command.__signature__ = Signature([*own, *shared])  # type: ignore[attr-defined]
    main(update_wrapper(command, describe))


def main(command: Callable[..., None]) -> NoReturn:
    """Run a command; what goes wrong is told in one sentence, with exit code 2."""
    app = typer.Typer(add_completion=False, rich_markup_mode="markdown", pretty_exceptions_enable=False)
    app.command()(command)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # where ± or µ cannot be written, ? stands for it
    try:
        app()
    except LightrailError as error:
        if "--debug" in sys.argv:
            raise
        _say(str(error))
        sys.exit(2)
    except KeyboardInterrupt:
        _say("interrupted; what was finished is in the results directory")
        sys.exit(130)
    sys.exit(0)


def carry_out(scenario: Scenario, options: Options) -> None:
    """Carry a scenario out, in a sandbox unless told otherwise, and print what came of it."""
    for scheme in dict.fromkeys(experiment.policy for experiment in scenario.experiments):
        policy_named(scheme)
    if options.model_only:
        _finish(scenario, options, _model)
        return
    if options.sandbox:
        enter_sandbox()
    check_datapath(options.datapath)
    check_netem(link_netems(scenario.fabric, None))
    _finish(scenario, options, _explore if options.cli else _emulate)


def enter_sandbox() -> None:
    """Go on inside a sandbox; outside of one, run this command in it and exit as it does."""
    if not inside_sandbox():
        sys.exit(_told(run_in_sandbox([sys.executable, *sys.argv])))
    settle()


def _finish(
    scenario: Scenario, options: Options, work: Callable[[Scenario, Options], ResultsDirectory | None]
) -> None:
    results = work(scenario, options)
    if results is not None:
        table = summary_table(results.table, note=links_text(scenario.fabric))
        print_results([table, claims_table(results.judged)], results.path)


def _model(scenario: Scenario, options: Options) -> ResultsDirectory:
    experiments = list(scenario.experiments)
    with _results(scenario, options, experiments) as results, ExitStack() as stack:
        predictions = stack.enter_context(in_processes(predict, experiments))
        progress = stack.enter_context(_progress())
        for experiment in progress.track(experiments, description="predict"):
            results.add(Outcome(experiment, next(predictions)))
    return results


def _emulate(scenario: Scenario, options: Options) -> ResultsDirectory:
    with _progress() as progress:
        experiments, kept = _scaled(scenario, options, progress)
        with _results(scenario, options, experiments) as results:
            results.describe(calibration=kept)
            with Network(scenario.fabric, experiments[0].dilation.rate, options.datapath) as network:
                settings = port_settings(network)
                broken = unmet(network, settings)
                results.describe(settings=effective(network, settings))
                worst = worst_link_error(network, experiments[0].seed)
                task = progress.add_task("emulate", total=len(experiments))
                for experiment in experiments:
                    progress.update(
                        task, description=f"emulate {experiment.collective.name}, {experiment.policy}"
                    )
                    results.add(tried(experiment, network, worst, broken))
                    progress.advance(task)
    return results


def _explore(scenario: Scenario, options: Options) -> None:
    with _progress() as progress:
        experiments, _ = _scaled(scenario, options, progress)
    collectives = {experiment.collective.name: experiment.collective for experiment in experiments}
    with Network(scenario.fabric, experiments[0].dilation.rate, options.datapath) as network:
        rate = scenario.fabric.nic_rate_bps(scenario.fabric.nics[0]) * network.rate_factor / 1e6
        network.impair(experiments[0].dilation.time)
        _say(f"{scenario.title}: NICs are shaped to {rate:g} Mbit/s; replay knows {', '.join(collectives)}")
        FabricCLI(network, collectives)


def _scaled(
    scenario: Scenario, options: Options, progress: Progress
) -> tuple[list[Experiment], dict[str, object]]:
    """Return the experiments at the scale that this machine carries, or their own, and its calibration."""
    machine = calibration(options.datapath)
    experiments = list(scenario.experiments)
    if UNSCALED in {experiment.dilation for experiment in experiments}:
        rate = _rate(scenario, options, machine, progress)
        experiments = _dilated(experiments, rate)
    for experiment in experiments:
        check_delays(experiment.fabric, experiment.dilation.time)
    return experiments, asdict(machine)


def _rate(scenario: Scenario, options: Options, machine: Calibration, progress: Progress) -> float:
    """Return emulated over real rate: what was asked for, or what this machine carries safely."""
    # Delay and loss lower the load on the mean and not at its peak.
    plain = scenario.fabric.with_links(delay_s=0.0, loss=0.0)
    loads = []
    for experiment in progress.track(scenario.over(plain).experiments, description="predict"):
        records = predict(experiment)
        loads.append(hop_load_bps(records, communication_s(records)))
    return rate_factor(plain, max(loads, default=0.0), machine, options.emulated_rate_bps)


def _dilated(experiments: Sequence[Experiment], rate: float) -> list[Experiment]:
    """Return experiments at a rate, each workload at a volume of its own."""
    bounds: dict[str, list[float]] = {}
    for experiment in experiments:
        bounds.setdefault(experiment.collective.name, []).append(bound_s(experiment))
    steps = {experiment.collective.name: len(experiment.collective.steps) for experiment in experiments}
    return [
        replace(
            e,
            dilation=Dilation(rate, volume_factor(rate, bounds[e.collective.name], steps[e.collective.name])),
        )
        for e in experiments
    ]


def _results(scenario: Scenario, options: Options, planned: list[Experiment]) -> ResultsDirectory:
    command = ["python", *sys.argv]
    run = Run(scenario.name, scenario.title, command, datetime.now(), datapath=options.datapath)
    return ResultsDirectory(run, planned=planned, out=options.out, claims=scenario.claims)


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


def _told(code: int) -> int:
    """Say what a signal's exit code means, and return it."""
    if code > 128:
        _say(f"the run was ended by signal {code - 128}; what was finished is in the results directory")
    return code


def _say(sentence: str) -> None:
    sys.stderr.write(f"{sentence}\n")
