"""A scenario's command: its parameters are its options, an error is one sentence."""

import gc
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import update_wrapper
from inspect import Signature, signature
from io import TextIOWrapper
from pathlib import Path
from typing import NoReturn

import typer

from testbed.machine.processes import PROCESSES
from testbed.run.similitude import REAL_LINK_DELAY_S
from testbed.study.carry_out import carry_out
from testbed.study.computed import Computed, compute
from testbed.study.glances import Failures
from testbed.study.options import (
    DEFAULT_TRANSPORTS,
    Buffer,
    Calibrate,
    Cli,
    Cluster,
    DatapathOption,
    Debug,
    DetectAfter,
    DryRun,
    EmulatedRate,
    Entropies,
    Fail,
    InitialWindow,
    Jobs,
    LeastTimeout,
    LinkDelay,
    Loss,
    ModelOnly,
    Mtu,
    NoSandbox,
    Out,
    Part,
    RealLinkDelay,
    Resume,
    ShareQueuePairs,
    Transports,
    Volume,
    buffer_bytes,
    check_jobs,
    emulated_bps,
    faults,
    known_after_s,
    part_of,
    real_link_delay_s,
    transports,
)
from testbed.study.output import say
from testbed.study.study import Options, Study
from topologies.addresses import ENTROPIES
from topologies.errors import LightrailError, ScenarioError
from traffic.fault_text import DETECT_S
from traffic.packets import DEFAULT_MTU

INTERRUPTED = 130
"""The exit code that typer makes of Ctrl-C."""


def run(describe: Callable[..., Study]) -> NoReturn:
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
        jobs: Jobs = PROCESSES,
        resume: Resume = None,
        part: Part = None,
        cluster: Cluster = None,
        out: Out = None,
        debug: Debug = False,
        **parameters: object,
    ) -> None:
        _check_scale(resume, volume, emulated_rate)
        rate_bps = emulated_bps(emulated_rate) if emulated_rate is not None else None
        options = replace(
            _carried_out_by(jobs, resume, part, cluster, out),
            emulated_rate_bps=rate_bps, model_only=model_only, cli=cli, datapath=datapath,
            sandbox=not no_sandbox, volume=volume, dry_run=dry_run, calibrate=calibrate,
            real_link_delay_s=real_link_delay_s(real_link_delay_us),
        )  # fmt: skip
        detect_s = known_after_s(detect_us)
        named = DEFAULT_TRANSPORTS if transport is None else transport
        setups = transports(named, initial_window, least_rto_ms, entropies)
        scenario = describe(**parameters)
        if transport is None and scenario.transports:
            setups = transports(scenario.transports, initial_window, least_rto_ms, entropies)
        elif transport is None and model_only:
            setups = setups[:1]
        scenario = scenario.under(setups)
        options = options.or_usual(scenario.usual)
        if mtu != DEFAULT_MTU:
            scenario = scenario.in_packets_of(mtu)
        if share_queue_pairs:
            scenario = scenario.sharing_queue_pairs()
        if link_delay_us or loss:
            scenario = scenario.over(lambda fabric: fabric.with_links(delay_s=link_delay_us / 1e6, loss=loss))
        if buffer is not None:
            held_bytes = buffer_bytes(buffer, scenario.experiments[0].mtu)
            scenario = scenario.over(lambda fabric: fabric.with_buffer(held_bytes))
        if fail is not None:
            scenario = scenario.failing(Failures(tuple(faults(fail)), detect_s))
        if dry_run and scenario.parameters:
            say(scenario.grid)
        carry_out(scenario, options)

    main(_with_options(command, describe))


def run_computed(describe: Callable[..., Computed | Study]) -> NoReturn:
    """Run a scenario whose points are calls, as `run` does; an option of it may ask for a study instead."""

    def command(
        *,
        jobs: Jobs = PROCESSES,
        resume: Resume = None,
        part: Part = None,
        cluster: Cluster = None,
        out: Out = None,
        debug: Debug = False,
        **parameters: object,
    ) -> None:
        options = _carried_out_by(jobs, resume, part, cluster, out)
        study = describe(**parameters)
        if isinstance(study, Study):
            carry_out(study, options)
        else:
            compute(study, options, parameters)

    main(_with_options(command, describe))


def _carried_out_by(
    jobs: int, resume: Path | None, part: str | None, cluster: str | None, out: Path | None
) -> Options:
    """Return who carries points out, and where they are kept."""
    of_all = None if part is None else part_of(part)
    return Options(out=out, jobs=check_jobs(jobs), resume=resume, part=of_all, cluster=cluster)


def _with_options(command: Callable[..., None], describe: Callable[..., object]) -> Callable[..., None]:
    """Return a command that has a scenario's options, and after them its own."""
    *shared, _ = signature(command).parameters.values()
    own = signature(describe).parameters.values()
    wrapped = update_wrapper(command, describe)
    # What typer reads, instead of the lists of options in every scenario.
    wrapped.__signature__ = Signature([*own, *shared])  # type: ignore[attr-defined]
    return wrapped


def _check_scale(resume: Path | None, volume: float | None, emulated_rate: float | None) -> None:
    """Refuse a scale for a run that has one."""
    if resume and (volume, emulated_rate) != (None, None):
        raise ScenarioError(
            "the scale of a run that is gone on with is its own", "leave out --volume and --emulated-rate"
        )


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
        say(str(error))
        sys.exit(2)
    except SystemExit as end:
        if end.code == INTERRUPTED:
            say("interrupted; what was finished is in the results directory")
        raise
    sys.exit(0)
