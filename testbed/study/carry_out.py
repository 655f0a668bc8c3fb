"""A study carried out: from its points to results that can be quoted.

All points are predicted by processes of this machine or of a cluster. To be emulated, they get the scale that
this machine carries; a worker in a sandbox boots each fabric once and carries out point after point
(`emulating`), and each is judged, written, and printed in the end.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.text import Text

from testbed.cli.cli import FabricCLI
from testbed.experiment.experiment import Experiment
from testbed.experiment.memory import check_memory
from testbed.experiment.repetitions import check_named_apart
from testbed.experiment.run_time import SENT_BYTES
from testbed.machine.datapath import Datapath, hashing_of
from testbed.machine.sandbox import inside_sandbox
from testbed.report.faults import fault_sheets
from testbed.report.results import ResultsDirectory
from testbed.report.slow_links import slow_text
from testbed.study.directories import Directory
from testbed.study.dry_run import foreseen
from testbed.study.emulating import network_of
from testbed.study.emulation import emulated_study, machine_checked
from testbed.study.going_on import say_how_to_join
from testbed.study.machine import worker_for
from testbed.study.output import print_results, print_tables, progress_bar, say, sheet_table
from testbed.study.prediction import predicted
from testbed.study.scaling import check_slots, prepared
from testbed.study.study import Options, Study
from traffic.spraying.registry import policy_named


def carry_out(study: Study, options: Options) -> ResultsDirectory | None:
    """Carry a study out; print and return what came of it: None if it was asked what it would be.

    An unknown scheme, two experiments that tables would take for one, and what could not be emulated are
    refused before.
    """
    hashing = hashing_of(options.datapath)
    study = study.changed(lambda each: [replace(each, hashing=hashing)])
    asked = dict.fromkeys((each.spraying, each.transport.sprays) for each in study.experiments)
    for scheme, entropies in asked:
        if scheme:
            policy_named(scheme, entropies)
    check_named_apart(study.experiments)
    # Of the machines of a cluster nothing is known.
    needed_bytes, sent_bytes = 0.0, 0.0 if options.model_only else SENT_BYTES
    if not options.cluster:
        needed_bytes = check_memory(study.experiments, options.jobs, sent_bytes)
    if not options.model_only:
        check_slots(study, options)
    if options.dry_run:
        print_tables(foreseen(study, options, needed_bytes), "nothing was booted")
        return None
    if options.cli:
        _explore(study, options)
        return None
    work = predicted if options.model_only else emulated_study
    return _printed(work(study, options))


def _printed(results: Directory) -> ResultsDirectory | None:
    """Print what came of a study; of a part, how to join it."""
    if not isinstance(results, ResultsDirectory):
        say_how_to_join(len(results.outcomes), results.path)
        return None
    # Here: a table stands beside plots, and matplotlib takes longer to import than a dry run takes.
    from testbed.study.results_table import results_table

    of_kind, found = [results_table(results)], [*map(sheet_table, results.found.sheets)]
    tables = [*found, *of_kind] if results.found.leads else [*of_kind, *found]
    tables += map(sheet_table, fault_sheets(results.outcomes))
    slow = slow_text({each.experiment.fabric for each in results.outcomes})
    print_results([*tables, *([Text(slow)] if slow else [])], results.judged, results.path)
    return results


def _explore(study: Study, options: Options) -> None:
    """Open Mininet's CLI on the first network of a study."""
    machine = machine_checked(study, options).told()
    with progress_bar() as progress:
        shown = _shown(prepared(study, options, machine, progress))
    with worker_for([each.fabric for each in shown], options, terminal=True) as worker:
        list(worker.call(explored, study.title, shown, options.datapath))


def _shown(experiments: Sequence[Experiment]) -> Sequence[Experiment]:
    """Return the points of the first's network that can be replayed on it."""
    first = experiments[0]
    # What circuits are for belongs to one experiment, whose job alone can be replayed.
    shown = [first] if first.is_once_lit else experiments
    if first.setup:  # circuits that follow a job are of this fabric
        shown = [each for each in experiments if (each.fabric, each.host) == (first.fabric, first.host)]
    return shown


def explored(title: str, shown: Sequence[Experiment], datapath: Datapath) -> Iterator[None]:
    """Boot a network and open Mininet's CLI on it, which replays jobs.

    Parameters
    ----------
    title
        Of the study.
    shown
        What can be replayed; the first decides the network.
    datapath
        Which of Open vSwitch's forwards.
    """
    first = shown[0]
    planned = {each.job.name: each for each in reversed(shown) if each.setup}
    jobs = {experiment.job.name: experiment.job for experiment in shown}
    with network_of(first, datapath, hosts=inside_sandbox()) as network:
        rate = first.fabric.nic_rate_bps(first.fabric.nics[0]) * network.rate_factor / 1e6
        network.impair(first.dilation.time)
        say(
            f"{title}: NICs are shaped to {rate:g} Mbit/s, the transport is {first.transport_name}; "
            f"replay knows {', '.join(jobs)}"
        )
        if not first.host.delays and any(link.delay_s for link in first.fabric.links):
            say("links do not delay what is sent by hand: a replay's engine delays its datagrams")
        by_rule = first if first.is_once_lit else None
        FabricCLI(network, jobs, transport=first.transport, by_rule=by_rule, planned=planned)
    yield None
