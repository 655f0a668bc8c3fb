"""SimAI's workload, a ``.txt`` of AICB: what a training step computes and exchanges, layer by layer.

The first line has the parallelism, the second the number of layers; then each layer has 12 fields: its
name, a dependency that is not used, and for its forward pass (fwd), input gradient (ig) and weight
gradient (wg) a compute time in **nanoseconds**, a collective and its size in **bytes**; last the time of
the weight update, which SimAI counts per KB and is left out here.

A step is replayed in SimAI's order. All layers run forward, one after another; then from the last layer to
the first the input gradient and the weight gradient. The next compute waits for collectives of fwd and ig,
and not for those of wg, which go one after another beside it. A collective is between the tensor-parallel
ranks in fwd and ig and the data-parallel ones in wg, unless its name ends in ``_EP`` (expert-parallel ranks)
or ``_DP_EP`` (those that hold the same experts). Of a ``MICRO`` file the collectives of wg are replayed, one
after another between all GPUs.

Sizes are S of nccl-tests, the whole array; of ``ALLTOALL`` a GPU's buffer, of which its own part stays.
One pipeline stage is replayed, without what it passes on. The note names that and all else that is left out:
BROADCAST, weight updates, collectives of one GPU or of no bytes, fwd and ig of a ``MICRO`` file.

References
----------
aliyun/SimAI, astra-sim/workload/Workload.cc (iterate_hybrid_parallel_Transformer_fwd_in_bckwd).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from topologies.errors import TraceError
from traffic.readers.text import (
    ALL,
    MAX_GPUS,
    Taken,
    bad_line,
    count_of,
    file_name,
    is_number,
    text_of,
    trace_name,
)
from traffic.training import Call, GroupKind, Layout, Phases, StepPhase, first_alike, in_turn

MICRO = "MICRO"
POLICIES = (MICRO, "HYBRID_TRANSFORMER", "HYBRID_TRANSFORMER_FWD_IN_BCKWD")
"""The first words of the files that are read."""
CALLS: dict[str, Call] = {
    "ALLREDUCE": "all-reduce",
    "ALLGATHER": "all-gather",
    "REDUCESCATTER": "reduce-scatter",
    "ALLTOALL": "all-to-all",
}
SUFFIXES: dict[str, GroupKind] = {"_DP_EP": "dp_ep", "_EP": "ep"}
LEFT_OUT = "BROADCAST"
UPDATE = "weight update"
FIELDS = 12
EP = ("ep:", "expert_parallel_npu_group:")
"""Keys of a header that say how many expert-parallel ranks there are, of AICB's two generators."""
KEYS = ("model_parallel_NPU_group:", *EP, "pp:", "all_gpus:", "checkpoints:", "checkpoint_initiates:")
"""All keys that are read."""
OF_STAGES = ("vpp:", "ga:")
"""Keys of how stages take turns; the layers of one are in the file as often as they run."""


@dataclass(frozen=True, slots=True)
class _Layer:
    """A layer's three passes, whose names are not yet those of the step."""

    name: str
    forward: StepPhase
    input_gradient: StepPhase
    weight_gradient: StepPhase
    left_out: tuple[str, ...]
    """Words of its line for which nothing is replayed."""


def simai_phases(path: Path, wanted: Taken = ALL) -> Phases:
    """Return a training step as phases.

    Parameters
    ----------
    path
        The file.
    wanted
        What is taken of it; by default all.

    Returns
    -------
    Phases
        Of all GPUs of a pipeline stage; their note says what was left out.

    Raises
    ------
    TraceError
        If the file cannot be read, a line is malformed, it recomputes activations (checkpoints), the
        GPUs are no multiple of its groups, or there is nothing to do.
    """
    header, *lines = text_of(path).splitlines()
    layout, stages = _layout(path, header, wanted.gpus)
    every = _layers(path, lines, micro=header.split()[0] == MICRO)
    first = [layer.forward for layer in every]
    roles = in_turn(wanted.in_pairs and (one.call, one.kind) == ("all-to-all", "ep") for one in first)
    taken = [layer for layer, _ in first_alike(zip(every, roles, strict=True), wanted.alike)]
    phases = _micro(taken) if header.split()[0] == MICRO else _phases(taken)
    left = Counter(
        (*_unread(header), *(word for each in every for word in each.left_out), *_idle(phases, layout))
    )
    layers = f"{len(taken)} of {len(every)} layers"
    note = (
        f"SimAI workload {file_name(path)}, {layers}, tp {layout.tp} dp {layout.dp}",
        f"ep {layout.ep}" if layout.ep > 1 else "",
        f"one of {stages} pipeline stages" if stages > 1 else "",
        f"left out: {', '.join(f'{what} ({count})' for what, count in left.items())}" if left else "",
    )
    if not any(phase.compute_s or phase.size_bytes >= max(wanted.least_bytes, 1) for phase in phases):
        raise TraceError(f"{path} has nothing to do", "take smaller collectives too")
    return Phases(trace_name(path), layout, tuple(phases), "; ".join(filter(None, note)))


def is_simai(first_line: str) -> bool:
    """Return whether a file's first line is that of a SimAI workload."""
    words = first_line.split()
    return bool(words) and words[0] in POLICIES


def _layout(path: Path, header: str, gpus: int | None) -> tuple[Layout, int]:
    """Return the ranks of a pipeline stage, and how many stages there are."""
    if not is_simai(header):
        raise bad_line(path, 1, header, f"a policy, one of {', '.join(POLICIES)}")
    words = header.split()
    if twice := [word for word, count in Counter(words).items() if word.endswith(":") and count > 1]:
        raise bad_line(path, 1, header, f"{twice[0]} once")
    for key in ("checkpoints:", "checkpoint_initiates:"):
        if _told(path, words, key, 0):
            raise TraceError(f"{path} recomputes activations ({key[:-1]})", "give one that does not")
    tp = 1 if words[0] == MICRO else _told(path, words, "model_parallel_NPU_group:", None)
    ep = _told(path, words, EP[1] if EP[1] in words else EP[0], 1)
    stages = _told(path, words, "pp:", 1)
    every = _told(path, words, "all_gpus:", None) if "all_gpus:" in words else gpus
    if every is None:
        raise TraceError(f"{path} does not tell how many GPUs there are", "add all_gpus: N to its first line")
    if min(tp, ep, stages) < 1 or every % (tp * ep * stages) or every < 1:
        raise TraceError(
            f"{path} has groups of tp {tp}, ep {ep} and pp {stages}, and there are {every} GPUs",
            "take a multiple of their product",
        )
    if every // stages > MAX_GPUS:
        raise TraceError(f"{path} has {every // stages} GPUs a stage", f"give at most {MAX_GPUS}")
    return Layout(tp, every // stages // tp, ep), stages


def _told(path: Path, words: Sequence[str], key: str, default: int | None) -> int:
    """Return the number after a key of the header."""
    if key not in words:
        if default is None:
            raise bad_line(path, 1, " ".join(words), f"{key} and a number")
        return default
    after = words[words.index(key) + 1 :] or [""]
    return count_of(path, 1, after[0], expected=f"a number after {key}")


def _layers(path: Path, lines: Sequence[str], *, micro: bool) -> list[_Layer]:
    rows = [(number, line.split()) for number, line in enumerate(lines, 2) if line.strip()]
    if not rows or len(rows[0][1]) != 1:
        raise bad_line(path, 2, " ".join(rows[0][1]) if rows else "", "how many layers there are")
    count = count_of(path, rows[0][0], rows[0][1][0], expected="how many layers there are", least=1)
    if len(rows) - 1 != count:
        raise TraceError(f"{path} has {len(rows) - 1} layers, and its second line says {count}")
    return [_layer(path, number, fields, "all" if micro else "dp") for number, fields in rows[1:]]


def _layer(path: Path, number: int, fields: Sequence[str], last: GroupKind) -> _Layer:
    if len(fields) != FIELDS:
        raise bad_line(path, number, f"{len(fields)} fields", f"{FIELDS}")
    left = [word for word in fields[3:10:3] if word == LEFT_OUT]
    left += [UPDATE] * bool(count_of(path, number, fields[11], expected="a time of the weight update"))
    forward = _pass(path, number, fields[2:5], StepPhase("fwd", kind="tp", forward=True))
    input_gradient = _pass(path, number, fields[5:8], StepPhase("ig", kind="tp"))
    weight_gradient = _pass(path, number, fields[8:11], StepPhase("wg", kind=last, blocks=False))
    if last == "all":
        left += [f"{one.name} {one.call}" for one in (forward, input_gradient) if one.call]
    return _Layer(fields[0], forward, input_gradient, weight_gradient, tuple(left))


def _unread(header: str) -> list[str]:
    """Return the keys of a header that say what is not replayed."""
    words = header.split()[1:]
    keys = [key for key, value in pairwise([*words, ""]) if not is_number(key) and value != "0"]
    return [key.removesuffix(":") for key in keys if key not in (*KEYS, *OF_STAGES)]


def _idle(phases: Sequence[StepPhase], layout: Layout) -> list[str]:
    """Return the collectives that send nothing, in words."""
    alone = {phase.kind for phase in phases if len(layout.groups(phase.kind)[0]) == 1}
    idle = [phase for phase in phases if phase.call and (phase.kind in alone or not phase.size_bytes)]
    return [f"{each.call} of {f'one {each.kind} rank' if each.size_bytes else '0 bytes'}" for each in idle]


def _pass(path: Path, number: int, fields: Sequence[str], empty: StepPhase) -> StepPhase:
    """Return a pass of a layer with what a line's three fields say of it."""
    compute_s = count_of(path, number, fields[0], expected="a time in ns") * 1e-9
    size_bytes = count_of(path, number, fields[2], expected="bytes")
    word, kind = fields[1], empty.kind
    for suffix, other in SUFFIXES.items():
        if word.endswith(suffix):
            word, kind = word.removesuffix(suffix), other
            break
    if word in ("NONE", LEFT_OUT):
        return replace(empty, compute_s=compute_s)
    if word not in CALLS:
        raise bad_line(path, number, fields[1], f"NONE, {LEFT_OUT} or one of {', '.join(CALLS)}")
    return replace(empty, compute_s=compute_s, call=CALLS[word], kind=kind, size_bytes=size_bytes)


def _micro(layers: Sequence[_Layer]) -> list[StepPhase]:
    """Return the collectives of a micro-benchmark."""
    return [
        replace(layer.weight_gradient, name=f"{number} {layer.name}", compute_s=0.0, blocks=True)
        for number, layer in enumerate(layers)
    ]


def _phases(layers: Sequence[_Layer]) -> list[StepPhase]:
    """Return the passes in the order of a step."""
    forward = [(number, layer, layer.forward) for number, layer in enumerate(layers)]
    backward = [
        (number, layer, one)
        for number, layer in reversed(list(enumerate(layers)))
        for one in (layer.input_gradient, layer.weight_gradient)
    ]
    return [
        replace(one, name=f"{number} {layer.name} {one.name}") for number, layer, one in (*forward, *backward)
    ]
