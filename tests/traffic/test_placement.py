"""A trace on a fabric: ranks fill the GPUs in order, the rest idle."""

import numpy as np
import pytest

from topologies.errors import TraceError
from topologies.rail import rail_fabric
from traffic.collectives.pattern import bytes_between
from traffic.job import Compute
from traffic.steps import Step, demands_of, job_of_steps
from traffic.workloads.placement import placed
from traffic.workloads.synthetic import sparse, uniform

TRACE = job_of_steps("trace", (Step(uniform(4), 0.5), Step(sparse(4, 0), 0.25)), "from a file")


def test_ranks_fill_the_gpus_in_order() -> None:
    on_fabric = placed(TRACE, rail_fabric(3, 2))
    assert on_fabric.gpus == 6
    assert demands_of(on_fabric) == demands_of(TRACE)
    for node in on_fabric.collectives:
        matrix = bytes_between(node.pattern, 6)
        assert matrix[:4, :4].sum() == matrix.sum() > 0
    computes = [node for node in on_fabric.nodes if isinstance(node, Compute)]
    assert [(node.gpus, node.duration_s) for node in computes] == [((0, 1, 2, 3), 0.5), ((0, 1, 2, 3), 0.25)]
    assert on_fabric.note == "from a file; on GPUs 0 to 3 of 6"


def test_a_trace_that_fills_the_fabric_stays_as_it_is() -> None:
    assert placed(TRACE, rail_fabric(2, 2)) is TRACE


def test_who_idles_on_a_small_fabric_idles_on_a_larger_one() -> None:
    wider = placed(placed(TRACE, rail_fabric(3, 2)), rail_fabric(4, 2))
    assert all(np.array_equal(sorted(node.gpus), range(4)) for node in wider.collectives)


def test_too_many_gpus_are_both_told() -> None:
    with pytest.raises(TraceError, match="between 4 GPUs, the fabric has 2"):
        placed(TRACE, rail_fabric(2, 1))
