"""What all scenarios share: from a list of points to results that can be quoted.

A point is a job under a scheme with a seed. A scenario's file is a function from parameters to
points, and `run` makes a command of it: it predicts all points, finds the scale that this machine
carries, boots each fabric once in a sandbox, emulates point after point, judges each, prints the
tables and leaves a results directory behind.
"""

import gc
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
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
from scenarios._glances import Failures, Glance, glances, predicted_by
from scenarios._options import (
    DEFAULT_TRANSPORTS,
    Buffer,
    Calibrate,
    Cli,
    DatapathOption,
    Debug,
    DetectAfter,
    DryRun,
    EmulatedRate,
    Entropies,
    Fail,
    InitialWindow,
    LeastTimeout,
    LinkDelay,
    Loss,
    ModelOnly,
    Mtu,
    NoSandbox,
    Out,
    RealLinkDelay,
    ShareQueuePairs,
    Transports,
    Volume,
    buffer_bytes,
    check_volume,
    emulated_bps,
    faults,
    known_after_s,
    listed,
    real_link_delay_s,
    transports,
)
from scenarios._output import print_results, print_tables, sheet_table
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
from testbed.report.page import Findings
from testbed.report.results import ResultsDirectory
from testbed.report.run_json import Kind, Run
from testbed.report.table import claims_table
from testbed.run.calibrate import (
    Calibration,
    ContradictedError,
    calibration,
    is_calibrated,
    rate_factor,
)
from testbed.run.constants import constant_numbers, constants
from testbed.run.dark_excess import DarkExcess, dark_excess, is_measured
from testbed.run.dilation import UNSCALED, Dilation
from testbed.run.emulate import check_losses
from testbed.run.experiment import Experiment
from testbed.run.outcome import Outcome, bound_s
from testbed.run.predict import predict
from testbed.run.repetitions import check_named_apart
from testbed.run.run_time import boots
from testbed.run.scale import RINGS_S, job_volume, plain
from testbed.run.similitude import REAL_LINK_DELAY_S, Number, facts_of, similitude
from testbed.run.trial import tried
from topologies.addresses import ENTROPIES
from topologies.errors import LightrailError, ScenarioError
from topologies.fabric import Fabric
from topologies.own import own_sources
from traffic.fault_text import DETECT_S
from traffic.job import Job
from traffic.packets import DEFAULT_MTU
from traffic.spraying.registry import policy_named
from traffic.transports.host_settings import TransportSetup
from traffic.transports.registry import congestion_control


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
    calibrate: bool = False
    """Whether to measure anew first what this machine carries."""
    real_link_delay_s: float = REAL_LINK_DELAY_S
    """Of a link of the real network, one way, for its dimensionless numbers [s]."""

    def __post_init__(self) -> None:
        """Refuse what does not go together."""
        check_volume(self.volume)
        if self.dry_run and (self.model_only or self.cli):
            other = "--model-only" if self.model_only else "--cli"
            raise ScenarioError(f"--dry-run and {other} exclude each other", "leave out the one or the other")
        for given, other in ((self.cli, "--cli"), (self.calibrate, "--calibrate")):
            if self.model_only and given:
                raise ScenarioError(
                    f"--model-only and {other} exclude each other", "leave out the one or the other"
                )


def no_claims(_table: pd.DataFrame) -> list[Claim]:
    """Return no claim: there is nothing to hold the summary against."""
    return []


def no_findings(_outcomes: Sequence[Outcome]) -> Findings:
    """Return nothing: the report of its kind says all."""
    return Findings()


LOOK_S = 0.3
"""How long a dry run predicts [s]: with what a start takes it is to be there within two seconds."""
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
    findings: Callable[[Sequence[Outcome]], Findings] = no_findings
    """What it has to say of its outcomes itself."""
    baseline: str = ""
    """The scheme that busbw is relative to, where it is not the usual one."""
    rings_s: float = RINGS_S
    """How long a point may take at emulated scale so that the steps of its rings are long [s]."""
    most_nic_bps: float = math.inf
    """What NICs are shaped to at most, if the user does not say to what [bit/s]: for fabrics of so many ports
    that a packet costs the switch more than it does where the machine was calibrated."""
    failures: Failures | None = None
    """What fails: each point runs without, and then with it."""

    @classmethod
    def of(cls, name: str, title: str, fabric: Fabric, points: Iterable[PointOf]) -> "Scenario":
        """Return a scenario of points at real scale."""
        experiments = [Experiment(fabric, job, scheme, UNSCALED, seed) for job, scheme, seed in points]
        return cls(name, title, experiments, rails_claims if fabric.name == "rail" else no_claims)

    @property
    def relights(self) -> bool:
        """Whether OCSes are reconfigured in it."""
        return any(each.rule and each.rule.delays and not each.rule.stays for each in self.experiments)

    @property
    def fabrics(self) -> list[Fabric]:
        """The fabrics of its points, each once."""
        return list(dict.fromkeys(experiment.fabric for experiment in self.experiments))

    def under(self, transports: Sequence[TransportSetup]) -> "Scenario":
        """Return the same points, each under each transport that moves bytes over its packet switches."""
        experiments = [
            replace(each, transport=transport)
            for each in self.experiments
            for transport in (transports if each.over_packets else transports[:1])
        ]
        return replace(self, experiments=experiments)

    def sharing_queue_pairs(self) -> "Scenario":
        """Return the same points with one communicator, whose queue pairs all collectives share."""
        return replace(
            self, experiments=[replace(each, shared_queue_pairs=True) for each in self.experiments]
        )

    def in_packets_of(self, mtu: int) -> "Scenario":
        """Return the same scenario at another MTU [bytes]."""
        return replace(self, experiments=[replace(each, mtu=mtu) for each in self.experiments])

    def failing(self, failures: Failures) -> "Scenario":
        """Return the same points, each without and then with what fails.

        Raises
        ------
        ScenarioError
            If it has faults of its own.
        """
        if any(each.faults or (each.rule and each.rule.foresees) for each in self.experiments):
            raise ScenarioError(
                f"{self.name} foresees what fails in it, and --fail would come on top", "leave out --fail"
            )
        return replace(self, failures=failures)

    def over(self, changed: Callable[[Fabric], Fabric]) -> "Scenario":
        """Return the same scenario over fabrics that are changed, each of as many GPUs as it was."""
        fabrics = {fabric: changed(fabric) for fabric in self.fabrics}
        experiments = [replace(each, fabric=fabrics[each.fabric]) for each in self.experiments]
        return replace(self, experiments=experiments)


def run(describe: Callable[..., Scenario], transports_by_default: str = DEFAULT_TRANSPORTS) -> NoReturn:
    """Run a scenario: its parameters are its options, and after them those that say how to carry it out."""

    def command(
        *,
        link_delay_us: LinkDelay = 0.0,
        real_link_delay_us: RealLinkDelay = REAL_LINK_DELAY_S * 1e6,
        loss: Loss = 0.0,
        transport: Transports = None,
        entropies: Entropies = ENTROPIES,
        initial_window: InitialWindow = None,
        least_rto_ms: LeastTimeout = None,
        share_queue_pairs: ShareQueuePairs = False,
        mtu: Mtu = DEFAULT_MTU,
        buffer: Buffer = None,
        fail: Fail = None,
        detect_us: DetectAfter = DETECT_S * 1e6,
        emulated_rate: EmulatedRate = None,
        volume: Volume = None,
        calibrate: Calibrate = False,
        dry_run: DryRun = False,
        model_only: ModelOnly = False,
        cli: Cli = False,
        datapath: DatapathOption = "netdev",
        no_sandbox: NoSandbox = False,
        out: Out = None,
        debug: Debug = False,
        **parameters: object,
    ) -> None:
        rate_bps = emulated_bps(emulated_rate) if emulated_rate is not None else None
        options = Options(
            rate_bps, model_only, cli, datapath, not no_sandbox, out, volume, dry_run, calibrate,
            real_link_delay_s=real_link_delay_s(real_link_delay_us),
        )  # fmt: skip
        first = listed(transports_by_default)[0]
        usual = first if model_only and not dry_run else transports_by_default
        setups = transports(transport or usual, initial_window, least_rto_ms, entropies)
        scenario = describe(**parameters).under(setups).in_packets_of(mtu)
        if share_queue_pairs:
            scenario = scenario.sharing_queue_pairs()
        if link_delay_us or loss:
            scenario = scenario.over(lambda fabric: fabric.with_links(delay_s=link_delay_us / 1e6, loss=loss))
        if buffer is not None:
            held_bytes = buffer_bytes(buffer, mtu)
            scenario = scenario.over(lambda fabric: fabric.with_buffer(held_bytes))
        if fail is not None:
            scenario = scenario.failing(Failures(tuple(faults(fail)), known_after_s(detect_us)))
        carry_out(scenario, options)

    *shared, _ = signature(command).parameters.values()
    own = signature(describe).parameters.values()
    # What typer reads, instead of the lists of options in every scenario.
    command.__signature__ = Signature([*own, *shared])  # type: ignore[attr-defined]
    main(update_wrapper(command, describe))


def main(command: Callable[..., None]) -> NoReturn:
    """Run a command; an error is one sentence, with exit code 2."""
    gc.freeze()  # what is imported stays
    gc.enable()  # `_checkout` has turned it off
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
    """Carry a scenario out, in a sandbox unless told otherwise; print and return what came of it.

    An unknown scheme, and two experiments that tables would take for one, are refused before.
    """
    asked = dict.fromkeys((each.spraying, each.transport.sprays) for each in scenario.experiments)
    for scheme, entropies in asked:
        if scheme:
            policy_named(scheme, entropies)
    check_named_apart(scenario.experiments)
    if options.model_only:
        return _finish(scenario, options, _model)
    prepare_machine(options, relights=scenario.relights)
    return go_on(scenario, options)


def prepare_machine(options: Options, *, relights: bool) -> None:
    """Enter the sandbox, and calibrate the machine anew if that was asked for; a dry run may need neither.

    Parameters
    ----------
    options
        How a scenario is carried out.
    relights
        Whether OCSes are reconfigured in it, so that their dark excess belongs to the calibration.
    """
    if options.sandbox and not _boots_nothing(options, relights):
        enter_sandbox()
    if options.calibrate:
        calibration(options.datapath, anew=True)
        if relights:
            dark_excess(options.datapath, anew=True)


def _boots_nothing(options: Options, relights: bool) -> bool:
    known = is_calibrated(options.datapath) and (is_measured(options.datapath) or not relights)
    return options.dry_run and not options.calibrate and known


def go_on(scenario: Scenario, options: Options) -> ResultsDirectory | None:
    """Carry a scenario out where the sandbox has been entered, if there is to be one."""
    if options.dry_run:
        _foresee(scenario, options)
        return None
    check_datapath(options.datapath)
    for fabric in scenario.fabrics:
        check_netem(link_netems(fabric, None))
    written = scenario.failures.faults if scenario.failures else ()
    own = [fault.name for each in scenario.experiments for fault in each.faults if fault.loses]
    check_losses([*own, *(fault.text for fault in written if fault.loses)])
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
        # Here: a table stands beside plots, and matplotlib takes longer to import than a dry run takes.
        from scenarios._results_table import results_table

        of_kind, found = [results_table(results)], [*map(sheet_table, results.found.sheets)]
        tables = [*found, *of_kind] if results.found.leads else [*of_kind, *found]
        tables += map(sheet_table, fault_sheets(results.outcomes))
        judged = [claims_table(results.judged)] if results.judged else []
        print_results([*tables, *judged], results.path)
    return results


def _model(scenario: Scenario, options: Options) -> ResultsDirectory:
    experiments = list(scenario.experiments)
    if scenario.failures:
        with _progress() as progress:
            experiments = [each for each, _ in glances(experiments, scenario.failures, progress)]
    experiments, alike = _each_prediction(experiments)
    with _results(scenario, options, experiments, alike) as results, ExitStack() as stack:
        predictions = stack.enter_context(in_processes(predict, experiments))
        progress = stack.enter_context(_progress())
        for experiment in progress.track(experiments, description="predict"):
            results.add(Outcome(experiment, next(predictions)))
    return results


def _each_prediction(
    experiments: Sequence[Experiment],
) -> tuple[list[Experiment], dict[str, list[str]]]:
    """Return the first of all experiments that are predicted alike, and by its transport the others'.

    Transports that share alike are predicted alike: one of them is enough.
    """
    first: dict[tuple[object, ...], Experiment] = {}
    alike = defaultdict[str, dict[str, None]](dict)
    for each in experiments:
        kept = first.setdefault(predicted_by(each), each)
        if each.transport_name != kept.transport_name:
            alike[kept.transport_name][each.transport_name] = None
    return list(first.values()), {name: list(others) for name, others in alike.items()}


def _emulate(scenario: Scenario, options: Options) -> ResultsDirectory:
    try:
        return _emulated(scenario, options)
    except ContradictedError as error:
        _say(f"{error}: it is calibrated anew")
    calibration(options.datapath, anew=True)
    return _emulated(scenario, options, is_new=True)


def _emulated(scenario: Scenario, options: Options, *, is_new: bool = False) -> ResultsDirectory:
    """Return the results of a scenario; ContradictedError if it has to be scaled by a new calibration."""
    with _progress() as progress:
        experiments, machine = _prepared(scenario, options, progress)
        for experiment in experiments:
            if experiment.rule:
                experiment.rule.prepare()  # here: a user's own scheduler fails before anything boots
        with _results(scenario, options, experiments) as results:
            results.describe(calibration=asdict(machine))
            task = progress.add_task("emulate", total=len(experiments))
            for some in boots(experiments):
                _emulate_on(some, results, progress, task, None if is_new else machine)
    return results


def _foresee(scenario: Scenario, options: Options) -> None:
    """Print what a run would be; what a moment does not suffice to predict is taken to be alike."""
    with _progress() as progress:
        looked = glances(scenario.experiments, scenario.failures, progress, LOOK_S)
    experiments, _ = _scaled(scenario, looked, options)
    numbers: dict[str, tuple[Number, ...]] = {}
    for each, (_, glance) in zip(experiments, looked, strict=True):
        if (workload := workload_of(each)) not in numbers:
            timeout_s, delay_s = each.host.least_timeout_s, options.real_link_delay_s
            numbers[workload] = similitude(each, glance.facts, timeout_s, delay_s)
        numbers.setdefault(_constants_of(each), constant_numbers(each))
    tables = foreseen(experiments, numbers, [glance for _, glance in looked], options.real_link_delay_s)
    print_tables(tables, "nothing was booted")


def _emulate_on(
    experiments: Sequence[Experiment],
    results: ResultsDirectory,
    progress: Progress,
    task: TaskID,
    doubtful: Calibration | None,
) -> None:
    """Boot the fabric of some experiments, and carry out one after the other."""
    first = experiments[0]
    with _network_of(first, results.run.datapath) as network:
        found = port_settings(network)
        broken, settings = unmet(network, found), {**_scale_of(first), **effective(network, found)}
        results.describe(settings={**results.run.settings, _where(first): settings})
        worst = math.nan if first.over_circuits else worst_link_error(network, first.seed)
        points = ControlledPoints(network, results, _where(first), doubtful)
        for experiment in experiments:
            name = f"{experiment.job.name}, {experiment.name}, {experiment.transport_name}"
            progress.update(task, description=f"emulate {name}, seed {experiment.seed}")
            points.before(experiment)
            outcome = tried(experiment, network, worst, broken)
            facts, timeout_s = facts_of(experiment, outcome.predicted), experiment.host.least_timeout_s
            kept = similitude(experiment, facts, timeout_s, results.run.real_link_delay_s)
            outcome = replace(outcome, numbers=kept)
            if (workload := workload_of(experiment)) not in results.run.similitude:
                results.describe(similitude={**results.run.similitude, workload: kept})
            if (moved_by := _constants_of(experiment)) not in results.run.similitude:
                kept = constant_numbers(experiment)
                results.describe(similitude={**results.run.similitude, moved_by: kept})
            points.add(outcome)
            progress.advance(task)
        points.end()


def _network_of(experiment: Experiment, datapath: Datapath) -> Network:
    """Return a network at an experiment's scale."""
    rate, host, mtu = experiment.dilation.rate, experiment.host, experiment.mtu
    return Network(experiment.fabric, rate, datapath, host, mtu=mtu, routing=experiment.bound_routing)


def _where(experiment: Experiment) -> str:
    """Return what the settings of a fabric are listed under."""
    fabric = experiment.fabric
    nics = len(fabric.nics) // len(fabric.servers)
    return f"{fabric.name}, {len(fabric.servers)} servers x {nics} NICs, {experiment.transport_name}"


def _constants_of(experiment: Experiment) -> str:
    """Return what the constants of a transport and a scheme are listed under."""
    return f"{experiment.transport_name}, {experiment.name}"


def _scale_of(experiment: Experiment) -> dict[str, object]:
    """Return at which scale an experiment is emulated, and what its OCSes stand for."""
    scale = experiment.dilation
    said: dict[str, object] = {"dilation": {"rate": scale.rate, "volume": scale.volume, "time": scale.time}}
    said |= {"mtu": experiment.mtu, "hosts": asdict(experiment.host)}
    said |= {"constants": {each.name: asdict(each) for each in constants(experiment)}}
    if delays := list(experiment.ocs_delays.values()):
        delay = delays[0]
        said["ocs"] = {
            "device": delay.device,
            "delay_varies": delay.varies,
            "delay_s": delay.mean_s,
            "emulated_delay_s": scale.emulated_s(delay.mean_s),
        }
    return said


def _explore(scenario: Scenario, options: Options) -> None:
    with _progress() as progress:
        experiments, _ = _prepared(scenario, options, progress)
    first = experiments[0]
    # What circuits are for belongs to one experiment, whose job alone can be replayed.
    shown = [first] if first.is_once_lit else experiments
    if first.setup:  # circuits that follow a job are of this fabric
        shown = [each for each in experiments if (each.fabric, each.host) == (first.fabric, first.host)]
    planned = {each.job.name: each for each in reversed(shown) if each.setup}
    jobs = {experiment.job.name: experiment.job for experiment in shown}
    with _network_of(first, options.datapath) as network:
        rate = first.fabric.nic_rate_bps(first.fabric.nics[0]) * network.rate_factor / 1e6
        network.impair(first.dilation.time)
        _say(
            f"{scenario.title}: NICs are shaped to {rate:g} Mbit/s, the transport is {first.transport_name}; "
            f"replay knows {', '.join(jobs)}"
        )
        by_rule = first if first.is_once_lit else None
        FabricCLI(network, jobs, transport=first.transport, by_rule=by_rule, planned=planned)


def _prepared(
    scenario: Scenario, options: Options, progress: Progress
) -> tuple[list[Experiment], Calibration]:
    """Return the experiments with what fails, at their scale, and the machine's calibration."""
    own_scale = UNSCALED not in {each.dilation for each in scenario.experiments}
    if own_scale and scenario.failures is None:
        return list(scenario.experiments), _calibration(options.datapath)
    return _scaled(scenario, glances(scenario.experiments, scenario.failures, progress), options)


def _scaled(
    scenario: Scenario, looked: Sequence[tuple[Experiment, Glance]], options: Options
) -> tuple[list[Experiment], Calibration]:
    """Return the experiments at the scale that this machine carries, or their own, and its calibration."""
    machine = _calibration(options.datapath)
    experiments, seen = [each for each, _ in looked], [glance for _, glance in looked]
    if UNSCALED in {each.dilation for each in experiments}:
        fabric, mtu = experiments[0].fabric, experiments[0].mtu
        most_bps = max(glance.load_bps for glance in seen)
        rate = rate_factor(plain(fabric), most_bps, machine, options.emulated_rate_bps, mtu)
        if options.emulated_rate_bps is None:
            rate = min(rate, scenario.most_nic_bps / max(map(fabric.nic_rate_bps, fabric.nics)))
        times_s = [glance.level_s for glance in seen]
        timed = scenario.relights and options.volume is None
        excess = dark_excess(options.datapath) if timed else None
        if excess:
            say_dark_excess(excess)
        experiments = _dilated(experiments, rate, times_s, options.volume, scenario.rings_s, excess)
    for experiment in experiments:
        check_delays(experiment.fabric, experiment.dilation.time)
    return experiments, machine


def _calibration(datapath: Datapath) -> Calibration:
    """Return the machine's calibration, and say how old it is."""
    machine = calibration(datapath)
    _say(machine.sentence(datetime.now(UTC)))
    return machine


def say_dark_excess(excess: DarkExcess) -> None:
    """Say how much longer than their devices the machine's OCSes are dark, and how old that is."""
    _say(excess.sentence(datetime.now(UTC)))


def _dilated(
    experiments: Sequence[Experiment],
    rate: float,
    times_s: Sequence[float],
    volume: float | None,
    rings_s: float,
    excess: DarkExcess | None,
) -> list[Experiment]:
    """Return experiments at a rate, each workload at its own volume, or all at the one asked for."""
    if volume is not None:
        return [replace(each, dilation=Dilation(rate, volume)) for each in experiments]
    bounds_s, longest_s = defaultdict[str, list[float]](list), defaultdict[str, float](float)
    least = defaultdict[str, float](float)
    for experiment, time_s in zip(experiments, times_s, strict=True):
        job = experiment.job
        bounds_s[job.name].append(bound_s(experiment))
        longest_s[job.name] = max(longest_s[job.name], time_s)
        if excess and experiment.circuits and not experiment.has_slots:
            delays = experiment.ocs_delays
            least_s = excess.least_delay_s(len(delays))
            timed = [delay.volume_for(rate, least_s) for delay in dict.fromkeys(delays.values())]
            least[job.name] = max(least[job.name], *timed)
    volumes = {
        name: max(
            job_volume(each.job, each.fabric, rate, bounds_s[name], longest_s[name], each.mtu, rings_s),
            least[name],
        )
        for name, each in {experiment.job.name: experiment for experiment in experiments}.items()
    }
    return [replace(each, dilation=Dilation(rate, volumes[each.job.name])) for each in experiments]


def _results(
    scenario: Scenario,
    options: Options,
    planned: list[Experiment],
    alike: Mapping[str, Sequence[str]] | None = None,
) -> ResultsDirectory:
    run = new_run(scenario.name, scenario.title, options.datapath, scenario.report)
    own = own_sources(name for each in planned for name in each.own)
    run = replace(run, own_modules=own, alike=alike or {}, real_link_delay_s=options.real_link_delay_s)
    if scenario.baseline:
        run = replace(run, baseline=scenario.baseline)
    return ResultsDirectory(
        run, planned=planned, out=options.out, claims=scenario.claims, findings=scenario.findings
    )


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
