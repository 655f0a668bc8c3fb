"""What all scenarios share: from a list of points to results that can be quoted.

A point is a job under a scheme with a seed. A scenario's file is a function from parameters to
points, and `run` makes a command of it: it predicts all points, finds the scale that this machine
carries, boots each fabric once in a sandbox, emulates point after point, judges each, prints the
tables and leaves a results directory behind.
"""

import math
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from datetime import datetime

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from testbed.cli import FabricCLI
from testbed.machine.congestion import check_congestion_control, check_marks
from testbed.machine.datapath import Datapath, check_datapath
from testbed.machine.processes import in_processes
from testbed.machine.sandbox import inside_sandbox, run_in_sandbox, settle
from testbed.network.link_sample import worst_link_error
from testbed.network.netem import check_netem, link_netems
from testbed.network.network import Network
from testbed.network.readback import effective, port_settings, unmet
from testbed.report.faults import fault_sheets
from testbed.report.means import BIG_SWITCH
from testbed.report.results import ResultsDirectory
from testbed.report.run_json import Kind, Run
from testbed.report.table import claims_table
from testbed.run.calibrate import (
    Calibration,
    ContradictedError,
    calibration,
    is_calibrated,
)
from testbed.run.constants import constant_numbers, constants
from testbed.run.dark_excess import dark_excess, is_measured
from testbed.run.emulate import check_losses
from testbed.run.experiment import Experiment
from testbed.run.outcome import Outcome
from testbed.run.predict import predict
from testbed.run.repetitions import check_named_apart
from testbed.run.run_time import boots
from testbed.run.similitude import Number, facts_of, similitude
from testbed.run.trial import tried
from testbed.study.controlled import ControlledPoints
from testbed.study.dry_run import foreseen, workload_of
from testbed.study.glances import glances, predicted_by
from testbed.study.output import print_results, print_tables, say, sheet_table
from testbed.study.scaling import prepared, scaled
from testbed.study.study import Options, Study
from topologies.own import own_sources
from traffic.spraying.registry import policy_named
from traffic.transports.registry import congestion_control

LOOK_S = 0.3
"""How long a dry run predicts [s]: with what a start takes it is to be there within two seconds."""


def carry_out(scenario: Study, options: Options) -> ResultsDirectory | None:
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


def go_on(scenario: Study, options: Options) -> ResultsDirectory | None:
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
    scenario: Study, options: Options, work: Callable[[Study, Options], ResultsDirectory | None]
) -> ResultsDirectory | None:
    results = work(scenario, options)
    if results is not None:
        # Here: a table stands beside plots, and matplotlib takes longer to import than a dry run takes.
        from testbed.study.results_table import results_table

        of_kind, found = [results_table(results)], [*map(sheet_table, results.found.sheets)]
        tables = [*found, *of_kind] if results.found.leads else [*of_kind, *found]
        tables += map(sheet_table, fault_sheets(results.outcomes))
        judged = [claims_table(results.judged)] if results.judged else []
        print_results([*tables, *judged], results.path)
    return results


def _model(scenario: Study, options: Options) -> ResultsDirectory:
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


def _emulate(scenario: Study, options: Options) -> ResultsDirectory:
    try:
        return _emulated(scenario, options)
    except ContradictedError as error:
        say(f"{error}: it is calibrated anew")
    calibration(options.datapath, anew=True)
    return _emulated(scenario, options, is_new=True)


def _emulated(scenario: Study, options: Options, *, is_new: bool = False) -> ResultsDirectory:
    """Return the results of a scenario; ContradictedError if it has to be scaled by a new calibration."""
    with _progress() as progress:
        experiments, machine = prepared(scenario, options, progress)
        for experiment in experiments:
            if experiment.rule:
                experiment.rule.prepare()  # here: a user's own scheduler fails before anything boots
        with _results(scenario, options, experiments) as results:
            results.describe(calibration=asdict(machine))
            task = progress.add_task("emulate", total=len(experiments))
            for some in boots(experiments):
                _emulate_on(some, results, progress, task, None if is_new else machine)
    return results


def _foresee(scenario: Study, options: Options) -> None:
    """Print what a run would be; what a moment does not suffice to predict is taken to be alike."""
    with _progress() as progress:
        looked = glances(scenario.experiments, scenario.failures, progress, LOOK_S)
    experiments, _ = scaled(scenario, looked, options)
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


def _explore(scenario: Study, options: Options) -> None:
    with _progress() as progress:
        experiments, _ = prepared(scenario, options, progress)
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
        say(
            f"{scenario.title}: NICs are shaped to {rate:g} Mbit/s, the transport is {first.transport_name}; "
            f"replay knows {', '.join(jobs)}"
        )
        by_rule = first if first.is_once_lit else None
        FabricCLI(network, jobs, transport=first.transport, by_rule=by_rule, planned=planned)


def _results(
    scenario: Study,
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
        say(f"the run was ended by signal {code - 128}; what was finished is in the results directory")
    return code
