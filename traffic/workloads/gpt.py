"""A training step of a GPT, made up: tensor-parallel AllReduces, and gradients reduced bucket by bucket.

A layer is attention and an MLP, each of which ends in a tensor-parallel AllReduce of its activations,
forward and backward. The backward pass takes twice the forward pass' compute. Gradients are reduced over
the data-parallel ranks in buckets: a bucket is sent as soon as the layers in it have their gradients,
beside the rest of the backward pass. Embeddings, norms and the optimizer are left out.

References
----------
Megatron-LM (Shoeybi et al., 2019), section 3, Figure 4: where the AllReduces are. PyTorch
DistributedDataParallel, ``bucket_cap_mb``: buckets of 25 MB. Sizes: GPT-3 (Brown et al., 2020), Table 2.1.
"""

from topologies.errors import DemandError
from traffic.job import Job
from traffic.training import Layout, Phases, StepPhase, job_of_phases
from traffic.workloads.mixtral import GPU_FLOPS

HIDDEN, TOKENS = 5120, 2048
"""Of GPT-3 13B: numbers per token, and tokens of a sequence."""
NUMBER_BYTES, GRADIENT_BYTES = 2, 4
"""Size of an activation (bf16), and of a gradient (fp32) [bytes]."""
BUCKET_BYTES = 25 * (1 << 20)
PARTS = {"attention": 4, "mlp": 8}
"""The parts of a layer, and the weights of each over hidden x hidden."""


def gpt_step(
    layout: Layout,
    *,
    layers: int,
    hidden: int = HIDDEN,
    tokens: int = TOKENS,
    bucket_bytes: int = BUCKET_BYTES,
) -> Job:
    """Return a training step of a GPT.

    Parameters
    ----------
    layout
        Which ranks form which groups.
    layers
        How many layers.
    hidden
        Numbers per token.
    tokens
        Tokens of a data-parallel rank's batch.
    bucket_bytes
        Gradients that are reduced together at least, but for the last ones [bytes].

    Raises
    ------
    DemandError
        If a number is not positive.
    """
    if min(layers, hidden, tokens, bucket_bytes) < 1:
        raise DemandError(
            f"a GPT of {layers} layers, hidden {hidden}, {tokens} tokens, buckets of {bucket_bytes} bytes",
            "give one or more of each",
        )
    sent_bytes = tokens * hidden * NUMBER_BYTES
    forward = [
        StepPhase(
            f"{layer} {part} fwd", _compute_s(part, layout, hidden, tokens), "all-reduce", "tp", sent_bytes
        )
        for layer in range(layers)
        for part in PARTS
    ]
    backward: list[StepPhase] = []
    waiting = 0
    parts = [(layer, part) for layer in reversed(range(layers)) for part in reversed(PARTS)]
    for number, (layer, part) in enumerate(parts, 1):
        compute_s = 2 * _compute_s(part, layout, hidden, tokens)
        backward.append(StepPhase(f"{layer} {part} bwd", compute_s, "all-reduce", "tp", sent_bytes))
        waiting += PARTS[part] * hidden * hidden * GRADIENT_BYTES // layout.tp
        if waiting >= bucket_bytes or number == len(parts):
            backward.append(
                StepPhase(f"{layer} {part} bucket", 0.0, "all-reduce", "dp", waiting, blocks=False)
            )
            waiting = 0
    note = (
        f"synthetic: {layers} layers of hidden {hidden}, {tokens} tokens, tp {layout.tp} dp {layout.dp}, "
        f"gradients in buckets of {bucket_bytes / 1e6:.3g} MB or a part of a layer"
    )
    return job_of_phases(Phases(f"synthetic gpt, {layers} layers", layout, (*forward, *backward), note))


def _compute_s(part: str, layout: Layout, hidden: int, tokens: int) -> float:
    """Return how long a rank computes a part's forward pass: two FLOP per weight and token [s]."""
    return 2 * PARTS[part] * hidden * hidden * tokens / layout.tp / GPU_FLOPS
