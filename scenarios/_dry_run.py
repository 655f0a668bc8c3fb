"""What a run would be, printed before anything is booted: dimensionless numbers, and how long it takes."""

from collections.abc import Mapping, Sequence

from rich.console import RenderableType
from rich.text import Text

from testbed.report.similitude_table import similitude_table
from testbed.run.experiment import Experiment
from testbed.run.run_time import RunTime, boots
from testbed.run.similitude import Number

PARTS = (
    ("bytes", "bytes_s"), ("boots", "boots_s"), ("samples of links", "samples_s"), ("points", "points_s"),
    ("predictions", "predictions_s"), ("report", "report_s"),
)  # fmt: skip
GOOD_WITHIN = "30 %"


def workload_of(experiment: Experiment) -> str:
    """Return what the numbers of an experiment are listed under."""
    fabric = experiment.fabric
    nics = len(fabric.nics) // len(fabric.servers)
    about = f"{experiment.job.name}, {fabric.name}, {len(fabric.servers)} servers x {nics} NICs"
    return f"{about}, {experiment.transport_name}"


def foreseen(
    experiments: Sequence[Experiment],
    numbers: Mapping[str, Sequence[Number]],
    sent_bytes: float,
    time: RunTime,
) -> list[RenderableType]:
    """Return what a dry run prints.

    Parameters
    ----------
    experiments
        At the scale at which they would be emulated.
    numbers
        The dimensionless numbers by workload.
    sent_bytes
        What crosses the network in all of them, at emulated scale [bytes].
    time
        How long the run would take.
    """
    return [similitude_table(numbers), _scales(experiments), _time(experiments, sent_bytes, time)]


def _scales(experiments: Sequence[Experiment]) -> Text:
    fabric, scales = experiments[0].fabric, [experiment.dilation for experiment in experiments]
    rates = [each.rate * max(map(fabric.nic_rate_bps, fabric.nics)) / 1e6 for each in scales]
    volumes, times = [each.volume for each in scales], [each.time for each in scales]
    return Text(
        f"NICs at {_span(rates)} Mbit/s, bytes x {_span(volumes)}, times x {_span(times)}, "
        f"MTU {experiments[0].mtu} bytes, port buffers of {fabric.buffer_bytes} bytes."
    )


def _time(experiments: Sequence[Experiment], sent_bytes: float, time: RunTime) -> Text:
    networks, points = len(boots(experiments)), len(experiments)
    parts = ", ".join(f"{name} {getattr(time, field):.0f} s" for name, field in PARTS)
    return Text(
        f"{points} point{'s' * (points > 1)} on {networks} network{'s' * (networks > 1)}, "
        f"{sent_bytes / 1e6:.3g} MB to send: about {_minutes(time.total_s)}, within {GOOD_WITHIN} "
        f"on an idle machine ({parts}). Nothing was booted."
    )


def _minutes(time_s: float) -> str:
    return f"{time_s:.0f} s" if time_s < 120 else f"{time_s / 60:.1f} min"


def _span(values: Sequence[float]) -> str:
    least, most = f"{min(values):.3g}", f"{max(values):.3g}"
    return least if least == most else f"{least} to {most}"
