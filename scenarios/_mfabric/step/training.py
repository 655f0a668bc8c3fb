"""Training steps over circuits that follow them, and over packets: what is run, as experiments."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from controller.circuits.devices import ReconfigurationDelay
from controller.schedulers.copilot import WINDOW
from scenarios._mfabric.region_plan import First, Prediction, RegionalSetup
from scenarios._mfabric.step.predictions import copilot_predictions, demands_before
from testbed.experiment.experiment import Experiment
from topologies.errors import ScenarioError
from topologies.fabric import NVLINK_BPS, Fabric
from traffic.delegated import DelegatedSetup
from traffic.job import Job
from traffic.models.moe import MoeModel
from traffic.models.moe_step import Experts, Gate, Machines, MoeStep, moe_step
from traffic.workloads.gate import Loads, Tokens, gate_loads, gate_statistics, gate_tokens
from traffic.workloads.mixtral import GPU_FLOPS

MOST_MICRO_BATCHES = 64
MOST_GBPS = 1e6
"""A petabit per second: more than any NIC [Gbit/s]."""
MOST_DELAY_MS = 1e5
"""No OCS is slower, but for one that is plugged by a robot [ms]."""
GATEWAYS = (0, 4)
"""The GPUs of a server of 8 NICs, 2 of them on packets, that sum gradients for it: one per packet NIC."""
OWN_GATEWAYS = tuple(range(8))
"""The same where all 8 are on packets, and each GPU has its own."""
PHASE = "early"
"""Of training, where gates are least even."""
OWN_NIC = "ecmp"
"""The scheme of a packet fabric in the paper and its artifact: a GPU sends over the NIC beside it."""
ALL_LANES = DelegatedSetup()
"""mFabric's own: what crosses is split evenly over two servers' lanes, gathered and scattered inside."""


@dataclass(frozen=True, eq=False)
class Training:
    """A training step with what its gates decided, and what they decided before."""

    model: MoeModel
    """With the layers that are run."""
    step: MoeStep
    gate: Gate
    """The decisions of its gates."""
    history: Loads
    """Of the iterations before."""
    before: Tokens
    """The decisions of its gates in the last of these, shape (1, layers, ep, experts)."""

    @property
    def job(self) -> Job:
        """The job that runs."""
        return self.step.job


def training(
    model: MoeModel,
    layers: int,
    *,
    replicas: int = 1,
    micro_batches: int = 1,
    gateways: Sequence[int] = (0,),
    sparsity: float = 0.0,
    gpu_flops: float = GPU_FLOPS,
    nvlink_bps: float = NVLINK_BPS,
    seed: int = 0,
    sums_apart: Sequence[int] = (),
    experts: Experts = "busiest",
) -> Training:
    """Return a training step of the first layers of a model, under a synthetic gate.

    Parameters
    ----------
    model
        With its degrees.
    layers
        How many of its layers are run.
    replicas, micro_batches
        dp and M; each micro-batch of each replica has a gate's decision of its own.
    gateways
        The GPUs of a server through which data-parallel rings go.
    sparsity
        Which share of the experts a source sends nothing to.
    gpu_flops
        What a GPU computes [FLOP/s].
    nvlink_bps
        Rate of a GPU inside its server [bit/s].
    seed
        Of the gate.
    sums_apart, experts
        As of `traffic.models.moe_step.moe_step`.

    Raises
    ------
    DemandError, ScenarioError
        If a number is out of its range.
    """
    if layers > model.layers or micro_batches > MOST_MICRO_BATCHES:
        raise ScenarioError(
            f"{layers} layers of {model.name}, which has {model.layers}, and {micro_batches} micro-batches",
            f"take no more layers than there are, and up to {MOST_MICRO_BATCHES} micro-batches",
        )
    cut = replace(model, layers=layers)
    decisions = max(replicas * micro_batches, 1)
    loads = gate_loads([PHASE] * (WINDOW + decisions), layers, model.experts, seed=seed)
    history, now = loads[:WINDOW], loads[WINDOW:]
    # One draw for both: rows of the same stream would differ from their loads alike before and now.
    drawn = gate_tokens(
        np.concatenate([now, history[-1:]]),
        model.ep,
        model.tokens * model.top_k,
        sparsity=sparsity,
        seed=seed,
    )
    tokens, before = drawn[:-1], drawn[-1:]

    def gate(replica: int, micro_batch: int, layer: int) -> NDArray[np.int64]:
        decided: NDArray[np.int64] = tokens[replica * micro_batches + micro_batch, layer]
        return decided

    step = moe_step(
        cut,
        gate,
        replicas=replicas,
        micro_batches=micro_batches,
        machines=Machines(gpu_flops, nvlink_bps, gateways=tuple(gateways)),
        sums_apart=sums_apart,
        experts=experts,
    )
    name = f"{model.name} ({layers} of {model.layers} layers)"
    note = f"{step.job.note}; synthetic gates: {gate_statistics(tokens)}"
    return Training(cut, replace(step, job=replace(step.job, name=name, note=note)), gate, history, before)


def checked_delay(delay_ms: float, rate_bps: float) -> ReconfigurationDelay:
    """Return an OCS that is dark for so long; ScenarioError if that, or a NIC's rate, makes no sense."""
    if not (0 < rate_bps <= MOST_GBPS * 1e9 and 0 <= delay_ms <= MOST_DELAY_MS):
        raise ScenarioError(
            f"NICs of {rate_bps / 1e9:g} Gbit/s, a delay of {delay_ms:g} ms",
            f"give a rate above 0 up to {MOST_GBPS:g}, and a delay from 0 to {MOST_DELAY_MS:g} ms",
        )
    return ReconfigurationDelay(f"{delay_ms:g} ms", delay_ms / 1e3)


def over_circuits(
    fabric: Fabric,
    trained: Training,
    first: First,
    delay: ReconfigurationDelay,
    label: str,
    *,
    spill: bool = False,
    seed: int = 0,
) -> Experiment:
    """Return a step over regions whose circuits follow it.

    Parameters
    ----------
    fabric
        An mFabric.
    trained
        The step; with ``copilot`` its history decides the predictions.
    first
        What a dispatch does whose demand is known only when it starts.
    delay
        Of the OCSes.
    label
        What tables call it.
    spill
        Whether pairs put on packet NICs what their circuits cannot carry in time.
    seed
        Of what is random.
    """
    predictions: tuple[Prediction, ...] = ()
    if first == "copilot":
        predictions = copilot_predictions(trained.step, trained.model, trained.gate, trained.history)
    late = tuple(dispatch.node for dispatch in trained.step.dispatches)
    before = demands_before(trained.step, trained.model, trained.before[0])
    return Experiment(
        fabric,
        trained.job,
        replace(ALL_LANES, spill=spill),
        seed=seed,
        label=label,
        circuits=RegionalSetup(delay, first, late, predictions, before),
    )
