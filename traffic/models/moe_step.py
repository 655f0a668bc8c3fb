"""A training step of a mixture of experts as a job: pipelined forwards and backwards, then data parallelism.

    F    attention, gate > dispatch > experts > combine, for each layer of a stage; then to the next stage
    B    combine backward > experts > dispatch backward > attention, the last layer first; then a stage back

- All-to-alls: with D the dispatch (row = source) the four of a layer and micro-batch are D, D', D, D'. They
  are between the GPUs of an expert-parallel group of one stage, a *region*, and no two of one region overlap:
  a stage does one micro-batch after the other (1F1B), in the order of that schedule.
- Work: attention and gate as `traffic.models.moe` says; experts by the tokens that their rank receives, or
  by the mean (`Experts`), and shared experts beside them; a backward has twice the work of its forward.
- Tensor parallelism stays in the server, where it has NVLink to itself: it is part of the compute, an
  AllReduce 2 (tp-1)/tp payload 8/W for attention's output (N h numbers) and for the experts' (the tokens
  received), forward and backward. Of ranks that are named it is a ring of its own, which can be led over
  the network where one of their GPUs is in another server.
- Pipeline: GPU t of a rank sends N h / tp numbers to GPU t of the same rank of the next stage, and back.
- Data parallelism, after the last backward of a stage: gradients go to the gateway GPUs of their server over
  NVLink (a compute, (G-1)/n_e of what a GPU holds, at W), round a ring per gateway over the servers that hold
  the same weights, and back: all of a stage for its dense ones, one of each replica for those of experts.

GPUs are numbered ((stage dp + replica) ep + rank) tp + t. Optimizer, data loading and checkpoints take no
time.

References
----------
mFabric, sections 3 and 5.3; the artifact's mixnet-flexflow (``substitution.cc``) for groups, mixnet-htsim
(``ffapp.cpp``) for matrices. When DP runs is ours; the artifact does it per operator.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from topologies.errors import DemandError
from topologies.fabric import NVLINK_BPS
from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.point_to_point import PointToPoint
from traffic.collectives.ring import Ring
from traffic.demand import Demand
from traffic.job import Collective, Compute, Job, Node
from traffic.models.moe import NUMBER_BYTES, MoeModel
from traffic.models.pipeline import one_forward_one_backward
from traffic.workloads.gate import gate_demand
from traffic.workloads.mixtral import GPU_FLOPS

Gate = Callable[[int, int, int], NDArray[np.int64]]
"""Copies of tokens from rank to expert, shape (ep, experts), of a replica, micro-batch and MoE layer."""
Experts = Literal["busiest", "even"]
"""Whether a rank computes what it receives, so that the busiest sets the pace, or the mean of all."""


@dataclass(frozen=True)
class Machines:
    """What a model is trained on, as far as it decides a job.

    Raises
    ------
    DemandError
        If a rate is not positive, or there is no gateway among a server's GPUs.
    """

    gpu_flops: float = GPU_FLOPS
    """What a GPU computes: by default 45 % of an A100's peak; an H800 at 40 % does 400e12 [FLOP/s]."""
    nvlink_bps: float = NVLINK_BPS
    """W, rate of a GPU inside its server, each way [bit/s]."""
    server_gpus: int = 8
    """G."""
    gateways: tuple[int, ...] = (0, 4)
    """The GPUs of a server through which data-parallel rings go, one per packet NIC."""

    def __post_init__(self) -> None:
        """Refuse what cannot train."""
        inside = all(0 <= gpu < self.server_gpus for gpu in self.gateways)
        if min(self.gpu_flops, self.nvlink_bps) <= 0 or not self.gateways or not inside:
            raise DemandError(
                f"servers of {self.server_gpus} GPUs of {self.gpu_flops:g} FLOP/s, gateways {self.gateways}",
                "give positive rates, and gateways among the GPUs",
            )


@dataclass(frozen=True)
class Dispatch:
    """The first all-to-all of a layer's forward pass, whose demand is known only after the gate."""

    node: str
    """Of the job."""
    replica: int
    micro_batch: int
    layer: int
    """Among those that have experts."""


@dataclass(frozen=True)
class MoeStep:
    """A training step."""

    job: Job
    dispatches: tuple[Dispatch, ...]
    """In job order."""


def moe_step(
    model: MoeModel,
    gate: Gate,
    *,
    replicas: int = 1,
    micro_batches: int | None = None,
    machines: Machines | None = None,
    tp_shards_tokens: bool = True,
    sums_apart: Collection[int] = (),
    experts: Experts = "busiest",
) -> MoeStep:
    """Return one training step of a model.

    Parameters
    ----------
    model
        Sizes and degrees.
    gate
        What the gates decide; equal arrays are one demand.
    replicas
        dp, how often experts are held.
    micro_batches
        M, of a replica; by default as many as there are stages, as in the artifact.
    machines
        What it runs on; by default servers of 8 A100.
    tp_shards_tokens
        Whether the GPUs of a rank divide what it sends, as in the artifact; else each sends all of it.
    sums_apart
        GPUs whose ranks' tensor-parallel sums are rings over the rank, and no part of its compute.
    experts
        Whose tokens decide how long a rank computes; all-to-alls are uneven either way.

    Raises
    ------
    DemandError
        If the groups do not fill their servers, or a gate is of other ranks and experts.
    """
    count = model.pp if micro_batches is None else micro_batches
    if min(count, replicas) < 1:
        raise DemandError(f"{replicas} replicas and {count} micro-batches", "give one or more of each")
    model.region_servers((machines or Machines()).server_gpus)
    apart = frozenset(sums_apart) if model.tp > 1 else frozenset[int]()
    return _Step(
        model, gate, replicas, count, machines or Machines(), tp_shards_tokens, apart, experts
    ).step()


def repeated_gate(tokens: NDArray[np.int64]) -> Gate:
    """Return the gate that decides the same always: tokens from source to expert, as the artifact has it."""
    return lambda _replica, _micro_batch, _layer: tokens


def expert_s(model: MoeModel, tokens: int, machines: Machines, passes: int = 1) -> float:
    """Return how long a rank's experts take for the copies of tokens that it received [s].

    With shared experts, and tensor parallelism. A backward is two passes of work.
    """
    flop = model.expert_flop(tokens) + model.shared_flop
    return passes * flop / model.tp / machines.gpu_flops + _all_reduce_s(model, tokens, machines)


def attention_s(model: MoeModel, layer: int, machines: Machines, passes: int = 1) -> float:
    """Return how long attention takes, with the gate or in a dense layer its FFN [s].

    With tensor parallelism. A backward is two passes of work.
    """
    is_dense = layer < model.dense_layers
    other_flop = 6 * model.tokens * model.hidden * model.dense_ffn if is_dense else model.gate_flop
    flop = model.attention_flop + other_flop
    sums_s = _all_reduce_s(model, _attention_sums(model, layer), machines)
    return passes * flop / model.tp / machines.gpu_flops + sums_s


def _attention_sums(model: MoeModel, layer: int) -> int:
    """Return how many tokens' outputs attention's GPUs sum, in a dense layer with its FFN's."""
    return (1 + (layer < model.dense_layers)) * model.tokens


def _all_reduce_s(model: MoeModel, tokens: int, machines: Machines) -> float:
    """Return how long the ranks' GPUs take to sum what they have of some tokens, over NVLink [s]."""
    payload = tokens * model.hidden * NUMBER_BYTES
    return 2 * (model.tp - 1) / model.tp * payload * 8 / machines.nvlink_bps


@dataclass(slots=True)
class _Stage:
    """A stage of a replica while its nodes are listed."""

    number: int
    replica: int
    gpus: tuple[int, ...]
    layers: range
    last: tuple[str, ...] = ()
    """The node that ended what the stage did so far."""


@dataclass
class _Step:
    """A training step while it is built."""

    model: MoeModel
    gate: Gate
    replicas: int
    micro_batches: int
    machines: Machines
    tp_shards_tokens: bool
    apart: frozenset[int]
    experts: Experts
    nodes: list[Node] = field(default_factory=list)
    dispatches: list[Dispatch] = field(default_factory=list)
    _demands: dict[bytes, tuple[Demand, Demand]] = field(default_factory=dict)
    _patterns: dict[tuple[int, int], AllToAll] = field(default_factory=dict)

    def step(self) -> MoeStep:
        """Return the step."""
        places = product(range(self.model.pp), range(self.replicas))
        stages = [self._stage(stage, replica) for stage, replica in places]
        for stage in stages:
            works = one_forward_one_backward(stage.number, self.model.pp, self.micro_batches)
            for kind, micro_batch in works:
                self._work(stage, kind, micro_batch)
        for number in range(self.model.pp):
            self._data_parallel([stage for stage in stages if stage.number == number])
        note = (
            f"{self.model.name}, dp {self.replicas}, {self.micro_batches} micro-batches, "
            f"{self.machines.gpu_flops / 1e12:g} TFLOP/s"
        )
        gpus = self.model.replica_gpus * self.replicas
        return MoeStep(Job(f"{self.model.name} step", gpus, tuple(self.nodes), note), tuple(self.dispatches))

    def _stage(self, stage: int, replica: int) -> _Stage:
        size, layers = self.model.ep * self.model.tp, self.model.stage_layers()
        first = (stage * self.replicas + replica) * size
        before = sum(layers[:stage])
        return _Stage(
            stage, replica, tuple(range(first, first + size)), range(before, before + layers[stage])
        )

    def _work(self, stage: _Stage, kind: str, micro_batch: int) -> None:
        """List a forward or a backward of a micro-batch, and what it sends to another stage."""
        name = f"{kind}{micro_batch} {stage.replica}.{stage.number}"
        step = 1 if kind == "F" else -1
        before = stage.number - step
        waits = stage.last
        if 0 <= before < self.model.pp:
            waits += (f"{kind}{micro_batch} {stage.replica}.{before} send",)
        for layer in stage.layers[::step]:
            passes = 1 if kind == "F" else 2
            waits = self._layer(f"{name} l{layer}", stage, micro_batch, layer, passes, waits)
        stage.last = waits
        if 0 <= stage.number + step < self.model.pp:
            away = step * self.replicas * len(stage.gpus)
            sent = tuple((gpu, gpu + away, self.model.pipeline_bytes) for gpu in stage.gpus)
            self.nodes.append(Collective(f"{name} send", PointToPoint(sent), waits))

    def _layer(
        self, name: str, stage: _Stage, micro_batch: int, layer: int, passes: int, waits: tuple[str, ...]
    ) -> tuple[str, ...]:
        """List the nodes of a layer, backward (two passes) the other way round; return those that end it."""
        is_forward = passes == 1
        if is_forward:
            waits = self._attention(f"{name} attention", stage, layer, passes, waits)
        if layer >= self.model.dense_layers:
            tokens = self._tokens(stage, micro_batch, layer)
            first, last = ("dispatch", "combine") if is_forward else ("combine", "dispatch")
            if is_forward:
                place = stage.replica, micro_batch, layer - self.model.dense_layers
                self.dispatches.append(Dispatch(f"{name} {first}", *place))
            self.nodes.append(Collective(f"{name} {first}", self._pattern(stage, tokens, 0), waits))
            waits = self._experts(f"{name} experts", stage, tokens, passes, (f"{name} {first}",))
            self.nodes.append(Collective(f"{name} {last}", self._pattern(stage, tokens, 1), waits))
            waits = (f"{name} {last}",)
        return waits if is_forward else self._attention(f"{name} attention", stage, layer, passes, waits)

    def _attention(
        self, name: str, stage: _Stage, layer: int, passes: int, waits: tuple[str, ...]
    ) -> tuple[str, ...]:
        """List a layer's attention, the same on all ranks; return what ends it."""
        took_s = attention_s(self.model, layer, self.machines, passes)
        summed = _attention_sums(self.model, layer)
        return self._computes(name, stage, [took_s] * self.model.ep, [summed] * self.model.ep, waits)

    def _experts(
        self, name: str, stage: _Stage, tokens: NDArray[np.int64], passes: int, waits: tuple[str, ...]
    ) -> tuple[str, ...]:
        """List the compute of a layer's experts; return what ends it."""
        received = tokens.reshape(len(tokens), self.model.ep, -1).sum(axis=(0, 2)).tolist()
        if self.experts == "even":
            received = [round(sum(received) / len(received))] * len(received)
        took_s = [expert_s(self.model, each, self.machines, passes) for each in received]
        return self._computes(name, stage, took_s, received, waits)

    def _computes(
        self,
        name: str,
        stage: _Stage,
        took_s: Sequence[float],
        summed: Sequence[int],
        waits: tuple[str, ...],
    ) -> tuple[str, ...]:
        """List what the ranks of a stage compute and sum; return what ends it.

        ``took_s`` is what each rank takes with its sums, and ``summed`` of how many tokens these are.
        """
        model, ranks = self.model, range(self.model.ep)
        gpus = [stage.gpus[rank * model.tp : (rank + 1) * model.tp] for rank in ranks]
        apart = [rank for rank in ranks if not self.apart.isdisjoint(gpus[rank])]
        ends = []
        if rest := [rank for rank in ranks if rank not in apart]:
            own = tuple(gpu for rank in rest for gpu in gpus[rank])
            own_s = tuple(took_s[rank] for rank in rest for _ in range(model.tp))
            varies = len(set(own_s)) > 1
            mean_s = sum(own_s) / len(own_s) if varies else own_s[0]
            self.nodes.append(Compute(name, own, mean_s, waits, own_s if varies else ()))
            ends.append(name)
        for rank in apart:
            alone_s = took_s[rank] - _all_reduce_s(model, summed[rank], self.machines)
            self.nodes.append(Compute(f"{name} of rank {rank}", gpus[rank], alone_s, waits))
            ends.append(f"{name} of rank {rank}")
            if summed[rank]:
                ring = Ring((gpus[rank],), summed[rank] * model.hidden * NUMBER_BYTES)
                self.nodes.append(Collective(f"{name} sum of rank {rank}", ring, (ends.pop(),)))
                ends.append(f"{name} sum of rank {rank}")
        return tuple(ends)

    def _tokens(self, stage: _Stage, micro_batch: int, layer: int) -> NDArray[np.int64]:
        """Return what the gates of a layer decide, with the empty slots of experts."""
        model = self.model
        tokens = self.gate(stage.replica, micro_batch, layer - model.dense_layers)
        if tokens.shape not in ((model.ep, model.experts), (model.ep, model.expert_slots)):
            raise DemandError(
                f"a gate of shape {tokens.shape} for {model.ep} ranks and {model.experts} experts",
                "give a row per rank and a column per expert",
            )
        return np.pad(tokens, ((0, 0), (0, model.expert_slots - tokens.shape[1])))

    def _pattern(self, stage: _Stage, tokens: NDArray[np.int64], transposed: int) -> AllToAll:
        """Return the dispatch, or its transpose, between the GPUs of a region; equal ones are one object."""
        key = tokens.tobytes()
        if key not in self._demands:
            number = len(self._demands)
            demand = gate_demand(
                tokens,
                self.model.hidden * NUMBER_BYTES,
                self.model.tp,
                tp_shards_tokens=self.tp_shards_tokens,
                name=f"dispatch {number}",
            )
            back = Demand(f"combine {number}", demand.matrix.T.copy(), demand.note)
            self._demands[key] = demand, back
        demand = self._demands[key][transposed]
        return self._patterns.setdefault((id(demand), stage.gpus[0]), AllToAll(demand, stage.gpus))

    def _data_parallel(self, stages: list[_Stage]) -> None:
        """List what the replicas of a stage sum after their last backward."""
        servers = [stage.gpus[:: self.machines.server_gpus] for stage in stages]
        dense, experts = self._gradients(stages[0])
        everywhere = tuple(first for own in servers for first in own)
        same = enumerate(zip(*servers, strict=True))
        rings = [("dense", everywhere, dense), *((f"experts {place}", own, experts) for place, own in same)]
        rings = [ring for ring in rings if len(ring[1]) > 1 and ring[2]]
        if not rings:
            return
        name, gpus = f"DP {stages[0].number}", tuple(gpu for stage in stages for gpu in stage.gpus)
        held = dense / self.model.tp + experts / self.machines.server_gpus * (len(stages) > 1)
        busiest = (self.machines.server_gpus - 1) * held / len(self.machines.gateways)
        inside_s = 8 * busiest / self.machines.nvlink_bps
        ended = tuple(last for stage in stages for last in stage.last)
        self.nodes.append(Compute(f"{name} reduce", gpus, inside_s, ended))
        sums = []
        for what, first, payload in rings:
            for gateway in self.machines.gateways:
                size = max(payload // len(self.machines.gateways), len(first))
                ring = Ring((tuple(gpu + gateway for gpu in first),), size)
                sums.append(Collective(f"{name} {what} {gateway}", ring, (f"{name} reduce",)))
        self.nodes += sums
        self.nodes.append(Compute(f"{name} broadcast", gpus, inside_s, tuple(node.name for node in sums)))

    def _gradients(self, stage: _Stage) -> tuple[int, int]:
        """Return the bytes of distinct gradients on a server of a stage: dense ones, and those of experts."""
        model = self.model
        dense = sum(map(model.layer_weights, stage.layers))
        dense += model.vocabulary * model.hidden * ((stage.number == 0) + (stage.number == model.pp - 1))
        dense += model.hidden * (stage.number == model.pp - 1)
        moe_layers = sum(layer >= model.dense_layers for layer in stage.layers)
        on_rank = model.expert_slots // model.ep * model.expert_weights
        experts = moe_layers * on_rank * self.machines.server_gpus // model.tp
        return dense * NUMBER_BYTES, experts * NUMBER_BYTES
