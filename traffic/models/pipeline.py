"""Pipelines by 1F1B (one forward, one backward): the order in which stages work, and how long they take.

References
----------
D. Narayanan et al., "Efficient large-scale language model training on GPU clusters using Megatron-LM",
SC 2021.
"""

from collections.abc import Sequence

Work = tuple[str, int]
"""``F`` or ``B``, and the micro-batch."""


def one_forward_one_backward(stage: int, stages: int, micro_batches: int) -> tuple[Work, ...]:
    """Return the work of a stage in order: forwards until the first gradient comes, then in turn.

    Examples
    --------
    >>> one_forward_one_backward(0, 2, 3)
    (('F', 0), ('F', 1), ('B', 0), ('F', 2), ('B', 1), ('B', 2))
    """
    ahead = min(stages - stage - 1, micro_batches)
    first = [("F", number) for number in range(ahead)]
    turns = [
        work for number in range(micro_batches - ahead) for work in (("F", ahead + number), ("B", number))
    ]
    rest = [("B", number) for number in range(micro_batches - ahead, micro_batches)]
    return (*first, *turns, *rest)


def pipeline_s(
    forward_s: Sequence[float], backward_s: Sequence[float], send_s: float, micro_batches: int
) -> float:
    """Return the time of a pipeline by 1F1B: the longest path through the work and sends of its stages [s].

    Parameters
    ----------
    forward_s, backward_s
        Time of each stage for a micro-batch [s].
    send_s
        Time to pass on a micro-batch, beside what the stage does next [s].
    micro_batches
        How many there are.

    Examples
    --------
    >>> pipeline_s([1.0, 1.0], [2.0, 2.0], 0.0, 4)  # equal stages: (M + pp - 1) (t_F + t_B)
    15.0
    """
    stages = len(forward_s)
    works = {stage: list(one_forward_one_backward(stage, stages, micro_batches)) for stage in range(stages)}
    ended_s: dict[tuple[str, int, int], float] = {}
    free_s = [0.0] * stages
    while any(works.values()):
        for stage, (kind, micro_batch) in [(stage, own[0]) for stage, own in works.items() if own]:
            before = stage - 1 if kind == "F" else stage + 1
            begins_s = free_s[stage]
            if 0 <= before < stages:
                if (kind, micro_batch, before) not in ended_s:
                    continue
                begins_s = max(begins_s, ended_s[kind, micro_batch, before] + send_s)
            took_s = forward_s[stage] if kind == "F" else backward_s[stage]
            free_s[stage] = ended_s[kind, micro_batch, stage] = begins_s + took_s
            works[stage].pop(0)
    return max(free_s)
