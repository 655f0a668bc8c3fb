"""What all scenarios share: from a list of points to results that can be quoted.

A point is a job under a scheme with a seed. A scenario's file is a function from parameters to
points, and `run` makes a command of it: it predicts all points, finds the scale that this machine
carries, boots each fabric once in a sandbox, emulates point after point, judges each, prints the
tables and leaves a results directory behind.
"""

import math
import sys
import time
from collections import defaultdict
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
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from scenarios._controlled import ControlledPoints
from scenarios._dry_run import foreseen, workload_of
from scenarios._options import (
    DEFAULT_TRANSPORTS,
    Buffer,
    Cli,
    DatapathOption,
    Debug,
    DetectAfter,
    DryRun,
    EmulatedRate,
    Fail,
    InitialWindow,
    LeastTimeout,
    LinkDelay,
    Loss,
    ModelOnly,
    Mtu,
    NoSandbox,
    Out,
    Transports,
    Volume,
    buffer_bytes,
    check_volume,
    faults,
    known_after_s,
    transports,
)
from scenarios._output import print_results, print_tables, results_table, sheet_table
from scenarios._rails.claims_rails import rails_claims
from testbed.cli import FabricCLI
from testbed.machine.congestion import check_congestion_control, check_marks
from testbed.machine.datapath import Datapath, check_datapath
from testbed.machine.processes import in_processes
from testbed.machine.sandbox import inside_sandbox, run_in_sandbox, settle
from testbed.network.link_sample import worst_link_error
from testbed.network.netem import check_delays, check_netem, link_netems
from testbed.network.network import Network
from testbed.network.readback import effective, port_settings, unmet
from testbed.report.claims import Claim
from testbed.report.faults import fault_sheets
from testbed.report.means import BIG_SWITCH
from testbed.report.results import ResultsDirectory
from testbed.report.run_json import Kind, Run
from testbed.report.table import claims_table
from testbed.run.calibrate import calibration, is_calibrated, rate_factor
from testbed.run.dilation import UNSCALED, Dilation
from testbed.run.experiment import Experiment
from testbed.run.outcome import Outcome, bound_s
from testbed.run.predict import predict
from testbed.run.region_plan import TIMED_DELAY_S
from testbed.run.run_time import boots, run_time
from testbed.run.runner import Run as Predicted
from testbed.run.scale import busy_s, job_volume, load_bps, plain
from testbed.run.similitude import Number, similitude
from testbed.run.trial import tried
from topologies.errors import LightrailError, ScenarioError
from topologies.fabric import Fabric
from traffic.fault_text import DETECT_S, WrittenFault
from traffic.job import Job
from traffic.packets import DEFAULT_MTU
from traffic.records import NVLINK
from traffic.spraying.registry import policy_named
from traffic.transports.host_settings import TransportSetup
from traffic.transports.registry import by_bytes, congestion_control


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
    volume: float | None = None
    """Emulated over real bytes; None for as much as takes long enough."""
    dry_run: bool = False
    """Print what the run would be, and boot nothing."""

    def __post_init__(self) -> None:
        """Refuse what does not go together."""
        check_volume(self.volume)
        if self.dry_run and (self.model_only or self.cli):
            other = "--model-only" if self.model_only else "--cli"
            raise ScenarioError(f"--dry-run and {other} exclude each other", "leave out the one or the other")


PointOf = tuple[Job, str, int]
"""A point: job, scheme and seed."""


@dataclass(frozen=True)
class Scenario:
    """One experiment in many points."""

    name: str
    """Of its file and its results."""
    title: str
    """What its report is called."""
    experiments: Sequence[Experiment]
    """Its points: at real scale over one fabric, for this machine to choose one, or all at a scale of their
    own. Those over equal fabrics at equal rates, whose hosts are set alike, share a network."""
    claims: Callable[[pd.DataFrame], list[Claim]] = rails_claims
    """What its summary is held against."""
    report: Kind = "schemes"
    """What its report and its table are about."""

    @classmethod
    def of(cls, name: str, title: str, fabric: Fabric, points: Iterable[PointOf]) -> "Scenario":
        """Return a scenario of points at real scale."""
        experiments = [Experiment(fabric, job, scheme, UNSCALED, seed) for job, scheme, seed in points]
        return cls(name, title, experiments, rails_claims if fabric.name == "rail" else no_claims)

    @property
    def fabrics(self) -> list[Fabric]:
        """The fabrics of its points, each once."""
        return list(dict.fromkeys(experiment.fabric for experiment in self.experiments))

    def under(self, transports: Sequence[TransportSetup]) -> "Scenario":
        """Return the same points, each under each transport that moves bytes over its packet switches."""
        experiments = [
            replace(each, transport=transport)
            for each in self.experiments
            for transport in (transports if each.spraying or each.delegated else transports[:1])
        ]
        return replace(self, experiments=experiments)

    def in_packets_of(self, mtu: int) -> "Scenario":
        """Return the same scenario at another MTU [bytes]."""
        return replace(self, experiments=[replace(each, mtu=mtu) for each in self.experiments])

    def failing(self, faults: Sequence[WrittenFault], detect_s: float) -> "Scenario":
        """Return each point as it was, and with faults.

        Parameters
        ----------
        faults
            What fails; shares are of a point's prediction without them.
        detect_s
            How long until it is known [real s].
        """
        return replace(self, experiments=without_and_with(faults, self.experiments, detect_s))

    def over(self, fabric: Fabric) -> "Scenario":
        """Return the same scenario over another fabric of as many GPUs."""
        return replace(self, experiments=[replace(each, fabric=fabric) for each in self.experiments])


def no_claims(_table: pd.DataFrame) -> list[Claim]:
    """Return no claim: there is nothing to hold the summary against."""
    return []


def without_and_with(
    faults: Sequence[WrittenFault], experiments: Sequence[Experiment], detect_s: float
) -> list[Experiment]:
    """Return each experiment as it is, and with faults: parameters are those of `Scenario.failing`."""
    both = []
    for each in experiments:
        predicted_s = predict(each).iteration_s
        found = tuple(fault.over(each.fabric, predicted_s, detect_s) for fault in faults)
        both += [each, replace(each, faults=found)]
    return both


def run(describe: Callable[..., Scenario]) -> NoReturn:
    """Run a scenario: its parameters are its options, and after them those that say how to carry it out."""

    def command(
        *,
        link_delay_us: LinkDelay = 0.0,
        loss: Loss = 0.0,
        transport: Transports = DEFAULT_TRANSPORTS,
        initial_window: InitialWindow = None,
        least_rto_ms: LeastTimeout = None,
        mtu: Mtu = DEFAULT_MTU,
        buffer: Buffer = None,
        fail: Fail = None,
        detect_us: DetectAfter = DETECT_S * 1e6,
        emulated_rate: EmulatedRate = None,
        volume: Volume = None,
        dry_run: DryRun = False,
        model_only: ModelOnly = False,
        cli: Cli = False,
        datapath: DatapathOption = "netdev",
        no_sandbox: NoSandbox = False,
        out: Out = None,
        debug: Debug = False,
        **parameters: object,
    ) -> None:
        rate_bps = emulated_rate * 1e6 if emulated_rate is not None else None
        options = Options(rate_bps, model_only, cli, datapath, not no_sandbox, out, volume, dry_run)
        setups = transports(transport, initial_window, least_rto_ms)
        scenario = describe(**parameters).under(setups).in_packets_of(mtu)
        if link_delay_us or loss:
            links = scenario.fabrics[0].with_links(delay_s=link_delay_us / 1e6, loss=loss)
            scenario = scenario.over(links)
        if buffer is not None:
            scenario = scenario.over(scenario.fabrics[0].with_buffer(buffer_bytes(buffer, mtu)))
        if fail is not None:
            scenario = scenario.failing(faults(fail), known_after_s(detect_us))
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


def carry_out(scenario: Scenario, options: Options) -> ResultsDirectory | None:
    """Carry a scenario out, in a sandbox unless told otherwise; print and return what came of it."""
    for experiment in scenario.experiments:
        if experiment.spraying:
            policy_named(experiment.spraying)
    if options.model_only:
        return _finish(scenario, options, _model)
    if options.sandbox and not boots_nothing(options):
        enter_sandbox()
    return go_on(scenario, options)


def boots_nothing(options: Options) -> bool:
    """Return whether a run needs neither network nor sandbox: not even to calibrate the machine."""
    return options.dry_run and is_calibrated(options.datapath)


def go_on(scenario: Scenario, options: Options) -> ResultsDirectory | None:
    """Carry a scenario out where the sandbox has been entered, if there is to be one."""
    if options.dry_run:
        _foresee(scenario, options)
        return None
    check_datapath(options.datapath)
    for fabric in scenario.fabrics:
        check_netem(link_netems(fabric, None))
    for name, mtu in {(each.transport.name, each.mtu) for each in scenario.experiments}:
        control = congestion_control(name)
        check_congestion_control(control)
        check_marks(control, options.datapath, mtu)
    return _finish(scenario, options, _explore if options.cli else _emulate)


def enter_sandbox() -> None:
    """Go on inside a sandbox; outside of one, run this command in it and exit as it does."""
    if not inside_sandbox():
        sys.exit(_told(run_in_sandbox([sys.executable, *sys.argv])))
    settle()


def _finish(
    scenario: Scenario, options: Options, work: Callable[[Scenario, Options], ResultsDirectory | None]
) -> ResultsDirectory | None:
    results = work(scenario, options)
    if results is not None:
        judged = [claims_table(results.judged)] if results.judged else []
        failed = [sheet_table(sheet) for sheet in fault_sheets(results.outcomes)]
        print_results([results_table(results), *failed, *judged], results.path)
    return results


def _model(scenario: Scenario, options: Options) -> ResultsDirectory:
    # Transports that share alike are predicted alike: one of them is enough.
    experiments = list({_predicted_by(each): each for each in reversed(scenario.experiments)}.values())[::-1]
    with _results(scenario, options, experiments) as results, ExitStack() as stack:
        predictions = stack.enter_context(in_processes(predict, experiments))
        progress = stack.enter_context(_progress())
        for experiment in progress.track(experiments, description="predict"):
            results.add(Outcome(experiment, next(predictions)))
    return results


def _emulate(scenario: Scenario, options: Options) -> ResultsDirectory:
    with _progress() as progress:
        experiments, kept = _scaled(scenario, options, progress)
        for experiment in experiments:
            if experiment.ocs:
                _ = experiment.plan.schedule  # here: a user's own scheduler fails before anything boots
        with _results(scenario, options, experiments) as results:
            results.describe(calibration=kept)
            task = progress.add_task("emulate", total=len(experiments))
            for some in boots(experiments):
                _emulate_on(some, results, progress, task)
    return results


def _predicted_by(experiment: Experiment) -> tuple[object, ...]:
    """Return what a prediction follows from."""
    return (
        experiment.fabric,
        id(experiment.job),
        experiment.scheme_name,
        experiment.seed,
        by_bytes(experiment.transport.name),
        experiment.ocs,
        experiment.delegated,
        experiment.regional,
    )


def _foresee(scenario: Scenario, options: Options) -> None:
    """Print what a run would be: all is predicted as it would be, and nothing booted."""
    began_at = time.monotonic()
    numbers: dict[str, tuple[Number, ...]] = {}
    times_s, messages, sent_bytes = [], 0, 0.0
    with _progress() as progress:
        experiments, _ = _scaled(scenario, options, progress)
        for each in progress.track(experiments, description="predict"):
            predicted = predict(each)
            numbers.setdefault(workload_of(each), _similitude(each, predicted))
            times_s.append(busy_s(each.job, predicted))
            messages += len(predicted.records)
            sent_bytes += _sent_bytes(predicted) * each.dilation.volume
    took = run_time(experiments, times_s, messages, time.monotonic() - began_at)
    print_tables(foreseen(experiments, numbers, sent_bytes, took), "nothing was booted")


def _sent_bytes(predicted: Predicted) -> float:
    """Return what crosses the network, at real scale [bytes]."""
    records = predicted.records
    return float(records.loc[records["path"] != NVLINK, "bytes"].sum())


def _similitude(experiment: Experiment, predicted: Predicted) -> tuple[Number, ...]:
    return similitude(experiment, predicted, experiment.host.least_timeout_s)


def _emulate_on(
    experiments: Sequence[Experiment], results: ResultsDirectory, progress: Progress, task: TaskID
) -> None:
    """Boot the fabric of some experiments, and carry out one after the other."""
    first = experiments[0]
    with _network_of(first, results.run.datapath) as network:
        found = port_settings(network)
        broken, settings = unmet(network, found), {**_scale_of(first), **effective(network, found)}
        results.describe(settings={**results.run.settings, _where(first): settings})
        worst = math.nan if first.ocs else worst_link_error(network, first.seed)
        points = ControlledPoints(network, results, _where(first))
        for experiment in experiments:
            name = f"{experiment.job.name}, {experiment.scheme_name}, {experiment.transport_name}"
            progress.update(task, description=f"emulate {name}, seed {experiment.seed}")
            points.before(experiment)
            outcome = tried(experiment, network, worst, broken)
            if (workload := workload_of(experiment)) not in results.run.similitude:
                kept = _similitude(experiment, outcome.predicted)
                results.describe(similitude={**results.run.similitude, workload: kept})
            points.add(outcome)
            progress.advance(task)
        points.end()


def _network_of(experiment: Experiment, datapath: Datapath) -> Network:
    """Return a network at an experiment's scale."""
    rate, host, mtu = experiment.dilation.rate, experiment.host, experiment.mtu
    return Network(experiment.fabric, rate, datapath, host, mtu=mtu)


def _where(experiment: Experiment) -> str:
    """Return what the settings of a fabric are listed under."""
    fabric = experiment.fabric
    nics = len(fabric.nics) // len(fabric.servers)
    return f"{fabric.name}, {len(fabric.servers)} servers x {nics} NICs, {experiment.transport_name}"


def _scale_of(experiment: Experiment) -> dict[str, object]:
    """Return at which scale an experiment is emulated, and what its OCSes stand for."""
    scale = experiment.dilation
    said: dict[str, object] = {"dilation": {"rate": scale.rate, "volume": scale.volume, "time": scale.time}}
    said |= {"mtu": experiment.mtu, "hosts": asdict(experiment.host)}
    if experiment.ocs:
        plan, delay = experiment.plan, experiment.ocs.delay
        said["ocs"] = {
            "device": delay.device,
            "delay_varies": delay.varies,
            "partial": experiment.ocs.partial,
            "delay_s": plan.delay_s,
            "emulated_delay_s": plan.emulated_delay.mean_s,
            "emulated_rate_bps": plan.emulated_rate_bps,
        }
    return said


def _explore(scenario: Scenario, options: Options) -> None:
    with _progress() as progress:
        experiments, _ = _scaled(scenario, options, progress)
    first = experiments[0]
    jobs = {experiment.job.name: experiment.job for experiment in experiments}
    with _network_of(first, options.datapath) as network:
        rate = first.fabric.nic_rate_bps(first.fabric.nics[0]) * network.rate_factor / 1e6
        network.impair(first.dilation.time)
        _say(
            f"{scenario.title}: NICs are shaped to {rate:g} Mbit/s, the transport is {first.transport_name}; "
            f"replay knows {', '.join(jobs)}"
        )
        FabricCLI(network, jobs, transport=first.transport)


def _scaled(
    scenario: Scenario, options: Options, progress: Progress
) -> tuple[list[Experiment], dict[str, object]]:
    """Return the experiments at the scale that this machine carries, or their own, and its calibration."""
    machine = calibration(options.datapath)
    experiments = list(scenario.experiments)
    if UNSCALED in {experiment.dilation for experiment in experiments}:
        level = scenario.over(plain(experiments[0].fabric)).experiments
        found: dict[tuple[object, ...], tuple[float, float]] = {}
        for each in progress.track(level, description="predict"):
            if _predicted_by(each) not in found:
                predicted = predict(each)  # not kept: runs of many GPUs would not all fit into memory
                found[_predicted_by(each)] = load_bps(each, predicted), busy_s(each.job, predicted)
        most_bps, mtu = max(load for load, _ in found.values()), experiments[0].mtu
        rate = rate_factor(level[0].fabric, most_bps, machine, options.emulated_rate_bps, mtu)
        times_s = [found[_predicted_by(each)][1] for each in level]
        experiments = _dilated(experiments, rate, times_s, options.volume)
    for experiment in experiments:
        check_delays(experiment.fabric, experiment.dilation.time)
    return experiments, asdict(machine)


def _dilated(
    experiments: Sequence[Experiment], rate: float, times_s: Sequence[float], volume: float | None
) -> list[Experiment]:
    """Return experiments at a rate, each workload at its own volume, or all at the one asked for."""
    if volume is not None:
        return [replace(each, dilation=Dilation(rate, volume)) for each in experiments]
    fabric, mtu = experiments[0].fabric, experiments[0].mtu
    bounds_s, longest_s = defaultdict[str, list[float]](list), defaultdict[str, float](float)
    least = defaultdict[str, float](float)
    for experiment, time_s in zip(experiments, times_s, strict=True):
        job = experiment.job
        bounds_s[job.name].append(bound_s(experiment))
        longest_s[job.name] = max(longest_s[job.name], time_s)
        if experiment.regional:
            least[job.name] = max(least[job.name], experiment.regional.volume_for(rate, TIMED_DELAY_S))
    volumes = {
        job.name: max(
            job_volume(job, fabric, rate, bounds_s[job.name], longest_s[job.name], mtu), least[job.name]
        )
        for job in {experiment.job.name: experiment.job for experiment in experiments}.values()
    }
    return [replace(each, dilation=Dilation(rate, volumes[each.job.name])) for each in experiments]


def _results(scenario: Scenario, options: Options, planned: list[Experiment]) -> ResultsDirectory:
    run = new_run(scenario.name, scenario.title, options.datapath, scenario.report)
    return ResultsDirectory(run, planned=planned, out=options.out, claims=scenario.claims)


def new_run(name: str, title: str, datapath: Datapath = "netdev", report: Kind = "schemes") -> Run:
    """Return a run that starts now."""
    run = Run(name, title, ["python", *sys.argv], datetime.now(), report=report, datapath=datapath)
    return replace(run, baseline=BIG_SWITCH) if report == "circuits" else run


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
