"""A trace on a fabric: ranks fill the GPUs in order, the rest idle."""

from dataclasses import replace

import numpy as np
import pytest

from topologies.errors import DemandError, TraceError
from topologies.rail import rail_fabric
from traffic.collective import Collective, Step
from traffic.workloads.placement import placed
from traffic.workloads.synthetic import sparse, uniform

TRACE = Collective("trace", (Step(uniform(4), 0.5), Step(sparse(4, 0), 0.25)), "from a file")


def test_ranks_fill_the_gpus_in_order() -> None:
    on_fabric = placed(TRACE, rail_fabric(3, 2))
    assert (on_fabric.gpus, on_fabric.ranks, on_fabric.idle) == (6, 4, 2)
    for before, after in zip(TRACE.steps, on_fabric.steps, strict=True):
        assert after.compute_s == before.compute_s
        assert np.array_equal(after.demand.matrix[:4, :4], before.demand.matrix)
        assert after.demand.total_bytes == before.demand.total_bytes
    assert on_fabric.note == "from a file; on GPUs 0 to 3 of 6"
    assert "on GPUs 0 to 3 of 6" in on_fabric.steps[0].demand.note


def test_a_trace_that_fills_the_fabric_stays_as_it_is() -> None:
    assert placed(TRACE, rail_fabric(2, 2)) is TRACE


def test_who_idles_on_a_small_fabric_idles_on_a_larger_one() -> None:
    assert placed(placed(TRACE, rail_fabric(3, 2)), rail_fabric(4, 2)).ranks == TRACE.ranks == 4


@pytest.mark.parametrize("idle", [-1, 4])
def test_not_all_gpus_idle_and_no_others(idle: int) -> None:
    with pytest.raises(DemandError, match=f"has {idle} idle GPUs of 4"):
        replace(TRACE, idle=idle)


def test_too_many_gpus_are_both_told() -> None:
    with pytest.raises(TraceError, match="between 4 GPUs, the fabric has 2"):
        placed(TRACE, rail_fabric(2, 1))
