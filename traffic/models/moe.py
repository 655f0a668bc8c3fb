"""mFabric's five mixture-of-experts models: sizes, parameters, what a micro-batch sends and computes.

    N = b s        tokens of a micro-batch on an expert-parallel (EP) rank: b sequences of s tokens
    h, f           numbers per token; those inside an expert
    E, k           routed experts of a layer; experts per token
    ep, tp, pp     degrees; an EP rank is tp GPUs

Sizes are the published configurations. Bytes are of bf16, work is that of the forward pass, a multiplication
and an addition each one FLOP; the backward pass has twice as much. Work is per EP rank: a GPU has 1/tp.

References
----------
mFabric, appendices A (Table 3: degrees) and D.1, section 7.3. Jiang et al.: Mixtral of Experts (8x7B;
8x22B by its configuration); Zhu et al.: LLaMA-MoE; Qwen1.5-MoE-A2.7B's configuration; DeepSeek-V3
Technical Report, section 4.2, whose sizes DeepSeek-R1 shares.
"""

import math
from dataclasses import dataclass

from topologies.errors import DemandError
from traffic.training import Layout

NUMBER_BYTES = 2
"""Size of a number (bf16) [bytes]."""


@dataclass(frozen=True, slots=True)
class GroupedAttention:
    """Attention whose query heads share key and value heads; as many of both is the plain one."""

    heads: int
    kv_heads: int
    head_size: int

    def weights(self, hidden: int) -> int:
        """Return those of queries and output, keys and values."""
        return 2 * hidden * (self.heads + self.kv_heads) * self.head_size

    def flop(self, hidden: int, tokens: int, sequence: int) -> int:
        """Return the forward work of the matrices, half the scores and weighing values by them [FLOP]."""
        return 2 * tokens * self.weights(hidden) + 2 * tokens * sequence * self.heads * self.head_size


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """DeepSeek's multi-head latent attention (MLA): queries, keys and values from compressed vectors."""

    heads: int
    query_rank: int
    kv_rank: int
    head_size: int
    """Of a key without position, and of a value."""
    rope_size: int
    """Numbers of a key that carry the position, shared by the heads."""

    def weights(self, hidden: int) -> int:
        """Return those that compress and expand queries, keys and values, and the output's."""
        queries = self.query_rank * (hidden + self.heads * (self.head_size + self.rope_size))
        keys_and_values = (
            hidden * (self.kv_rank + self.rope_size) + self.kv_rank * self.heads * 2 * self.head_size
        )
        return queries + keys_and_values + self.heads * self.head_size * hidden

    def flop(self, hidden: int, tokens: int, sequence: int) -> int:
        """Return the forward work of the matrices, half the scores and weighing values by them [FLOP]."""
        scores = tokens * sequence * self.heads * (2 * self.head_size + self.rope_size)
        return 2 * tokens * self.weights(hidden) + scores


@dataclass(frozen=True, slots=True)
class MoeModel:
    """A transformer whose layers have experts, and how it is trained.

    Raises
    ------
    DemandError
        If a number is not positive where it must be, or more experts are used than there are.
    """

    name: str
    layers: int
    """L, all layers."""
    hidden: int
    """h."""
    attention: GroupedAttention | LatentAttention
    ffn: int
    """f, of one expert."""
    experts: int
    """E, routed experts of a layer."""
    top_k: int
    """k."""
    vocabulary: int
    ep: int
    """EP ranks of a group."""
    tp: int
    """GPUs of an EP rank."""
    pp: int
    """Pipeline stages."""
    shared_ffn: int = 0
    """Of the experts that every token uses, together."""
    dense_layers: int = 0
    """How many of the layers, the first ones, have no experts."""
    dense_ffn: int = 0
    """Of these layers."""
    extra_layer_weights: int = 0
    """Weights of a layer beside its matrices and norms: biases, the gate of the shared experts."""
    sequence: int = 4096
    """s, tokens of a sequence."""
    micro_batch: int = 8
    """b, sequences of a micro-batch; for DeepSeek-R1 mFabric does not say."""

    def __post_init__(self) -> None:
        """Refuse sizes of nothing."""
        sizes = (self.layers, self.hidden, self.ffn, self.top_k, self.ep, self.tp, self.pp, self.sequence)
        if min(*sizes, self.micro_batch) < 1 or self.top_k > self.experts or self.dense_layers > self.layers:
            raise DemandError(
                f"the model {self.name!r} has top {self.top_k} of {self.experts} experts in {self.layers} "
                f"layers, ep {self.ep} tp {self.tp} pp {self.pp}",
                "give one or more of each, and no more experts per token than there are",
            )

    @property
    def moe_layers(self) -> int:
        """How many layers have experts."""
        return self.layers - self.dense_layers

    @property
    def tokens(self) -> int:
        """N, tokens of a micro-batch on an EP rank."""
        return self.micro_batch * self.sequence

    @property
    def expert_slots(self) -> int:
        """Experts of a layer and empty ones, as many on every EP rank: for Qwen-MoE's 60 on 16 ranks 64."""
        return math.ceil(self.experts / self.ep) * self.ep

    @property
    def expert_weights(self) -> int:
        """Weights of one routed expert."""
        return 3 * self.hidden * self.ffn

    def layer_weights(self, layer: int) -> int:
        """Return the weights of a layer but those of routed experts."""
        attention = self.attention.weights(self.hidden) + 2 * self.hidden  # two norms
        if layer < self.dense_layers:
            return attention + self.extra_layer_weights + 3 * self.hidden * self.dense_ffn
        return attention + self.extra_layer_weights + self.hidden * (self.experts + 3 * self.shared_ffn)

    @property
    def dense_weights(self) -> int:
        """All weights but those of routed experts."""
        return sum(map(self.layer_weights, range(self.layers))) + (2 * self.vocabulary + 1) * self.hidden

    @property
    def weights(self) -> int:
        """All parameters, input and output embeddings apart; without the latent vectors' norms of MLA."""
        return self.dense_weights + self.moe_layers * self.experts * self.expert_weights

    @property
    def all_to_all_bytes(self) -> int:
        """What an EP rank sends in one all-to-all, its own share included [bytes]."""
        return self.tokens * self.top_k * self.hidden * NUMBER_BYTES

    @property
    def pipeline_bytes(self) -> int:
        """What a GPU sends to that of the next stage per micro-batch and direction [bytes]."""
        return self.tokens * self.hidden * NUMBER_BYTES // self.tp

    @property
    def attention_flop(self) -> int:
        """Forward work of attention on a micro-batch, per layer and EP rank [FLOP]."""
        return self.attention.flop(self.hidden, self.tokens, self.sequence)

    @property
    def gate_flop(self) -> int:
        """Forward work of the gate on a micro-batch, per layer and EP rank [FLOP]."""
        return 2 * self.tokens * self.hidden * self.experts

    @property
    def shared_flop(self) -> int:
        """Forward work of the shared experts on a micro-batch, per layer and EP rank [FLOP]."""
        return 6 * self.tokens * self.hidden * self.shared_ffn

    def expert_flop(self, tokens: int | None = None) -> int:
        """Return the forward work of a rank's experts on the copies of tokens that it received [FLOP].

        Parameters
        ----------
        tokens
            By default what an even load gives it, N k.
        """
        received = self.tokens * self.top_k if tokens is None else tokens
        return 6 * received * self.hidden * self.ffn

    @property
    def replica_gpus(self) -> int:
        """GPUs that hold the model once: ep tp pp."""
        return self.ep * self.tp * self.pp

    def layout(self, replicas: int) -> Layout:
        """Return which GPUs form which groups; for the dense part all EP ranks are data-parallel.

        Parameters
        ----------
        replicas
            dp, how often the experts are held.
        """
        return Layout(self.tp, replicas * self.ep, self.ep, self.pp)

    def region_servers(self, server_gpus: int = 8) -> int:
        """Return n, the servers of an EP group, which share an OCS; DemandError if it does not fill them."""
        gpus = self.ep * self.tp
        if gpus % server_gpus:
            raise DemandError(
                f"an EP group of {gpus} GPUs on servers of {server_gpus}", "let it fill its servers"
            )
        return gpus // server_gpus

    def stage_layers(self) -> tuple[int, ...]:
        """Return the layers of each pipeline stage: as many for all, what is left for the last ones.

        DeepSeek-R1's 61 on 16 stages are 4 each and 1; mFabric does not say.
        """
        each = math.ceil(self.layers / self.pp)
        return tuple(min(each, max(self.layers - stage * each, 0)) for stage in range(self.pp))


_MODELS = (
    MoeModel("mixtral-8x7b", 32, 4096, GroupedAttention(32, 8, 128), 14336, 8, 2, 32_000, 8, 4, 4),
    MoeModel("mixtral-8x22b", 56, 6144, GroupedAttention(48, 8, 128), 16384, 8, 2, 32_768, 8, 8, 8),
    # Of its sizes the one with 4 experts per token; 2 of 16 exists too, with the same weights.
    MoeModel("llama-moe", 32, 4096, GroupedAttention(32, 32, 128), 688, 16, 4, 32_000, 16, 1, 4),
    # mFabric's Table 3 says 64 experts and EP 16, its section 7.3 32 and EP 32; the model has 60.
    MoeModel(
        "qwen-moe", 24, 2048, GroupedAttention(16, 16, 128), 1408, 60, 4, 151_936, 16, 1, 4,
        shared_ffn=5632, extra_layer_weights=3 * 2048 + 2048,
    ),
    MoeModel(
        "deepseek-r1", 61, 7168, LatentAttention(128, 1536, 512, 128, 64), 2048, 256, 8, 129_280, 64, 1, 16,
        shared_ffn=2048, dense_layers=3, dense_ffn=18_432,
    ),
)  # fmt: skip
MODELS = {model.name: model for model in _MODELS}
"""By name, with the degrees that mFabric trains them with."""


def model_named(name: str) -> MoeModel:
    """Return a model; DemandError if there is none of that name."""
    if name not in MODELS:
        raise DemandError(f"unknown model {name!r}", f"choose from {', '.join(MODELS)}")
    return MODELS[name]
