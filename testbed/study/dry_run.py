"""What a run would be, printed before anything is booted: dimensionless numbers, and how long it takes."""

from collections import Counter
from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from testbed.experiment.experiment import Experiment
from testbed.experiment.run_time import START_BYTES, boots, memory_bytes, run_time
from testbed.machine.datapath import Datapath
from testbed.machine.processes import PROCESSES
from testbed.machine.sandbox import raise_descriptor_limit
from testbed.network.open_files import TOO_MANY, engine_files, switch_files
from testbed.report.page import counted
from testbed.report.similitude_table import similitude_table
from testbed.study.emulating import constants_of, workload_of
from testbed.study.glances import Glance, glances
from testbed.study.machine import machine_for
from testbed.study.output import progress_bar
from testbed.study.scaling import scaled
from testbed.study.study import Options, Study
from testbed.trust.constants import constant_numbers
from testbed.trust.similitude import Number, similitude
from topologies.fabric import Fabric
from traffic.transports.registry import sends_datagrams

LOOK_S = 0.3
"""How long a dry run predicts [s]: with what a start takes it is to be there within two seconds."""
GOOD_WITHIN = "30 %"
SWITCHES = {"packet": ("packet switch", "packet switches"), "ocs": ("OCS", "OCSes")}


def foreseen(study: Study, options: Options, needed_bytes: float) -> list[RenderableType]:
    """Return what a dry run prints; what a moment does not suffice to predict is taken to be alike.

    ``needed_bytes`` is the memory that its predictions take.
    """
    machine = machine_for(study, options).told()
    with progress_bar() as progress:
        looked = glances(study.experiments, study.failures, progress, LOOK_S)
    experiments, seen = scaled(study, looked, options, machine), [glance for _, glance in looked]
    numbers: dict[str, tuple[Number, ...]] = {}
    for each, glance in zip(experiments, seen, strict=True):
        if (workload := workload_of(each)) not in numbers:
            timeout_s, delay_s = each.host.least_timeout_s, study.real_link_delay_s
            numbers[workload] = similitude(each, glance.facts, timeout_s, delay_s)
        numbers.setdefault(constants_of(each), constant_numbers(each))
    about = similitude_table(numbers, study.real_link_delay_s), _scales(experiments)
    takes = _takes(experiments, seen, needed_bytes)
    return [*about, _points(experiments, seen), _open_files(experiments, seen, options.datapath), takes]


def _scales(experiments: Sequence[Experiment]) -> Text:
    fabrics = dict.fromkeys(each.fabric for each in experiments)
    rates = [
        each.dilation.rate * max(map(each.fabric.nic_rate_bps, each.fabric.nics)) / 1e6
        for each in experiments
    ]
    volumes, times = zip(*((each.dilation.volume, each.dilation.time) for each in experiments), strict=True)
    return Text(
        f"{'; '.join(dict.fromkeys(map(_wired, fabrics)))}. NICs at {_span(rates)} "
        f"Mbit/s, bytes x {_span(volumes)}, times x {_span(times)}, "
        f"MTU {experiments[0].mtu} bytes, port buffers of {experiments[0].fabric.buffer_bytes} bytes."
    )


def _wired(fabric: Fabric) -> str:
    """Return how many NICs and switches a fabric has."""
    kinds = Counter(switch.kind for switch in fabric.switches)
    switches = [f"{count} {SWITCHES[kind][count > 1]}" for kind, count in kinds.items()]
    return f"{len(fabric.nics)} NICs on {' and '.join(switches)}"


def _points(experiments: Sequence[Experiment], looked: Sequence[Glance]) -> Text:
    """Return what there is to do: points, networks, bytes."""
    networks, points = len(boots(experiments)), len(experiments)
    seen = [glance.predicted for glance in looked].count(True)
    likely = f" ({seen} predicted, the others taken to be like them)" * (seen < points)
    volumes = [each.dilation.volume for each in experiments]
    sent_bytes = sum(v * glance.sent_bytes for v, glance in zip(volumes, looked, strict=True))
    there = f"{counted(points, 'point')}{likely} on {counted(networks, 'network')}"
    return Text(f"{there}, {sent_bytes / 1e6:.3g} MB to send.")


def _open_files(experiments: Sequence[Experiment], looked: Sequence[Glance], datapath: Datapath) -> Text:
    """Return how many files the busiest process opens, and how many it may."""
    counts = [
        (max(switch_files(each.fabric, datapath), engine_files(each.fabric, sockets, datapath)), each)
        for each, glance in zip(experiments, looked, strict=True)
        for sockets in [_sockets(each, glance)]
    ]
    (needed, most_of), most = max(counts, key=lambda count: count[0]), raise_descriptor_limit()
    advice = f"; {TOO_MANY}, or --transport credit, which opens a socket per NIC" * (needed > most)
    return Text(
        f"Up to {needed:,} open files of a process ({most_of.name} over {most_of.transport_name}), and it"
        f" may have {most:,}{advice}."
    )


def _sockets(experiment: Experiment, glance: Glance) -> int:
    """Return how many sockets send and receive a point's bytes."""
    fabric = experiment.fabric
    if experiment.over_packets and not sends_datagrams(experiment.transport.name):
        return len(fabric.servers) + 2 * round(glance.queue_pairs)
    return len(fabric.servers) + len(fabric.nics)


def _takes(experiments: Sequence[Experiment], looked: Sequence[Glance], needed_bytes: float) -> Text:
    """Return how long it takes, and how much memory."""
    messages = [glance.messages for glance in looked]
    # Once by two processes for the scale, and once beside each emulation.
    predictions_s = (1 + 1 / PROCESSES) * sum(glance.took_s for glance in looked)
    times = run_time(experiments, [glance.busy_s for glance in looked], round(sum(messages)), predictions_s)
    parts = ", ".join(f"{name} {time_s:.0f} s" for name, time_s in times.items())
    most_bytes = max(memory_bytes(messages), START_BYTES + needed_bytes)
    return Text(
        f"About {_minutes(sum(times.values()))}, within {GOOD_WITHIN} on an idle machine ({parts}), and "
        f"{most_bytes / 1e9:.1f} GB of memory. Nothing was booted."
    )


def _minutes(time_s: float) -> str:
    return f"{time_s:.0f} s" if time_s < 120 else f"{time_s / 60:.1f} min"


def _span(values: Sequence[float]) -> str:
    least, most = f"{min(values):.3g}", f"{max(values):.3g}"
    return least if least == most else f"{least} to {most}"
