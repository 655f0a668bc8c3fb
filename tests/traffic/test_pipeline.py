"""Pipelines by 1F1B: stages work in an order that never waits in a circle, for the time of a closed form."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traffic.models.pipeline import one_forward_one_backward, pipeline_s


@given(st.integers(1, 9), st.integers(1, 12))
def test_stages_do_every_micro_batch_and_never_wait_for_each_other(stages: int, micro_batches: int) -> None:
    left = [list(one_forward_one_backward(p, stages, micro_batches)) for p in range(stages)]
    done: set[tuple[str, int, int]] = set()
    for _ in range(2 * stages * micro_batches):
        ready = [
            p
            for p, works in enumerate(left)
            if works
            for kind, m in works[:1]
            if (kind == "F" and (p == 0 or ("F", m, p - 1) in done))
            or (kind == "B" and ("F", m, p) in done and (p == stages - 1 or ("B", m, p + 1) in done))
        ]
        kind, m = left[ready[0]].pop(0)
        done.add((kind, m, ready[0]))
    assert len(done) == 2 * stages * micro_batches
    for p in range(stages):
        works = one_forward_one_backward(p, stages, micro_batches)
        kept = np.cumsum([1 if kind == "F" else -1 for kind, _ in works])  # micro-batches in memory
        assert kept.max() == min(stages - p, micro_batches)


@given(st.integers(1, 5), st.integers(0, 4), st.floats(0.1, 3), st.floats(0.1, 3))
def test_equal_stages_take_the_closed_form(stages: int, more: int, forward: float, backward: float) -> None:
    micro_batches = stages + more
    took_s = pipeline_s([forward] * stages, [backward] * stages, 0.0, micro_batches)
    assert took_s == pytest.approx((micro_batches + stages - 1) * (forward + backward))


def test_sends_and_slow_stages_lengthen_a_pipeline() -> None:
    assert pipeline_s([1.0], [2.0], 9.0, 3) == 9
    # F0 down three stages and its gradient back: 4 sends; no more of them is exposed with one micro-batch.
    assert pipeline_s([1.0] * 3, [2.0] * 3, 0.5, 1) == 9 + 4 * 0.5
    assert pipeline_s([1.0, 4.0], [2.0, 2.0], 0.0, 2) == 1 + 2 * 6 + 2
