"""At which scale experiments are emulated: what a machine carries safely, for long enough to be timed."""

from collections.abc import Sequence

from testbed.core.run import Run
from testbed.experiment.experiment import LIMIT, Experiment
from testbed.trust.calibrate import CarriedLoad, carried, volume_factor
from topologies.fabric import Fabric
from traffic.collectives.ring import Ring
from traffic.job import Collective, Job
from traffic.metrics import communication_s
from traffic.packets import DEFAULT_MTU, packet_bytes

RING_STEP_PACKETS = 20
"""What each step of a ring consists of at least, or the emulation would be of packets and not of bytes."""
EXACT_STEP_PACKETS = 80
"""The same where a job then takes no longer than `RINGS_S`: what a step costs beyond its bytes, its first
packet over three links and a grant, is some two packets."""
RINGS_S = 25.0
"""How long a job may take at emulated scale for its rings' steps to be of so many packets [s]."""
BY_TCP, BY_PACKETS = 1.5, 2.0
"""Packets to forward for each that carries bytes, where TCP acknowledges every other one by a packet, and
where an engine of datagrams does so each: switches have as much to do for these."""
BY_CHOICE = 2.0
"""Packets placed beforehand that cost the engine as much as one whose path is chosen as it goes: at 90 Mbit/s
a NIC, one of `nscc` with REPS took it 39 us, of `credit` with RailS 25 us; a user's policy costs more."""
LONGEST_S = 120.0
"""How long a job takes at most at emulated scale, whatever that does to its smallest messages."""


def load_of(experiment: Experiment, predicted: Run) -> CarriedLoad:
    """Return the load of an experiment on a machine, at real rates.

    That is the mean while collectives follow each other; where they overlap, or circuits are lit in slots,
    all NICs may send at once.
    """
    tables, fabric = predicted.tables, experiment.fabric
    mean = carried(tables, communication_s(tables))
    if not (experiment.job.is_chain and not experiment.has_slots) and mean.sent_bps:
        mean *= sum(map(fabric.nic_rate_bps, fabric.nics)) / mean.sent_bps
    if not experiment.over_packets:  # light has no packets that acknowledge
        return mean
    if experiment.transport.sprays is None:
        return mean * BY_TCP
    by_choice = BY_CHOICE if experiment.predicted_as == LIMIT else 1.0
    return mean * by_choice * (BY_PACKETS if experiment.transport.ack_packets else 1.0)


def job_volume(
    job: Job,
    fabric: Fabric,
    rate: float,
    bounds_s: Sequence[float],
    longest_s: float,
    mtu: int = DEFAULT_MTU,
    rings_s: float = RINGS_S,
) -> float:
    """Return emulated over real bytes: enough to be timed and for rings of whole packets, and no more.

    Collectives inside servers are of no packets, and do not count.

    Parameters
    ----------
    job, fabric
        What runs, and where.
    rate
        Emulated over real rate.
    bounds_s
        How long the bytes of each of its points are under way at least [s]; the shortest decides.
    longest_s
        How long the longest of its points takes, as predicted [s].
    mtu
        Of the emulation [bytes].
    rings_s
        How long it may take at emulated scale for rings' steps to be of so many packets that they show no
        more of packets than they must [s].
    """
    crossing = [node.pattern for node in job.collectives if _crosses(node, fabric)]
    timed = volume_factor(rate, bounds_s, len(crossing))
    rings = {pattern for pattern in crossing if isinstance(pattern, Ring)}
    steps = (part.placed_as for ring in rings for part in ring.lower(coupled=True).parts)
    step = min((float(step.min()) for step in steps), default=float("inf"))
    coarse, exact = (
        packets * packet_bytes(mtu) / step for packets in (RING_STEP_PACKETS, EXACT_STEP_PACKETS)
    )
    soon, most = (span_s * rate / longest_s if longest_s else 1.0 for span_s in (rings_s, LONGEST_S))
    return min(max(timed, coarse, min(exact, soon)), most, 1.0)


def busy_s(job: Job, predicted: Run) -> float:
    """Return how long a run keeps the emulation busy, at real scale: compute of a chain is skipped [s]."""
    return communication_s(predicted.tables) if job.is_chain else predicted.iteration_s


def plain(fabric: Fabric) -> Fabric:
    """Return a fabric without delay and loss: these lower the load on the mean and not at its peak."""
    return fabric.with_links(delay_s=0.0, loss=0.0)


def _crosses(node: Collective, fabric: Fabric) -> bool:
    return len({fabric.gpu_servers[gpu] for gpu in node.gpus}) > 1
