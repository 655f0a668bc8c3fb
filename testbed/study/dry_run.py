"""What a run would be, printed before anything is booted: dimensionless numbers, and how long it takes."""

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.console import RenderableType
from rich.text import Text

from testbed.machine.processes import PROCESSES
from testbed.report.page import counted
from testbed.report.similitude_table import similitude_table
from testbed.run.experiment import Experiment
from testbed.run.run_time import boots, memory_bytes, run_time
from testbed.run.similitude import Number
from testbed.study.glances import Glance
from topologies.fabric import Fabric

GOOD_WITHIN = "30 %"
SWITCHES = {"packet": ("packet switch", "packet switches"), "ocs": ("OCS", "OCSes")}


def workload_of(experiment: Experiment) -> str:
    """Return what the numbers of an experiment are listed under."""
    fabric = experiment.fabric
    nics = len(fabric.nics) // len(fabric.servers)
    about = f"{experiment.job.name}, {fabric.name}, {len(fabric.servers)} servers x {nics} NICs"
    return f"{about}, {experiment.transport_name}"


def foreseen(
    experiments: Sequence[Experiment],
    numbers: Mapping[str, Sequence[Number]],
    looked: Sequence[Glance],
    real_link_delay_s: float,
) -> list[RenderableType]:
    """Return what a dry run prints.

    Parameters
    ----------
    experiments
        At the scale at which they would be emulated.
    numbers
        The dimensionless numbers by workload.
    looked
        What their predictions say.
    real_link_delay_s
        Of a link of the real network [s].
    """
    return [
        similitude_table(numbers, real_link_delay_s),
        _scales(experiments),
        _points(experiments, looked),
        _takes(experiments, looked),
    ]


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


def _takes(experiments: Sequence[Experiment], looked: Sequence[Glance]) -> Text:
    """Return how long it takes, and how much memory."""
    messages = [glance.messages for glance in looked]
    # Once by two processes for the scale, and once beside each emulation.
    predictions_s = (1 + 1 / PROCESSES) * sum(glance.took_s for glance in looked)
    times = run_time(experiments, [glance.busy_s for glance in looked], round(sum(messages)), predictions_s)
    parts = ", ".join(f"{name} {time_s:.0f} s" for name, time_s in times.items())
    return Text(
        f"About {_minutes(sum(times.values()))}, within {GOOD_WITHIN} on an idle machine ({parts}), and "
        f"{memory_bytes(messages) / 1e9:.1f} GB of memory. Nothing was booted."
    )


def _minutes(time_s: float) -> str:
    return f"{time_s:.0f} s" if time_s < 120 else f"{time_s / 60:.1f} min"


def _span(values: Sequence[float]) -> str:
    least, most = f"{min(values):.3g}", f"{max(values):.3g}"
    return least if least == most else f"{least} to {most}"
