"""How long a run takes, and how much memory, before anything is booted.

Foreseen over measured, on the 2 CPUs that the constants are of: 0.97 (sparse all-to-all, 8 x 4, 10 points,
58 s), 0.98 (schedules on 2 and 4 OCSes, 14 points, 33 s), 0.94 and 0.90 (uniform, 16 and 20 s). Memory, at
its peak, of all processes: 0.93 (uniform, 8 x 4), 1.00 (16 x 8), 1.18 (rings, 4 x 4), 0.79 (schedules).
"""

from collections import defaultdict
from collections.abc import Sequence

from testbed.experiment.experiment import Experiment

BOOT_S, LINK_S = 0.7, 0.003
"""To boot and stop a network, and more for each of its links [s]."""
SAMPLE_S = 0.5
"""To sample the links of a network [s]."""
POINT_S, MESSAGE_S = 0.3, 0.0004
"""To connect, read back and write a point, and more for each of its messages [s]."""
LONGER = 1.05
"""What is emulated over what is predicted."""
SCHEDULE_S = 1.4
"""To announce a schedule's programs, until all OCSes have ended them, and for the control before it [s]."""
REPORT_S, WORKLOAD_S = 4.0, 0.8
"""To start and to write the report, and more for the plots of each workload [s]."""
START_BYTES = 380e6
"""Of Python with its libraries, twice: the plots are drawn by processes of their own [bytes]."""
SENT_BYTES, KEPT_BYTES = 15e3, 1e3
"""Of a message: its connection, its place in a run, its rows; and while later points run [bytes]."""


def boots(experiments: Sequence[Experiment]) -> list[list[Experiment]]:
    """Return the experiments that share a network, one group after the other."""
    shared: dict[object, list[Experiment]] = defaultdict(list)
    for each in experiments:
        shared[each.fabric, each.dilation.rate, each.mtu, each.host, each.routing].append(each)
    return list(shared.values())


def run_time(
    experiments: Sequence[Experiment], busy_s: Sequence[float], messages: int, predictions_s: float
) -> dict[str, float]:
    """Return how long the parts of a run take, by what they are [s].

    Parameters
    ----------
    experiments
        At the scale at which they are emulated.
    busy_s
        How long each keeps the emulation busy, as predicted [real s].
    messages
        Of all of them.
    predictions_s
        How long it takes to predict them [s].
    """
    networks = boots(experiments)
    return {
        "bytes": LONGER * sum(e.dilation.emulated_s(s) for e, s in zip(experiments, busy_s, strict=True)),
        "boots": sum(BOOT_S + LINK_S * len(group[0].fabric.links) for group in networks),
        "samples of links": SAMPLE_S * sum(not group[0].over_circuits for group in networks),
        "points": POINT_S * len(experiments)
        + MESSAGE_S * messages
        + SCHEDULE_S * sum(each.has_slots for each in experiments),
        "predictions": predictions_s,
        "report": REPORT_S + WORKLOAD_S * len({each.job.name for each in experiments}),
    }


def memory_bytes(messages: Sequence[float]) -> float:
    """Return how much memory a run takes at its peak, from the number of each point's messages [bytes]."""
    return START_BYTES + SENT_BYTES * max(messages) + KEPT_BYTES * sum(messages)
