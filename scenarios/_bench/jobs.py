"""Promises of jobs: rings, chains, circuits that change under TCP, and the model's speed."""

import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from controller.circuits.devices import ReconfigurationDelay
from scenarios._bench.figure import figure
from testbed.core.run import Run
from testbed.core.simulation import Simulation
from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.live.backend import LiveBackend
from testbed.live.emulate import emulate
from testbed.machine.commands import output_of
from testbed.model.backend import FluidBackend
from testbed.model.predict import predict
from testbed.network.network import Network
from testbed.trust.trial import lent_real_bytes
from topologies.events import Event, Lit, NodeStarted, Order, Reconfigure, SetTimer, TimerFired, View
from topologies.fabric import Nic
from topologies.parallel_ocs import parallel_ocs_fabric
from topologies.rail import rail_fabric
from traffic.clock import ps
from traffic.collectives.point_to_point import PointToPoint
from traffic.collectives.ring import Ring
from traffic.fluid.network import FluidNetwork
from traffic.job import Collective, Job
from traffic.messages import Messages
from traffic.scheme import Placement, WholeMessages
from traffic.spraying.policy import QueuePair
from traffic.steps import Step, job_of_steps
from traffic.transports.transport import PACKET_BYTES
from traffic.workloads.synthetic import sparse

SERVERS, RAILS, RATE_BPS = 8, 4, 100e9
RINGS = tuple(
    tuple(RAILS * server + (ring + gpu) % RAILS for server in range(SERVERS) for gpu in range(RAILS))
    for ring in range(RAILS)
)
"""Each passes through all GPUs, and leaves every server over a rail of its own."""
RING_PACKETS, RING_SCALE = 20, Dilation(rate=2e-4, volume=0.05)
STEPS, COMPUTE_S = 128, 0.02
TURNS, TURN_S, DARK_S, CIRCUIT_SCALE = 12, 0.05, 0.2, Dilation(rate=2e-4, volume=4e-3)
GPUS, COLLECTIVES = 64, 100


@figure("ratio", ">= 0.95; over prediction 0.97 .. 1.05")
def ring_busbw() -> tuple[float, str]:
    """Ring AllReduce over 8 servers x 4 GPUs, 4 rings, steps of 20 packets: busbw over rings x link rate."""
    size = int(RING_PACKETS * PACKET_BYTES / RING_SCALE.volume) * RAILS * len(RINGS[0])
    fabric = rail_fabric(SERVERS, RAILS, 0, rate_bps=RATE_BPS)
    job = Job("ring", fabric.gpus, (Collective("all-reduce", Ring(RINGS, size)),))
    predicted_s = Simulation(fabric, job, FluidBackend(fabric, {}), _OwnRails()).run().iteration_s
    took_s = []
    with Network(fabric, RING_SCALE.rate) as network:
        for _ in range(3):
            with LiveBackend(network, RING_SCALE) as backend:
                took_s.append(Simulation(fabric, job, backend, _OwnRails()).run().iteration_s)
    ranks, median_s = len(RINGS[0]), statistics.median(took_s)
    busbw_bps = 8 * size * 2 * (ranks - 1) / ranks / median_s
    over = ", ".join(f"{each / predicted_s:.3f}" for each in took_s)
    return busbw_bps / (len(RINGS) * RATE_BPS), f"over prediction {over}"


class _OwnRails:
    """Each message that leaves its server over the rail of its ring, which is that of the GPU it reaches."""

    def place(self, _view: View, messages: Messages) -> Placement:
        """Return one parcel per message."""
        near, far, rail = (
            messages.source // RAILS,
            messages.destination // RAILS,
            messages.destination % RAILS,
        )
        ends, qp = np.unique(np.stack([near, far, rail], axis=1), axis=0, return_inverse=True)
        queue_pairs = [QueuePair(Nic(a, by), Nic(b, by)) for a, b, by in ends.tolist()]
        return Placement(tuple(queue_pairs), qp.ravel(), np.arange(len(messages)), messages.bytes)


@figure("ratio", "0.99 .. 1.01", sandbox=False)
def coupled_over_stepwise() -> tuple[float, str]:
    """The rings of `ring_busbw` as coupled flows over them chunk by chunk, both by the model."""
    fabric = rail_fabric(SERVERS, RAILS, 0, rate_bps=RATE_BPS)
    job = Job("ring", fabric.gpus, (Collective("all-reduce", Ring(RINGS, 1 << 30)),))
    times_s, took_s = [], []
    for couples in (True, False):
        began = time.monotonic()
        times_s.append(
            Simulation(fabric, job, FluidBackend(fabric, {}), _OwnRails(), couples=couples).run().iteration_s
        )
        took_s.append(time.monotonic() - began)
    return times_s[0] / times_s[1], f"solved in {took_s[0]:.3f} s instead of {took_s[1]:.2f} s"


@figure("ratio", "0.97 .. 1.05")
def chain_over_predicted() -> tuple[float, str]:
    """128 all-to-alls with 20 ms of compute between, which elapses: iteration time over prediction."""
    steps = [Step(sparse(8, 0.2, gating="gpu", tokens=4096, seed=seed), COMPUTE_S) for seed in range(STEPS)]
    scale = Dilation(rate=1.4e-3, volume=0.02)
    experiment = Experiment(rail_fabric(4, 2), job_of_steps("chain", steps), "rails", scale)
    with Network(experiment.fabric, scale.rate) as network:
        emulation = emulate(experiment, network, skips=False)
        lent_bytes = lent_real_bytes(experiment, network)
    measured_s = emulation.run.iteration_s
    predicted_s = predict(experiment, emulation.paths, lent_bytes=lent_bytes).iteration_s
    return measured_s / predicted_s, f"{scale.emulated_s(measured_s):.0f} s at emulated scale"


@figure("s", "<= 0.005 and a packet's 0.004")
def resume_p99_s() -> tuple[float, str]:
    """TCP over duplex circuits that change ten times: from light to a queue pair's first packet, p99."""
    fabric = parallel_ocs_fabric(4, 1)
    sent = tuple((a, b, int(PACKET_BYTES / CIRCUIT_SCALE.volume)) for a, b in _both(_EVEN + _ODD)) * 1200
    job = Job("packets", 4, (Collective("sent", PointToPoint(sent)),))
    scheme = WholeMessages(lambda _view, a, b: QueuePair(Nic(a, 0), Nic(b, 0)))
    with Network(fabric, CIRCUIT_SCALE.rate) as network:
        network.northbound.set_delay("ocs0", ReconfigurationDelay("bench", DARK_S))
        with LiveBackend(network, CIRCUIT_SCALE) as backend:
            run = Simulation(fabric, job, backend, scheme, circuits=_Alternating()).run()
            resent = backend.health.retransmits
    waits_s = [CIRCUIT_SCALE.emulated_s(wait_s) for wait_s in _waits_s(run)]
    value = float(np.percentile(waits_s, 99))
    return (
        value,
        f"{len(waits_s)} times, median {1e3 * np.median(waits_s):.2f} ms, {resent} packets sent again",
    )


_EVEN, _ODD = ((0, 1), (2, 3)), ((0, 2), (1, 3))


def _both(pairs: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    return tuple(each for a, b in pairs for each in ((a, b), (b, a)))


class _Alternating:
    """Circuits that change to others and back, some time after they are lit."""

    def decide(self, state: object, view: View, event: Event) -> tuple[object, Sequence[Order]]:
        """Light one pairing after the other; the state counts them."""
        turn = state if isinstance(state, int) else 0
        if isinstance(event, NodeStarted | TimerFired):
            return turn + 1, [Reconfigure({"ocs0": _both(_ODD if turn % 2 else _EVEN)})]
        again = isinstance(event, Lit) and turn < TURNS
        return turn, [SetTimer("change", TURN_S)] if again else []


def _waits_s(run: Run) -> list[float]:
    """Return how long after light each queue pair's first packet came, from the third light on."""
    lights = run.events[run.events["what"] == "lit"]
    waits_s = []
    for at_s, which in list(zip(lights["at_s"], lights["which"], strict=True))[2:]:
        for circuit in which.split()[1:]:
            source, _, destination = circuit.partition(">")
            messages = run.messages
            mine = (messages["source"] == int(source)) & (messages["destination"] == int(destination))
            later_s = messages.loc[mine & (messages["end_s"] > at_s), "end_s"]
            waits_s += [later_s.min() - at_s] if len(later_s) else []
    return waits_s


@figure("s", "< 5", sandbox=False)
def fluid_released_s() -> tuple[float, str]:
    """64 x 64 all-to-all released as 100 collectives at random, half the links dark twice: the model."""
    times_s = []
    for _ in range(3):
        began = time.perf_counter()
        arrived = _released()
        times_s.append(time.perf_counter() - began)
    return statistics.median(times_s), f"{arrived} messages, {min(times_s):.1f} to {max(times_s):.1f} s"


def _released() -> int:
    rng = np.random.default_rng(0)
    network = FluidNetwork([RATE_BPS] * (2 * GPUS))
    pairs = [(source, GPUS + to) for source in range(GPUS) for to in range(GPUS) if source != to]
    flows = np.array(network.add_flows(pairs))
    size, part = rng.integers(1, 200_000_000, len(pairs)), rng.integers(0, COLLECTIVES, len(pairs))
    half = rng.permutation(2 * GPUS)[:GPUS]
    releases = [(float(at_s), number) for number, at_s in enumerate(rng.uniform(0, 0.5, COLLECTIVES))]
    arrived = 0
    for at_s, what in sorted([*releases, (0.1, -1), (0.15, -2), (0.3, -1), (0.35, -2), (np.inf, -3)]):
        while some := network.advance(ps(at_s)):
            arrived += len(some)
        if what >= 0:
            mine = np.flatnonzero(part == what)
            network.post(flows[mine], size[mine], mine)
        elif what > -3:
            network.set_rates(half, 0.0 if what == -1 else RATE_BPS)
    return arrived


@figure("s", "< 25", sandbox=False)
def rails_model_s() -> tuple[float, str]:
    """``rails_all.py --model-only``: 90 points with plots and report, sparse ones per GPU alone."""
    with tempfile.TemporaryDirectory() as folder:
        scenario = str(Path(__file__).parents[1] / "rails_all.py")
        command = [sys.executable, scenario, "--model-only", "--gating", "gpu", "--out", f"{folder}/out"]
        began = time.perf_counter()
        output_of(command)
        return time.perf_counter() - began, "wall time"
